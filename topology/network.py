"""The topology as the simulator takes it: shared resources, and a route per pair of GPUs."""

from __future__ import annotations

from tuccl._native import Network, Resource, Route
from tuccl.topology.graph import Topology
from tuccl.topology.paths import Hop, all_paths

__all__ = ["network"]


def network(t: Topology) -> Network:
    """Return the resources (GB/s) and routes (us) of ``t``; transport net iff a NIC is crossed.

    One resource stands for each directed hop that some route uses, named ``src>dst``.
    """
    places: dict[tuple[str, str], int] = {}
    hops: list[Hop] = []
    routes = []
    for (src, dst), way in sorted(all_paths(t).items()):
        for hop in way.hops:
            if (hop.src, hop.dst) not in places:
                places[hop.src, hop.dst] = len(hops)
                hops.append(hop)
        route = Route(
            src=src,
            dst=dst,
            resources=[places[hop.src, hop.dst] for hop in way.hops],
            latency_us=way.latency,
            transport="net" if way.crosses_network else "p2p",
        )
        routes.append(route)
    resources = [
        Resource(name=f"{hop.src}>{hop.dst}", kind=hop.kind, bandwidth_gbs=hop.bandwidth)
        for hop in hops
    ]
    return Network(ranks=t.ranks, resources=resources, routes=routes)
