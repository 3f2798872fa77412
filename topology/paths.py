"""Paths from GPU to GPU, by a rule that simulator, bounds and synthesis share.

A message takes the direct link between the two GPUs if there is one, else the widest and, among
those, the shortest path through relays (every node but GPUs: GPUs never forward); ties go to the
smallest sequence of node ids, compared as text. A fixed route of the topology comes before all.
"""

from __future__ import annotations

import heapq
import itertools
import math
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


def path(topology: Topology, src_rank: int, dst_rank: int) -> Path:
    """Return the path from one GPU to another.

    >>> from tuccl.topology import load_profile
    >>> path(load_profile("v100x4"), 0, 3).bandwidth
    50.0

    Raises:
        InputError: a rank is not in the topology, both are the same, or only other GPUs join them.
    """
    for rank in (src_rank, dst_rank):
        if not 0 <= rank < topology.ranks:
            raise InputError(
                f"rank {rank}: topology {topology.name[:60]!r} has ranks 0 to {topology.ranks - 1}"
            )
    if src_rank == dst_rank:
        raise InputError(f"rank {src_rank}: a path joins two different ranks")
    return topology.derived(_Routing).path(src_rank, dst_rank)


def all_paths(topology: Topology) -> dict[tuple[int, int], Path]:
    """Return the path of every ordered pair of ranks, cached per topology; do not change it.

    Pairs that only other GPUs connect, as in a torus, have none.
    """
    return topology.derived(_Routing).all


def relay_path(topology: Topology, src: str, dst: str) -> Path | None:
    """Return the widest, then shortest path between any two nodes through relays, or None.

    Fixed routes and the preference for direct links are those of `path`, not of this.
    """
    return topology.derived(_Routing).between(src, dst)


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
    """The paths of one topology, each computed when first needed."""

    def __init__(self, topology: Topology) -> None:
        self._kinds = {node.id: node.kind for node in topology.nodes}
        self._ids = [gpu.id for gpu in topology.gpus]
        self._hops = merged_hops(topology.links)
        self._fixed = {(route.src, route.dst): route.via for route in topology.routes}
        self._hops_from: dict[str, list[Hop]] = defaultdict(list)
        for _, hop in sorted(self._hops.items()):
            self._hops_from[hop.src].append(hop)
        self._widths: dict[str, dict[str, float]] = {}
        self._parents: dict[tuple[str, float], dict[str, str]] = {}
        self._paths: dict[tuple[int, int], Path | None] = {}

    @cached_property
    def all(self) -> dict[tuple[int, int], Path]:
        pairs = itertools.permutations(range(len(self._ids)), 2)
        paths = ((pair, self._cached(*pair)) for pair in pairs)
        return {pair: path for pair, path in paths if path is not None}

    def path(self, src_rank: int, dst_rank: int) -> Path:
        path = self._cached(src_rank, dst_rank)
        if path is None:
            src, dst = self._ids[src_rank], self._ids[dst_rank]
            raise InputError(
                f"no path from {src[:60]!r} to {dst[:60]!r}: neither a direct link nor relays join "
                "them, and GPUs pass on only what a program has them send"
            )
        return path

    def _cached(self, src_rank: int, dst_rank: int) -> Path | None:
        pair = src_rank, dst_rank
        if pair not in self._paths:
            self._paths[pair] = self._route(self._ids[src_rank], self._ids[dst_rank])
        return self._paths[pair]

    def _route(self, src: str, dst: str) -> Path | None:
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
        # be wrong: the shortest path is sought among the links that are at least that wide.
        if (src, width) not in self._parents:
            self._parents[src, width] = self._shortest_tree(src, width)
        return self._along(self._trace_back(self._parents[src, width], src, dst))

    def _along(self, nodes: tuple[str, ...]) -> Path:
        hops = tuple(self._hops[ends] for ends in itertools.pairwise(nodes))
        return Path(hops, tuple(node for node in nodes if self._kinds[node] == "nic"))

    def _bottlenecks(self, src: str) -> dict[str, float]:
        """Return the largest bottleneck from ``src`` to each node that relays lead to."""
        bottlenecks: dict[str, float] = {}
        heap = [(-math.inf, src)]
        while heap:
            minus_width, node = heapq.heappop(heap)
            if node != src and (-minus_width < bottlenecks[node] or self._kinds[node] == "gpu"):
                continue
            for hop in self._hops_from[node]:
                through = min(-minus_width, hop.bandwidth)
                if through > bottlenecks.get(hop.dst, 0.0):
                    bottlenecks[hop.dst] = through
                    heapq.heappush(heap, (-through, hop.dst))
        return bottlenecks

    def _shortest_tree(self, src: str, width: float) -> dict[str, str]:
        """Return the parent of each node on its first shortest path by links of that width.

        Breadth first, each level in the order of its paths' ids: whoever reaches a node first has
        the smallest sequence of ids.
        """
        parents = {src: src}
        level = [src]
        while level:
            next_level = []
            for node in level:
                if node != src and self._kinds[node] == "gpu":
                    continue
                for hop in self._hops_from[node]:
                    if hop.bandwidth >= width and hop.dst not in parents:
                        parents[hop.dst] = node
                        next_level.append(hop.dst)
            level = next_level
        return parents

    @staticmethod
    def _trace_back(parents: dict[str, str], src: str, dst: str) -> tuple[str, ...]:
        nodes = [dst]
        while nodes[-1] != src:
            nodes.append(parents[nodes[-1]])
        return tuple(reversed(nodes))
