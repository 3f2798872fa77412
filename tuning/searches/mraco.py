"""MRACO: brackets of successive halving with a Parzen estimator inside."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tuccl.tuning.searches.brackets import Bracket, brackets
from tuccl.tuning.searches.convergence import Convergence
from tuccl.tuning.searches.descent import varied
from tuccl.tuning.searches.search import Search
from tuccl.tuning.searches.space import Point
from tuccl.tuning.searches.tpe import Proposal, Tpe

_ETA = 3  # the ratio of efforts between rungs
_MUTANTS = 30
_PARENTS = 5


class MracoSearch(Search):
    """Multi-stage resource-aware configuration optimization (TuCCL III.D, Algorithm 1).

    Rounds of brackets follow one another until the search converges (Eq. 5), each sampling from
    what all before have taught. Effort is repeats of a timing; where the executor has no noise
    one repeat is full effort, every bracket is one point, and what remains is the estimator
    with Eq. 5's stop.

    Notes:
        Optuna's multivariate Parzen estimator (`tuccl.tuning.searches.tpe`) takes the place of
        Eq. 2 and 3, whose second factor, the difference of two means, is the same for every
        candidate and so chooses nothing; `benchmarks/estimators.py` compares the two. Brackets are
        those of `brackets`, not of Algorithm 1 as printed. Where the estimator proposes nothing new
        four times in a row, one of the best points is varied by a step or two instead: on a small
        grid it repeats itself by design.
    """

    name = "mraco"

    @staticmethod
    def brackets_of(most_effort: int, eta: int, fixed: int) -> tuple[Bracket, ...]:
        """Return the brackets of a round."""
        return brackets(most_effort, eta, fixed)

    def estimator(self) -> Tpe:
        """Return what proposes points."""
        return Tpe(self.space, self.seed)

    def targets(self) -> Iterator[tuple[Point, int]]:
        """Yield the points of one bracket after another, each with its rung's effort."""
        rng = random.Random(self.seed)
        tpe = self.estimator()
        self._convergence = Convergence(self.space)
        rounds = self.brackets_of(self.full_effort, _ETA, self.fixed_effort)
        for point in self.measurements.ranked(self.full_effort):
            tpe.learn(point, self.measurements.us(point))
        while not self.exhausted:
            for bracket in rounds:
                yield from self._climb(bracket, tpe, rng)
            if self._convergence.converged:
                return

    def _climb(self, bracket: Bracket, tpe: Tpe, rng: random.Random) -> Iterator[tuple[Point, int]]:
        survivors = self._sample(bracket.rungs[0].points, tpe, rng)
        for rung in bracket.rungs:
            survivors.sort(key=lambda p: self.measurements.us(p.point))
            for dropped in survivors[rung.points :]:
                tpe.drop(dropped)
            del survivors[rung.points :]
            for proposal in survivors:
                yield proposal.point, rung.effort
                tpe.reached(proposal, self.measurements.us(proposal.point), rung.effort)
        for proposal in survivors:  # line 10: they are compared at full effort
            yield proposal.point, self.full_effort
            self._close(proposal, tpe)

    def _close(self, proposal: Proposal, tpe: Tpe) -> None:
        if self.measurements.effort(proposal.point) >= self.full_effort:
            tpe.complete(proposal, self.measurements.us(proposal.point))
        else:
            tpe.drop(proposal)

    def _sample(self, count: int, tpe: Tpe, rng: random.Random) -> list[Proposal]:
        proposals: list[Proposal] = []
        taken: set[Point] = set()
        for _ in range(count):
            proposal = tpe.propose_new(taken, self.measurements)
            proposal = proposal or tpe.adopt(self._variation(rng, taken))
            taken.add(proposal.point)
            proposals.append(proposal)
            best = self.best
            best_us = self.measurements.us(best) if best is not None else float("inf")
            self._convergence.add(proposal.point, best_us)
        return proposals

    def _variation(self, rng: random.Random, taken: set[Point]) -> Point:
        """One of the best points changed in a dimension or two; a random one as last resort."""
        parents = self.measurements.ranked()[:_PARENTS] or [self.space.default]
        for _ in range(_MUTANTS):
            point = varied(self.space, parents, rng)
            if point not in self.measurements and point not in taken:
                return point
        return self.space.at(rng.randrange(self.space.grid_size))
