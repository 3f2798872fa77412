"""The search of the agent: a policy's actions as belief orders them, then a bandit's."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

from tuccl.tuning.rl.bandit import EXPLORING, UNABLE, LinearBandit
from tuccl.tuning.rl.policy import Policy
from tuccl.tuning.rl.state import State
from tuccl.tuning.searches.search import Search
from tuccl.tuning.searches.space import Point, Space

_POINTS = 5  # of a policy, for a search that is not its own
_WORTH_A_TRY = {"conservative": 0.005, "usual": 0.002, "bold": 0.0005}


class RlSearch(Search):
    """A contextual bandit: one call is one step, whose reward is log(default time / time).

    With a policy it first tries the actions that the belief about trained calls expects to gain
    most, updated by each sample, until they promise too little. From then on, and without a
    policy from the start, Thompson sampling on a linear model of this call's own samples. The
    regime of the state (`State.regime`) sets how much is explored in both.
    """

    name = "rl"

    def __init__(
        self,
        space: Space,
        *,
        policy: Policy | None = None,
        state: State | None = None,
        **options: Any,  # noqa: ANN401 - those of every search
    ) -> None:
        """Prepare to search; ``state`` is of the call, which ``policy`` needs."""
        super().__init__(space, **options)
        self._policy, self._state = policy, state
        self._regime = "usual" if state is None else state.regime

    def targets(self) -> Iterator[tuple[Point, int]]:
        """Yield the policy's points, then the bandit's, at full effort."""
        for point in self._trained():
            yield point, self.full_effort
        rng = random.Random(self.seed)
        bandit = LinearBandit(self.space, rng, EXPLORING[self._regime])
        for point in self.measurements.ranked():
            bandit.learn(point, self._gain(point))
        while not self.exhausted:
            proposal = bandit.propose(self.measurements)
            point = self.space.nearest(proposal)  # another where the proposal has no program
            yield point, self.full_effort
            bandit.learn(proposal, self._gain(point))

    def _trained(self) -> Iterator[Point]:
        """Points of the policy's actions while they promise enough, each observed after it."""
        known = None
        if self._policy is not None and self._state is not None:
            known = self._policy.belief(self._state)
        if known is None:
            return
        belief, actions = known
        while (next_action := belief.next()) is not None:
            index, improvement = next_action
            if improvement < _WORTH_A_TRY[self._regime]:
                return
            action = actions[index]
            if action.method not in self.space.methods:
                belief.observe(index, UNABLE)
                continue
            point = action.point(self.space)
            yield point
            belief.observe(index, self._gain(point))

    def _gain(self, point: Point) -> float:
        """Log(default time / time); the best time stands in for a default that cannot run."""
        if not self.measurements.samples(point):
            return UNABLE
        default_us = self.measurements.us(self.space.default)
        if math.isinf(default_us):
            default_us = self.measurements.us(self.measurements.ranked()[0])
        return math.log(default_us / self.measurements.us(point))


def search_from(
    kind: type[Search],
    space: Space,
    state: State,
    policy: Policy | None,
    *,
    start: Sequence[Point] = (),
    **options: Any,  # noqa: ANN401 - those of every search
) -> Search:
    """Return a search of ``kind`` that begins with ``start`` and makes use of ``policy``.

    The agent itself calls it point by point instead of timing ``first``; any other search times its
    points before ``first``. A policy that knows nothing of the collective changes nothing.
    """
    points = [] if policy is None else policy.points(space, state, _POINTS)
    first = options.get("first", ())
    if issubclass(kind, RlSearch):
        options["first"] = [*start, *(() if points else first)]
        return kind(space, policy=policy, state=state, **options)
    options["first"] = [*start, *points, *first]
    return kind(space, **options)
