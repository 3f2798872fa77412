"""The default search: choices are tried in turn, then coordinate descents begin at the best."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from tuccl.synth import SOLVERS, ScheduleChoice
from tuccl.synth.model.problem import STAND_IN
from tuccl.tuning.searches.coordinate_descent import coordinate_descent
from tuccl.tuning.searches.initial_knobs import suited_points
from tuccl.tuning.searches.initial_points import choices_in_turn
from tuccl.tuning.searches.search import Search
from tuccl.tuning.searches.space import Point, Space

_MOST_CHOICES = 128  # choices at most, those of every method in turn
_BATCH = 12  # quick choices that are tried together, with up to four of solvers
_SHARES = (1, 2, 4)  # of a batch: one choice in so many is timed with the second knobs, ...
_DESCENTS = (math.inf, 1.25)  # of a batch: where their starts are at most so many times the best
_PARENTS = 5
_PATIENCE = 60  # variations in a row that gain nothing


class DescentSearch(Search):
    """Trials of choices in rounds, then coordinate descents, then variations of the best.

    Each choice of a batch is timed with two sets of knobs that suit its chunks and the size, the
    better half and quarter with others; solvers' follow the stand-in's (`Search.survivors`).
    Descents begin at the best: of the knobs, then, on irregular machines, of the parameters of the
    sketch, each of which takes a synthesis. After the last batch they begin at every other choice,
    the best first, and at the best one's sketch. In the end the best points are varied by
    a step or two, until that has gained nothing for long.

    Notes:
        Threads and channels are unimodal, as AutoCCL finds; the buffer is where it is large
        enough to matter, and the suited knobs begin there: a buffer that a chunk fills just four
        times pipelines, a default one that is never full does not. Where times are noisy a step
        is timed with a ninth of full effort, or with as many repeats as start a timing but at
        most a third, and the end of a descent with all of it.
    """

    name = "descent"

    def targets(self) -> Iterator[tuple[Point, int]]:
        """Yield the points of all three parts, each with its effort."""
        step = min(max(self.full_effort // 9, self.fixed_effort), self.full_effort // 3) or 1
        started: set[tuple[object, ...]] = set()
        sketched: set[ScheduleChoice] = set()
        choices = choices_in_turn(self.space.choices)[:_MOST_CHOICES]
        batches = [choices[first : first + _BATCH] for first in range(0, len(choices), _BATCH)]
        if len(self.measurements) > 1:  # points that were given
            batches = [[], *batches]
        for batch in batches:
            for point in self._trials(batch):
                yield point, step
            for of_best in _DESCENTS:
                start = self._next_start(started, of_best * self.best_us)
                if start is not None:
                    yield from self._descent(start, step)
                    if self.space.sketch_axes.irregular:
                        yield from self._sketch_descent(sketched, step)
        while (start := self._next_start(started, math.inf)) is not None:
            yield from self._descent(start, step)
        yield from self._sketch_descent(sketched, step)
        rng, best_us, misses = random.Random(self.seed), self.best_us, 0
        while misses < _PATIENCE and not self.exhausted:
            parents = self.measurements.ranked()[:_PARENTS]
            if not parents:  # nothing that was tried runs
                return
            yield varied(self.space, parents, rng), step
            yield from self._in_full()
            misses = misses + 1 if self.best_us >= best_us else 0
            best_us = self.best_us

    def _descent(self, start: Point, step: int) -> Iterator[tuple[Point, int]]:
        for point in coordinate_descent(self.space, self.measurements, start):
            yield point, step
        yield from self._in_full()

    def _sketch_descent(
        self, sketched: set[ScheduleChoice], step: int
    ) -> Iterator[tuple[Point, int]]:
        """Change the best point's sketch, a parameter at a time; then the knobs of what is better.

        The choices that this began at are in ``sketched``.
        """
        names = [d.name for d in self.space.sketch_axes.dimensions if d.name != "sketch"]
        while names and (ranked := self.measurements.ranked()):
            start = ranked[0]
            if start.choice in sketched:
                return
            sketched.add(start.choice)
            quick = replace(start, choice=replace(start.choice, method=STAND_IN))
            first = [self.space.nearest(quick)] if start.choice.method in SOLVERS else []
            for begin in (*first, start):
                for point in coordinate_descent(self.space, self.measurements, begin, names):
                    yield point, step
            best = self.measurements.ranked()[0]
            if best.choice != start.choice:
                yield from self._descent(best, step)

    def _in_full(self) -> Iterator[tuple[Point, int]]:
        """The best point until it is one that was timed with full effort."""
        while (best := self.measurements.ranked()[0]) and (
            self.measurements.effort(best) < self.full_effort
        ):
            yield best, self.full_effort

    def _trials(self, choices: Sequence[ScheduleChoice]) -> Iterator[Point]:
        """The points of the rounds, each of which the better half of the one before enters."""
        times: dict[ScheduleChoice, list[float]] = {}
        for choice in self._with_survivors(choices):
            yield from self._trial(choice, 0, times)
        for variant, share in enumerate(_SHARES, 1):
            ranked = sorted(times, key=lambda p: (min(times[p], default=math.inf), times[p]))
            # Choices of the same times are one program, made twice: the first goes on.
            ranked = [next(same) for _, same in groupby(ranked, key=lambda p: times[p])]
            for choice in ranked[: max(len(ranked) // share, 1)]:
                yield from self._trial(choice, variant, times)

    def _with_survivors(self, choices: Sequence[ScheduleChoice]) -> Iterator[ScheduleChoice]:
        """The choices, solvers' among them as soon as all of the stand-in were timed."""
        yield from (choice for choice in choices if choice.method == STAND_IN)
        tried = {point.choice for point in self.measurements.ranked()}
        yield from (choice for choice in self.survivors() if choice not in tried)
        yield from (choice for choice in choices if choice.method != STAND_IN)

    def _trial(
        self, choice: ScheduleChoice, variant: int, times: dict[ScheduleChoice, list[float]]
    ) -> Iterator[Point]:
        for point in suited_points(self.space, choice)[variant : variant + 1]:
            yield point
            times.setdefault(choice, []).append(self.measurements.us(point))

    def _next_start(self, started: set[tuple[object, ...]], most_us: float) -> Point | None:
        """The best point of a choice that no descent began at and no other was as good as.

        None where that is slower than ``most_us``.
        """
        for point in self.measurements.ranked():
            keys = {(point.choice,), (point.knobs, self.measurements.us(point))}
            if not keys & started:
                if self.measurements.us(point) > most_us:
                    return None
                started |= keys
                return point
            started |= keys
        return None


def varied(space: Space, parents: Sequence[Point], rng: random.Random) -> Point:
    """Return one of ``parents`` changed in a dimension or two."""
    indices = space.indices(rng.choice(parents))
    for dimension in rng.sample(space.dimensions, rng.choice((1, 1, 2))):
        if dimension.ordinal:
            moved = indices[dimension.name] + rng.choice((-2, -1, 1, 2))
            indices[dimension.name] = min(max(moved, 0), dimension.size - 1)
        else:
            indices[dimension.name] = rng.randrange(dimension.size)
    return space.point(indices)
