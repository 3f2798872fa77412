"""The emulations that run on this machine, and clearing what the dead have left.

Every emulation has a folder ``/run/tuccl/emulate/PID-XXXXXXXX`` with a file that its owner keeps
locked for as long as it lives. The kernel releases the lock when the owner ends, however it ends:
a lock that can be had marks a leftover, and no process number is mistaken for another's. The
folder comes into being already locked, before the first namespace, and goes after the last.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuccl.emulation.netns import delete_space, spaces
from tuccl.errors import InputError, Unavailable

ROOT = Path("/run/tuccl/emulate")
HOSTS_FOLDER = Path("/etc/netns")  # ip netns exec shows /etc/netns/NAME/hosts as /etc/hosts

SHARED_MEMORY = Path("/dev/shm")
CELLS = "cells"  # a file in the folders of cells, which are no emulations

_NAME = re.compile(r"[0-9]{1,10}-[0-9a-f]{8}")
_UNBORN = ".new-"
_BIRTH_S = 60.0


class RunFolder:
    """The folder of one emulation that this process owns: its lock, and what it keeps there.

    Its folder ``tmp``, and ``memory``, which lies in memory, are for what MPI leaves when killed.
    """

    def __init__(self) -> None:
        """Make it, locked.

        Raises:
            Unavailable: it cannot be made, or another user could write there.
        """
        _check_root()
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        unborn = ROOT / f"{_UNBORN}{self.name}"
        unborn.mkdir(mode=0o700)
        self._lock = os.open(unborn / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = unborn.rename(ROOT / self.name)
        (self.path / "tmp").mkdir()
        self.memory = SHARED_MEMORY / f"{_prefix(self.name)}shm"
        self.memory.mkdir(mode=0o700)

    def space(self, ending: str) -> str:
        """Return the name of the namespace that ends in ``ending``."""
        return f"{_prefix(self.name)}{ending}"

    def write(self, name: str, content: bytes, mode: int = 0o600) -> Path:
        """Write the file ``name`` into the folder, whole or not at all; return its path."""
        return write_file(self.path / name, content, mode)

    def clear(self) -> None:
        """Take down all namespaces of this emulation, then the folder; may be called again.

        Raises:
            TucclError: a namespace cannot be removed. The next call of anyone tries again.
        """
        if self.path.exists():
            _clear(self.name)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def write_file(path: Path, content: bytes, mode: int = 0o600) -> Path:
    """Write ``path``, whole or not at all; return it."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(content)
    temporary.chmod(mode)
    return temporary.rename(path)


def running() -> list[Path]:
    """Return the folders of the emulations whose owners live."""
    each = (path for path in _folders() if not (path / CELLS).exists())
    return [path for path in each if not _is_left(path)]


def clear_leftovers() -> list[str]:
    """Clear what dead owners left; return the names of those emulations.

    Raises:
        TucclError: a namespace cannot be removed.
    """
    cleared = []
    for path in _folders():
        with _taken_over(path) as is_leftover:
            if is_leftover:
                _clear(path.name)
                cleared.append(path.name)
    for path in ROOT.glob(f"{_UNBORN}*"):  # killed before it had a namespace
        if time.time() - path.stat().st_mtime > _BIRTH_S:
            shutil.rmtree(path, ignore_errors=True)
    return cleared


def run_folder(name: str | None) -> Path:
    """Return the folder of the running emulation ``name``; None where only one runs.

    Raises:
        InputError: there is none, or no name although several run.
    """
    by_name = {path.name: path for path in running()}
    if name is None and len(by_name) == 1:
        return next(iter(by_name.values()))
    if name is None or name not in by_name:
        names = ", ".join(by_name) or "none"
        raise InputError(f"emulation {(name or '(not named)')[:40]}: running are: {names}")
    return by_name[name]


def _prefix(name: str) -> str:
    return f"tuccl-{name}-"


def _clear(name: str) -> None:
    for space in spaces():
        if space.startswith(_prefix(name)):
            delete_space(space)
    for parent in (HOSTS_FOLDER, SHARED_MEMORY):
        for folder in parent.glob(f"{_prefix(name)}*"):
            shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(ROOT / name, ignore_errors=True)


def _folders() -> list[Path]:
    try:
        return sorted(path for path in ROOT.iterdir() if _NAME.fullmatch(path.name))
    except OSError:
        return []


def _is_left(path: Path) -> bool:
    with _taken_over(path) as is_leftover:
        return is_leftover


@contextmanager
def _taken_over(path: Path) -> Iterator[bool]:
    """Yield whether the owner is dead; if so its lock is held here meanwhile."""
    try:
        lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # cleared by another call just now, or cut off while it was
        yield path.exists()
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)


def _check_root() -> None:
    try:
        ROOT.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = ROOT.lstat()
    except OSError as error:
        raise Unavailable(f"{ROOT}: cannot be made: {error.strerror}") from None
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o022:
        raise Unavailable(f"{ROOT}: expected a folder that only this user may write to")
