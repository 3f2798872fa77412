"""The search by Optuna's Parzen estimator alone."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tuccl.tuning.searches.search import Search
from tuccl.tuning.searches.space import Point
from tuccl.tuning.searches.tpe import Proposal, Tpe


class TpeSearch(Search):
    """Optuna's multivariate estimator, each new point at full effort."""

    name = "tpe"

    def targets(self) -> Iterator[tuple[Point, int]]:
        """Yield what the estimator proposes."""
        tpe = Tpe(self.space, self.seed)
        for point in self.measurements.ranked(self.full_effort):
            tpe.learn(point, self.measurements.us(point))
        positions = list(range(self.space.grid_size))
        random.Random(self.seed).shuffle(positions)
        fresh = (p for p in map(self.space.at, positions) if p not in self.measurements)
        while True:
            if (proposal := tpe.propose_new(self.measurements)) is None:
                if (random_point := next(fresh, None)) is None:
                    return
                proposal = tpe.adopt(random_point)
            yield from self._climb(tpe, proposal)

    def _climb(self, tpe: Tpe, proposal: Proposal) -> Iterator[tuple[Point, int]]:
        yield proposal.point, self.full_effort
        tpe.complete(proposal, self.measurements.us(proposal.point))
