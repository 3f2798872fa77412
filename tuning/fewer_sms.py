"""Points that occupy fewer SMs: what they leave, a job can compute with meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tuccl.runtime.table import pareto_set
from tuccl.tuning.evaluate import Evaluator
from tuccl.tuning.searches.measurements import Measurements
from tuccl.tuning.searches.space import Point, Space

__all__ = ["pareto_points", "time_fewer_channels"]


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


def time_fewer_channels(
    space: Space,
    evaluate: Evaluator,
    measurements: Measurements,
    effort: int,
    limit_us: float,
    most: int,
) -> None:
    """Time up to ``most`` points with fewer channels than those under ``limit_us`` have.

    The fastest come first; one is tried unless a timed point already takes as few SMs as it would
    and no longer than its neighbour with more channels does. Samples join ``measurements``.
    """
    for _ in range(most):
        costs = list(_costs(evaluate, measurements, effort, limit_us))
        front = pareto_set(costs, lambda cost: cost.pair)
        hopes = (hope for cost in costs if (hope := _with_fewer_channels(space, cost)) is not None)
        point = next(
            (
                hope.point
                for hope in sorted(hopes, key=lambda hope: hope.pair)
                if hope.point not in measurements
                and not any(cost.us <= hope.us and cost.sms <= hope.sms for cost in front)
            ),
            None,
        )
        if point is None:
            return
        measurements.add(point, evaluate(point, effort), effort)


def _costs(
    evaluate: Evaluator, measurements: Measurements, effort: int, limit_us: float
) -> Iterator[_Cost]:
    """The costs of the fastest point of each program."""
    fastest: dict[tuple[object, ...], Point] = {}
    for point in measurements.ranked(effort):
        fastest.setdefault((point.plan, point.protocol, point.channels), point)
    for point in fastest.values():
        if (us := measurements.us(point)) < limit_us:
            yield _Cost(point, us, evaluate.program(point).program.threadblocks)


def _with_fewer_channels(space: Space, cost: _Cost) -> _Cost | None:
    """The next fewer channels with the SMs that they would take, and at best the same time."""
    point = cost.point
    counts = space.channels(point.plan).get(point.protocol, ())
    fewer = max((count for count in counts if count < point.channels), default=None)
    if fewer is None:
        return None
    nearest = space.nearest(replace(point, channels=fewer))
    return _Cost(nearest, cost.us, cost.sms * fewer / point.channels)
