"""The tasks of a tune in an Optuna storage, which any number of processes share."""

from __future__ import annotations

import base64
import os
import threading
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tuccl.errors import InputError

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

_BEAT_S = 5.0
_SILENCE_S = 60.0
_MOST_RESULT_BYTES = 4 << 30  # programs of 512 ranks take 60 MB each


class Task(msgspec.Struct, frozen=True, order=True):
    """A communication task (TuCCL III.A): a collective and a size in bytes on one topology.

    ``budget`` is in evaluations at full effort; ``default_us`` the time of the runtime's own
    default where it has no noise (else 0): results of another model of the machine are not taken.
    """

    collective: str
    nbytes: int
    budget: int
    default_us: float = 0.0


class _Owner(msgspec.Struct, frozen=True):
    """A process: host (boot and process namespace), pid and the time of its start."""

    host: str
    pid: int
    started: str


@dataclass(frozen=True)
class TaskState:
    """The state of a task: its packed result once it is complete, else the evaluations so far.

    ``best_us`` is the best time in us so far, 0 where none is known.
    """

    packed: str | None
    evaluations: int = 0
    best_us: float = 0.0
    running: bool = False

    @property
    def complete(self) -> bool:
        """True if the result is there."""
        return self.packed is not None

    @property
    def result(self) -> bytes | None:
        """The result, unpacked."""
        return None if self.packed is None else _unpacked(self.packed)


@dataclass
class Claim:
    """A task that this process searches; ``suspects`` were in work when former owners died."""

    task: Task
    trial_id: int
    suspects: tuple[str, ...]
    evaluations: int = 0
    best_us: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event, repr=False)


class TaskQueue:
    """The tasks of one tune: each is searched by one process at a time.

    A task is an Optuna trial without parameters: waiting, running (its owner beats now and then)
    or complete, with its result. Where the owner died the trial is failed and the task gets
    another, so that whoever claims it goes on from the evaluations that are stored.

    Notes:
        Two processes may add a task at the same time. The first of its trials that has not
        failed counts.
    """

    def __init__(
        self,
        storage: BaseStorage,
        name: str,
        tasks: Sequence[Task],
        *,
        silence_s: float = _SILENCE_S,
    ) -> None:
        """Open the queue ``name`` of ``storage`` and add the tasks that it lacks.

        An owner on another host that is silent for ``silence_s`` seconds counts as dead.
        """
        import optuna

        study = optuna.create_study(storage=storage, study_name=name, load_if_exists=True)
        self._storage = storage
        self._id = study._study_id
        self._tasks = tuple(tasks)
        self._silence_s = silence_s
        self._beats: dict[int, tuple[object, float]] = {}
        self._collective, self._backwards = "", False
        present = self._trials()
        for task in tasks:
            if task not in present:
                self._add(task, ())

    def _add(self, task: Task, suspects: Sequence[str]) -> None:
        from optuna.trial import TrialState, create_trial

        attrs = {"task": msgspec.to_builtins(task), "suspects": list(suspects)}
        template = create_trial(state=TrialState.WAITING, user_attrs=attrs)
        self._storage.create_new_trial(self._id, template)

    def _trials(self) -> dict[Task, FrozenTrial]:
        """The trial that counts of each task that has one."""
        from optuna.trial import TrialState

        trials: dict[Task, FrozenTrial] = {}
        for trial in self._storage.get_all_trials(self._id, deepcopy=False):
            if trial.state != TrialState.FAIL and "task" in trial.user_attrs:
                trials.setdefault(msgspec.convert(trial.user_attrs["task"], Task), trial)
        return {task: trials[task] for task in self._tasks if task in trials}

    def claim(self, without: Collection[Task] = ()) -> Claim | None:
        """Return a task that no living process searches, now this one's; None: there is none.

        While others search too, it is of the collective that this process searched last, or else
        of one that few others search: programs made for one size serve the next.
        """
        from optuna.trial import TrialState

        trials = self._trials()
        searched = Counter(
            task.collective for task, each in trials.items() if each.state == TrialState.RUNNING
        )
        order = sorted(
            enumerate(trials.items()),
            key=lambda each: (
                bool(searched) and each[1][0].collective != self._collective,
                searched[(collective := each[1][0].collective)],
                -each[0] if self._from_the_end(collective, searched) else each[0],
            ),
        )
        for _, (task, trial) in order:
            if task in without or trial.state == TrialState.COMPLETE:
                continue
            if trial.state == TrialState.RUNNING:
                if not self._is_dead(trial):
                    continue
                self._reopen(task, trial)
                trial = self._trials()[task]
            if self._storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING):
                self._set(trial._trial_id, "owner", msgspec.to_builtins(_owner(os.getpid())))
                self._backwards = self._from_the_end(task.collective, searched)
                self._collective = task.collective
                return Claim(task, trial._trial_id, tuple(trial.user_attrs["suspects"]))
        return None

    def _from_the_end(self, collective: str, searched: Mapping[str, int]) -> bool:
        """Return whether to take large sizes first: those who join others at a collective do.

        What is made for the smallest sizes alone need not be made twice then.
        """
        if collective == self._collective:
            return self._backwards
        return searched.get(collective, 0) > 0

    def _reopen(self, task: Task, trial: FrozenTrial) -> None:
        """Fail the trial of a dead owner, and add another; what it was timing is a suspect."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        attrs = trial.user_attrs
        suspect = in_work(attrs.get("mark"))
        try:
            self._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
        except UpdateFinishedTrialError:  # another process did
            pass
        if task not in self._trials():
            self._add(task, (*attrs["suspects"], *([suspect] if suspect else ())))

    def _is_dead(self, trial: FrozenTrial) -> bool:
        """Return whether the owner is gone from this host, or was silent for long on another."""
        attrs = trial.user_attrs
        if "owner" in attrs:
            owner = msgspec.convert(attrs["owner"], _Owner)
            if owner.host == _host():
                return owner != _owner(owner.pid)
        beat = attrs.get("beat")
        last, since = self._beats.setdefault(trial._trial_id, (beat, time.monotonic()))
        if last != beat:
            self._beats[trial._trial_id] = (beat, time.monotonic())
            return False
        # One without a name died between two statements.
        return time.monotonic() - since > (self._silence_s if "owner" in attrs else _BEAT_S)

    @contextmanager
    def working(self, claim: Claim, mark: Path) -> Iterator[None]:
        """Beat for ``claim`` meanwhile; an exception gives the task back.

        ``mark`` is the file that says what is being timed (`Study.attempt`).
        """
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        self._set(claim.trial_id, "mark", str(mark))
        beating = threading.Thread(target=self._beat, args=(claim,), daemon=True)
        beating.start()
        try:
            yield
        except BaseException:
            _end_beat(claim, beating)
            with suppress(UpdateFinishedTrialError):  # another process took it over
                self._storage.set_trial_state_values(claim.trial_id, TrialState.FAIL)
                self._add(claim.task, claim.suspects)
            raise
        _end_beat(claim, beating)

    def _beat(self, claim: Claim) -> None:
        from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError

        number = 0
        while not claim.ended.wait(_BEAT_S if number else _BEAT_S / 5):
            number += 1
            with suppress(StorageInternalError, UpdateFinishedTrialError):
                self._set(claim.trial_id, "beat", [number, claim.evaluations, claim.best_us])

    def complete(self, claim: Claim, result: bytes, best_us: float) -> None:
        """Store the result of a claim, unless another process took the task over meanwhile."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        packed = base64.b64encode(zlib.compress(result, 1)).decode()
        with suppress(UpdateFinishedTrialError):
            self._set(claim.trial_id, "result", packed)
            self._storage.set_trial_state_values(claim.trial_id, TrialState.COMPLETE, [best_us])

    def _set(self, trial_id: int, key: str, value: object) -> None:
        self._storage.set_trial_user_attr(trial_id, key, value)

    def states(self) -> Mapping[Task, TaskState]:
        """Return the state of every task."""
        from optuna.trial import TrialState

        states = {task: TaskState(None) for task in self._tasks}
        for task, trial in self._trials().items():
            if trial.state == TrialState.COMPLETE:
                states[task] = TaskState(trial.user_attrs["result"])
            elif trial.state == TrialState.RUNNING:
                _, evaluations, best_us = trial.user_attrs.get("beat", (0, 0, 0.0))
                states[task] = TaskState(None, evaluations, best_us, running=True)
        return states


def _end_beat(claim: Claim, beating: threading.Thread) -> None:
    claim.ended.set()
    beating.join()


def _unpacked(text: str) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        result = unpacker.decompress(base64.b64decode(text), _MOST_RESULT_BYTES)
    except (ValueError, zlib.error):
        raise InputError("the study holds a result that is damaged; remove the study") from None
    if unpacker.unconsumed_tail:
        raise InputError(f"the study holds a result of over {_MOST_RESULT_BYTES} bytes")
    return result


def _host() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


def _owner(pid: int) -> _Owner:
    """Return the process ``pid`` of this host; its start is empty where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _Owner(_host(), pid, "")
    return _Owner(_host(), pid, "" if stat[0] in "ZX" else stat[19])


def in_work(mark: object) -> str:
    """Return what the file ``mark`` of a process says that it is timing; empty: nothing."""
    try:
        with Path(str(mark)).open("rb") as file:
            return file.read(1024).partition(b"\0")[0].decode()
    except (OSError, ValueError):
        return ""
