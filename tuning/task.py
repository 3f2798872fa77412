"""One collective of a tune, and the search at one size of it."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuccl._native import Program, max_threads
from tuccl.runtime import (
    BaselineTiming,
    Executor,
    Timing,
    TimingCandidate,
    paired_timings,
    time_baseline,
)
from tuccl.runtime.executors.knob_grid import KnobGrid
from tuccl.runtime.table.supported_knobs import hangs_between_hosts
from tuccl.sketches import Sketch, candidate_sketches
from tuccl.synth import Collective
from tuccl.topology import Topology, encode_topology, signature
from tuccl.tuning.evaluate import Evaluator
from tuccl.tuning.fewer_sms import pareto_points, time_leaner_points
from tuccl.tuning.final_points import final_points, single_placement_programs
from tuccl.tuning.final_round import FinalRound, TimedPoint
from tuccl.tuning.options import SEARCHES, TuneOptions
from tuccl.tuning.programs import Programs
from tuccl.tuning.searches.initial_points import default_point, initial_points
from tuccl.tuning.searches.measurements import Measurements
from tuccl.tuning.searches.search import run
from tuccl.tuning.searches.space import Point, Space
from tuccl.tuning.studies.study import Studies

__all__ = ["SizeResult", "Task", "tune_size"]

_NOISY_CANDIDATES = 3  # each timed again, and with default knobs too
_SIM_CANDIDATES = 5  # their times are known: only default knobs cost anything
_SIM_TRIALS = 3
_SMS_SHARE = 20  # one evaluation in so many is for fewer SMs, and more where some are left
_FEWEST_ROUNDS = 5  # of candidates against the default: as many as make a spread
_FINAL_S = 20.0  # beyond the fewest rounds


@dataclass(frozen=True)
class Task:
    """One collective of a tune, whose sizes are searched one after another."""

    executor: Executor
    topology: Topology
    programs: Programs
    studies: Studies
    options: TuneOptions

    @property
    def collective(self) -> Collective:
        """The collective."""
        return self.programs.collective


@dataclass(frozen=True)
class SizeResult:
    """The final round of one size, and the search's cost in evaluations at full effort."""

    final: FinalRound
    grid_size: int
    evaluations: int
    measurements: Measurements | None = field(repr=False)


def tune_size(
    task: Task,
    nbytes: int,
    neighbour: Measurements | None,
    progress: Callable[[int], None],
    deadline: float = math.inf,
) -> SizeResult:
    """Search one size, then time the best points again together with the runtime's default.

    The search ends at ``deadline`` (of ``time.monotonic``); the final round comes after it, with
    the best points' programs for a single placement.
    """
    executor, options = task.executor, task.options
    sketches = candidate_sketches(task.topology, task.collective.name, nbytes)
    default = _runtime_default(task, nbytes)
    by_name = {sketch.name: sketch for sketch in sketches}
    channels = task.programs.plans(sketches, nbytes)
    grid = _grid(task)
    start = default_point(channels, grid)
    if start is None:
        return SizeResult(_final_round(task, nbytes, default, []), 0, 0, None)
    space = Space(
        channels,
        start,
        lambda p: task.programs.channels(by_name[p.sketch], p, nbytes),
        grid,
    )
    evaluate = _evaluator(task, by_name, nbytes, space, default.timing)
    noisy = not executor.deterministic
    # A candidate again or for each placement, and with default knobs.
    evaluations_each = 2 if noisy else 3
    most = min(
        _NOISY_CANDIDATES if noisy else _SIM_TRIALS, options.budget // (4 * evaluations_each)
    )
    trials = options.budget // _SMS_SHARE
    reserve = evaluations_each * most + (2 if noisy else 1) * trials
    budget = max(options.budget - reserve, 1)
    search = SEARCHES[options.search](
        space,
        seed=options.seed,
        full_effort=executor.full_effort,
        first=initial_points(space, nbytes, neighbour, budget // 2),
    )
    measurements = run(search, evaluate, budget, progress, lambda: time.monotonic() >= deadline)
    effort, default_us = executor.full_effort, default.timing.us
    unspent = budget - math.ceil(measurements.spent / effort)
    leaner = min(trials + unspent, 3 * trials)
    time_leaner_points(space, evaluate, measurements, effort, default_us, leaner)
    pareto = pareto_points(evaluate, measurements, effort, default_us)
    points = final_points(
        evaluate,
        measurements,
        effort,
        max(most, 1) if noisy else _SIM_CANDIDATES,
        # No GPU runtime runs what is tuned on CPUs, so that its default knobs do not matter.
        default_knobs_trials=most if executor.default_baseline == "nccl" else 0,
        pareto=pareto[: trials if noisy else _SIM_CANDIDATES],
    )
    programs = [(p, evaluate.program(p).program) for p in points]
    if not noisy:
        programs += single_placement_programs(evaluate, points[:most])
    final = _final_round(task, nbytes, default, programs)
    evaluations = math.ceil(measurements.spent / executor.full_effort) + len(final.candidates)
    if not noisy:
        evaluations -= len(points)  # whose times were known
    return SizeResult(final, space.legal_points, evaluations, measurements)


def _final_round(
    task: Task, nbytes: int, default: BaselineTiming, programs: Sequence[tuple[Point, Program]]
) -> FinalRound:
    """The default and the programs timed in turns, in both placements.

    The search's own samples are left out: the best of many noisy times is too good.
    """
    candidates = [TimingCandidate(program, point.knobs) for point, program in programs]
    if noisy := not task.executor.deterministic:
        candidates.insert(0, TimingCandidate(default.program, default.knobs, default.loop))
    start = time.monotonic()

    def enough(rounds: int) -> bool:
        return rounds >= _FEWEST_ROUNDS and time.monotonic() - start > _FINAL_S

    timings = paired_timings(
        task.executor,
        candidates,
        nbytes,
        root=task.collective.root,
        rounds=task.executor.full_effort,
        until=enough,
    )
    if noisy:
        default = replace(default, timing=timings[0])
    timed = tuple(
        TimedPoint(point, program, timing)
        for (point, program), timing in zip(programs, timings[noisy:], strict=True)
        if not timing.wrong
    )
    return FinalRound(task.collective, nbytes, task.programs.dialect, default, timed)


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
        f"{task.options.search}-{task.options.seed}",
        signature(task.topology),
        task.collective.name,
        nbytes,
        task.executor.label,
        task.programs.dialect,
        hashlib.sha256(encode_topology(task.topology)).hexdigest(),
        default if task.executor.deterministic else None,
    )
    return Evaluator(task.executor, task.programs, sketches, nbytes, study)


def _grid(task: Task) -> KnobGrid:
    """The executor's knobs; where they stand for GPUs, without those that MSCCL does not run."""
    grid = task.executor.supported_knobs
    if task.executor.default_baseline != "nccl":
        return grid
    collective, hosts = task.collective.name, len(task.topology.hosts)
    hangs = [p for p in grid.protocols if hangs_between_hosts(collective, p, hosts)]
    return grid.without(hangs, max_threads("LL128", task.programs.dialect))


def _runtime_default(task: Task, nbytes: int) -> BaselineTiming:
    """The time of what the runtime does without a table."""
    return time_baseline(
        task.executor,
        task.topology,
        task.executor.default_baseline,
        task.collective.name,
        nbytes,
        root=task.collective.root,
        version=task.options.nccl_version,
    )
