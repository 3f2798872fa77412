"""Coordinate descent: one dimension at a time, until no single change is faster."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from tuccl.tuning.searches.initial_knobs import most_passes
from tuccl.tuning.searches.measurements import Measurements
from tuccl.tuning.searches.space import Dimension, Point, Space
from tuccl.tuning.searches.tie_break import with_default_knobs

FINE_DIMENSIONS = ("protocol", "chunking", "channels", "threads", "buffer")


def coordinate_descent(
    space: Space, measurements: Measurements, start: Point, names: Sequence[str] = FINE_DIMENSIONS
) -> Iterator[Point]:
    """Yield the points to time from ``start`` down, until no single change is faster.

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
                if _is_elsewhere(space, moved, dimension, index):
                    continue
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
            if _is_elsewhere(space, moved, dimension, index) or (
                dimension.name == "buffer" and most_passes(space, moved) == most_passes(space, best)
            ):
                index += step
                continue
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
    """Return `point` at `index`; where its channels need more threads than that, with fewer."""
    indices = {**space.indices(point), dimension.name: index}
    moved = space.point(indices)
    if dimension.name == "threads" and moved == point:
        moved = space.point({**indices, "channels": max(indices["channels"] - 1, 0)})
    return moved


def _is_elsewhere(space: Space, moved: Point, dimension: Dimension, index: int) -> bool:
    """Return whether another sketch than at `index` took its place, since it has no program."""
    of_sketch = dimension in space.sketch_axes.dimensions
    return of_sketch and space.indices(moved)[dimension.name] != index


def _better(measurements: Measurements, best: Point, other: Point) -> Generator[Point, None, Point]:
    """Yield ``other`` if it was not timed yet; return the faster of the two."""
    if other not in measurements:
        yield other
    return other if measurements.us(other) < measurements.us(best) else best
