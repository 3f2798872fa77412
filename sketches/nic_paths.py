"""Paths from GPUs to the NICs of their host, and between GPUs by given NICs."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from functools import cached_property

from tuccl.errors import InputError
from tuccl.topology.graph import Topology
from tuccl.topology.merge import merge_nics
from tuccl.topology.paths import path
from tuccl.topology.relays import Hop, Path, merged_hops

# A path to a NIC runs over the host's own buses; NVLink leads to other GPUs, which do not forward.
_BUSES = frozenset({"pcie", "cpu", "c2c"})


class NicPaths:
    """Paths over the hops of one topology, each computed once."""

    def __init__(self, topology: Topology) -> None:
        """Merge the parallel links of `topology`, and the NICs that a GPU's channels alternate."""
        self.topology = topology = merge_nics(topology)
        self._kinds = {node.id: node.kind for node in topology.nodes}
        self._hops = merged_hops(topology.links)
        self._bus: dict[str, list[str]] = defaultdict(list)
        self._network: dict[str, list[str]] = defaultdict(list)
        for (src, dst), hop in sorted(self._hops.items()):
            if hop.kind in _BUSES:
                self._bus[src].append(dst)
            elif hop.kind == "network":
                self._network[src].append(dst)
        self._to_nics: dict[str, dict[str, Path]] = {}
        self._across_network: dict[str, dict[str, Path]] = {}

    def is_on_network(self, nic: str) -> bool:
        """Return whether `nic` has a link into the network."""
        return nic in self._network

    def paths_to_nics(self, gpu: str) -> dict[str, Path]:
        """Return the closest path from `gpu` to each NIC of its host, over PCIe, C2C and CPUs.

        Closest means: fewest CPUs passed (under one PCIe switch before one root complex before
        another socket), then fewest hops, then the lowest names.
        """
        if gpu not in self._to_nics:
            self._to_nics[gpu] = self._closest_paths(gpu)
        return self._to_nics[gpu]

    def _closest_paths(self, gpu: str) -> dict[str, Path]:
        """Return the paths of `paths_to_nics`: Dijkstra's search by CPUs, hops and names."""
        host = self.topology.node(gpu).host
        paths: dict[str, Path] = {}
        visited: set[str] = set()
        frontier: list[tuple[int, int, tuple[str, ...]]] = [(0, 0, (gpu,))]
        while frontier:
            cpus, hops, nodes = heapq.heappop(frontier)
            node = nodes[-1]
            if node in visited:
                continue
            visited.add(node)
            if self._kinds[node] == "nic" and self.topology.node(node).host == host:
                paths[node] = self._path(nodes)
            if hops and self._kinds[node] in ("nic", "gpu"):
                continue
            for neighbour in self._bus.get(node, ()):
                passed = cpus + (self._kinds[neighbour] == "cpu")
                heapq.heappush(frontier, (passed, hops + 1, (*nodes, neighbour)))
        return paths

    def _path(self, nodes: tuple[str, ...] | list[str]) -> Path:
        hops = tuple(self._hops[ends] for ends in itertools.pairwise(nodes))
        return Path(hops, tuple(node for node in nodes if self._kinds[node] == "nic"))

    def network_path(self, src: str, dst: str) -> Path | None:
        """Return the widest, then shortest path between two NICs over the network alone, or None.

        `relay_path` may do better through a host's other NICs; that is not what a NIC that is
        bound to a GPU is for.
        """
        if src not in self._across_network:
            self._across_network[src] = self._widest_paths(src)
        return self._across_network[src].get(dst)

    def _widest_paths(self, src: str) -> dict[str, Path]:
        """Return the paths of `network_path`, from the widest hops to the narrowest."""
        import networkx

        hops = [
            self._hops[node, neighbour]
            for node, neighbours in self._network.items()
            for neighbour in neighbours
            if node == src or self._kinds[node] not in ("nic", "gpu")
        ]
        paths: dict[str, Path] = {}
        for width in sorted({hop.bandwidth for hop in hops}, reverse=True):
            graph = networkx.DiGraph((h.src, h.dst) for h in hops if h.bandwidth >= width)
            if src not in graph:
                continue
            for dst, nodes in networkx.single_source_shortest_path(graph, src).items():
                if dst != src and dst not in paths and self._kinds[dst] == "nic":
                    paths[dst] = self._path(nodes)
        return paths

    def closeness(self, path: Path) -> tuple[int, int]:
        """Return the CPUs that `path` passes and its hops: the less, the closer."""
        return sum(self._kinds[hop.dst] == "cpu" for hop in path.hops), len(path.hops)

    def default_path(self, src: int, dst: int) -> Path:
        """Return the topology's own path between two ranks."""
        return path(self.topology, src, dst)

    def path_by_nics(self, src: int, dst: int, out_nic: str, in_nic: str) -> Path | None:
        """Return the path between two ranks on different hosts by the NICs given, or None.

        That is the topology's own path if it uses these NICs, else the closest path to each NIC
        and the network's widest between them.
        """
        default = self.default_path(src, dst)
        if (default.nics[:1], default.nics[-1:]) == ((out_nic,), (in_nic,)):
            return default
        gpus = self.topology.gpus
        out = self.paths_to_nics(gpus[src].id).get(out_nic)
        back = self.paths_to_nics(gpus[dst].id).get(in_nic)
        across = self.network_path(out_nic, in_nic)
        if out is None or back is None or across is None:
            return None
        return Path((*out.hops, *across.hops, *self._reversed(back)), (out_nic, in_nic))

    def _reversed(self, path: Path) -> tuple[Hop, ...]:
        try:
            return tuple(self._hops[hop.dst, hop.src] for hop in reversed(path.hops))
        except KeyError as missing:
            src, dst = missing.args[0]
            raise InputError(
                f"topology {self.topology.name[:60]!r}: no link from {src[:60]!r} back to "
                f"{dst[:60]!r}: make the link duplex"
            ) from None

    @cached_property
    def capacity(self) -> dict[str, float]:
        """Return the GB/s that each NIC can both send and receive.

        Its network links, held to the rate of its port where that is known; a NIC without network
        links (a topology of one host) counts the links to its host instead.
        """
        return {
            node.id: min(self._capacity(node.id), node.port_gbs or math.inf)
            for node in self.topology.nodes
            if node.kind == "nic"
        }

    def _capacity(self, nic: str) -> float:
        side = self._network.get(nic) or self._bus.get(nic, [])
        out = sum(self._hops[nic, peer].bandwidth for peer in side)
        back = sum(self._hops[peer, nic].bandwidth for peer in side if (peer, nic) in self._hops)
        return min(out, back)
