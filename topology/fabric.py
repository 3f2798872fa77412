"""Joining equal hosts through their NICs into a cluster."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import msgspec

from tuccl.errors import InputError
from tuccl.topology import rates
from tuccl.topology.graph import FixedRoute, Link, Node, Topology, quoted
from tuccl.topology.nics import bound_nics, nearest_nics
from tuccl.topology.paths import Path, all_paths, merged_hops, relay_path

__all__ = ["FABRICS", "join"]


def join(
    node: Topology,
    nodes: int,
    fabric: str = "single",
    up_gbs: float | None = None,
    down_gbs: float | None = None,
) -> Topology:
    """Return ``nodes`` copies of the host ``node``, joined through their NICs.

    Hosts are called n0, n1, ...; ids get the host in front (``n1/gpu0``) and ranks count host
    after host.

    Args:
        node: one host.
        nodes: how many; one host alone gets no fabric.
        fabric: ``single``, one switch (leaf0) for all NICs; ``rail``, NIC i of every host on
            switch raili, and the rails joined by spine0 only where ``up_gbs`` is given; ``clos``,
            a top-of-rack switch torK for host K, joined by spine0.
        up_gbs: of a rail or top-of-rack switch to the spine, in GB/s per direction, all uplinks
            together. A Clos without it is not blocking: its uplink carries all its downlinks.
        down_gbs: of a switch port to a NIC, in GB/s per direction; a NIC's link runs at the lower
            of this and the NIC's port rate. A NIC of unknown rate counts with its PCIe link's.

    Notes:
        Two kinds of route are fixed where the shared rule would do otherwise: a message inside a
        host never goes over the network, though that may be wider; and GPUs that tie between
        several NICs are spread over them instead of all taking the first id.

    >>> from tuccl.topology import load_profile
    >>> join(load_profile("ndv2"), 2).hosts
    ('n0', 'n1')

    Raises:
        InputError: an argument is out of its range, or the host has no NIC.
    """
    _check(node, nodes, fabric, up_gbs, down_gbs)
    copies = [_copy(node, number) for number in range(nodes)]
    all_nodes = [part for nodes_, _, _ in copies for part in nodes_]
    all_links = [link for _, links, _ in copies for link in links]
    fixed = tuple(route for _, _, routes in copies for route in routes)
    if nodes > 1:
        switches, fabric_links = FABRICS[fabric](_ports(node, nodes, down_gbs), up_gbs)
        all_nodes += switches
        all_links += fabric_links
    cluster = Topology(f"{nodes}x {node.name}"[:255], tuple(all_nodes), tuple(all_links), fixed)
    return cluster if nodes == 1 else _with_routes(cluster, node)


def _check(
    node: Topology, nodes: int, fabric: str, up_gbs: float | None, down_gbs: float | None
) -> None:
    if len(node.hosts) != 1 or any(part.kind == "switch" for part in node.nodes):
        raise InputError(f"topology {quoted(node.name)} is a cluster already; join takes one host")
    if fabric not in FABRICS:
        raise InputError(f"fabric {quoted(fabric)}: expected one of {', '.join(FABRICS)}")
    if not 1 <= nodes <= 1024:
        raise InputError(f"nodes {nodes}: expected 1 to 1024 hosts")
    for name, value in (("up", up_gbs), ("down", down_gbs)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} rate {value}: expected a positive number of GB/s")
    if fabric == "single" and up_gbs is not None:
        raise InputError("up rate: a single switch has no uplink; choose the fabric rail or clos")
    if nodes > 1 and not any(part.kind == "nic" for part in node.nodes):
        raise InputError(f"topology {quoted(node.name)} has no NIC to join {nodes} hosts through")


def _copy(node: Topology, number: int) -> tuple[list[Node], list[Link], list[FixedRoute]]:
    host = f"n{number}"
    nodes = []
    for part in node.nodes:
        rank = None if part.rank is None else part.rank + number * node.ranks
        nodes.append(msgspec.structs.replace(part, id=f"{host}/{part.id}", host=host, rank=rank))
    links = [
        msgspec.structs.replace(link, src=f"{host}/{link.src}", dst=f"{host}/{link.dst}")
        for link in node.links
    ]
    routes = [
        FixedRoute(f"{host}/{r.src}", f"{host}/{r.dst}", tuple(f"{host}/{i}" for i in r.via))
        for r in node.routes
    ]
    return nodes, links, routes


class _Port(msgspec.Struct, frozen=True):
    """A link of one NIC into the fabric: its id, its host's number and its index there."""

    nic: str
    host: int
    index: int
    gbs: float
    assumed: bool
    source: str

    def link(self, switch: str) -> Link:
        return Link(
            self.nic,
            switch,
            "network",
            self.gbs,
            rates.NETWORK_US,
            duplex=True,
            assumed=self.assumed,
            source=f"{self.source}; latency {rates.NETWORK_US_SOURCE}",
        )


def _ports(node: Topology, nodes: int, down_gbs: float | None) -> list[_Port]:
    hops = merged_hops(node.links)
    ports = []
    nics = [part for part in node.nodes if part.kind == "nic"]
    for number, (index, nic) in itertools.product(range(nodes), enumerate(nics)):
        gbs, source = nic.port_gbs, "the NIC's port rate"
        if gbs is None:
            gbs = max((hop.bandwidth for hop in hops.values() if hop.src == nic.id), default=0.0)
            source = "port rate unknown: the NIC's PCIe rate taken"
        if down_gbs is not None and down_gbs < gbs:
            gbs, source = down_gbs, f"the switch port's {down_gbs:g} GB/s"
        assumed = nic.port_gbs is None and gbs != down_gbs
        ports.append(_Port(f"n{number}/{nic.id}", number, index, gbs, assumed, source))
    return ports


_Built = tuple[list[Node], list[Link]]


def _single(ports: list[_Port], _: float | None) -> _Built:
    return [Node("leaf0", "switch")], [port.link("leaf0") for port in ports]


def _rail(ports: list[_Port], up_gbs: float | None) -> _Built:
    rails = [f"rail{index}" for index in range(max(port.index for port in ports) + 1)]
    links = [port.link(rails[port.index]) for port in ports]
    if up_gbs is None:
        return [Node(rail, "switch") for rail in rails], links
    up = [_uplink(rail, up_gbs, "given", assumed=False) for rail in rails]
    return [Node(name, "switch") for name in (*rails, "spine0")], links + up


def _clos(ports: list[_Port], up_gbs: float | None) -> _Built:
    tors = [f"tor{number}" for number in range(max(port.host for port in ports) + 1)]
    links = [port.link(tors[port.host]) for port in ports]
    for number, tor in enumerate(tors):
        down = sum(port.gbs for port in ports if port.host == number)
        source = "given" if up_gbs is not None else "not blocking: as much as all its NICs"
        links.append(_uplink(tor, up_gbs or down, source, assumed=up_gbs is None))
    return [Node(name, "switch") for name in (*tors, "spine0")], links


def _uplink(switch: str, gbs: float, source: str, *, assumed: bool) -> Link:
    text = f"uplink rate {source}; latency {rates.SPINE_US_SOURCE}"
    return Link(switch, "spine0", "network", gbs, rates.SPINE_US, True, assumed, text)


FABRICS: dict[str, Callable[[list[_Port], float | None], _Built]] = {
    "single": _single,
    "rail": _rail,
    "clos": _clos,
}


def _with_routes(topology: Topology, node: Topology) -> Topology:
    host_paths = all_paths(node)
    nic_of = bound_nics(node)
    nearest = [nearest_nics(node, local) for local in range(node.ranks)]
    fixed = {(route.src, route.dst) for route in topology.routes}
    routes = list(topology.routes)
    for (src, dst), path in all_paths(topology).items():
        ends = (topology.gpus[src].id, topology.gpus[dst].id)
        if ends in fixed:
            continue
        host, local = divmod(src, node.ranks)
        peer_host, peer = divmod(dst, node.ranks)
        if host == peer_host:
            nodes_between = tuple(f"n{host}/{hop.src}" for hop in host_paths[local, peer].hops[1:])
            if path.crosses_network:
                routes.append(FixedRoute(*ends, nodes_between))
        elif nic_of:
            out_nic = f"n{host}/{nic_of[local]}"
            choices = [f"n{peer_host}/{nic}" for nic in (nic_of[peer], *nearest[peer])]
            via = _tied_via(topology, path, ends, out_nic, choices)
            if via is not None:
                routes.append(FixedRoute(*ends, via))
    return msgspec.structs.replace(topology, routes=tuple(routes))


def _tied_via(
    topology: Topology, path: Path, ends: tuple[str, str], out_nic: str, choices: list[str]
) -> tuple[str, ...] | None:
    """Return the relays of a path as good as ``path`` through other NICs, None to keep ``path``.

    The path leaves through the NIC ``out_nic`` and arrives by the first of ``choices`` that ties.
    """
    for in_nic in choices:
        if path.nics == (out_nic, in_nic):
            return None
        chain = (ends[0], out_nic, in_nic, ends[1])
        parts = [relay_path(topology, src, dst) for src, dst in itertools.pairwise(chain)]
        hops = [hop for part in parts if part is not None for hop in part.hops]
        nodes_between = tuple(hop.src for hop in hops[1:])
        is_simple = None not in parts and len({*ends, *nodes_between}) == len(nodes_between) + 2
        tied = len(hops) == len(path.hops) and min(h.bandwidth for h in hops) == path.bandwidth
        if is_simple and tied:
            return nodes_between
    return None
