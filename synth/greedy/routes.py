"""Routes that a greedy plan may use, in a network with rotation symmetry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tuccl._native import PeriodicNetwork
from tuccl.synth.greedy.rotation import RotationSymmetry
from tuccl.synth.model.network import Network

__all__ = ["Ends", "Routes"]

# The tile that the executor passes through all steps: four of the eight slots of Simple's default
# 4 MiB buffer (docs/simulator.md).
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
        tiles = max(1, -(-chunk_bytes // _TILE_BYTES))
        network, symmetry = self.network, self.symmetry
        busy_us = [
            chunk_bytes / tiles * symmetry.orbit_load[orbit] / float(rate) / 1e3
            for orbit, rate in zip(symmetry.orbit, network.rates, strict=True)
        ]
        hosts = network.hosts[: symmetry.ranks]
        number = {host: n for n, host in enumerate(dict.fromkeys(hosts))}
        routes = []
        for (src, dst, period), pair in zip(self.ends, self.pairs, strict=True):
            inter = len({network.hosts[rank] for rank in network.pairs[pair]}) > 1
            hops = [(symmetry.orbit[n], busy_us[n]) for n in network.routes[pair]]
            if reverse:
                src, dst, period, hops = dst, src, -period % symmetry.periods, hops[::-1]
            routes.append((src, dst, period, inter, network.latencies_us[pair], hops))
        resources = len(symmetry.orbit_load)
        return PeriodicNetwork(
            symmetry.periods, [number[host] for host in hosts], resources, tiles, routes
        )

    def connections(self, routes: Iterable[int]) -> int:
        """Return the most connections that a rank has by these different routes."""
        ends = [self.ends[route] for route in set(routes)]
        return max(Counter(rank for end in ends for rank in (end.src, end.dst)).values(), default=0)
