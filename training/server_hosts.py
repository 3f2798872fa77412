"""Further hosts for parameter servers, on the switches of a machine."""

from __future__ import annotations

from itertools import count

from msgspec.structs import replace

from tuccl.errors import InputError
from tuccl.topology import Link, Node, Topology


def with_servers(topology: Topology, servers: int) -> Topology:
    """Return ``topology`` with further hosts of one rank each, which follow the ranks there are.

    They are like its hosts in turn, on the same switches with equal links.

    >>> from tuccl.topology import join, load_profile
    >>> pair = join(load_profile("ndv2"), 2)
    >>> with_servers(pair, 2).ranks, with_servers(pair, 2).hosts
    (18, ('n0', 'n1', 'n0-server0', 'n1-server1'))

    Raises:
        InputError: hosts are joined without switches.
    """
    if not servers:
        return topology
    network = [link for link in topology.links if link.kind == "network"]
    if not all(_has_switch(topology, link) for link in network):
        raise InputError(
            f"--servers: hosts of {topology.name[:60]!r} are joined without switches, which further"
            " hosts need; use --colocated"
        )
    nodes, links = list(topology.nodes), list(topology.links)
    for number, host in zip(range(servers), topology.hosts * servers, strict=False):
        numbers = count(topology.ranks + number)
        left_out = {topology.gpus[rank].id for rank in topology.gpus_of(host)[1:]}
        names: dict[str, str] = {}
        for node in topology.nodes:
            if node.host == host and node.id not in left_out:
                names[node.id] = f"{node.id}-server{number}"
                rank = None if node.rank is None else next(numbers)
                nodes.append(_copy(node, names[node.id], f"{host}-server{number}", rank))
        for link in topology.links:
            if (link.src in names or link.dst in names) and not left_out & {link.src, link.dst}:
                src, dst = (names.get(end, end) for end in (link.src, link.dst))
                links.append(replace(link, src=src, dst=dst))
    name = f"{topology.name} and {servers} servers"
    return replace(topology, name=name, nodes=tuple(nodes), links=tuple(links))


def _has_switch(topology: Topology, link: Link) -> bool:
    return "switch" in {topology.node(end).kind for end in (link.src, link.dst)}


def _copy(node: Node, name: str, host: str, rank: int | None) -> Node:
    return replace(node, id=name, host=host, rank=rank, guid=None)
