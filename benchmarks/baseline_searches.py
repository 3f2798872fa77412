"""Searches that `tuccl tune` was compared with: without a model, and the paper's as printed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import exp, gcd, sqrt

from tuccl.tuning.searches.brackets import Bracket, Rung, highest_bracket
from tuccl.tuning.searches.coordinate_descent import FINE_DIMENSIONS, coordinate_descent
from tuccl.tuning.searches.descent import varied
from tuccl.tuning.searches.mraco import MracoSearch
from tuccl.tuning.searches.search import Search
from tuccl.tuning.searches.space import Point, Space
from tuccl.tuning.searches.tpe import Proposal, Tpe
from tuccl.tuning.searches.tpe_searches import TpeSearch

_GOLDEN = 0.6180339887498949
_ETA = 3
_STARTUP, _STRANGERS, _VARIATIONS = 10, 48, 48  # of `KernelEstimator`
_WIDTH, _WIDTHS = 0.2, {"LL128": 0.4}


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
            sketch = (dimension.name for dimension in self.space.sketch_axes.dimensions)
            names = ("method", *sketch, *FINE_DIMENSIONS)
            descent = coordinate_descent(self.space, self.measurements, start, names)
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
    def brackets_of(most_effort: int, eta: int, fixed: int) -> tuple[Bracket, ...]:
        """Return the brackets of a round, whatever a timing costs beside its repeats."""
        return literal_brackets(most_effort, eta)


class KernelEstimator(Tpe):
    """Eq. 2 and 3 of the TuCCL paper: densities of Gaussian kernels, as wide as a point's protocol.

    A point is a vector of its indices over 0 to 1, a category one number for each value. What the
    paper leaves open: the best quarter is the good one; LL128's kernels are twice as wide as the
    others'; the largest quotient is looked for among random points and variations of the best.
    """

    def __init__(self, space: Space, seed: int) -> None:
        """Start with an empty history."""
        super().__init__(space, seed)
        self._rng = random.Random(seed)
        self._us: dict[Point, float] = {}

    def propose(self) -> Proposal:
        """Return the candidate with the largest quotient of densities."""
        ranked = sorted(self._us, key=self._us.__getitem__)
        at = self._rng.randrange
        candidates = [self._space.at(at(self._space.grid_size)) for _ in range(_STRANGERS)]
        if len(ranked) >= _STARTUP:
            candidates += [varied(self._space, ranked[:5], self._rng) for _ in range(_VARIATIONS)]
            split = max(len(ranked) // 4, 1)
            good, bad = (
                [self._vector(point) for point in part] for part in (ranked[:split], ranked[split:])
            )
            widths = [_WIDTHS.get(point.protocol, _WIDTH) for point in ranked]

            def quotient(point: Point) -> float:
                x = self._vector(point)
                return _density(x, good, widths) / (_density(x, bad, widths[split:]) + 1e-12)

            candidates = [max(candidates, key=quotient)]
        return self.adopt(candidates[0])

    def _vector(self, point: Point) -> list[float]:
        indices, x = self._space.indices(point), []
        for d in self._space.dimensions:
            if d.ordinal:
                x.append(indices[d.name] / max(d.size - 1, 1))
            else:
                x += [float(indices[d.name] == value) * sqrt(0.5) for value in range(d.size)]
        return x

    def learn(self, point: Point, time_us: float) -> None:
        """Add a point that was measured in full without having been proposed."""
        self._us[point] = time_us

    def reached(self, proposal: Proposal, time_us: float, effort: int) -> None:
        """Note the estimate of a proposal."""
        self._us[proposal.point] = time_us


def _density(x: list[float], points: list[list[float]], widths: list[float]) -> float:
    return sum(
        exp(-sum((a - b) ** 2 for a, b in zip(x, point, strict=True)) / (2 * width**2))
        for point, width in zip(points, widths, strict=False)
    )


class PaperMracoSearch(MracoSearch):
    """MRACO with the estimator that the paper writes (`KernelEstimator`)."""

    name = "mraco-kernels"

    def estimator(self) -> Tpe:
        """Return what proposes points."""
        return KernelEstimator(self.space, self.seed)


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
        PaperMracoSearch,
    )
}
