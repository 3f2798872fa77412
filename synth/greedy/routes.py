"""Routes that a greedy plan may use, in a network with rotation symmetry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tuccl.planners import PeriodicNetwork
from tuccl.synth.greedy.rotation import RotationSymmetry
from tuccl.synth.model.network import Network

# The tile that the executor passes through all steps: four of the eight slots of Simple's default
# 4 MiB buffer (docs/reference/simulator.md).
_TILE_BYTES = 2 << 20


class Ends(NamedTuple):
    """Source and destination of a route as ranks of a period, and the periods between them."""

    src: int
    dst: int
    period: int


@dataclass(frozen=True)
class Routes:
    """Pairs of a network whose source is in the first period.

    Attributes:
        network: All pairs with their routes and resources.
        symmetry: The periods.
        pairs: Numbers of the pairs that may be used.
    """

    network: Network
    symmetry: RotationSymmetry
    pairs: tuple[int, ...]

    @cached_property
    def ends(self) -> list[Ends]:
        """Return the ends of each route."""
        size = self.symmetry.ranks
        pairs = (self.network.pairs[pair] for pair in self.pairs)
        return [Ends(src, dst % size, dst // size) for src, dst in pairs]

    def periodic_network(self, chunk_bytes: int, *, reverse: bool = False) -> PeriodicNetwork:
        """Return the routes as native planners take them, with the time that a tile occupies each.

        A resource is busy while bytes pass; a chunk arrives a latency later, as a whole.
        """
        symmetry = self.symmetry
        return PeriodicNetwork(
            self.network.native,
            self.network.hosts,
            symmetry.ranks,
            symmetry.orbit,
            symmetry.orbit_load,
            self.pairs,
            chunk_bytes=chunk_bytes,
            tiles=-(-chunk_bytes // _TILE_BYTES),
            reverse=reverse,
        )

    def connections(self, routes: Iterable[int]) -> int:
        """Return the most connections that a rank has by these different routes."""
        ends = [self.ends[route] for route in set(routes)]
        return max(Counter(rank for end in ends for rank in (end.src, end.dst)).values(), default=0)
