"""A cluster's topology with the network as it was probed in place of the one assumed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from tuccl.errors import InputError
from tuccl.topology.graph import Link, Node, Topology, quoted
from tuccl.topology.probing.fit import Estimate
from tuccl.topology.probing.network import NetworkRates

_ALIKE = 0.05  # directions closer than that, or than their spread, are one link both ways
_MOST_CHARACTERS = 255


def measured_topology(cluster: Topology, rates: NetworkRates) -> Topology:
    """Return ``cluster`` with the network links and switches that ``rates`` show.

    Switches stay as they are where the groups found are those behind each; otherwise there is one
    for each group (leaf0, or tor0, tor1, ...), two joined by one link, more by spine0. A host's
    NICs that were not probed get the numbers of the one that was. Routes through switches that go
    are left to the shared rule (`path`).

    Raises:
        InputError: a host of the cluster was not probed, or an endpoint is none of its NICs.
    """
    end_of = {end.host: place for place, end in enumerate(rates.endpoints)}
    for host in cluster.hosts:
        if host not in end_of:
            raise InputError(f"host {quoted(host)} was not probed; probe it too, or leave it out")
    for end in rates.endpoints:
        if cluster.node(end.nic).kind != "nic":
            raise InputError(f"endpoint {quoted(end.nic)} is no NIC of {quoted(cluster.name)}")
    switch_of = _switches(cluster)
    behind = [
        {switch_of.get(rates.endpoints[index].nic, "") for index in group} for group in rates.groups
    ]
    names = [next(iter(switches)) for switches in behind]
    stays = all(len(switches) == 1 for switches in behind) and len(set(names)) == len(names)
    if stays and (len(names) == 1 or _one_uplink_each(cluster, names)):
        nodes, links = list(cluster.nodes), _between_old(cluster, rates, names)
    else:
        nodes, links, names = _rebuilt(cluster, rates)
    group_of = {index: place for place, group in enumerate(rates.groups) for index in group}
    for node in cluster.nodes:
        if node.kind != "nic" or node.id not in switch_of or (node.host or "") not in end_of:
            continue
        index = end_of[node.host or ""]
        probed = cluster.node(rates.endpoints[index].nic)
        home = names[group_of[index]]
        switch = home
        if len(names) == 1 and switch_of[node.id] != switch_of[probed.id]:
            switch = _other_rail(switch_of[node.id], switch, nodes)
        if node.port_gbs == probed.port_gbs:
            links += _port_links(node.id, switch, index, rates, home)
        else:  # other hardware, which was not probed
            links += _moved(cluster, node.id, switch)
    return with_network(cluster, nodes, links)


def with_network(cluster: Topology, nodes: Sequence[Node], network: Sequence[Link]) -> Topology:
    """Return ``cluster`` with other nodes and network links, and the routes that are still there.

    Args:
        cluster: whose other links stay.
        nodes: all there are.
        network: all links of kind network.
    """
    links = (*(link for link in cluster.links if link.kind != "network"), *network)
    ends = {pair for link in links for pair in link.directions()}
    routes = tuple(
        route
        for route in cluster.routes
        if ends.issuperset(zip((route.src, *route.via), (*route.via, route.dst), strict=True))
    )
    return msgspec.structs.replace(cluster, nodes=tuple(nodes), links=links, routes=routes)


def _switches(cluster: Topology) -> dict[str, str]:
    """Return the node at the other end of each NIC's network link."""
    switch_of: dict[str, str] = {}
    for link in cluster.links:
        if link.kind == "network":
            for src, dst in (link.directions()[0], link.directions()[0][::-1]):
                if cluster.node(src).kind == "nic":
                    switch_of.setdefault(src, dst)
    return switch_of


def _one_uplink_each(cluster: Topology, switches: Sequence[str]) -> bool:
    ends = [
        end
        for link in cluster.links
        for end in (link.src, link.dst)
        if link.kind == "network" and not _has_nic(cluster, link)
    ]
    return all(ends.count(switch) == 1 for switch in switches)


def _has_nic(cluster: Topology, link: Link) -> bool:
    return "nic" in (cluster.node(link.src).kind, cluster.node(link.dst).kind)


def _between_old(cluster: Topology, rates: NetworkRates, names: Sequence[str]) -> list[Link]:
    """Return the links between switches, with the rates found for those of the groups."""
    group_of = {name: place for place, name in enumerate(names)}
    links: list[Link] = []
    for link in cluster.links:
        if link.kind != "network" or _has_nic(cluster, link):
            continue
        if not rates.uplinks or group_of.keys().isdisjoint((link.src, link.dst)):
            links.append(link)
            continue
        for src, dst in link.directions():
            estimate = (
                rates.uplinks[group_of[src]].out_gbs
                if src in group_of
                else rates.uplinks[group_of[dst]].in_gbs
            )
            links.append(
                msgspec.structs.replace(link, src=src, dst=dst, duplex=False)
                if estimate is None
                else _link(src, dst, estimate, _hop_us(rates, 2), rates.method)
            )
    return _paired(links)


def _rebuilt(cluster: Topology, rates: NetworkRates) -> tuple[list[Node], list[Link], list[str]]:
    """Return the nodes with a switch for each group, the links between these, and their names."""
    count = len(rates.groups)
    names = ["leaf0"] if count == 1 else [f"tor{place}" for place in range(count)]
    switches = [*names, "spine0"] if count > 2 else names
    nodes = [node for node in cluster.nodes if node.kind != "switch"]
    nodes += [Node(name, "switch") for name in switches]
    us = _hop_us(rates, 1 if count == 2 else 2)
    links = []
    for place, uplink in enumerate(rates.uplinks):
        peer = names[1 - place] if count == 2 else "spine0"
        ways = [(names[place], peer, uplink.out_gbs), (peer, names[place], uplink.in_gbs)]
        for src, dst, estimate in ways[: 1 if count == 2 else 2]:
            links.append(
                _wide(src, dst, rates, place, us)
                if estimate is None
                else _link(src, dst, estimate, us, rates.method)
            )
    return nodes, _paired(links), names


def _hop_us(rates: NetworkRates, hops: int) -> Estimate:
    across = rates.across_us or Estimate(0.0, 0.0, 0.0)
    return Estimate(across.value / hops, across.low / hops, across.high / hops)


def _link(src: str, dst: str, gbs: Estimate, us: Estimate, method: str) -> Link:
    return Link(
        src,
        dst,
        "network",
        gbs.value,
        us.value,
        source=f"measured: {method}"[:_MOST_CHARACTERS],
        measured=gbs.value,
        spread_gbs=gbs.spread,
        spread_us=us.spread,
    )


def _wide(src: str, dst: str, rates: NetworkRates, group: int, us: Estimate) -> Link:
    """Return a link that slowed no flow: as wide as all the links of its group together."""
    total = sum(
        rates.ports[index].out_gbs.value * len(rates.endpoints[index].addresses)
        for index in rates.groups[group]
    )
    nic = rates.endpoints[rates.groups[group][0]].nic
    switch = dst if src == "spine0" else src
    return Link(
        src,
        dst,
        "network",
        total,
        us.value,
        source="no flow was slowed there: as much as all NICs behind it",
        inferred_from=f"{nic} {switch}"[:_MOST_CHARACTERS],
    )


def _port_links(
    nic: str, switch: str, index: int, rates: NetworkRates, end_switch: str
) -> list[Link]:
    """Return the links of a NIC, whose numbers were measured there or are an endpoint's."""
    port = rates.ports[index]
    model = rates.endpoints[index if port.inferred_from is None else port.inferred_from].nic
    links = [
        _link(nic, switch, port.out_gbs, port.latency_us, rates.method),
        _link(switch, nic, port.in_gbs, port.latency_us, rates.method),
    ]
    if model != nic:
        text = f"{model} {end_switch}"[:_MOST_CHARACTERS]
        links = [
            msgspec.structs.replace(
                link,
                measured=None,
                spread_gbs=None,
                spread_us=None,
                inferred_from=text,
                source="of equal hardware",
            )
            for link in links
        ]
    return _paired(links)


def _moved(cluster: Topology, nic: str, switch: str) -> list[Link]:
    """Return the network links of a NIC, to another switch."""
    return [
        msgspec.structs.replace(link, **{"dst" if link.src == nic else "src": switch})
        for link in cluster.links
        if link.kind == "network" and nic in (link.src, link.dst)
    ]


def _paired(links: list[Link]) -> list[Link]:
    """Return the links with each two of opposite directions and alike rates as one."""
    paired: list[Link] = []
    by_ends: dict[tuple[str, str], list[Link]] = defaultdict(list)
    for link in links:
        opposite = by_ends[link.dst, link.src]
        if not link.duplex and opposite and _alike(link, opposite[-1]):
            forth = opposite.pop()
            paired[paired.index(forth)] = _merged(forth, link)
        else:
            paired.append(link)
            if not link.duplex:
                by_ends[link.src, link.dst].append(link)
    return paired


def _alike(a: Link, b: Link) -> bool:
    spread = (a.spread_gbs or 0.0) + (b.spread_gbs or 0.0)
    near = abs(a.bandwidth - b.bandwidth) <= max(_ALIKE * a.bandwidth, spread)
    return near and a.origin == b.origin and a.inferred_from == b.inferred_from


def _merged(a: Link, b: Link) -> Link:
    gbs = (a.bandwidth + b.bandwidth) / 2
    spread = (
        None if a.spread_gbs is None or b.spread_gbs is None else max(a.spread_gbs, b.spread_gbs)
    )
    measured = gbs if a.measured is not None else None
    return msgspec.structs.replace(
        a, bandwidth=gbs, measured=measured, spread_gbs=spread, duplex=True
    )


def _other_rail(old: str, switch: str, nodes: list[Node]) -> str:
    """Return the switch of another rail: the old one where it stayed, else one like ``switch``."""
    ids = {node.id for node in nodes}
    name = old if old in ids else f"{switch}/{old}"[:_MOST_CHARACTERS]
    if name not in ids:
        nodes.append(Node(name, "switch"))
    return name
