"""Probes between the hosts of an emulated cluster."""

from __future__ import annotations

import sys

from tuccl.emulation.emulation import Emulation
from tuccl.runtime.probing import AgentProber, agent_words
from tuccl.topology import Link, Node, Topology
from tuccl.topology.probing import Endpoint, with_network
from tuccl.topology.relays import merged_hops

_MOST_BPS = 1e9  # of all NICs together: every byte passes this machine's processors


def emulated_endpoints(emulation: Emulation) -> tuple[Endpoint, ...]:
    """Return the NICs of each host; nothing shows which switch they hang on."""
    return tuple(
        Endpoint(
            host.host,
            host.nics[0].id,
            host.nics[0].address,
            mac=host.nics[0].mac,
            others=tuple((nic.id, nic.address) for nic in host.nics[1:]),
        )
        for host in emulation.cluster.hosts
    )


def emulated_prober(emulation: Emulation) -> AgentProber:
    """Return a prober with an agent in each host's namespace; ``emulation`` must be up."""
    words = agent_words(sys.executable)
    commands = [(*emulation.prefix(n), *words) for n in range(len(emulation.cluster.hosts))]
    return AgentProber(emulated_endpoints(emulation), commands)


def unprobed_topology(emulation: Emulation) -> Topology:
    """Return the hosts of an emulated cluster, NICs that reach each other on one switch.

    All links of the network are assumed to run at 1 GB/s.
    """
    import networkx as nx

    topology, cluster = emulation.topology, emulation.cluster
    joined = nx.Graph(cluster.reaches)
    joined.add_nodes_from(cluster.nics)
    parts = sorted(sorted(part) for part in nx.connected_components(joined))
    names = ["leaf0"] if len(parts) == 1 else [f"rail{number}" for number in range(len(parts))]
    switch_of = {nic: name for name, part in zip(names, parts, strict=True) for nic in part}
    links = [
        Link(nic, switch, "network", 1.0, 1.0, duplex=True, assumed=True, source="not probed yet")
        for nic, switch in switch_of.items()
    ]
    nodes = [node for node in topology.nodes if node.kind != "switch"]
    nodes += [Node(switch, "switch") for switch in sorted(set(switch_of.values()))]
    return with_network(topology, nodes, links)


def probing_scale(topology: Topology) -> float:
    """Return the scale at which all NICs of ``topology`` together run at 1 Gb/s, at most 1.

    Flows of all hosts at once are then slowed by links, not by this machine's processors.
    """
    kinds = {node.id: node.kind for node in topology.nodes}
    total_bps = sum(
        8e9 * hop.bandwidth
        for hop in merged_hops(topology.links).values()
        if hop.kind == "network" and kinds[hop.src] == "nic"
    )
    return min(1.0, _MOST_BPS / total_bps) if total_bps else 1.0
