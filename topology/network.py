"""Topologies as the simulator takes them: shared resources, and a route per pair of GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tuccl.errors import InputError
from tuccl.program import Program
from tuccl.simulation import Network, Resource, Route
from tuccl.topology.fabric import join
from tuccl.topology.graph import Topology
from tuccl.topology.paths import all_paths, channel_paths
from tuccl.topology.relays import Path

_HOST = re.compile(r"^(n|tor)([01])(?=/|$)")


def network(topology: Topology, pairs: Iterable[tuple[int, int]] | None = None) -> Network:
    """Return resources (GB/s) and routes (us) of ``topology``; transport net if a NIC is crossed.

    One resource stands for each directed hop that some route uses, named ``src>dst``. The routes of
    one pair are those that its channels take in turn, channel 0's first.

    Args:
        topology: The machine.
        pairs: The ordered pairs of ranks to route; None is all of them, which many ranks are too
            many for (see `used_pairs`).

    >>> from tuccl.topology import load_profile
    >>> len(network(load_profile("dgx-a100"), [(0, 1), (1, 0)]).routes)
    2

    Raises:
        InputError: a rank of a pair is not in the topology, or both are the same.
    """
    builder = _NetworkBuilder()
    for src, dst in sorted(all_paths(topology) if pairs is None else set(pairs)):
        for channel_path in channel_paths(topology, src, dst):
            builder.add(src, dst, channel_path, {})
    return builder.network(topology.ranks)


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


def cluster_network(
    node: Topology,
    nodes: int,
    pairs: Iterable[tuple[int, int]],
    fabric: str = "single",
    up_gbs: float | None = None,
    down_gbs: float | None = None,
) -> Network:
    """Return ``network(join(node, nodes, …), pairs)``, made without the whole cluster.

    Hosts are equal: the paths within one and between two give all others, so that thousands of
    ranks take as long as their pairs.

    Args:
        node: One host.
        nodes: How many, 2 or more.
        pairs: The ordered pairs of ranks to route.
        fabric: As in `tuccl.topology.join`, and so the rates.
        up_gbs: Of a switch's uplinks.
        down_gbs: Of a switch's port to a NIC.

    >>> from tuccl.topology import load_profile
    >>> cluster = cluster_network(load_profile("dgx-a100"), 128, [(0, 1016)], "rail")
    >>> cluster.ranks, [cluster.resources[i].name for i in cluster.routes[0].resources][2:4]
    (1024, ['n0/nic0>rail0', 'rail0>n127/nic0'])

    Raises:
        InputError: an argument is out of its range, or the host has no NIC.
    """
    if not 2 <= nodes <= 1024:
        raise InputError(f"nodes {nodes}: expected 2 to 1024 hosts")
    two = join(node, 2, fabric, up_gbs, down_gbs)
    builder = _NetworkBuilder()
    for src, dst in sorted(set(pairs)):
        if not (0 <= src < nodes * node.ranks and 0 <= dst < nodes * node.ranks and src != dst):
            raise InputError(f"pair {src}, {dst}: expected two of {nodes * node.ranks} ranks")
        (here, a), (there, b) = divmod(src, node.ranks), divmod(dst, node.ranks)
        for channel_path in channel_paths(two, a, b if here == there else node.ranks + b):
            builder.add(src, dst, channel_path, {"0": here, "1": there})
    return builder.network(nodes * node.ranks)


class _NetworkBuilder:
    """Resources in the order in which routes come to use them."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._resources: list[Resource] = []
        self._routes: list[Route] = []

    def add(self, src: int, dst: int, path: Path, hosts: dict[str, int]) -> None:
        """Route a pair along ``path``, its hosts renumbered as ``hosts`` says."""

        def renamed(node: str) -> str:
            if not hosts:
                return node
            return _HOST.sub(lambda m: f"{m[1]}{hosts[m[2]]}", node)

        resources = []
        for hop in path.hops:
            name = f"{renamed(hop.src)}>{renamed(hop.dst)}"
            if name not in self._number:
                self._number[name] = len(self._resources)
                self._resources.append(Resource(name, hop.kind, hop.bandwidth))
            resources.append(self._number[name])
        transport = "net" if path.crosses_network else "p2p"
        self._routes.append(Route(src, dst, resources, path.latency, transport))

    def network(self, ranks: int) -> Network:
        """Return what was added."""
        return Network(ranks, self._resources, self._routes)
