"""Searches by Optuna's Parzen estimator alone, as rows to compare with."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tuccl.tuning.searches.brackets import highest_bracket
from tuccl.tuning.searches.search import Search
from tuccl.tuning.searches.space import Point
from tuccl.tuning.searches.tpe import Proposal, Tpe

__all__ = ["HalvingTpeSearch", "TpeSearch"]

_ETA = 3
_SAME_AGAIN = 4


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
        while (proposal := self._proposal(tpe, fresh)) is not None:
            yield from self._climb(tpe, proposal)

    def _proposal(self, tpe: Tpe, fresh: Iterator[Point]) -> Proposal | None:
        """A new point; a random one where the estimator repeats itself, None where none is left."""
        for _ in range(_SAME_AGAIN):
            proposal = tpe.propose()
            if proposal.point not in self.measurements:
                return proposal
            tpe.discard(proposal)
        point = next(fresh, None)
        return None if point is None else tpe.adopt(point)

    def _climb(self, tpe: Tpe, proposal: Proposal) -> Iterator[tuple[Point, int]]:
        yield proposal.point, self.full_effort
        tpe.complete(proposal, self.measurements.us(proposal.point))


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
