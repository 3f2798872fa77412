"""One collective of a tune, and the search at one size of it."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuccl._native import Program
from tuccl.runtime import (
    BaselineTiming,
    Executor,
    Timing,
    TimingCandidate,
    paired_timings,
    time_baseline,
)
from tuccl.sketches import Sketch, candidate_sketches
from tuccl.synth import Collective
from tuccl.topology import Topology, encode_topology, signature
from tuccl.tuning.candidates import entrants_of, placed
from tuccl.tuning.evaluate import Evaluator
from tuccl.tuning.final_round import Final, Finalist
from tuccl.tuning.initial_points import default_point, opening
from tuccl.tuning.measurements import Record
from tuccl.tuning.programs import Programs
from tuccl.tuning.search import Search, run
from tuccl.tuning.space import Point, Space
from tuccl.tuning.study import Studies

__all__ = ["Outcome", "Task", "tuned_size"]

_NOISY_FINALISTS = 3  # each timed again, and its stock twin too
_SIM_FINALISTS = 5  # their times are known: only twins cost anything
_SIM_TWINS = 3
_FEWEST_ROUNDS = 5  # of finalists against the default: as many as make a spread
_FINAL_S = 20.0  # beyond the fewest rounds


@dataclass(frozen=True)
class Task:
    """One collective of a tune, whose sizes are searched one after another.

    ``nccl_version`` is the NCCL whose own choice has to be beaten, where the executor can tell
    what that takes.
    """

    executor: Executor
    topology: Topology
    programs: Programs
    studies: Studies
    search: type[Search]
    budget: int
    seed: int
    run: str
    nccl_version: str

    @property
    def collective(self) -> Collective:
        """The collective."""
        return self.programs.collective


@dataclass(frozen=True)
class Outcome:
    """What one size came to: the finalists, and what finding them cost at full effort."""

    final: Final
    grid_size: int
    evaluations: int
    record: Record | None = field(repr=False)


def tuned_size(
    task: Task,
    nbytes: int,
    neighbour: Record | None,
    progress: Callable[[int], None],
    deadline: float = math.inf,
) -> Outcome:
    """Search one size, measure the best again, and the runtime's default with them.

    The search ends at ``deadline`` (of ``time.monotonic``); the finals come after it, with the best
    points' programs for one placement alone.
    """
    sketches = candidate_sketches(task.topology, task.collective.name, nbytes)
    default = _runtime_default(task, nbytes)
    by_name = {sketch.name: sketch for sketch in sketches}
    channels = task.programs.plans(sketches, nbytes)
    start = default_point(channels)
    if start is None:
        final = Final(task.collective, nbytes, task.programs.dialect, default, ())
        return Outcome(final, 0, 0, None)
    space = Space(
        channels,
        start,
        lambda p: task.programs.channels(by_name[p.sketch], p, nbytes),
        task.executor.supported_knobs,
    )
    evaluate = _evaluator(task, by_name, nbytes, space, default.timing)
    effort = task.executor.full_effort
    noisy = not task.executor.deterministic
    each = 2 if noisy else 3  # a finalist again or its two placements, and its twin
    most = min(_NOISY_FINALISTS if noisy else _SIM_TWINS, task.budget // (4 * each))
    on_gpus = task.executor.default_baseline == "nccl"
    twins = most if on_gpus else 0  # no stock runtime runs what is tuned on CPUs
    budget = max(task.budget - each * most, 1)
    search = task.search(
        space,
        seed=task.seed,
        full_effort=effort,
        first=opening(space, nbytes, neighbour, budget // 2),
    )
    record = run(search, evaluate, budget, progress, lambda: time.monotonic() >= deadline)
    finalists = max(most, 1) if noisy else _SIM_FINALISTS
    entrants = entrants_of(evaluate, record, effort, finalists, twins=twins)
    alone = placed(evaluate, entrants[:most]) if not noisy else []
    final = _final(task, nbytes, default, evaluate, entrants, alone)
    again = len(final.finalists) - (0 if noisy else len(entrants))
    return Outcome(final, space.legal_points, math.ceil(record.spent / effort) + again, record)


def _final(
    task: Task,
    nbytes: int,
    default: BaselineTiming,
    evaluate: Evaluator,
    points: Sequence[Point],
    alone: Sequence[tuple[Point, Program]],
) -> Final:
    """The default and the finalists timed against each other, in both placements.

    In turns, with what the search has seen left out: the best of many noisy times is too good.
    """
    noisy = not task.executor.deterministic
    entries = [(p, evaluate.program(p).program) for p in points] + [*alone]
    entrants = [TimingCandidate(program, point.knobs) for point, program in entries]
    again = [TimingCandidate(default.program, default.knobs, default.loop)] if noisy else []
    begin = time.monotonic()

    def long_enough(rounds: int) -> bool:
        return rounds >= _FEWEST_ROUNDS and time.monotonic() - begin > _FINAL_S

    timings = paired_timings(
        task.executor,
        [*again, *entrants],
        nbytes,
        root=task.collective.root,
        rounds=task.executor.full_effort,
        until=long_enough,
    )
    return Final(
        task.collective,
        nbytes,
        task.programs.dialect,
        replace(default, timing=timings[0]) if again else default,
        tuple(
            Finalist(point, program, timing)
            for (point, program), timing in zip(entries, timings[len(again) :], strict=True)
            if not timing.wrong
        ),
    )


def _evaluator(
    task: Task, sketches: Mapping[str, Sketch], nbytes: int, space: Space, default: Timing
) -> Evaluator:
    """The evaluator with its study, whose name says all that its samples depend on.

    Rates may differ between topologies of one signature, and what times may have changed under
    its label: so the whole topology enters, and where there is no noise the default's time,
    which changes with anything that matters.
    """
    study = task.studies.study(
        space,
        task.run,
        signature(task.topology),
        task.collective.name,
        nbytes,
        task.executor.label,
        task.programs.dialect,
        hashlib.sha256(encode_topology(task.topology)).hexdigest(),
        default if task.executor.deterministic else None,
    )
    return Evaluator(task.executor, task.programs, sketches, nbytes, study)


def _runtime_default(task: Task, nbytes: int) -> BaselineTiming:
    """What the runtime does without a table."""
    return time_baseline(
        task.executor,
        task.topology,
        task.executor.default_baseline,
        task.collective.name,
        nbytes,
        root=task.collective.root,
        version=task.nccl_version,
    )
