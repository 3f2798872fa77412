"""Measurements of a tune, kept in an Optuna storage so that it can go on later."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tuccl.errors import InputError
from tuccl.synth import ScheduleChoice
from tuccl.tuning.searches.space import Point, Space
from tuccl.tuning.searches.tpe import distributions, optuna_params, silence_optuna
from tuccl.tuning.studies.schedule_store import SCHEDULE
from tuccl.tuning.studies.storages import JOURNAL, close_storage, open_url, quiet, scheme
from tuccl.tuning.studies.task_queue import Task, TaskQueue

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy
    from optuna.trial import FrozenTrial

SWEEPS = "sweeps.jsonl"
"""Journal of a sweep over NCCL's own configurations (`tuccl.tuning.nccl.sweep_journal`)."""
MARK = ".timing"
"""Suffix of the files that say what a process is timing, by its pid."""
_UNFINISHED = "unfinished"
_MOST_DEATHS = 2  # of processes that were timing a candidate


def study_folder(out: Path) -> Path:
    """Return the folder of the studies that belong to the table ``out``.

    >>> study_folder(Path("runs/table"))
    PosixPath('runs/table.study')
    """
    return out.with_name(f"{out.name}.study")


class Study:
    """The evaluations of one collective and size, in the order in which they were made.

    Every search makes the same requests when it gets the same samples. So a study is resumed
    by requests from the start again and answering from what is stored: nothing is lost, nothing
    is measured twice, and the end is the same as without the interruption.
    """

    def __init__(
        self,
        study: OptunaStudy,
        space: Space,
        run: str,
        *,
        replay: bool,
        mark: Mark,
        suspects: Sequence[str] = (),
    ) -> None:
        """Wrap ``study``; answers of earlier sessions of ``run`` are replayed with ``replay``.

        ``mark`` shows what is being timed; what was when two processes died (``suspects``) is
        not timed again.
        """
        self._study = study
        self._space = space
        self._run = run
        self._distributions = distributions(space)
        self._replay = replay
        self._stored = self._load() if replay else {}
        self._mark = mark
        deaths = Counter(suspects)
        self._fatal = {key for key, count in deaths.items() if count >= _MOST_DEATHS}

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
        if _attempt(point, program) in self._fatal:
            self.store(point, program, repeats, ())
            return ()
        return None

    def leftovers(self, repeats: int) -> list[tuple[Point, str]]:
        """Return points, and their programs, that this run stored and has not recalled.

        Those of ``repeats`` or more, the fastest first: a search with a smaller budget ends before
        it requests them.
        """
        found = [
            (median(samples), key)
            for key, answers in self._stored.items()
            for count, samples in answers
            if count >= repeats and samples
        ]
        return [(_point(point), program) for _, (point, program) in sorted(found)]

    def remember(self, what: str, measure: Callable[[], int]) -> int:
        """Return what ``measure`` returned when this run first requested ``what``."""
        key = f"{self._run} {what}"
        stored = self._study.user_attrs.get(key) if self._replay else None
        if not isinstance(stored, int):
            stored = measure()
            self._study.set_user_attr(key, stored)
        return stored

    def attempt(self, point: Point, program: str) -> AbstractContextManager[None]:
        """Show meanwhile that ``point`` is being timed, whatever becomes of this process."""
        return self._mark.showing(_attempt(point, program))

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


def _attempt(point: Point, program: str) -> str:
    return f"{_key(point)} {program[:16]}"


class Mark:
    """A small file that says what a process is timing, and outlives the process.

    A candidate that ends the process that times it is known by it.
    """

    def __init__(self, path: Path) -> None:
        """Make the file at ``path``."""
        self.path = path
        self._file = path.open("wb", buffering=0)

    @contextmanager
    def showing(self, text: str) -> Iterator[None]:
        """Show ``text``, and nothing afterwards."""
        os.pwrite(self._file.fileno(), text.encode() + b"\0", 0)
        try:
            yield
        finally:
            os.pwrite(self._file.fileno(), b"\0", 0)

    def remove(self) -> None:
        """Remove the file."""
        self._file.close()
        self.path.unlink(missing_ok=True)


def _key(point: Point) -> str:
    choice = point.choice
    return (
        f"{choice.method}/{choice.sketch}/{choice.chunks_per_rank}/"
        f"{point.protocol}/{point.channels}/{point.threads}/{point.buffer_bytes}"
    )


def _point(key: str) -> Point:
    method, _, rest = key.partition("/")
    sketch, chunks, protocol, *knobs = rest.rsplit("/", 5)
    return Point(ScheduleChoice(sketch, method, int(chunks)), protocol, *map(int, knobs))


class Studies:
    """The studies of one tune: a journal file next to the table, or a storage named by a URL.

    Only finished evaluations are written, each in one append, so an interruption leaves no
    trial running and no file half-written.
    """

    def __init__(
        self,
        out: Path,
        *,
        resume: bool = False,
        url: str | None = None,
        marks: Path | None = None,
    ) -> None:
        """Open the storage that belongs to the table ``out``.

        Processes that name the same ``url`` share the studies there, and so does a worker, which
        gets the folder for its mark (``marks``) from the process that started it.

        Raises:
            InputError: an unfinished study is there and ``resume`` was not given, its
                folder holds what no study wrote, or the storage cannot be opened.
            Unavailable: the URL needs a database driver that is not installed.
        """
        silence_optuna()
        self._replay = resume or marks is not None or url is not None
        self._folder = study_folder(out)
        self._in_folder = url is None
        self._url = url or ""
        if self._in_folder:
            if marks is None:
                start_study(out, resume=resume)
            from tuccl.tuning.studies.journal import open_journal

            with quiet():
                self._storage = open_journal(self._folder / JOURNAL)
        else:
            self._storage = open_url(self._url)
        self._temporary = None
        if marks is None and not self._in_folder:
            self._temporary = tempfile.TemporaryDirectory(prefix="tuccl-")
            marks = Path(self._temporary.name)
        self.mark = Mark((marks or self._folder) / f"{os.getpid()}{MARK}")

    def queue(self, identity: object, tasks: Sequence[Task]) -> TaskQueue:
        """Return the queue of ``tasks``; ``identity``: all else that their results depend on."""
        digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:12]
        with quiet():
            return TaskQueue(self._storage, f"tasks-{digest}", tasks)

    def study(
        self, space: Space, run: str, *identity: object, suspects: Sequence[str] = ()
    ) -> Study:
        """Return the study of ``identity``: topology, collective, size, what times it.

        The name also holds a hash of the dimensions of ``space``, since Optuna's parameters
        cannot change within a study. ``run`` names the search and its seed.
        """
        import optuna

        axes = (space.sketches, space.chunkings, space.dimensions)
        digest = hashlib.sha256(repr((identity, axes)).encode()).hexdigest()[:12]
        name = "-".join(str(part) for part in (*identity[:3], digest))
        with quiet():
            study = optuna.create_study(storage=self._storage, study_name=name, load_if_exists=True)
        return Study(study, space, run, replay=self._replay, mark=self.mark, suspects=suspects)

    def trials(self, task: Task) -> dict[str, list[FrozenTrial]]:
        """Return the evaluations of ``task`` by the name of their study, for another process."""
        from optuna import get_all_study_names, load_study

        part = f"-{task.collective}-{task.nbytes}-"
        names = [name for name in get_all_study_names(self._storage) if part in name]
        return {
            name: load_study(study_name=name, storage=self._storage).get_trials(deepcopy=False)
            for name in names
        }

    def add(self, name: str, trial: FrozenTrial) -> None:
        """Store an evaluation that another process made in its study ``name``."""
        from optuna import create_study

        create_study(storage=self._storage, study_name=name, load_if_exists=True).add_trial(trial)

    @property
    def where(self) -> str:
        """The folder or, without what may be a password, the URL of the storage."""
        return str(self._folder) if self._in_folder else scheme(self._url)

    def finish(self) -> None:
        """Note that the tune came to its end, so that the next one may start anew."""
        if self._in_folder:
            end_study(self._folder)
            for mark in self._folder.glob(f"*{MARK}"):
                mark.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the storage, and remove what shows that this process is at work."""
        close_storage(self._storage)
        self.mark.remove()
        if self._temporary is not None:
            self._temporary.cleanup()


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
    """Return whether this is the marker, a journal, one of its locks, a mark or a schedule."""
    named = (
        path.name in (JOURNAL, SWEEPS, _UNFINISHED)
        or path.name.startswith(f"{JOURNAL}.lock")
        or path.suffix in (MARK, SCHEDULE)
    )
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
