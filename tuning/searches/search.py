"""The interface of searches, with what each of them promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from tuccl.synth import SOLVERS, ScheduleChoice
from tuccl.synth.model.problem import STAND_IN
from tuccl.tuning.searches.initial_knobs import suited_points
from tuccl.tuning.searches.measurements import Measurements
from tuccl.tuning.searches.space import Point, Space

Evaluate = Callable[[Point, int], Sequence[float]]
_MOST_MEASURED_IN_A_ROW = 2000
_SURVIVORS = 4  # sketches that solvers run on, and their choices that are tried at once


@dataclass(frozen=True)
class Request:
    """A request to time ``point`` ``repeats`` more times."""

    point: Point
    repeats: int


class Search(ABC):
    """Chooses which point to time next and learns from the samples.

    Every search promises, and tests/tuning holds each to it:

    * every requested point is legal in the space;
    * the default is requested first, at full effort, unless its time is known; then the points
      given as ``first``;
    * repeats of a point are pooled: no point is requested beyond ``full_effort`` repeats, so on a
      noise-free executor (``full_effort`` 1) none is requested twice;
    * the same seed and the same samples give the same requests;
    * ``ask`` returns None when there is nothing left to ask, and from then on;
    * a solver runs only on the four sketches where `STAND_IN` was fastest so far, and on them it is
      tried.

    A subclass yields (point, effort) pairs from ``targets``: each point with the repeats it
    shall have in all. Repeats that were measured before cost nothing.
    """

    name: ClassVar[str]

    def __init__(
        self,
        space: Space,
        *,
        seed: int = 0,
        full_effort: int = 1,
        fixed_effort: int = 0,
        first: Sequence[Point] = (),
    ) -> None:
        """Prepare to search ``space``; ``first`` are legal points to begin with.

        A timing takes as long as its repeats and ``fixed_effort`` more.

        Raises:
            ValueError: the effort is below 1, or a first point is not legal.
        """
        if full_effort < 1:
            raise ValueError(f"full effort {full_effort}: expected at least 1")
        if illegal := [p for p in first if p not in space]:
            raise ValueError(f"first point {illegal[0]} is not legal in this space")
        self.space = copy(space)  # what it promotes is its own
        self.space.promoted = () if STAND_IN in space.methods else None
        self.seed = seed
        self.full_effort = full_effort
        self.fixed_effort = fixed_effort
        self.measurements = Measurements()
        self._first = tuple(dict.fromkeys((space.default, *first)))
        self._pending = self._all_requests()

    @abstractmethod
    def targets(self) -> Iterator[tuple[Point, int]]:
        """Yield points with the effort each shall reach; results are in ``measurements``."""

    def ask(self) -> Request | None:
        """Return what to time next, or None when the search has come to its end."""
        return next(self._pending, None)

    def tell(self, request: Request, samples_us: Sequence[float]) -> None:
        """Take the samples in us of ``request``; none at all: the point cannot run."""
        self.measurements.add(request.point, samples_us, request.repeats)
        if request.point.choice.method == STAND_IN:
            quick = (p.choice for p in self.measurements.ranked())
            fastest = dict.fromkeys(choice.sketch for choice in quick if choice.method == STAND_IN)
            self.space.promoted = tuple(fastest)[:_SURVIVORS]

    def survivors(self) -> list[ScheduleChoice]:
        """Return a choice of each solver on each sketch that is promoted, the best sketch first."""
        rank = {sketch: number for number, sketch in enumerate(self.space.promoted or ())}
        costly = [c for c in self.space.choices if c.method in SOLVERS and c.sketch in rank]
        first = {(c.method, c.sketch): c for c in reversed(costly)}
        return sorted(first.values(), key=lambda c: rank[c.sketch])[:_SURVIVORS]

    @property
    def best(self) -> Point | None:
        """The fastest point among those measured at full effort (Algorithm 1, line 10)."""
        return self.measurements.best(self.full_effort)

    @property
    def best_us(self) -> float:
        """The time of the best in us; 0 while there is none."""
        return 0.0 if self.best is None else self.measurements.us(self.best)

    def _all_requests(self) -> Iterator[Request]:
        for point in self._first:
            if (missing := self.full_effort - self.measurements.effort(point)) > 0:
                yield Request(point, missing)
        measured = 0
        solved = (suited_points(self.space, choice)[:1] for choice in self.survivors())
        tried = ((point, self.full_effort) for points in solved for point in points)
        for point, effort in chain(tried, self.targets()):
            missing = min(effort, self.full_effort) - self.measurements.effort(point)
            if missing > 0 and self.space.channels(point.choice):
                measured = 0
                yield Request(point, missing)
            elif (measured := measured + 1) >= _MOST_MEASURED_IN_A_ROW:
                return

    @property
    def exhausted(self) -> bool:
        """True if every point of the space was requested."""
        return len(self.measurements) >= self.space.grid_size


def run_search(
    search: Search,
    evaluate: Evaluate,
    budget: int,
    progress: Callable[[int], None] = lambda spent: None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Measurements:
    """Drive ``search`` until it ends, its budget is spent or time is up; return the measurements.

    ``budget`` counts evaluations at full effort: lower rungs count as their fraction of one,
    points that cannot run not at all. ``evaluate(point, repeats)`` returns the samples in us, none
    where the point cannot run. ``progress`` gets the full evaluations spent so far.

    Raises:
        ValueError: the budget is below 1.
    """
    if budget < 1:
        raise ValueError(f"budget {budget}: expected at least 1 evaluation")
    limit, spent = budget * search.full_effort, 0
    while spent < limit and not out_of_time() and (request := search.ask()) is not None:
        request = Request(request.point, min(request.repeats, limit - spent))
        samples_us = evaluate(request.point, request.repeats)
        search.tell(request, samples_us)
        spent += len(samples_us)
        progress(spent // search.full_effort)
    return search.measurements
