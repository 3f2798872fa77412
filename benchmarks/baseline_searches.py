"""Searches that `tuccl tune` was compared with: without a model, and the paper's as printed."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from math import exp, gcd, sqrt
from typing import TYPE_CHECKING, ClassVar

from tuccl.tuning.searches.brackets import Bracket, Rung, highest_bracket
from tuccl.tuning.searches.coordinate_descent import FINE_DIMENSIONS, coordinate_descent
from tuccl.tuning.searches.descent import varied
from tuccl.tuning.searches.mraco import MracoSearch
from tuccl.tuning.searches.search import Search
from tuccl.tuning.searches.space import Point, Space
from tuccl.tuning.searches.tpe import Proposal, Tpe
from tuccl.tuning.searches.tpe_searches import TpeSearch

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

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

    widths: ClassVar[dict[str, float]] = _WIDTHS

    def __init__(self, space: Space, seed: int) -> None:
        """Start with an empty history."""
        super().__init__(space, seed)
        self._study.sampler = self.sampler(seed)
        self._rng = random.Random(seed)
        self._us: dict[Point, float] = {}

    def sampler(self, seed: int) -> BaseSampler:
        """Return what Optuna itself samples with: nothing of it is used here."""
        from optuna.samplers import RandomSampler

        return RandomSampler(seed)

    def propose(self) -> Proposal:
        """Return the candidate with the largest quotient of densities; first ones are random."""
        ranked = sorted(self._us, key=self._us.__getitem__)
        if len(ranked) < _STARTUP:
            return self.adopt(self._stranger())
        return self.proposed(ranked, self._candidates(ranked))

    def proposed(self, ranked: list[Point], candidates: list[Point]) -> Proposal:
        """Return one of the candidates for what was met so far, the best of it first."""
        split = quarter(len(ranked))
        good, bad = (
            [self._vector(point) for point in part] for part in (ranked[:split], ranked[split:])
        )
        widths = [self.widths.get(point.protocol, _WIDTH) for point in ranked]

        def quotient(point: Point) -> float:
            x = self._vector(point)
            return _density(x, good, widths) / (_density(x, bad, widths[split:]) + 1e-12)

        return self.adopt(max(candidates, key=quotient))

    def _candidates(self, ranked: list[Point]) -> list[Point]:
        variations = [varied(self._space, ranked[:5], self._rng) for _ in range(_VARIATIONS)]
        return [*(self._stranger() for _ in range(_STRANGERS)), *variations]

    def _stranger(self) -> Point:
        return self._space.at(self._rng.randrange(self._space.grid_size))

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


def quarter(points: int) -> int:
    """Return how many of so many points are the good ones."""
    return max(points // 4, 1)


class EqualWidths(KernelEstimator):
    """Eq. 2 and 3 with kernels of one width, whatever the protocol."""

    widths: ClassVar[dict[str, float]] = {}


class SameCandidates(KernelEstimator):
    """Optuna's densities with all else that `KernelEstimator` has: candidates, first points, part.

    So nothing differs between the two but the densities.
    """

    def sampler(self, seed: int) -> BaseSampler:
        """Return Optuna's sampler, which takes the best of `_given` instead of its own samples."""
        from optuna.samplers import TPESampler

        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # of gamma
            sampler = TPESampler(seed=seed, n_startup_trials=0, gamma=quarter)
        build = sampler._build_parzen_estimator

        def with_given(*args: object, handle_below: bool) -> object:
            estimator = build(*args, handle_below=handle_below)
            if handle_below:  # the only one that is sampled
                estimator.sample = lambda rng, size: self._given
            return estimator

        sampler._build_parzen_estimator = with_given
        return sampler

    def proposed(self, ranked: list[Point], candidates: list[Point]) -> Proposal:
        """Return the candidate that Optuna's densities prefer."""
        import numpy as np

        rows = [self._space.indices(point) for point in candidates]
        self._given = {
            d.name: np.array([float(row[d.name]) for row in rows]) for d in self._space.dimensions
        }
        trial = self._study.ask(self._distributions)
        return Proposal(candidates[rows.index(self._indices(trial))], trial)

    def adopt(self, point: Point) -> Proposal:
        """Return a proposal of ``point``, which another rule chose."""
        import numpy as np

        indices = self._space.indices(point).items()
        self._given = {name: np.array([float(index)]) for name, index in indices}
        return super().adopt(point)

    def learn(self, point: Point, time_us: float) -> None:
        """Add a point that was measured in full without having been proposed."""
        super().learn(point, time_us)
        Tpe.learn(self, point, time_us)

    def reached(self, proposal: Proposal, time_us: float, effort: int) -> None:
        """Note the estimate of a proposal."""
        super().reached(proposal, time_us, effort)
        Tpe.reached(self, proposal, time_us, effort)


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


class EqualWidthsMracoSearch(MracoSearch):
    """MRACO with kernels of one width (`EqualWidths`)."""

    name = "mraco-equal"

    def estimator(self) -> Tpe:
        """Return what proposes points."""
        return EqualWidths(self.space, self.seed)


class SameCandidatesMracoSearch(MracoSearch):
    """MRACO with Optuna's densities over the kernels' candidates (`SameCandidates`)."""

    name = "mraco-optuna"

    def estimator(self) -> Tpe:
        """Return what proposes points."""
        return SameCandidates(self.space, self.seed)


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
        EqualWidthsMracoSearch,
        SameCandidatesMracoSearch,
    )
}
