"""Tuning of one task at a time: the search, its final round, the entries that come of it."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import msgspec

from tuccl.program import Program, max_threads
from tuccl.runtime import (
    ConfiguredProgram,
    Entry,
    Executor,
    ProgramFile,
    TimedProgram,
    Timing,
    time_baseline,
)
from tuccl.runtime.baseline import nccl_timings
from tuccl.runtime.executors.knob_grid import KnobGrid
from tuccl.runtime.executors.paired_timing import paired_timings
from tuccl.runtime.table.entry import ROOTED
from tuccl.runtime.table.lookup import WITH_TUNER
from tuccl.runtime.table.supported_knobs import hangs_between_hosts
from tuccl.sketches import Sketch
from tuccl.sketches.candidates import searched_sketches
from tuccl.synth import Collective
from tuccl.topology import Topology, encode_topology, signature
from tuccl.tuning.evaluate import Evaluator
from tuccl.tuning.fewer_sms import pareto_points, time_leaner_points
from tuccl.tuning.final_points import (
    best_of_methods,
    final_points,
    single_placement_programs,
)
from tuccl.tuning.final_round import FinalRound, entries_of
from tuccl.tuning.options import SEARCHES, TuneOptions
from tuccl.tuning.programs import ProgramCache, sketches_by_name
from tuccl.tuning.rl.search import search_from
from tuccl.tuning.rl.state import State
from tuccl.tuning.searches.descent import DescentSearch
from tuccl.tuning.searches.initial_points import initial_points, points_of_methods
from tuccl.tuning.searches.search import run_search
from tuccl.tuning.searches.space import Point, Space
from tuccl.tuning.small_part import Nomination, nominated_points
from tuccl.tuning.studies.study import Studies
from tuccl.tuning.studies.task_queue import Task
from tuccl.tuning.transfer import nearest_points

_NOISY_CANDIDATES = 3  # each timed again, and with default knobs too
_SIM_CANDIDATES = 5  # their times are known: only default knobs cost anything
_SIM_TRIALS = 3
_SMS_SHARE = 20  # one evaluation in so many is for fewer SMs, and more where some are left
_OF_NCCL = 3  # of its own algorithms with knobs, in the final round
_FEWEST_ROUNDS = 5  # of candidates against the default: as many as make a spread
_FINAL_S = 20.0  # beyond the fewest rounds

Report = Callable[[int, float], None]
"""Called with the evaluations made so far and the best time in us."""


class TaskResult(msgspec.Struct, frozen=True):
    """The result of a task: entries of a table and their programs.

    The entries answer for the task's size alone. ``grid_size`` counts legal points, ``default_us``
    is the runtime's own time, ``in_place`` where only that can be timed, on ``default_sms``;
    ``nccl_best_us`` the least that a user could set in NCCL, None where no tuner steers it;
    ``points`` the best of each method, the fastest first, whether they beat the default or not.
    """

    task: Task
    grid_size: int
    evaluations: int
    default_us: float
    entries: tuple[Entry, ...]
    programs: tuple[ProgramFile, ...]
    in_place: bool = False
    default_sms: int = 0
    nccl_best_us: float | None = None
    points: tuple[Point, ...] = ()


@dataclass(frozen=True)
class SizeResult:
    """The final round of one size, and the search's cost in evaluations at full effort."""

    final: FinalRound
    grid_size: int
    evaluations: int
    points: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Tuner:
    """Tunes the tasks of one collective; the programs that it makes serve every size.

    With ``nominations`` of a part of the machine, or of other sizes, it tries what is best there,
    else everything; with ``every_method`` each method once before that.
    """

    executor: Executor
    topology: Topology
    programs: ProgramCache
    studies: Studies
    options: TuneOptions
    nominations: Sequence[Nomination] = ()
    every_method: bool = False

    @property
    def collective(self) -> Collective:
        """The collective."""
        return self.programs.collective

    def result(
        self,
        task: Task,
        report: Report = lambda spent, best_us: None,
        deadline: float = math.inf,
        suspects: Sequence[str] = (),
    ) -> TaskResult:
        """Return what `search` finds, as it is stored."""
        size = self.search(task, report, deadline, suspects)
        entries, files = entries_of(size.final, 0, None, self.programs.file)
        return TaskResult(
            task=task,
            grid_size=size.grid_size,
            evaluations=size.evaluations,
            default_us=size.final.default.timing.us,
            entries=entries,
            programs=tuple({f.path: f for f in files}.values()),
            default_sms=size.final.default.sms,
            nccl_best_us=size.final.nccl_best_us,
            in_place=size.final.default.timing.time_us is None,
            points=size.points,
        )

    def search(
        self,
        task: Task,
        report: Report = lambda spent, best_us: None,
        deadline: float = math.inf,
        suspects: Sequence[str] = (),
    ) -> SizeResult:
        """Search one size, then time the best points again together with the runtime's default.

        The search ends at ``deadline`` (of ``time.monotonic``); the final round comes after it,
        with the best points' programs for a single placement. ``suspects`` may be what ended
        the processes that searched it before.
        """
        executor, nbytes = self.executor, task.nbytes
        solver = "taccl" in self.options.methods
        call = task.collective, nbytes, self.options.sketches, solver
        sketches, wider = searched_sketches(self.topology, *call)
        default = self._runtime_default(nbytes)
        nominated = nominated_points(self.nominations, self.collective, nbytes, sketches)
        wider = None if nominated else wider
        only = {(point.choice.sketch, point.choice.method) for point in nominated}
        space = self.programs.space(sketches, nbytes, self._grid(), wider, only)
        if space is None:
            return SizeResult(self._final_round(nbytes, default, []), 0, 0)
        sketch_of = sketches_by_name(sketches, wider)
        evaluate = self._evaluator(sketch_of, nbytes, space, default.timing, suspects)
        noisy = not executor.deterministic
        # A candidate again or for each placement, and with default knobs.
        evaluations_each = 2 if noisy else 3
        most = min(
            _NOISY_CANDIDATES if noisy else _SIM_TRIALS, task.budget // (4 * evaluations_each)
        )
        trials = task.budget // _SMS_SHARE
        budget = max(task.budget - evaluations_each * most - (2 if noisy else 1) * trials, 1)
        search = search_from(
            SEARCHES[self.options.search],
            space,
            State.of(self.topology, task.collective, nbytes, self.options.job),
            self.options.policy,
            seed=self.options.seed,
            full_effort=executor.full_effort,
            fixed_effort=evaluate.study.remember("fixed", partial(self._fixed, nbytes, default)),
            start=self._start(nominated, nbytes, space, budget),
            first=self._cold_start(space, budget // 2),
        )
        measurements = run_search(
            search,
            evaluate,
            budget,
            lambda spent: report(spent, search.best_us),
            lambda: time.monotonic() >= deadline,
        )
        effort, default_us = executor.full_effort, default.timing.us
        unspent = budget - math.ceil(measurements.spent / effort)
        leaner = min(trials + unspent, 3 * trials)
        time_leaner_points(search.space, evaluate, measurements, effort, default_us, leaner)
        pareto = pareto_points(evaluate, measurements, effort, default_us)
        points = final_points(
            evaluate,
            measurements,
            effort,
            max(most, 1) if noisy else _SIM_CANDIDATES,
            # No GPU runtime runs what is tuned on CPUs: its default knobs do not matter.
            default_knobs_trials=most if self._runs_in_msccl else 0,
            pareto=pareto[: trials if noisy else _SIM_CANDIDATES],
        )
        best = evaluate.best_of_scenarios(measurements.ranked(effort))
        points = tuple(dict.fromkeys((*points, *best, *evaluate.leftovers(effort, len(points)))))
        programs = [(p, evaluate.program(p).program, evaluate.exact_timing(p)) for p in points]
        if not noisy:
            single = single_placement_programs(evaluate, points[:most])
            programs += [(point, program, None) for point, program in single]
        final = self._final_round(nbytes, default, programs)
        evaluations = math.ceil(measurements.spent / effort) + len(final.candidates)
        if not noisy:
            evaluations -= len(points)  # whose times were known
        of_methods = best_of_methods(evaluate, measurements, effort)
        return SizeResult(final, space.legal_points, evaluations, of_methods)

    @property
    def _runs_in_msccl(self) -> bool:
        """Return whether MSCCL on GPUs runs the programs, with its limits and its defaults."""
        return self.executor.default_baseline == "nccl" and not self.programs.as_plans

    def _fixed(self, nbytes: int, default: TimedProgram) -> int:
        """The repeats that take as long as all of a timing but its repeats."""
        full = self.executor.full_effort
        if full == 1:
            return 0
        ends = [time.monotonic()]
        for repeats in (1, full):
            default.on(self.executor, nbytes, root=self.collective.root, repeats=repeats)
            ends.append(time.monotonic())
        once, whole = ends[1] - ends[0], ends[2] - ends[1]
        each = max((whole - once) / (full - 1), 1e-9)
        return max(min(round(once / each) - 1, full), 0)

    def _cold_start(self, space: Space, most: int) -> list[Point]:
        """Points that suit the size, for searches that do not begin with such by themselves."""
        if self.every_method:
            return points_of_methods(space)
        own = self.options.search == DescentSearch.name
        return [] if own else initial_points(space, most)

    def _start(
        self, nominated: Sequence[Point], nbytes: int, space: Space, budget: int
    ) -> list[Point]:
        """Points that the search begins with: those nominated, or of the options' table."""
        if nominated:
            made = (space.nearest(point) for point in nominated if space.channels(point.choice))
            return list(dict.fromkeys(islice(made, budget // 2)))
        if self.options.start is None:
            return []
        return nearest_points(self.options.start, self.collective, nbytes, space, budget // 4)

    def _nccl_timings(self, nbytes: int) -> list[TimedProgram]:
        """The fastest of NCCL's own algorithms with knobs, where the table's runtime has them."""
        if not self._runs_in_msccl or self.programs.dialect not in WITH_TUNER:
            return []
        executor, call, version = self.executor, self.collective, self.options.nccl_version
        return [
            timed
            for timed in nccl_timings(executor, self.topology, call, nbytes, version)[:_OF_NCCL]
            if timed.nccl and executor.obeys(call.name, nbytes, timed.nccl, call.root)
        ]

    def _final_round(
        self,
        nbytes: int,
        default: TimedProgram,
        programs: Sequence[tuple[Point, Program, Timing | None]],
    ) -> FinalRound:
        """The default, NCCL's algorithms and the programs timed in turns, in both placements.

        Timings that come with programs are as these are timed. Else the search's own samples are
        left out: the best of many noisy times is too good.
        """
        of_nccl = self._nccl_timings(nbytes)
        fixed = self.executor.deterministic and self.executor.of_search is self.executor
        again = () if fixed else (default, *of_nccl)
        if self.executor.of_search is not self.executor:
            programs = [(point, program, None) for point, program, _ in programs]
        candidates = [ConfiguredProgram(program, point.knobs) for point, program, _ in programs]
        unknown = [c for c, (*_, known) in zip(candidates, programs, strict=True) if known is None]
        start = time.monotonic()

        def enough(rounds: int) -> bool:
            return rounds >= _FEWEST_ROUNDS and time.monotonic() - start > _FINAL_S

        timings = paired_timings(
            self.executor,
            [*again, *unknown],
            nbytes,
            root=self.collective.root,
            rounds=self.executor.full_effort,
            until=enough,
        )
        if again:
            default, *of_nccl = map(_with_timing, again, timings)
        fresh = iter(timings[len(again) :])
        timed = tuple(
            replace(candidate.timed(timing), choice=point.choice)
            for (point, _, known), candidate in zip(programs, candidates, strict=True)
            if not (timing := known or next(fresh)).wrong
        )
        return FinalRound(
            self.collective, nbytes, self.programs.dialect, default, timed, tuple(of_nccl)
        )

    def _evaluator(
        self,
        sketch_of: Callable[[str], Sketch],
        nbytes: int,
        space: Space,
        default: Timing,
        suspects: Sequence[str],
    ) -> Evaluator:
        """The evaluator with its study, whose name says all that its samples depend on.

        Rates may differ between topologies of one signature, and what times may have changed under
        its label: so the whole topology enters, and where there is no noise the default's time,
        which changes with anything that matters.
        """
        study = self.studies.study(
            space,
            f"{self.options.search}-{self.options.seed}",
            signature(self.topology),
            self.collective.name,
            nbytes,
            self.executor.label,
            self.programs.dialect,
            hashlib.sha256(encode_topology(self.topology)).hexdigest(),
            default if self.executor.deterministic else None,
            suspects=suspects,
        )
        return Evaluator(self.executor.of_search, self.programs, sketch_of, nbytes, study)

    def _grid(self) -> KnobGrid:
        """The executor's knobs, on GPUs without those that MSCCL does not run."""
        grid = self.executor.supported_knobs
        collective, hosts = self.collective.name, len(self.topology.hosts)
        if self.programs.as_plans and collective in ROOTED:
            # Packets of plans stay apart only where every rank waits for every rank.
            return grid.without(("LL",), max(grid.threads))
        if not self._runs_in_msccl:
            return grid
        hangs = [p for p in grid.protocols if hangs_between_hosts(collective, p, hosts)]
        return grid.without(hangs, max_threads("LL128", self.programs.dialect))

    def _runtime_default(self, nbytes: int) -> TimedProgram:
        """The time of what the runtime does without a table."""
        return time_baseline(
            self.executor,
            self.topology,
            self.executor.default_baseline,
            self.collective.name,
            nbytes,
            root=self.collective.root,
            version=self.options.nccl_version,
        )


def _with_timing(program: TimedProgram, timing: Timing) -> TimedProgram:
    return replace(program, timing=timing)
