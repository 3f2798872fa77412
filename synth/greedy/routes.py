"""Routes that a greedy plan may use, in a network that a rotation of its ranks may keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tuccl.planners import PeriodicNetwork
from tuccl.synth.model.network import Network
from tuccl.topology.symmetry import LinkGraph, Symmetry, host_sets, rotation

# The tile that the executor passes through all steps: four of the eight slots of Simple's default
# 4 MiB buffer (docs/reference/simulator.md).
_TILE_BYTES = 2 << 20


def no_symmetry(network: Network) -> Symmetry:
    """Return the identity alone."""
    _, rate = network.distinct_rates
    costs = [
        (latency_us, *(rate[resource] for resource in route))
        for latency_us, route in zip(network.latencies_us, network.routes, strict=True)
    ]
    hosts = host_sets(network.hosts)
    return Symmetry(LinkGraph(network.ranks, network.pairs, costs, network.routes, hosts))


def rotation_symmetry(network: Network) -> Symmetry:
    """Return the rotations by the fewest whole hosts that keep the network, or the identity alone.

    >>> from tuccl.sketches import full_mesh
    >>> from tuccl.synth.model.network import sketch_network
    >>> from tuccl.topology import join, load_profile
    >>> t = join(load_profile("dgx-a100"), 4)
    >>> len(rotation_symmetry(sketch_network(full_mesh(t), t)))
    4
    """
    single, ranks = no_symmetry(network), network.ranks
    ranks_per_host = network.hosts.count(network.hosts[0])
    rotations = (
        single.graph.automorphism(rotation(ranks, size, ranks))
        for size in range(ranks_per_host, ranks // 2 + 1, ranks_per_host)
        if ranks % size == 0
    )
    first = next(filter(None, rotations), None)
    return single if first is None else Symmetry(single.graph, (first,))


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
        symmetry: Rotations: periods are groups of consecutive ranks that these permute.
        pairs: Numbers of the pairs that may be used.
    """

    network: Network
    symmetry: Symmetry
    pairs: tuple[int, ...]

    @property
    def periods(self) -> int:
        """Return the number of periods."""
        return len(self.symmetry)

    @property
    def period_ranks(self) -> int:
        """Return the ranks of a period."""
        return self.network.ranks // self.periods

    @cached_property
    def ends(self) -> list[Ends]:
        """Return the ends of each route."""
        size = self.period_ranks
        pairs = (self.network.pairs[pair] for pair in self.pairs)
        return [Ends(src, dst % size, dst // size) for src, dst in pairs]

    def periodic_network(self, chunk_bytes: int, *, reverse: bool = False) -> PeriodicNetwork:
        """Return the routes as native planners take them, with the time that a tile occupies each.

        A resource is busy while bytes pass; a chunk arrives a latency later, as a whole.
        """
        orbits = self.symmetry.resource_orbits
        number = {resource: n for n, orbit in enumerate(orbits) for resource in orbit}
        return PeriodicNetwork(
            self.network.native,
            self.network.hosts,
            self.period_ranks,
            [number[resource] for resource in range(len(number))],
            [self.periods / len(orbit) for orbit in orbits],
            self.pairs,
            chunk_bytes=chunk_bytes,
            tiles=-(-chunk_bytes // _TILE_BYTES),
            reverse=reverse,
        )

    def connections(self, routes: Iterable[int]) -> int:
        """Return the most connections that a rank has by these different routes."""
        ends = [self.ends[route] for route in set(routes)]
        return max(Counter(rank for end in ends for rank in (end.src, end.dst)).values(), default=0)
