"""Measurements of a tune, kept in an Optuna storage so that it can go on later."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tuccl.errors import InputError, Unavailable
from tuccl.tuning.searches.space import Point, Space
from tuccl.tuning.searches.tpe import distributions, optuna_params, silence_optuna

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy
    from optuna.storages import BaseStorage

__all__ = [
    "SWEEPS",
    "Studies",
    "Study",
    "cut_unfinished_line",
    "end_study",
    "open_to_read",
    "start_study",
    "study_folder",
]

SWEEPS = "sweeps.jsonl"
"""Journal of a sweep over NCCL's own configurations (`tuccl.tuning.nccl.sweep_journal`)."""
_JOURNAL = "journal.log"
_UNFINISHED = "unfinished"
_LARGEST_JOURNAL = 1 << 30


def study_folder(out: Path) -> Path:
    """Return the folder of the studies that belong to the table ``out``.

    >>> study_folder(Path("runs/table"))
    PosixPath('runs/table.study')
    """
    return out.with_name(f"{out.name}.study")


class Study:
    """The evaluations of one collective and size, in the order in which they were made.

    Every search makes the same requests when it gets the same samples. So a study is resumed
    by asking again from the start and answering from what is stored: nothing is lost, nothing
    is measured twice, and the end is the same as without the interruption.
    """

    def __init__(self, study: OptunaStudy, space: Space, run: str, *, replay: bool) -> None:
        """Wrap ``study``; answers of earlier sessions of ``run`` are replayed with ``replay``."""
        self._study = study
        self._space = space
        self._run = run
        self._distributions = distributions(space)
        self._stored = self._load() if replay else {}

    def _load(self) -> dict[tuple[str, str], deque[tuple[int, tuple[float, ...]]]]:
        stored: dict[tuple[str, str], deque[tuple[int, tuple[float, ...]]]] = defaultdict(deque)
        for trial in self._study.get_trials(deepcopy=False):
            attrs = trial.user_attrs
            if attrs.get("run") == self._run:
                key = attrs["point"], attrs["program"]
                stored[key].append((attrs["repeats"], tuple(attrs["samples_us"])))
        return stored

    def recall(self, point: Point, program: str, repeats: int) -> tuple[float, ...] | None:
        """Return the samples stored for ``repeats`` of ``point``, once; None where none are left.

        ``program`` is the checksum of what was run: samples of another program do not count.
        """
        answers = self._stored.get((_key(point), program))
        if answers and answers[0][0] == repeats:
            return answers.popleft()[1]
        return None

    def store(self, point: Point, program: str, repeats: int, samples_us: Sequence[float]) -> None:
        """Write the samples of ``repeats`` of ``point``; none: it cannot run."""
        from optuna.trial import TrialState, create_trial

        self._study.add_trial(
            create_trial(
                state=TrialState.COMPLETE if samples_us else TrialState.FAIL,
                value=median(samples_us) if samples_us else None,
                params=optuna_params(self._space, point),
                distributions=self._distributions,
                user_attrs={
                    "run": self._run,
                    "point": _key(point),
                    "program": program,
                    "repeats": repeats,
                    "samples_us": list(samples_us),
                },
            )
        )


def _key(point: Point) -> str:
    plan = point.plan
    return (
        f"{plan.method}/{plan.sketch}/{plan.chunks_per_rank}/"
        f"{point.protocol}/{point.channels}/{point.threads}/{point.buffer_bytes}"
    )


class Studies:
    """The studies of one tune: a journal file next to the table, or a storage named by a URL.

    Only finished evaluations are written, each in one append, so an interruption leaves no
    trial running and no file half-written.
    """

    def __init__(self, out: Path, *, resume: bool = False, url: str | None = None) -> None:
        """Open the storage that belongs to the table ``out``.

        Raises:
            InputError: an unfinished study is there and ``resume`` was not given, its
                folder holds what no study wrote, or the storage cannot be opened.
            Unavailable: the URL needs a database driver that is not installed.
        """
        silence_optuna()
        self._resume = resume
        self._folder = study_folder(out)
        self._in_folder = url is None
        self._url = url or ""
        if self._in_folder:
            start_study(out, resume=resume)
            from tuccl.tuning.studies.journal import open_journal

            with _quiet():
                self._storage = open_journal(self._folder / _JOURNAL)
        else:
            self._storage = _remote(self._url)

    def study(self, space: Space, run: str, *identity: object) -> Study:
        """Return the study of ``identity``: topology, collective, size, what times it.

        The name also holds a hash of the dimensions of ``space``, since Optuna's parameters
        cannot change within a study. ``run`` names the search and its seed.
        """
        import optuna

        axes = (space.methods, space.sketches, space.chunkings, space.dimensions)
        digest = hashlib.sha256(repr((identity, axes)).encode()).hexdigest()[:12]
        name = "-".join(str(part) for part in (*identity[:3], digest))
        with _quiet():
            study = optuna.create_study(storage=self._storage, study_name=name, load_if_exists=True)
        return Study(study, space, run, replay=self._resume)

    @property
    def where(self) -> str:
        """The folder or, without what may be a password, the URL of the storage."""
        return str(self._folder) if self._in_folder else _scheme(self._url)

    def finish(self) -> None:
        """Note that the tune came to its end, so that the next one may start anew."""
        if self._in_folder:
            end_study(self._folder)


def start_study(out: Path, *, resume: bool) -> Path:
    """Return the folder of the studies of the table ``out``, marked as unfinished.

    One that came to its end is emptied first, unless ``resume``.

    Raises:
        InputError: an unfinished study is there and ``resume`` was not given, or the folder
            holds what no study wrote.
    """
    folder = study_folder(out)
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder}: expected a folder of studies, or nothing; move it away")
    if folder.exists() and not resume:
        if (folder / _UNFINISHED).exists():
            raise InputError(
                f"{folder}: holds an unfinished study; go on with --resume, or remove the folder"
            )
        _remove(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _UNFINISHED).touch()
    return folder


def end_study(folder: Path) -> None:
    """Take the mark away that ``start_study`` left."""
    (folder / _UNFINISHED).unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    """Delete the folder of a finished study; one that holds anything else is kept."""
    paths = sorted(folder.iterdir())
    for path in paths:
        if not _is_ours(path):
            raise InputError(
                f"{folder}: holds {path.name[:60]!r}, which no study wrote; "
                "expected a folder of studies, or nothing: move it away"
            )
    for path in paths:
        path.unlink()
    folder.rmdir()


def _is_ours(path: Path) -> bool:
    """Return whether this is the marker, a journal or one of Optuna's locks on it."""
    named = path.name in (_JOURNAL, SWEEPS, _UNFINISHED) or path.name.startswith(f"{_JOURNAL}.lock")
    return named and (path.is_symlink() or path.is_file())


def cut_unfinished_line(path: Path) -> bytes:
    """Cut off a last line that a kill left without its end, and return what remains.

    Appending to such a line would spoil the file.
    """
    content = path.read_bytes() if path.exists() else b""
    size = content.rfind(b"\n") + 1
    if size < len(content):
        os.truncate(path, size)
    return content[:size]


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide Optuna's warnings that a feature is experimental."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def _remote(url: str) -> BaseStorage:
    from optuna.exceptions import OptunaError
    from optuna.storages import get_storage
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with _quiet():
            return get_storage(url)
    except ImportError as error:
        raise Unavailable(f"storage {_scheme(url)}: {error}") from None
    except (OptunaError, SQLAlchemyError, OSError, ValueError, RuntimeError) as error:
        first = str(error).partition("\n")[0][:120]
        raise InputError(f"storage {_scheme(url)}: cannot be opened ({first})") from None


def _scheme(url: str) -> str:
    """The URL without what may be a password."""
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
        return _remote(where)
    journal = Path(where) / _JOURNAL
    if not journal.is_file():
        raise InputError(
            f"{where[-120:]}: no study is there; expected a folder TABLE.study or a URL"
        )
    if journal.stat().st_size > _LARGEST_JOURNAL:
        raise InputError(f"{journal}: larger than {_LARGEST_JOURNAL >> 20} MiB")
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    try:
        with _quiet():
            return JournalStorage(JournalFileBackend(str(journal)))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{journal}: no journal of a study ({str(error)[:80]})") from None
