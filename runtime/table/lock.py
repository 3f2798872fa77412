"""Locks of a table: readers share it, a writer has it alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tuccl.errors import InputError

USE, LEARNED = "use.lock", "learned.lock"


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Keep others from changing the table in ``folder`` meanwhile; any number may use it so.

    A folder that cannot be written is used without a lock.
    """
    held = -1
    with suppress(OSError):
        held = _shared(folder / USE)
    try:
        yield
    finally:
        if held >= 0:
            os.close(held)


def _shared(path: Path) -> int:
    """A shared lock on the file that has this name once it is held: the folder may be replaced."""
    while True:
        descriptor = _opened(path)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)


@contextmanager
def exclusive_use(folder: Path) -> Iterator[None]:
    """Keep everybody else from the table in ``folder``: no job that `tuccl run` started, no writer.

    Raises:
        InputError: a job uses the table, or the folder cannot be written.
    """
    opened: list[int] = []
    try:
        opened.append(_opened(folder / USE))
        fcntl.flock(opened[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened.append(_opened(folder / LEARNED))
        fcntl.flock(opened[1], fcntl.LOCK_EX)  # jobs hold it for moments
        yield
    except BlockingIOError:
        raise InputError(
            f"{folder}: a running job uses this table; try when it has ended"
        ) from None
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
