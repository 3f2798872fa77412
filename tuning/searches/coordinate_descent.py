"""Coordinate descent: one dimension at a time, until no single change is faster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

from tuccl.tuning.searches.measurements import Measurements
from tuccl.tuning.searches.space import Dimension, Point, Space
from tuccl.tuning.searches.tie_break import with_default_knobs

__all__ = ["ALL_DIMENSIONS", "coordinate_descent", "coordinate_descents"]

_FEWEST_METHODS = 2
# What programs differ by most, and what is left for the few that are near the best.
_COARSE = ("protocol", "chunking", "channels")
_FINE = (*_COARSE, "threads", "buffer")
ALL_DIMENSIONS = ("method", "sketch", *_FINE)
_BETWEEN = 3  # coarse descents after which the best point goes on by the fine dimensions


def coordinate_descents(space: Space, measurements: Measurements, most: int) -> Iterator[Point]:
    """Yield the points to time of ``most`` descents, each from another method and sketch.

    These go by protocol, chunking and channels; after every few, and in the end, the best point of
    all goes on by threads and buffer too. A point must be in ``measurements`` before the next is
    taken. Nothing is yielded where these know a single method.

    Notes:
        Worth it where one sample tells a point's time: it spends half a dozen of them on each of a
        few programs, where an estimator spreads as many over all.
    """
    if len({point.plan.method for point in measurements.ranked()}) < _FEWEST_METHODS:
        return
    done: dict[str, list[str]] = defaultdict(list)  # sketches by method
    for count in range(1, most + 1):
        fresh = (
            p for p in measurements.ranked() if not _is_done(measurements, p, done[p.plan.method])
        )
        if (start := next(fresh, None)) is not None:
            done[start.plan.method].append(start.plan.sketch)
            yield from coordinate_descent(space, measurements, start, _COARSE)
        if start is None or count % _BETWEEN == 0 or count == most:
            yield from coordinate_descent(space, measurements, measurements.ranked()[0])
        if start is None:
            return


def _is_done(measurements: Measurements, point: Point, sketches: Sequence[str]) -> bool:
    """Return whether the method was on the point's sketch, or takes as long on one where it was."""
    plans = [replace(point.plan, sketch=sketch) for sketch in sketches]
    return point.plan in plans or any(
        measurements.us(replace(point, plan=plan)) == measurements.us(point) for plan in plans
    )


def coordinate_descent(
    space: Space, measurements: Measurements, start: Point, names: Sequence[str] = _FINE
) -> Iterator[Point]:
    """Yield the points to time on the way from ``start`` down, until no single change is faster.

    Only the dimensions of ``names`` are changed. Categories are tried one by one, protocols with
    their default threads and buffer; ordered dimensions step by step in either direction as long
    as that gains.
    """
    best, before = start, None
    while best != before:
        before = best
        for dimension in space.dimensions:
            if dimension.name not in names:
                continue
            if dimension.ordinal:
                best = yield from _slide(space, measurements, best, dimension)
                continue
            for index in range(dimension.size):
                moved = _moved(space, best, dimension, index)
                if dimension.name == "protocol":
                    moved = space.nearest(with_default_knobs(moved))
                best = yield from _better(measurements, best, moved)


def _slide(
    space: Space, measurements: Measurements, best: Point, dimension: Dimension
) -> Generator[Point, None, Point]:
    """Yield the points along `dimension` on either side while they gain; return the best.

    Of buffers that are larger than needed one is as good as the next: there one step that changes
    nothing is no end.
    """
    for step in (1, -1):
        index, level = space.indices(best)[dimension.name] + step, 0
        while 0 <= index < dimension.size:
            moved = _moved(space, best, dimension, index)
            if (yield from _better(measurements, best, moved)) == moved:
                best, level = moved, 0
            elif (
                dimension.name == "buffer"
                and measurements.us(moved) == measurements.us(best)
                and not level
            ):
                level = 1
            else:
                break
            index += step
    return best


def _moved(space: Space, point: Point, dimension: Dimension, index: int) -> Point:
    return space.point({**space.indices(point), dimension.name: index})


def _better(measurements: Measurements, best: Point, other: Point) -> Generator[Point, None, Point]:
    """Yield ``other`` if it was not timed yet; return the faster of the two."""
    if other not in measurements:
        yield other
    return other if measurements.us(other) < measurements.us(best) else best
