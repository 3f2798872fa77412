"""Timing points: from a point of the space to samples of an executor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from tuccl.errors import Infeasible, InputError, Stuck
from tuccl.program import Program
from tuccl.runtime import (
    Executor,
    Timing,
)
from tuccl.runtime.executors.executor import EXACT_TO
from tuccl.sketches import Sketch
from tuccl.synth import Placement
from tuccl.tuning.programs import ProgramCache, VerifiedProgram
from tuccl.tuning.searches.measurements import Measurements
from tuccl.tuning.searches.space import Point
from tuccl.tuning.studies.study import Study

_SLOW_US = 10_000.0  # a repeat of this length costs more than another call
_HOPELESS = 3.0  # times as long as the best: its first repeat is its last


class Evaluator:
    """Times the points of one collective and size, and keeps every sample in the study.

    The search compares points by their out-of-place time; where a program has none, by the
    other. Points that are the same program with the same knobs are timed once where there is
    no noise; where there is, a point whose first repeat takes three times as long as the best
    so far is not repeated.
    """

    def __init__(
        self,
        executor: Executor,
        programs: ProgramCache,
        sketch_of: Callable[[str], Sketch],
        nbytes: int,
        study: Study,
    ) -> None:
        """Prepare to time calls of ``nbytes`` bytes on ``executor``."""
        self.executor = executor
        self.programs = programs
        self.sketch_of = sketch_of
        self.nbytes = nbytes
        self.study = study
        self._samples_us: dict[tuple[object, ...], tuple[float, ...]] = {}
        self._best_us = math.inf
        self._scenarios_us: dict[Point, dict[str, float]] = {}
        self._exact: dict[Point, Timing] = {}

    def best_of_scenarios(self, points: Sequence[Point]) -> list[Point]:
        """Return the fastest of ``points`` under each scenario of the executor; none without."""
        times_us = {point: us for point in points if (us := self._scenarios_us.get(point))}
        names = next(iter(times_us.values()), {})
        return [min(times_us, key=lambda point: times_us[point][name]) for name in names]

    def exact_timing(self, point: Point) -> Timing | None:
        """Return the timing of ``point`` in both placements, where timing it again would be equal.

        None where times have noise, or it is too slow to have been timed exactly.
        """
        return self._exact.get(point)

    def ranked(self, measurements: Measurements, effort: int) -> list[Point]:
        """Return the points of at least ``effort`` that a table may have, the fastest first."""
        return [p for p in measurements.ranked(effort) if self.programs.is_named(p.choice)]

    def leftovers(self, effort: int, most: int) -> list[Point]:
        """Return the fastest points of earlier sessions that this search did not request."""
        found: list[Point] = []
        for point, checksum in self.study.leftovers(effort):
            if len(found) == most:
                break
            try:
                same = self.program(point).checksum == checksum
            except (Infeasible, InputError):  # its sketch or its program is not made any more
                continue
            if same and self.programs.is_named(point.choice):
                found.append(point)
        return found

    def program(self, point: Point, placement: Placement = "any") -> VerifiedProgram:
        """Return the proven program of ``point``, made for any placement or for a single one.

        Raises:
            Infeasible: there is none, or it is unsafe at this size.
        """
        verified = self.programs.program(
            self.sketch_of(point.choice.sketch),
            point.choice,
            self.nbytes,
            point.protocol,
            point.channels,
            point.buffer_bytes,
            placement,
        )
        if verified.max_safe_bytes and verified.max_safe_bytes < self.nbytes:
            raise Infeasible(
                f"{verified.program.name[:60]}: safe up to {verified.max_safe_bytes} bytes"
            )
        return verified

    def __call__(self, point: Point, repeats: int) -> Sequence[float]:
        """Return ``repeats`` samples of ``point`` in us; none where it cannot run."""
        try:
            verified = self.program(point)
        except Infeasible:
            return ()
        same = (
            verified.checksum,
            point.protocol,
            point.channels,
            point.threads,
            point.buffer_bytes,
        )
        if self.executor.deterministic and same in self._samples_us:
            return self._samples_us[same]
        stored = self.study.recall(point, verified.checksum, repeats)
        if stored is None:
            with self.study.attempt(point, verified.checksum):
                stored = self._measure(point, verified, repeats)
            if stored is None:
                return ()
            self.study.store(point, verified.checksum, repeats, stored)
        self._samples_us[same] = stored
        self._best_us = min(self._best_us, median(stored) if stored else math.inf)
        return stored

    def _measure(
        self, point: Point, verified: VerifiedProgram, repeats: int
    ) -> tuple[float, ...] | None:
        """Samples in us, none where results are wrong; None where the executor refuses it."""
        deterministic = self.executor.deterministic  # and both placements cost as much as one
        program = verified.program if deterministic else _one_placement(verified.program)
        try:
            timing = self._time(program, point, 1 if self._is_slow_to_repeat(repeats) else repeats)
            missing = repeats - len(timing.samples_us)
            if missing > 0 and not timing.wrong and timing.us <= _HOPELESS * self._best_us:
                rest = self._time(program, point, missing)
                timing = replace(rest, samples_us=(*timing.samples_us, *rest.samples_us))
        except (Infeasible, InputError):  # the executor cannot run it
            return None
        except Stuck:  # so are all who call it: it has no time, here or when the tune goes on
            return ()
        self._scenarios_us[point] = dict(timing.scenarios_us)
        # A time over scenarios may depend on what was timed before.
        if deterministic and not timing.scenarios_us and timing.us <= EXACT_TO * self._best_us:
            self._exact[point] = timing
        return () if timing.wrong else timing.samples_us  # wrong results have no time

    def _is_slow_to_repeat(self, repeats: int) -> bool:
        """Return whether a single first repeat costs less than the repeats it may spare."""
        return repeats > 1 and _SLOW_US < self._best_us < math.inf

    def _time(self, program: Program, point: Point, repeats: int) -> Timing:
        root = self.programs.collective.root
        return self.executor.time_against(
            self._best_us, program, point.knobs, self.nbytes, root=root, repeats=repeats
        )


def _one_placement(program: Program) -> Program:
    """Searching needs one time per point, so that half of the timing work is spared."""
    return program.replace(in_place=False) if program.out_of_place else program
