"""Initial points: the default, the neighbouring size's best, one point per method."""

from __future__ import annotations

from collections.abc import Mapping

from tuccl._native import Knobs, default_buffer_bytes
from tuccl.runtime.executors.knob_grid import THREADS, WHOLE_GRID, KnobGrid
from tuccl.synth import MSCCL_DEFAULT_KNOBS
from tuccl.tuning.searches.measurements import Measurements
from tuccl.tuning.searches.space import Channels, Plan, Point, Space

__all__ = ["default_point", "initial_points"]

_BEST_OF_NEIGHBOUR = 5
_PLANS_OF_NEIGHBOUR = 3
_HOPELESS = 3.0  # times as long as the best at the neighbouring size
_SMALL_BYTES = 64 << 10
_MIDDLE_BYTES = 1 << 20
_LARGE_BYTES = 16 << 20


def default_point(channels: Mapping[Plan, Channels], grid: KnobGrid = WHOLE_GRID) -> Point | None:
    """Return what untuned MSCCL runs, or the nearest to it that is legal; None: nothing is.

    The default knobs on the robust form of msccl-default, which plans begin with.
    """
    count = MSCCL_DEFAULT_KNOBS.channels
    for plan, by_protocol in channels.items():
        for protocol in grid.protocols:
            if count in by_protocol.get(protocol, ()):
                legal = grid.legal_threads(protocol, count)
                threads = max(t for t in legal if t <= MSCCL_DEFAULT_KNOBS.threads)
                return Point.of(plan, Knobs(protocol, count, threads))
    return None


def initial_points(
    space: Space, nbytes: int, neighbour: Measurements | None, most: int
) -> list[Point]:
    """Return at most ``most`` points to time before the search's own.

    The best points of the neighbouring size, and their plans with knobs that suit this one, since
    knobs may have to change together; then, for every method, its best point there, or where it
    has none its first plan with such knobs; then its plan on the last sketch, which leaves out
    least, and on the first. Methods go by their time at the neighbouring size, those without one
    before the hopeless.
    """
    ranked = [] if neighbour is None else neighbour.ranked()
    points = [space.nearest(p) for p in ranked[:_BEST_OF_NEIGHBOUR]]
    methods_there = {p.plan.method for p in points}
    plans = dict.fromkeys(p.plan for p in points)
    points += [_suited(space, plan, nbytes) for plan in plans][:_PLANS_OF_NEIGHBOUR]
    best: dict[str, Point] = {}
    for point in ranked:
        best.setdefault(point.plan.method, point)
    limit_us = _HOPELESS * neighbour.us(ranked[0]) if neighbour and ranked else 0.0
    times = {m: neighbour.us(p) if neighbour else 0.0 for m, p in best.items()}
    methods = sorted(space.methods, key=lambda m: times.get(m, limit_us))
    for method in methods:
        if method not in methods_there:
            near = best.get(method)
            points.append(space.nearest(near) if near else _first(space, method, nbytes))
    last = space.plans[-1].sketch
    points += [_first(space, method, nbytes, last) for method in methods]
    points += [_first(space, method, nbytes) for method in methods]
    return list(dict.fromkeys(points))[:most]


def _first(space: Space, method: str, nbytes: int, sketch: str = "") -> Point:
    """Return ``method``'s first plan, on ``sketch`` where it has one there, with suitable knobs."""
    plans = [p for p in space.plans if p.method == method]
    plan = next((p for p in plans if p.sketch == sketch), plans[0])
    return _suited(space, plan, nbytes)


def _suited(space: Space, plan: Plan, nbytes: int) -> Point:
    """Return ``plan`` with LL and one channel if small, Simple and more if large, LL128 between."""
    small, large = nbytes <= _SMALL_BYTES, nbytes >= _LARGE_BYTES
    preferred = "LL" if small else "Simple" if large else "LL128"
    protocol = preferred if preferred in space.protocols else space.protocols[0]
    channels = 1 if small else 8 if nbytes >= _MIDDLE_BYTES else 4
    buffer_bytes = default_buffer_bytes(protocol)
    return space.nearest(Point(plan, protocol, channels, THREADS[-1], buffer_bytes))
