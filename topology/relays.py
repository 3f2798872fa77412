"""Paths between any two nodes through relays: the widest, and among those the shortest.

Relays are every node but GPUs, which never forward. Ties go to the smallest sequence of node ids,
compared as text.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from functools import cached_property

import msgspec

from tuccl.topology.graph import Link, LinkKind, Topology
from tuccl.topology.symmetry import HostSwaps


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


def relay_path(topology: Topology, src: str, dst: str) -> Path | None:
    """Return the widest, then shortest path between any two nodes through relays, or None.

    Fixed routes and the preference for direct links are those of `path`, not of this.
    """
    return topology.derived(RelayPaths).between(src, dst)


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


class RelayPaths:
    """The paths of one topology through relays, each computed when first needed."""

    def __init__(self, topology: Topology, host: str | None = None) -> None:
        """Merge the parallel links of ``topology``, or of one host of it alone."""
        self._kinds = {
            node.id: node.kind
            for node in topology.nodes
            if host is None or node.host == host or (node.host is None and node.kind != "switch")
        }
        self._hosts = {node.id: node.host for node in topology.nodes if node.id in self._kinds}
        links = (k for k in topology.links if k.src in self._kinds and k.dst in self._kinds)
        self.hops = merged_hops(tuple(links))
        self._hops_from: dict[str, list[Hop]] = defaultdict(list)
        for _, hop in sorted(self.hops.items()):
            self._hops_from[hop.src].append(hop)
        self._widths: dict[str, dict[str, float]] = {}
        self._parents: dict[tuple[str, float], dict[str, str]] = {}

    def between(self, src: str, dst: str) -> Path | None:
        """Return what `relay_path` returns."""
        first, image = self._representatives.swapped(src, dst)
        if first not in self._widths:
            self._widths[first] = self._bottlenecks(first)
        width = self._widths[first].get(image)
        if width is None or src == dst:
            return None
        # Widest-then-shortest is not isotone, so one Dijkstra run on the pair (width, hops) would
        # be wrong: the shortest path is sought among the links that are at least that wide.
        if (src, width) not in self._parents:
            self._parents[src, width] = self._shortest_tree(src, width)
        return self.along(self._trace_back(self._parents[src, width], src, dst))

    @cached_property
    def _representatives(self) -> HostSwaps:
        return HostSwaps(
            self._hosts,
            self._kinds,
            {ends: (hop.kind, hop.bandwidth) for ends, hop in self.hops.items()},
        )

    def along(self, nodes: tuple[str, ...]) -> Path:
        """Return the path along ``nodes``, each linked to the next."""
        hops = tuple(self.hops[ends] for ends in itertools.pairwise(nodes))
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
