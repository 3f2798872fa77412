"""The physical ways from GPUs to the NICs of their host, and between GPUs by the NICs they use."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from functools import cached_property

from tuccl.errors import InputError
from tuccl.topology.graph import Topology
from tuccl.topology.paths import Hop, Path, merged_hops, path

__all__ = ["Wires"]

# A way to a NIC runs over the host's own buses; NVLink leads to other GPUs, which do not forward.
_BUSES = frozenset({"pcie", "cpu", "c2c"})


class Wires:
    """The hops of one topology, parallel links added up, and ways found over them."""

    def __init__(self, topology: Topology) -> None:
        """Merge the links of `topology`."""
        self.topology = topology
        self._kinds = {node.id: node.kind for node in topology.nodes}
        self._hops = merged_hops(topology.links)
        self._bus: dict[str, list[str]] = defaultdict(list)
        self._network: dict[str, list[str]] = defaultdict(list)
        for (src, dst), hop in sorted(self._hops.items()):
            if hop.kind in _BUSES:
                self._bus[src].append(dst)
            elif hop.kind == "network":
                self._network[src].append(dst)
        self._ways: dict[str, dict[str, Path]] = {}
        self._across: dict[str, dict[str, Path]] = {}

    def on_network(self, nic: str) -> bool:
        """Return whether `nic` has a link into the network."""
        return nic in self._network

    def to_nics(self, gpu: str) -> dict[str, Path]:
        """Return the closest way from `gpu` to each NIC of its host, over PCIe, C2C and CPUs.

        Closest means: fewest CPUs passed (under one PCIe switch before one root complex before
        another socket), then fewest hops, then the lowest names.
        """
        if gpu not in self._ways:
            self._ways[gpu] = self._find_nics(gpu)
        return self._ways[gpu]

    def _find_nics(self, gpu: str) -> dict[str, Path]:
        host = self.topology.node(gpu).host
        found: dict[str, Path] = {}
        done: set[str] = set()
        ahead: list[tuple[int, int, tuple[str, ...]]] = [(0, 0, (gpu,))]
        while ahead:
            crossed, hops, stations = heapq.heappop(ahead)
            here = stations[-1]
            if here in done:
                continue
            done.add(here)
            if self._kinds[here] == "nic" and self.topology.node(here).host == host:
                found[here] = self._along(stations)
            if hops and self._kinds[here] in ("nic", "gpu"):
                continue
            for following in self._bus.get(here, ()):
                more = self._kinds[following] == "cpu"
                heapq.heappush(ahead, (crossed + more, hops + 1, (*stations, following)))
        return found

    def _along(self, stations: tuple[str, ...]) -> Path:
        hops = tuple(self._hops[ends] for ends in itertools.pairwise(stations))
        return Path(hops, tuple(i for i in stations if self._kinds[i] == "nic"))

    def across(self, src: str, dst: str) -> Path | None:
        """Return the widest, then shortest way between two NICs over the network alone, or None.

        `relay_path` may do better by way of a host's other NICs; that is not what a NIC that is
        bound to a GPU is for.
        """
        if src not in self._across:
            self._across[src] = self._find_across(src)
        return self._across[src].get(dst)

    def _find_across(self, src: str) -> dict[str, Path]:
        widths = self._widths(src)
        nics = {nic: width for nic, width in widths.items() if self._kinds[nic] == "nic"}
        ways: dict[str, Path] = {}
        for width in sorted(set(nics.values())):
            shortest = self._shortest(src, width)
            ways.update((nic, self._along(shortest[nic])) for nic in nics if nics[nic] == width)
        return ways

    def _widths(self, src: str) -> dict[str, float]:
        """Return the rate of the widest way over the network to each node, in GB/s."""
        widths: dict[str, float] = {}
        ahead = [(-math.inf, src)]
        while ahead:
            width, here = heapq.heappop(ahead)
            if here in widths:
                continue
            widths[here] = -width
            for following in self._onward(src, here):
                rate = self._hops[here, following].bandwidth
                heapq.heappush(ahead, (max(width, -rate), following))
        del widths[src]
        return widths

    def _onward(self, src: str, here: str) -> list[str]:
        passes = here == src or self._kinds[here] not in ("nic", "gpu")
        return self._network.get(here, []) if passes else []

    def _shortest(self, src: str, width: float) -> dict[str, tuple[str, ...]]:
        """Return the stations of a shortest way at least so wide to each node that has one."""
        ways: dict[str, tuple[str, ...]] = {src: (src,)}
        ahead = [src]
        for here in ahead:
            for following in self._onward(src, here):
                if following not in ways and self._hops[here, following].bandwidth >= width:
                    ways[following] = (*ways[here], following)
                    ahead.append(following)
        return ways

    def closeness(self, way: Path) -> tuple[int, int]:
        """Return the CPUs that `way` passes and its hops: the less, the closer."""
        return sum(self._kinds[hop.dst] == "cpu" for hop in way.hops), len(way.hops)

    def usual(self, src: int, dst: int) -> Path:
        """Return the topology's own path between two ranks."""
        return path(self.topology, src, dst)

    def by_nics(self, src: int, dst: int, out_nic: str, in_nic: str) -> Path | None:
        """Return the way between two ranks on different hosts by the NICs given, or None.

        That is the topology's own path if it uses these NICs, else the closest way to each NIC
        and the network's widest between them.
        """
        usual = self.usual(src, dst)
        if (usual.nics[:1], usual.nics[-1:]) == ((out_nic,), (in_nic,)):
            return usual
        gpus = self.topology.gpus
        out = self.to_nics(gpus[src].id).get(out_nic)
        back = self.to_nics(gpus[dst].id).get(in_nic)
        across = self.across(out_nic, in_nic)
        if out is None or back is None or across is None:
            return None
        home = self._reversed(back)
        return Path((*out.hops, *across.hops, *home), (out_nic, in_nic))

    def _reversed(self, way: Path) -> tuple[Hop, ...]:
        try:
            return tuple(self._hops[hop.dst, hop.src] for hop in reversed(way.hops))
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
