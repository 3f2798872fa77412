"""The topology as the simulator takes it: shared resources, and a route per pair of GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tuccl._native import Network, Program, Resource, Route
from tuccl.errors import InputError
from tuccl.topology.fabric import join
from tuccl.topology.graph import Topology
from tuccl.topology.paths import Path, all_paths, path

__all__ = ["joined_network", "network", "used_pairs"]

_HOST = re.compile(r"^(n|tor)([01])(?=/|$)")


def network(t: Topology, pairs: Iterable[tuple[int, int]] | None = None) -> Network:
    """Return the resources (GB/s) and routes (us) of ``t``; transport net iff a NIC is crossed.

    One resource stands for each directed hop that some route uses, named ``src>dst``.

    Args:
        t: The machine.
        pairs: The ordered pairs of ranks to route; None is all of them, which many ranks are too
            many for (see `used_pairs`).

    >>> from tuccl.topology import load_profile
    >>> len(network(load_profile("dgx-a100"), [(0, 1), (1, 0)]).routes)
    2

    Raises:
        InputError: a rank of a pair is not in the topology, or both are the same.
    """
    ways = all_paths(t) if pairs is None else {pair: path(t, *pair) for pair in pairs}
    wires = _Wires()
    for (src, dst), way in sorted(ways.items()):
        wires.add(src, dst, way, {})
    return wires.network(t.ranks)


def used_pairs(program: Program) -> tuple[tuple[int, int], ...]:
    """Return the ordered pairs of ranks between which ``program`` sends, sorted."""
    return tuple(
        sorted(
            {
                (gpu.id, tb.send_peer)
                for gpu in program.gpus
                for tb in gpu.threadblocks
                if tb.send_peer >= 0
            }
        )
    )


def joined_network(
    node: Topology,
    nodes: int,
    pairs: Iterable[tuple[int, int]],
    fabric: str = "single",
    up_gbs: float | None = None,
    down_gbs: float | None = None,
) -> Network:
    """Return ``network(join(node, nodes, …), pairs)``, made without the whole cluster.

    Hosts are alike: the ways within one and between two tell all others, so that thousands of
    ranks take as long as their pairs.

    Args:
        node: One host.
        nodes: How many, 2 or more.
        pairs: The ordered pairs of ranks to route.
        fabric: As in `tuccl.topology.join`, and so the rates.
        up_gbs: Of a switch's uplinks.
        down_gbs: Of a switch's port to a NIC.

    >>> from tuccl.topology import load_profile
    >>> wires = joined_network(load_profile("dgx-a100"), 128, [(0, 1016)], "rail")
    >>> wires.ranks, [wires.resources[i].name for i in wires.routes[0].resources][2:4]
    (1024, ['n0/nic0>rail0', 'rail0>n127/nic0'])

    Raises:
        InputError: an argument is out of its range, or the host has no NIC.
    """
    if not 2 <= nodes <= 1024:
        raise InputError(f"nodes {nodes}: expected 2 to 1024 hosts")
    two = join(node, 2, fabric, up_gbs, down_gbs)
    wires = _Wires()
    for src, dst in sorted(set(pairs)):
        if not (0 <= src < nodes * node.ranks and 0 <= dst < nodes * node.ranks and src != dst):
            raise InputError(f"pair {src}, {dst}: expected two of {nodes * node.ranks} ranks")
        (here, a), (there, b) = divmod(src, node.ranks), divmod(dst, node.ranks)
        way = path(two, a, b if here == there else node.ranks + b)
        wires.add(src, dst, way, {"0": here, "1": there})
    return wires.network(nodes * node.ranks)


class _Wires:
    """Resources in the order in which routes come to use them."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._resources: list[Resource] = []
        self._routes: list[Route] = []

    def add(self, src: int, dst: int, way: Path, hosts: dict[str, int]) -> None:
        """Route a pair along ``way``, its hosts renumbered as ``hosts`` says."""

        def renamed(station: str) -> str:
            if not hosts:
                return station
            return _HOST.sub(lambda m: f"{m[1]}{hosts[m[2]]}", station)

        places = []
        for hop in way.hops:
            name = f"{renamed(hop.src)}>{renamed(hop.dst)}"
            if name not in self._places:
                self._places[name] = len(self._resources)
                self._resources.append(Resource(name, hop.kind, hop.bandwidth))
            places.append(self._places[name])
        transport = "net" if way.crosses_network else "p2p"
        self._routes.append(Route(src, dst, places, way.latency, transport))

    def network(self, ranks: int) -> Network:
        """Return what was added."""
        return Network(ranks, self._resources, self._routes)
