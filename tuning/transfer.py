"""Points of a table as the first points of a search: of other sizes, collectives and machines."""

from __future__ import annotations

import math

from tuccl.runtime import Entry, LookupTable
from tuccl.synth import Collective
from tuccl.tuning.final_round import tuned_size
from tuccl.tuning.searches.space import Point, Space


def nearest_points(
    table: LookupTable, collective: Collective, nbytes: int, space: Space, most: int
) -> list[Point]:
    """Return at most ``most`` legal points of ``space`` that come nearest to those of ``table``.

    Those of the same collective come first, then by the distance of sizes: bytes a rank, for
    machines of other ranks change over at about the same. What is not legal here gives way to the
    nearest that is (`Space.nearest`); methods that are not here are left out, as are programs that
    no search made and choices of NCCL's own.
    """

    def distance(entry: Entry) -> tuple[bool, float]:
        ratio = tuned_size(entry) / table.ranks * collective.ranks / nbytes
        return entry.collective != collective.name, abs(math.log(ratio))

    near = (
        space.nearest(Point.of(c.choice, c.knobs.knobs))
        for entry in sorted(table.entries, key=distance)
        for c in entry.candidates
        if c.knobs is not None and c.sketch and c.method in space.methods
    )
    points: dict[Point, None] = {}  # `nearest` may make programs: for no more than it takes
    while len(points) < most and (point := next(near, None)) is not None:
        points[point] = None
    return list(points)
