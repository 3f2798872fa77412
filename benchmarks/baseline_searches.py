"""Searches that `tuccl tune` was compared with: without a model, and the paper's as printed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import gcd

from tuccl.tuning.searches.brackets import Bracket, Rung, highest_bracket
from tuccl.tuning.searches.coordinate_descent import FINE_DIMENSIONS, coordinate_descent
from tuccl.tuning.searches.mraco import MracoSearch
from tuccl.tuning.searches.search import Search
from tuccl.tuning.searches.space import Point
from tuccl.tuning.searches.tpe import Proposal, Tpe
from tuccl.tuning.searches.tpe_searches import TpeSearch

_GOLDEN = 0.6180339887498949
_ETA = 3


class RandomSearch(Search):
    """Uniform over the distinct legal points, without repetition."""

    name = "random"

    def targets(self) -> Iterator[tuple[Point, int]]:
        """Yield random new points at full effort."""
        rng = random.Random(self.seed)
        while not self.exhausted:
            yield self.space.at(rng.randrange(self.space.grid_size)), self.full_effort


class GridSearch(Search):
    """Every legal point once, spread so that any prefix covers the whole grid thinly.

    Positions advance by a step near grid/phi with no common divisor with the grid: run to the
    end it is the full grid, cut by the budget it is a thinned one. It uses no seed.
    """

    name = "grid"

    def targets(self) -> Iterator[tuple[Point, int]]:
        """Yield the grid at full effort."""
        size = self.space.grid_size
        step = max(round(size * _GOLDEN), 1)
        while gcd(step, size) != 1:
            step += 1
        for i in range(size):
            yield self.space.at(i * step % size), self.full_effort


class CoordinateSearch(Search):
    """Coordinate descent with restarts: first from the best point so far, then from random ones.

    Notes:
        AutoCCL finds that time is unimodal along each ordered dimension.
    """

    name = "coordinate"

    def targets(self) -> Iterator[tuple[Point, int]]:
        """Yield the points of one descent after another at full effort."""
        rng = random.Random(self.seed)
        start = self.best or self.space.default
        while not self.exhausted:
            yield start, self.full_effort
            descent = coordinate_descent(
                self.space, self.measurements, start, ("method", "sketch", *FINE_DIMENSIONS)
            )
            yield from ((point, self.full_effort) for point in descent)
            start = self.space.at(rng.randrange(self.space.grid_size))


class HalvingTpeSearch(TpeSearch):
    """Optuna's estimator with asynchronous successive halving.

    A point climbs from one repeat, threefold each time, while it is among the best third of
    those that came so far.
    """

    name = "tpe-halving"

    def targets(self) -> Iterator[tuple[Point, int]]:
        """Yield what the estimator proposes, each with the efforts of the rungs it reaches."""
        self._reached: dict[int, list[float]] = {}
        yield from super().targets()

    def _climb(self, tpe: Tpe, proposal: Proposal) -> Iterator[tuple[Point, int]]:
        rungs = [_ETA**i for i in range(highest_bracket(self.full_effort, _ETA))]
        for effort in (*rungs, self.full_effort):
            yield proposal.point, effort
            us = self.measurements.us(proposal.point)
            if effort == self.full_effort:
                tpe.complete(proposal, us)
                return
            tpe.reached(proposal, us, effort)
            times = self._reached.setdefault(effort, [])
            times.append(us)
            if sorted(times).index(us) > (len(times) - 1) // _ETA:
                tpe.drop(proposal)
                return


class LiteralMracoSearch(MracoSearch):
    """Algorithm 1 as it is printed: most points meet most effort (`literal_brackets`)."""

    name = "mraco-literal"

    @staticmethod
    def brackets_of(most_effort: int, eta: int) -> tuple[Bracket, ...]:
        """Return the brackets of a round."""
        return literal_brackets(most_effort, eta)


def literal_brackets(most_effort: int, eta: int = 3) -> tuple[Bracket, ...]:
    """Return the brackets of Algorithm 1 as printed, s = 0 first.

    >>> [b.cost for b in literal_brackets(27, 3)]
    [729, 135, 33, 27]

    Notes:
        Bracket s begins with n_s = ceil(eta^(s_max - s)) points at R_s = floor(R_max eta^-s)
        (lines 3, 4) and keeps ceil(n_s eta^-i) of them (line 9). One round costs far more than
        the (s_max + 1) R_max that the paper guarantees.
    """
    s_max = highest_bracket(most_effort, eta)
    return tuple(
        Bracket(
            s,
            tuple(
                Rung(-(-(eta ** (s_max - s)) // eta**i), most_effort // eta**s * eta**i)
                for i in range(s + 1)
            ),
        )
        for s in range(s_max + 1)
    )


BASELINE_SEARCHES: dict[str, type[Search]] = {
    search.name: search
    for search in (
        RandomSearch,
        GridSearch,
        CoordinateSearch,
        HalvingTpeSearch,
        LiteralMracoSearch,
    )
}
