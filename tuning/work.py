"""The work of a tune: its tasks, searched in this process or in many."""

from __future__ import annotations

import gc
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from tuccl.runtime import Executor, time_baseline
from tuccl.runtime.table.programs import program_dialect
from tuccl.synth import Collective
from tuccl.topology import Topology, encode_topology
from tuccl.tuning.options import TuneOptions
from tuccl.tuning.programs import ProgramCache
from tuccl.tuning.small_part import Nomination
from tuccl.tuning.studies.study import Studies
from tuccl.tuning.studies.task_queue import Claim, Task, TaskQueue, TaskState
from tuccl.tuning.tuner import TaskResult, Tuner
from tuccl.units import format_bytes

Progress = Callable[[int, int, str], None]
"""Called with the evaluations made, their total, and the task in work with its best time."""
_POLL_S = 0.5


def no_progress(done: int, total: int, what: str) -> None:
    """Report nothing."""


@dataclass
class Work:
    """All that the results of a tune depend on; another process gets it pickled.

    ``session`` distinguishes the tunes with a time limit: each may search its tasks for longer.
    ``nominations`` are of a part of the machine, or of other sizes; none: everything is tried,
    with ``every_method`` each method once before that.
    """

    executor: Executor
    topology: Topology
    options: TuneOptions
    out: Path
    tasks: Sequence[Task] = ()
    session: int = 0
    nominations: Sequence[Nomination] = ()
    every_method: bool = False
    _programs: dict[str, ProgramCache] = field(default_factory=dict, init=False, repr=False)

    def add_tasks(self, tasks: Sequence[tuple[str, int, int]]) -> None:
        """Add the tasks of a collective, a size in bytes and a budget each."""
        ranks, root = self.topology.ranks, self.options.root
        self.tasks = [
            Task(name, nbytes, budget, self._default_us(Collective(name, ranks, root), nbytes))
            for name, nbytes, budget in tasks
        ]
        options = self.options
        again = options.seconds and not options.storage and not options.default_limit
        self.session = time.time_ns() if again else 0

    def _default_us(self, call: Collective, nbytes: int) -> float:
        if not self.executor.deterministic:
            return 0.0
        kind, version = self.executor.default_baseline, self.options.nccl_version
        return time_baseline(
            self.executor, self.topology, kind, call.name, nbytes, root=call.root, version=version
        ).timing.us

    def queue(self, studies: Studies) -> TaskQueue:
        """Return the queue of the tasks in the storage of ``studies``."""
        machine = hashlib.sha256(encode_topology(self.topology)).hexdigest()
        options = replace(
            self.options,
            resume=False,
            workers=1,
            scheduler=None,
            storage=None,
            budget=1,
            seconds=None,
            default_limit=False,
        )
        identity = (machine, self.executor.label, options, self.session, self.nominations)
        return studies.queue(identity, self.tasks)

    def search(
        self, queue: TaskQueue, studies: Studies, progress: Progress, deadline: float
    ) -> None:
        """Search the tasks that no other process does, until all are complete."""
        states = queue.states()
        try:
            while any(not state.complete for state in states.values()):
                claim = queue.claim()
                if claim is None:
                    report_states(states, progress)
                    time.sleep(_POLL_S)
                else:
                    with queue.working(claim, studies.mark.path):
                        result = self.search_task(claim, studies, states, progress, deadline)
                    queue.complete(claim, msgspec.json.encode(result), claim.best_us)
                    gc.freeze()  # what is kept is kept to the end: collections need not walk it
                states = queue.states()
        finally:
            gc.unfreeze()

    def search_task(
        self,
        claim: Claim,
        studies: Studies,
        states: Mapping[Task, TaskState],
        progress: Progress,
        deadline: float,
    ) -> TaskResult:
        """Return the result of the task of ``claim``; what time is left is shared by budgets."""
        task = claim.task
        done, total = _done(states), sum(t.budget for t in states)
        what = f"{task.collective} {format_bytes(task.nbytes)}"

        def report(spent: int, best_us: float) -> None:
            claim.evaluations, claim.best_us = spent, best_us
            progress(done + spent, total, f"{what}{_best(best_us)}")

        progress(done, total, what)
        now, left = time.monotonic(), sum(t.budget for t, s in states.items() if not s.complete)
        share = max(left / task.budget / self.options.workers, 1.0)
        return self.tuner(task.collective, studies).result(
            task, report, now + (deadline - now) / share, claim.suspects
        )

    def tuner(self, collective: str, studies: Studies) -> Tuner:
        """Return the tuner of ``collective``, whose programs are kept."""
        if collective not in self._programs:
            self._programs[collective] = ProgramCache(
                self.executor.planned_topology or self.topology,
                Collective(collective, self.topology.ranks, self.options.root),
                program_dialect(self.options.dialect),
                any_order=self.options.any_order,
                as_plans=self.options.dialect == "mscclpp",
                methods=self.options.methods,
                sketches=[sketch.name for sketch in self.options.sketches],
                folder=studies.mark.path.parent,
            )
        programs = self._programs[collective]
        return Tuner(
            self.executor,
            self.topology,
            programs,
            studies,
            self.options,
            self.nominations,
            self.every_method,
        )


def report_states(states: Mapping[Task, TaskState], progress: Progress) -> None:
    """Report what all processes together have done, and what they are at."""
    running = [(t, s) for t, s in states.items() if s.running]
    done = _done(states) + sum(min(s.evaluations, t.budget) for t, s in running)
    what = ", ".join(
        f"{t.collective} {format_bytes(t.nbytes)}{_best(s.best_us)}" for t, s in running[:3]
    )
    finished = all(s.complete for s in states.values())
    progress(done, sum(t.budget for t in states), "done" if finished else what or "waiting")


def _best(best_us: float) -> str:
    return f" {best_us:.4g} us" if best_us else ""


def _done(states: Mapping[Task, TaskState]) -> int:
    return sum(t.budget for t, s in states.items() if s.complete)
