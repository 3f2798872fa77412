"""Optuna storages: opened by URL, or to read what is there."""

from __future__ import annotations

import errno
import random
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.errors import InputError, Unavailable
from tuccl.tuning.searches.tpe import silence_optuna

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

JOURNAL = "journal.log"
"""Name of the journal in a folder of studies."""
_LARGEST_JOURNAL = 1 << 30
_MOST_ATTEMPTS = 10  # at opening it
_SQLITE = "sqlite:///"
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})


@contextmanager
def quiet() -> Iterator[None]:
    """Hide Optuna's warnings that a feature is experimental."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def open_url(url: str) -> BaseStorage:
    """Return the Optuna storage at ``url``.

    Raises:
        InputError: it cannot be opened.
        Unavailable: it needs a database driver that is not installed.
    """
    from optuna.exceptions import OptunaError
    from optuna.storages import get_storage
    from sqlalchemy.exc import IntegrityError, ProgrammingError, SQLAlchemyError

    from tuccl.tuning.studies.database import Database

    for attempt in range(1, _MOST_ATTEMPTS + 1):
        try:
            with quiet():
                return get_storage(Database(url))
        except ImportError as error:
            raise Unavailable(
                f"storage {scheme(url)}: {error} For PostgreSQL: "
                "pip install 'psycopg[binary]' 'sqlalchemy>=2.1'"
            ) from None
        except (OptunaError, SQLAlchemyError, OSError, ValueError, RuntimeError) as error:
            # Another process may be making the tables, too.
            race = isinstance(error, IntegrityError | ProgrammingError)
            if not race or attempt == _MOST_ATTEMPTS:
                raise InputError(
                    f"storage {scheme(url)}: cannot be opened ({_first_line(error)})"
                ) from None
        time.sleep(random.uniform(0.1, 0.5))
    raise AssertionError("unreachable")


@contextmanager
def storage_failures(where: str) -> Iterator[None]:
    """Report in one line that the storage ``where`` fails meanwhile.

    Raises:
        InputError: the disk refuses to keep it.
        Unavailable: it did.
    """
    import optuna

    try:
        yield
    except optuna.exceptions.StorageInternalError as error:
        raise Unavailable(
            f"storage {where}: fails ({_first_line(error.__cause__ or error)}); what was stored "
            "is kept: start again when it is there"
        ) from None
    except OSError as error:
        if error.errno not in _DISK:
            raise
        raise InputError(
            f"{error.filename or where}: cannot be written: {error.strerror}; what was stored is "
            "kept: make room, and go on with --resume"
        ) from None


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:120]


def close_storage(storage: BaseStorage) -> None:
    """Close the connections of a storage, if it has any."""
    engine = getattr(getattr(storage, "_backend", None), "engine", None)
    try:
        storage.remove_session()
    finally:
        if engine is not None:
            engine.dispose()


def scheme(url: str) -> str:
    """Return a URL without what may be a password."""
    head, separator, _ = url.partition("://")
    return f"{head}{separator}..." if separator else url[:40]


def open_to_read(where: str) -> BaseStorage:
    """Return the storage ``where`` is: a folder of studies, or the URL of an Optuna storage.

    Raises:
        InputError: nothing is there, or it is no storage.
        Unavailable: the URL needs a database driver that is not installed.
    """
    silence_optuna()
    if "://" in where:
        path = where.removeprefix(_SQLITE)
        if path != where and not Path(path).is_file():  # which opening it would make
            raise InputError(f"{path[-120:]}: no such file; expected an Optuna storage")
        return open_url(where)
    journal = Path(where) / JOURNAL
    if not journal.is_file():
        raise InputError(
            f"{where[-120:]}: no study is there; expected a folder TABLE.study or a URL"
        )
    if journal.stat().st_size > _LARGEST_JOURNAL:
        raise InputError(f"{journal}: larger than {_LARGEST_JOURNAL >> 20} MiB")
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    try:
        with quiet():
            return JournalStorage(JournalFileBackend(str(journal)))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{journal}: no journal of a study ({str(error)[:80]})") from None
