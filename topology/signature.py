"""A short name for a machine's shape, the same wherever the same machine is probed."""

from __future__ import annotations

import hashlib
from collections import defaultdict

from tuccl.topology.graph import Topology
from tuccl.topology.host_swaps import host_classes
from tuccl.topology.relays import merged_hops

_MASK = (1 << 64) - 1
_ROUNDS = 4


def signature(topology: Topology) -> str:
    """Return 16 hexadecimal digits that hash what ``topology`` is made of and how it is joined.

    Kinds, models, link types and nominal rates enter, and which nodes share a host; names, order,
    rank numbers, routes, latencies, sources and measured or inferred rates do not. `differences`
    compares rank by rank.

    >>> from tuccl.topology import join, load_profile
    >>> ndv2 = load_profile("ndv2")
    >>> signature(join(ndv2, 2)) == signature(ndv2)
    False

    Notes:
        Colour refinement (Weisfeiler and Leman 1968), and again with each GPU in turn coloured
        apart, which separates regular graphs that plain refinement does not; one GPU stands for
        those of the same place on hosts that may change places. Multisets are hashed as sums of
        64-bit products, so no order enters.
    """
    return topology.derived(_signature)


def _signature(topology: Topology) -> str:
    graph = _Graph(topology)
    colours = graph.stable(graph.first)
    individualized: list[int] = []
    for gpus in graph.equivalent_gpus():
        marked = list(colours)
        marked[gpus[0]] = _mixed(marked[gpus[0]] ^ _MASK)
        value = sum(_all_mixed(graph.refined(marked, _ROUNDS))) & _MASK
        individualized += [value] * len(gpus)
    digest = hashlib.sha256(b"tuccl-signature/1")
    for values in (colours, individualized):
        digest.update(len(values).to_bytes(8, "big"))
        for value in sorted(values):
            digest.update(value.to_bytes(8, "big"))
    return digest.hexdigest()[:16]


class _Graph:
    """Nodes by number, with their first colours and, for each, its neighbours and link colours."""

    def __init__(self, topology: Topology) -> None:
        number = {node.id: place for place, node in enumerate(topology.nodes)}
        hops = merged_hops(topology.links).values()
        probed = {
            ends
            for link in topology.links
            if not link.has_nominal_rate
            for ends in link.directions()
        }
        self.gpus = [number[gpu.id] for gpu in topology.gpus]
        self.first = [
            _text(n.kind, n.model or "", f"{n.port_gbs or 0:.6g}") for n in topology.nodes
        ]
        self._around: list[list[tuple[int, int]]] = [[] for _ in topology.nodes]
        self._labels: dict[tuple[int, int], tuple[str, str]] = {}
        for hop in hops:
            src, dst = number[hop.src], number[hop.dst]
            rate = "measured" if (hop.src, hop.dst) in probed else f"{hop.bandwidth:.6g}"
            self._labels[src, dst] = hop.kind, rate
            self._around[dst].append((src, _text("in", hop.kind, rate) | 1))
            self._around[src].append((dst, _text("out", hop.kind, rate) | 1))
        hosts: dict[str, list[int]] = defaultdict(list)
        for node in topology.nodes:
            if node.host is not None:
                hosts[node.host].append(number[node.id])
        self._hosts = list(hosts.values())

    def equivalent_gpus(self) -> list[list[int]]:
        """Return the GPUs in sets whose members an automorphism takes to each other."""
        gpus, found = set(self.gpus), set[int]()
        equivalent = []
        for members in host_classes(self._hosts, self.first, self._labels):
            places = zip(*(self._hosts[host] for host in members), strict=True)
            equivalent += [list(nodes) for nodes in places if nodes[0] in gpus]
            found.update(*equivalent)
        return equivalent + [[gpu] for gpu in self.gpus if gpu not in found]

    def stable(self, colours: list[int]) -> list[int]:
        """Return the colours refined until no class splits any more."""
        classes = 0
        while len(set(colours)) > classes:
            classes = len(set(colours))
            colours = self._round(colours)
        return colours

    def refined(self, colours: list[int], rounds: int) -> list[int]:
        """Return the colours after that many rounds."""
        for _ in range(rounds):
            colours = self._round(colours)
        return colours

    def _round(self, colours: list[int]) -> list[int]:
        mixed = _all_mixed(colours)
        sums = [
            mixed[place] * 3 + sum(mixed[neighbour] * link for neighbour, link in around)
            for place, around in enumerate(self._around)
        ]
        for members in self._hosts:
            shared = _mixed(sum(mixed[place] for place in members) & _MASK)
            for place in members:
                sums[place] += shared
        return _all_mixed([total & _MASK for total in sums])


def _text(*parts: str) -> int:
    data = "\0".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")


def _all_mixed(values: list[int]) -> list[int]:
    """Return `_mixed` of each; few differ, as GPUs of equal hosts have equal colours."""
    mixed = {value: _mixed(value) for value in set(values)}
    return [mixed[value] for value in values]


def _mixed(value: int) -> int:
    """Return a 64-bit number that depends on every bit of ``value`` (a multiply-shift mixer)."""
    value = (value ^ (value >> 31)) * 0x9E3779B97F4A7C15 & _MASK
    value = (value ^ (value >> 29)) * 0xD6E8FEB86659FD93 & _MASK
    return value ^ (value >> 32)
