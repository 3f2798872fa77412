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

from tuccl.topology.graph import Link, LinkKind, Node, Topology
from tuccl.topology.host_swaps import HostSwaps


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
        return min([hop.bandwidth for hop in self.hops])

    @cached_property
    def latency(self) -> float:
        """Return the sum of the hops' latencies in us."""
        return sum([hop.latency for hop in self.hops])

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


def _host_parts(topology: Topology) -> dict[str, tuple[tuple[Node, ...], tuple[Link, ...]]]:
    """Return the nodes of each host, and those of no host but switches, with the links of these."""
    everywhere = set(topology.hosts)
    of_node = {}
    for node in topology.nodes:
        hosts = everywhere & {node.host} if node.host is not None else everywhere
        of_node[node.id] = set() if node.host is None and node.kind == "switch" else hosts
    nodes: dict[str, list[Node]] = {host: [] for host in everywhere}
    links: dict[str, list[Link]] = {host: [] for host in everywhere}
    for node in topology.nodes:
        for host in of_node[node.id]:
            nodes[host].append(node)
    for link in topology.links:
        for host in of_node[link.src] & of_node[link.dst]:
            links[host].append(link)
    return {host: (tuple(nodes[host]), tuple(links[host])) for host in everywhere}


class RelayPaths:
    """The paths of one topology through relays, each computed when first needed."""

    def __init__(self, topology: Topology, host: str | None = None) -> None:
        """Merge the parallel links of ``topology``, or of one host of it alone."""
        nodes, links = topology.nodes, topology.links
        if host is not None:
            nodes, links = topology.derived(_host_parts)[host]
        self._kinds = {node.id: node.kind for node in nodes}
        self._hosts = {node.id: node.host for node in nodes}
        self.hops = merged_hops(links)
        self._hops_from: dict[str, list[Hop]] = defaultdict(list)
        self._hops_to: dict[str, list[Hop]] = defaultdict(list)
        for hop in self.hops.values():
            self._hops_from[hop.src].append(hop)
            self._hops_to[hop.dst].append(hop)
        self._widths: dict[str, dict[str, float]] = {}
        self._onward: dict[tuple[str, float], dict[str, list[str]]] = {}
        self._shared: dict[tuple[str, str], tuple[str, ...] | None] = {}
        self._alike: dict[tuple[str, str], bool] = {}

    def between(self, src: str, dst: str) -> Path | None:
        """Return what `relay_path` returns."""
        if src == dst:
            return None
        ends = src, dst
        first = self.swaps.first(src, dst)
        if first == ends:
            nodes = self._search(ends)
        else:
            if first not in self._shared:
                self._shared[first] = self._search(first) if self.has_images(*first) else None
            shared = self._shared[first]
            images = None if shared is None else self.swaps.moved(shared, first, ends)
            nodes = self._search(ends) if images is None else images
        return self.along(nodes) if nodes else None

    def has_images(self, src: str, dst: str) -> bool:
        """Return whether images of the path between two nodes are the paths between their images.

        So it is where, wherever shortest paths part, all go on within one of the ends' hosts or to
        nodes of no host: such nodes keep the order of their ids when hosts swap.
        """
        ends = self.swaps.first(src, dst)
        if ends not in self._alike:
            self._alike[ends] = self._keeps_choices(ends)
        return self._alike[ends]

    def _keeps_choices(self, ends: tuple[str, str]) -> bool:
        width = self._width(ends)
        onward = {} if width is None else self._onward_to(ends[1], width)
        choices = [set(map(self.swaps.host, onward[node])) for node in self._search(ends)[:-1]]
        allowed = {None, *map(self.swaps.host, ends)}
        return all(len(hosts - {None}) <= 1 and hosts <= allowed for hosts in choices)

    @cached_property
    def swaps(self) -> HostSwaps:
        """Return the hosts that may change places."""
        return HostSwaps(
            self._hosts,
            self._kinds,
            {ends: (hop.kind, hop.bandwidth) for ends, hop in self.hops.items()},
        )

    def _search(self, ends: tuple[str, str]) -> tuple[str, ...]:
        """Return the nodes of the path from one node to another; () where there is none."""
        width = self._width(ends)
        if width is None:
            return ()
        # Widest-then-shortest is not isotone, so one Dijkstra run on the pair (width, hops) would
        # be wrong: the shortest path is sought among the links that are at least that wide.
        onward = self._onward_to(ends[1], width)
        nodes = [ends[0]]
        while nodes[-1] != ends[1]:
            nodes.append(onward[nodes[-1]][0])
        return tuple(nodes)

    def _width(self, ends: tuple[str, str]) -> float | None:
        src, dst = self.swaps.first(*ends)
        if src not in self._widths:
            self._widths[src] = self._bottlenecks(src)
        return self._widths[src].get(dst)

    def _onward_to(self, dst: str, width: float) -> dict[str, list[str]]:
        if (dst, width) not in self._onward:
            self._onward[dst, width] = self._shortest_to(dst, width)
        return self._onward[dst, width]

    def along(self, nodes: tuple[str, ...]) -> Path:
        """Return the path along ``nodes``, each linked to the next."""
        hops = tuple([self.hops[ends] for ends in itertools.pairwise(nodes)])
        return Path(hops, tuple([node for node in nodes if self._kinds[node] == "nic"]))

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

    def _shortest_to(self, dst: str, width: float) -> dict[str, list[str]]:
        """Return the nodes that shortest paths to `dst` by links of that width go on to from each.

        They are in the order of their ids, so who takes the first of them each time has the
        smallest sequence of ids.
        """
        onward: dict[str, list[str]] = {dst: []}
        level = [dst]
        while level:
            before: dict[str, list[str]] = defaultdict(list)
            for node in level:
                if node != dst and self._kinds[node] == "gpu":
                    continue
                for hop in self._hops_to[node]:
                    if hop.bandwidth >= width and hop.src not in onward:
                        before[hop.src].append(node)
            onward |= {node: sorted(following) for node, following in before.items()}
            level = list(before)
        return onward
