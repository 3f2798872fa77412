"""The way from GPU to GPU, a rule that simulator, bounds and synthesis share.

A message takes the direct link between the two GPUs if there is one, else the widest and, among
those, the shortest way through relays (every node but GPUs: GPUs never forward); ties go to the
smallest sequence of node ids, compared as text. A fixed route of the topology comes before all.
"""

from __future__ import annotations

import heapq
import itertools
import math
import weakref
from collections import defaultdict
from functools import cached_property

import msgspec

from tuccl.errors import InputError
from tuccl.topology.graph import Link, LinkKind, Topology

__all__ = ["Hop", "Path", "all_paths", "path", "relay_path"]


class Hop(msgspec.Struct, frozen=True):
    """One direction of all links from ``src`` to ``dst``, added up.

    Attributes:
        src: node id.
        dst: node id.
        kind: of the widest of the links.
        bandwidth: their sum in GB/s.
        latency: of the widest of the links, in us.
    """

    src: str
    dst: str
    kind: LinkKind
    bandwidth: float
    latency: float


class Path(msgspec.Struct, frozen=True, dict=True):
    """The hops from one node to another.

    Attributes:
        hops: in order.
        nics: ids of the NICs passed or ended at, in order.
    """

    hops: tuple[Hop, ...]
    nics: tuple[str, ...] = ()

    @cached_property
    def bandwidth(self) -> float:
        """Return the rate of the narrowest hop in GB/s."""
        return min(hop.bandwidth for hop in self.hops)

    @cached_property
    def latency(self) -> float:
        """Return the sum of the hops' latencies in us."""
        return sum(hop.latency for hop in self.hops)

    @property
    def crosses_network(self) -> bool:
        """Return whether the path leaves a host: by a NIC, or by a link of kind network."""
        return bool(self.nics) or any(hop.kind == "network" for hop in self.hops)


def path(t: Topology, src_rank: int, dst_rank: int) -> Path:
    """Return the way from one GPU to another.

    >>> from tuccl.topology import load_profile
    >>> path(load_profile("v100x4"), 0, 3).bandwidth
    50.0

    Raises:
        InputError: a rank is not in the topology, both are the same, or only other GPUs join them.
    """
    for rank in (src_rank, dst_rank):
        if not 0 <= rank < t.ranks:
            raise InputError(f"rank {rank}: topology {t.name[:60]!r} has ranks 0 to {t.ranks - 1}")
    if src_rank == dst_rank:
        raise InputError(f"rank {src_rank}: a path joins two different ranks")
    return _routing(t).path(src_rank, dst_rank)


def all_paths(t: Topology) -> dict[tuple[int, int], Path]:
    """Return the way of every ordered pair of ranks, cached per topology; do not change it.

    Pairs that only other GPUs join, as in a torus, have none.
    """
    return _routing(t).all


def relay_path(t: Topology, src: str, dst: str) -> Path | None:
    """Return the widest, then shortest way between any two nodes through relays, or None.

    Fixed routes and the preference for direct links are those of `path`, not of this.
    """
    return _routing(t).between(src, dst)


def merged_hops(links: tuple[Link, ...]) -> dict[tuple[str, str], Hop]:
    """Return one hop for each ordered pair of nodes that ``links`` join."""
    parallel: dict[tuple[str, str], list[Link]] = defaultdict(list)
    for link in links:
        for ends in link.directions():
            parallel[ends].append(link)
    hops = {}
    for (src, dst), group in parallel.items():
        widest = max(group, key=lambda link: (link.bandwidth, -link.latency, link.kind))
        total = sum(sorted(link.bandwidth for link in group))
        hops[src, dst] = Hop(src, dst, widest.kind, total, widest.latency)
    return hops


class _Routing:
    """The paths of one topology, found when first asked for."""

    def __init__(self, t: Topology) -> None:
        self._kinds = {node.id: node.kind for node in t.nodes}
        self._ids = [gpu.id for gpu in t.gpus]
        self._hops = merged_hops(t.links)
        self._fixed = {(route.src, route.dst): route.via for route in t.routes}
        ahead: dict[str, list[Hop]] = defaultdict(list)
        for _, hop in sorted(self._hops.items()):
            ahead[hop.src].append(hop)
        self._ahead = ahead
        self._widths: dict[str, dict[str, float]] = {}
        self._parents: dict[tuple[str, float], dict[str, str]] = {}
        self._paths: dict[tuple[int, int], Path | None] = {}

    @cached_property
    def all(self) -> dict[tuple[int, int], Path]:
        pairs = itertools.permutations(range(len(self._ids)), 2)
        ways = ((pair, self._known(*pair)) for pair in pairs)
        return {pair: way for pair, way in ways if way is not None}

    def path(self, src_rank: int, dst_rank: int) -> Path:
        found = self._known(src_rank, dst_rank)
        if found is None:
            src, dst = self._ids[src_rank], self._ids[dst_rank]
            raise InputError(
                f"no way from {src[:60]!r} to {dst[:60]!r}: neither a direct link nor relays join "
                "them, and GPUs pass on only what a program has them send"
            )
        return found

    def _known(self, src_rank: int, dst_rank: int) -> Path | None:
        pair = src_rank, dst_rank
        if pair not in self._paths:
            self._paths[pair] = self._find(self._ids[src_rank], self._ids[dst_rank])
        return self._paths[pair]

    def _find(self, src: str, dst: str) -> Path | None:
        if (via := self._fixed.get((src, dst))) is not None:
            return self._along((src, *via, dst))
        if (src, dst) in self._hops:
            return self._along((src, dst))
        return self.between(src, dst)

    def between(self, src: str, dst: str) -> Path | None:
        if src not in self._widths:
            self._widths[src] = self._bottlenecks(src)
        width = self._widths[src].get(dst)
        if width is None or src == dst:
            return None
        # Widest-then-shortest is not isotone, so one Dijkstra run on the pair (width, hops) would
        # be wrong: the shortest way is sought among the links that are at least that wide.
        if (src, width) not in self._parents:
            self._parents[src, width] = self._shortest_tree(src, width)
        return self._along(self._walk_back(self._parents[src, width], src, dst))

    def _along(self, stations: tuple[str, ...]) -> Path:
        hops = tuple(self._hops[ends] for ends in itertools.pairwise(stations))
        return Path(hops, tuple(i for i in stations if self._kinds[i] == "nic"))

    def _bottlenecks(self, src: str) -> dict[str, float]:
        """Return the largest bottleneck from ``src`` to each node that relays lead to."""
        best: dict[str, float] = {}
        heap = [(-math.inf, src)]
        while heap:
            negative, station = heapq.heappop(heap)
            if station != src and (-negative < best[station] or self._kinds[station] == "gpu"):
                continue
            for hop in self._ahead[station]:
                through = min(-negative, hop.bandwidth)
                if through > best.get(hop.dst, 0.0):
                    best[hop.dst] = through
                    heapq.heappush(heap, (-through, hop.dst))
        return best

    def _shortest_tree(self, src: str, width: float) -> dict[str, str]:
        """Return the parent of each node on its first shortest way by links of that width.

        Breadth first, each level in the order of its ways' ids: whoever reaches a node first has
        the smallest sequence of ids.
        """
        parents = {src: src}
        level = [src]
        while level:
            following = []
            for station in level:
                if station != src and self._kinds[station] == "gpu":
                    continue
                for hop in self._ahead[station]:
                    if hop.bandwidth >= width and hop.dst not in parents:
                        parents[hop.dst] = station
                        following.append(hop.dst)
            level = following
        return parents

    @staticmethod
    def _walk_back(parents: dict[str, str], src: str, dst: str) -> tuple[str, ...]:
        stations = [dst]
        while stations[-1] != src:
            stations.append(parents[stations[-1]])
        return tuple(reversed(stations))


_ROUTINGS: dict[int, _Routing] = {}


def _routing(t: Topology) -> _Routing:
    found = _ROUTINGS.get(id(t))
    if found is None:
        found = _ROUTINGS[id(t)] = _Routing(t)
        weakref.finalize(t, _ROUTINGS.pop, id(t), None)
    return found
