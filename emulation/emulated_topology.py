"""An emulated cluster as a topology: what a bound, a synthesizer or the simulator takes it for."""

from __future__ import annotations

import os

import msgspec

from tuccl.emulation.cluster import EmulatedCluster
from tuccl.simulation import Network, Resource, Route
from tuccl.topology import Link, Node, Topology, network

# What the class "emulated" gives parts of, for each core: bytes moved at all, and over TCP.
_CORE_GBS = 4.0
_CORE_TCP_GBS = 1.0


def emulated_topology(
    topology: Topology, cluster: EmulatedCluster, latency_scale: float = 0.0
) -> Topology:
    """Return ``topology`` with the rates of ``cluster`` in GB/s, and latencies scaled if they are.

    Links within a host are as they were: next to the emulated ones they cost nothing.

    >>> from tuccl.emulation.cluster import emulated_cluster
    >>> from tuccl.topology import join, load_profile
    >>> two = join(load_profile("ndv2"), 2)
    >>> emulated = emulated_topology(two, emulated_cluster(two))
    >>> [link.bandwidth for link in emulated.links if link.kind == "network"]
    [0.125, 0.125, 0.125, 0.125]
    """
    rates = {(port.src, port.dst): port.rate_bps / 8e9 for port in cluster.ports}

    def emulate(link: Link) -> tuple[Link, ...]:
        if link.kind != "network":
            return (link,)
        base = msgspec.structs.replace(
            link, duplex=False, latency=link.latency * (latency_scale or 1.0)
        )
        return tuple(
            msgspec.structs.replace(base, src=src, dst=dst, bandwidth=rates[src, dst])
            for src, dst in link.directions()
        )

    def node(original: Node) -> Node:
        port = None if original.port_gbs is None else original.port_gbs * cluster.scale
        return msgspec.structs.replace(original, port_gbs=port)

    links: dict[tuple[str, str, str], Link] = {}
    for link in (
        emulated_link for original in topology.links for emulated_link in emulate(original)
    ):
        if link.kind != "network":  # parallel network links are one link, with all their rate
            links[f"{len(links)}", link.src, link.dst] = link
        else:
            links["network", link.src, link.dst] = link
    nodes = tuple(node(original) for original in topology.nodes)
    return msgspec.structs.replace(topology, nodes=nodes, links=tuple(links.values()))


def emulated_network(emulated: Topology, cores: int | None = None) -> Network:
    """Return what all bytes of an emulated cluster share: its links and this machine's cores.

    Args:
        emulated: the cluster as `emulated_topology` has it.
        cores: of the machine that carries all ranks; None is this one.

    Notes:
        Every byte passes ``cores`` (kind ``cpu``), and between hosts ``tcp`` too (kind ``pcie``):
        a class says what part of their rates can be had. Within a host there is nothing else.
    """
    nominal = network(emulated)
    count = cores if cores is not None else os.cpu_count() or 1
    indices = [n for n, resource in enumerate(nominal.resources) if resource.kind == "network"]
    new_index = {index: position for position, index in enumerate(indices)}
    shared = [
        Resource("cores", "cpu", count * _CORE_GBS),
        Resource("tcp", "pcie", count * _CORE_TCP_GBS),
    ]
    all_cores, tcp = len(indices), len(indices) + 1
    routes = []
    for route in nominal.routes:
        links = [new_index[index] for index in route.resources if index in new_index]
        through = [*links, tcp, all_cores] if route.transport == "net" else [all_cores]
        routes.append(Route(route.src, route.dst, through, route.latency_us, route.transport))
    return Network(
        nominal.ranks, [*(nominal.resources[index] for index in indices), *shared], routes
    )
