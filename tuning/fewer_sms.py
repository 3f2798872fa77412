"""Points that occupy fewer SMs: what they leave, a job can compute with meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tuccl.runtime.table import pareto_set
from tuccl.tuning.evaluate import Evaluator
from tuccl.tuning.searches.measurements import Measurements
from tuccl.tuning.searches.space import Point, Space


@dataclass(frozen=True)
class _Cost:
    """A timed point with its time in us and the SMs of its program."""

    point: Point
    us: float
    sms: float

    @property
    def pair(self) -> tuple[float, float]:
        return self.us, self.sms


def pareto_points(
    evaluate: Evaluator, measurements: Measurements, effort: int, limit_us: float
) -> list[Point]:
    """Return the points under ``limit_us`` that no other beats in time or SMs, fastest first.

    Only points with at least ``effort`` repeats count.
    """
    costs = list(_costs(evaluate, measurements, effort, limit_us))
    return [cost.point for cost in pareto_set(costs, lambda cost: cost.pair)]


def time_leaner_points(
    space: Space,
    evaluate: Evaluator,
    measurements: Measurements,
    effort: int,
    limit_us: float,
    most: int,
) -> None:
    """Time up to ``most`` points that may take fewer SMs than those that were timed.

    These are points under ``limit_us`` with fewer channels, and each method's best choice with the
    knobs of the fastest point and as few channels as it has; those from faster points come first.
    One is tried unless a timed point is at least as good as can be hoped of it. Samples join
    ``measurements``.
    """
    for _ in range(most):
        costs = list(_costs(evaluate, measurements, effort))
        front = pareto_set(costs, lambda cost: cost.pair)
        trials = [
            trial
            for trial in _trials(space, costs, limit_us)
            if trial.point not in measurements
            and not any(cost.us <= trial.hope_us and cost.sms <= trial.sms for cost in front)
        ]
        if not trials:
            return
        point = min(trials, key=lambda trial: (trial.known_us, trial.sms)).point
        measurements.add(point, evaluate(point, effort), effort)


@dataclass(frozen=True)
class _Trial:
    """A point to time: the time that it comes from, the least to hope for, and its SMs."""

    point: Point
    known_us: float
    hope_us: float
    sms: float


def _trials(space: Space, costs: Sequence[_Cost], limit_us: float) -> Iterator[_Trial]:
    """The next fewer channels of each point, and each method with the fastest point's knobs."""
    methods: set[str] = set()
    for cost in costs:
        point, fastest = cost.point, costs[0]
        counts = space.channels(point.choice).get(point.protocol, ())
        fewer = max((count for count in counts if count < point.channels), default=0)
        if fewer and cost.us < limit_us:
            near = space.nearest(replace(point, channels=fewer))
            yield _Trial(near, cost.us, cost.us, cost.sms * fewer / point.channels)
        counts = space.channels(point.choice).get(fastest.point.protocol, ())
        if counts and point.choice.method not in methods:
            methods.add(point.choice.method)
            near = space.nearest(replace(fastest.point, choice=point.choice, channels=counts[0]))
            sms = cost.sms * counts[0] / point.channels
            if sms < fastest.sms:
                yield _Trial(near, cost.us, fastest.us, sms)


def _costs(
    evaluate: Evaluator, measurements: Measurements, effort: int, limit_us: float = math.inf
) -> Iterator[_Cost]:
    """The costs of the fastest point of each program, fastest first."""
    fastest: dict[tuple[object, ...], Point] = {}
    for point in evaluate.ranked(measurements, effort):
        fastest.setdefault((point.choice, point.protocol, point.channels), point)
    for point in fastest.values():
        if (us := measurements.us(point)) < limit_us:
            yield _Cost(point, us, evaluate.program(point).program.threadblocks)
