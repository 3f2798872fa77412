"""Topologies as the simulator takes them: shared resources, and a route per pair of GPUs."""

from __future__ import annotations

from collections.abc import Iterable

from tuccl.simulation import Network, Resource, Route
from tuccl.topology.graph import Topology
from tuccl.topology.paths import all_paths, channel_paths
from tuccl.topology.relays import Path


def network(topology: Topology, pairs: Iterable[tuple[int, int]] | None = None) -> Network:
    """Return resources (GB/s) and routes (us) of ``topology``; transport net if a NIC is crossed.

    One resource stands for each directed hop that some route uses, named ``src>dst``. The routes of
    one pair are those that its channels take in turn, channel 0's first.

    Args:
        topology: The machine.
        pairs: The ordered pairs of ranks to route; None is all of them.

    >>> from tuccl.topology import load_profile
    >>> len(network(load_profile("dgx-a100"), [(0, 1), (1, 0)]).routes)
    2

    Raises:
        InputError: a rank of a pair is not in the topology, or both are the same.
    """
    builder = _NetworkBuilder()
    for src, dst in sorted(all_paths(topology) if pairs is None else set(pairs)):
        for channel_path in channel_paths(topology, src, dst):
            builder.add(src, dst, channel_path)
    return builder.network(topology.ranks)


class _NetworkBuilder:
    """Resources in the order in which routes come to use them."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._resources: list[Resource] = []
        self._routes: list[Route] = []

    def add(self, src: int, dst: int, path: Path) -> None:
        """Route a pair along ``path``."""
        resources = []
        for hop in path.hops:
            name = f"{hop.src}>{hop.dst}"
            if name not in self._number:
                self._number[name] = len(self._resources)
                self._resources.append(Resource(name, hop.kind, hop.bandwidth))
            resources.append(self._number[name])
        transport = "net" if path.crosses_network else "p2p"
        self._routes.append(Route(src, dst, resources, path.latency, transport))

    def network(self, ranks: int) -> Network:
        """Return what was added."""
        return Network(ranks, self._resources, self._routes)
