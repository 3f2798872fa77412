"""Points of a table as the first points of a search: of other sizes, collectives and machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tuccl.runtime import LookupTable
from tuccl.synth import Collective
from tuccl.tuning.final_round import tuned_size
from tuccl.tuning.searches.space import Point, ScheduleChoice, Space

__all__ = ["TablePoint", "nearest_points", "table_points"]


class TablePoint(NamedTuple):
    """A point that won, for a collective at a size in bytes a rank."""

    collective: str
    bytes_per_rank: float
    point: Point


def table_points(table: LookupTable) -> tuple[TablePoint, ...]:
    """Return the points of the programs in ``table``, entry by entry, the preferred first.

    Programs that no search made, and choices of NCCL's own, are no points.
    """
    return tuple(
        TablePoint(
            entry.collective,
            tuned_size(entry) / table.ranks,
            Point.of(ScheduleChoice(c.sketch, c.method, c.chunks_per_rank), c.knobs.knobs),
        )
        for entry in table.entries
        for c in entry.candidates
        if c.knobs is not None and c.method and c.sketch
    )


def nearest_points(
    points: Sequence[TablePoint],
    collective: Collective,
    nbytes: int,
    space: Space,
    most: int,
) -> list[Point]:
    """Return at most ``most`` legal points of ``space`` that come nearest to ``points``.

    Those of the same collective come first, then by the distance of sizes: bytes a rank, for
    machines of other ranks change over at about the same. What is not legal
    here gives way to the nearest that is (`Space.nearest`); methods that are not here are left out.
    """

    def distance(other: TablePoint) -> tuple[bool, float]:
        ratio = other.bytes_per_rank * collective.ranks / nbytes
        return other.collective != collective.name, abs(math.log(ratio))

    near = (
        space.nearest(other.point)
        for other in sorted(points, key=distance)
        if other.point.choice.method in space.methods
    )
    return list(dict.fromkeys(near))[:most]
