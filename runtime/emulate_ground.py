"""An emulated cluster as a topology: what a bound, a synthesizer or the simulator takes it for."""

from __future__ import annotations

import msgspec

from tuccl.runtime.emulate_plan import Plan
from tuccl.topology import Link, Node, Topology

__all__ = ["emulated_topology"]


def emulated_topology(t: Topology, plan: Plan, latency_scale: float = 0.0) -> Topology:
    """Return ``t`` with the rates of ``plan``, in GB/s, and its latencies scaled where they are.

    Links within a host are as they were: next to the emulated ones they cost nothing.

    >>> from tuccl.runtime.emulate_plan import plan
    >>> from tuccl.topology import join, load_profile
    >>> two = join(load_profile("ndv2"), 2)
    >>> ground = emulated_topology(two, plan(two))
    >>> [link.bandwidth for link in ground.links if link.kind == "network"]
    [0.125, 0.125, 0.125, 0.125]
    """
    rates = {(port.src, port.dst): port.rate_bps / 8e9 for port in plan.ports}

    def wire(link: Link) -> tuple[Link, ...]:
        if link.kind != "network":
            return (link,)
        own = msgspec.structs.replace(
            link, duplex=False, latency=link.latency * (latency_scale or 1.0)
        )
        return tuple(
            msgspec.structs.replace(own, src=src, dst=dst, bandwidth=rates[src, dst])
            for src, dst in link.directions()
        )

    def node(given: Node) -> Node:
        port = None if given.port_gbs is None else given.port_gbs * plan.scale
        return msgspec.structs.replace(given, port_gbs=port)

    wires: dict[tuple[str, str, str], Link] = {}
    for link in (each for link in t.links for each in wire(link)):
        if link.kind != "network":  # parallel network links are one wire, with all their rate
            wires[f"{len(wires)}", link.src, link.dst] = link
        else:
            wires["network", link.src, link.dst] = link
    nodes = tuple(node(given) for given in t.nodes)
    return msgspec.structs.replace(t, nodes=nodes, links=tuple(wires.values()))
