"""Joining hosts through their NICs into a cluster."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from tuccl.errors import InputError
from tuccl.topology import rates
from tuccl.topology.cabling import Port, cabled
from tuccl.topology.graph import FixedRoute, Link, Node, Topology, quoted
from tuccl.topology.merge import merge_nics
from tuccl.topology.nics import bound_nics, nearest_nics, own_nics, tied_via
from tuccl.topology.paths import all_paths, find_path
from tuccl.topology.relays import RelayPaths, merged_hops
from tuccl.topology.switches import Fabric

_MOST_NAME = 100


def join(
    node: Topology,
    nodes: int,
    fabric: str = "single",
    up_gbs: float | None = None,
    down_gbs: float | None = None,
) -> Topology:
    """Return ``nodes`` copies of the host ``node``, joined through their NICs.

    Hosts are called n0, n1, ...; all else is as `join_hosts` does it.

    Args:
        node: one host.
        nodes: how many; one host alone gets no fabric.
        fabric: as `join_hosts` takes it.
        up_gbs: as `join_hosts` takes it.
        down_gbs: as `join_hosts` takes it.

    >>> from tuccl.topology import load_profile
    >>> join(load_profile("ndv2"), 2).hosts
    ('n0', 'n1')

    Raises:
        InputError: an argument is out of its range, or the host has no NIC.
    """
    if not 1 <= nodes <= 1024:
        raise InputError(f"nodes {nodes}: expected 1 to 1024 hosts")
    names = [f"n{number}" for number in range(nodes)]
    if nodes > 1:  # other hosts may have other addresses
        bare = tuple(msgspec.structs.replace(part, busid=None) for part in node.nodes)
        node = msgspec.structs.replace(node, nodes=bare)
    return join_hosts([node] * nodes, names, fabric, up_gbs, down_gbs)[0]


def join_hosts(
    hosts: Sequence[Topology],
    names: Sequence[str] | None = None,
    fabric: str | Fabric = "single",
    up_gbs: float | None = None,
    down_gbs: float | None = None,
) -> tuple[Topology, tuple[str, ...]]:
    """Return one cluster of ``hosts``, of different hardware or not, and warnings.

    Ids get the host's name in front (``n1/gpu0``) and ranks count host after host, in the order
    of ``hosts``.

    Args:
        hosts: a topology of one host each; one alone gets no fabric.
        names: of the hosts; without them the topologies' names where those differ, else n0, n1, ...
        fabric: ``single``, one switch (leaf0) for all NICs; ``rail``, NIC i of every host on
            switch raili, and the rails joined by spine0 only where ``up_gbs`` is given; ``clos``,
            a top-of-rack switch torK for host K, joined by spine0; or the `Fabric` of a file, in
            which NICs have their place by GUID, then by the names of host and device.
        up_gbs: of a rail or top-of-rack switch to the spine, in GB/s per direction, all uplinks
            together. A Clos without it is not blocking: its uplink carries all its downlinks. So
            does a fabric file's that gives no rate.
        down_gbs: of a switch port to a NIC, in GB/s per direction; a NIC's link runs at the lower
            of this and the NIC's port rate. A NIC of unknown rate counts with its PCIe link's.

    Notes:
        Two kinds of route are fixed where the shared rule would do otherwise: a message inside a
        host never goes over the network, though that may be wider; and GPUs that tie between
        several NICs are spread over them instead of all taking the first id. No route is fixed
        where a GPU has several NICs as its own (`own_nics`).

    >>> from tuccl.topology import load_profile
    >>> cluster, _ = join_hosts([load_profile("ndv2"), load_profile("dgx-a100")], ["old", "new"])
    >>> cluster.gpus[8].id
    'new/gpu0'

    Raises:
        InputError: an argument is out of its range, two hosts have one name, a host has no NIC, or
            no place in the fabric.
    """
    names = _names(hosts, names)
    _check(hosts, fabric, up_gbs, down_gbs)
    switches: list[Node] = []
    fabric_links: list[Link] = []
    warnings: tuple[str, ...] = ()
    cable_gbs: dict[str, float] = {}
    if len(hosts) > 1:
        ports = _ports(hosts, names, down_gbs)
        if isinstance(fabric, Fabric):
            switches, fabric_links, warnings = cabled(fabric, ports, up_gbs)
            cable_gbs = {link.src: link.bandwidth for link in fabric_links if not link.assumed}
        else:
            switches, fabric_links = FABRICS[fabric](ports, up_gbs)
        linked = {link.src for link in fabric_links}
        absent = {port.nic for port in ports if port.nic not in linked}
        hosts = [_without_nics(host, name, absent) for host, name in zip(hosts, names, strict=True)]
    copies = [
        _copy(host, name, base)
        for host, name, base in zip(hosts, names, _bases(hosts), strict=True)
    ]
    all_nodes = [_with_port(part, cable_gbs) for nodes_, _, _ in copies for part in nodes_]
    all_nodes += switches
    all_links = [link for _, links, _ in copies for link in links] + fabric_links
    fixed = tuple(route for _, _, routes in copies for route in routes)
    cluster = Topology(_cluster_name(hosts), tuple(all_nodes), tuple(all_links), fixed)
    return cluster if len(hosts) == 1 else _with_routes(cluster, hosts, names), warnings


def _names(hosts: Sequence[Topology], names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        names = [host.name for host in hosts]
        if len(set(names)) < len(names):
            names = [f"n{number}" for number in range(len(hosts))]
    if len(names) != len(hosts):
        raise InputError(f"{len(names)} names for {len(hosts)} hosts: expected as many")
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{count} hosts are called {quoted(name)}; give each its own name")
        if not name or len(name) > _MOST_NAME or not name.isprintable() or "/" in name:
            raise InputError(
                f"host name {quoted(name)}: expected 1 to {_MOST_NAME} printable characters, no '/'"
            )
    return tuple(names)


def _check(
    hosts: Sequence[Topology],
    fabric: str | Fabric,
    up_gbs: float | None,
    down_gbs: float | None,
) -> None:
    if not 1 <= len(hosts) <= 1024:
        raise InputError(f"{len(hosts)} hosts: expected 1 to 1024 hosts")
    for host in hosts:
        if len(host.hosts) != 1 or any(part.kind == "switch" for part in host.nodes):
            raise InputError(
                f"topology {quoted(host.name)} is a cluster already; expected one host, "
                "to join with others"
            )
        if len(hosts) > 1 and not any(part.kind == "nic" for part in host.nodes):
            raise InputError(
                f"topology {quoted(host.name)} has no NIC to join {len(hosts)} hosts through"
            )
    if isinstance(fabric, str) and fabric not in FABRICS:
        raise InputError(f"fabric {quoted(fabric)}: expected one of {', '.join(FABRICS)}")
    for name, value in (("up", up_gbs), ("down", down_gbs)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} rate {value}: expected a positive number of GB/s")
    if fabric == "single" and up_gbs is not None:
        raise InputError("up rate: a single switch has no uplink; choose the fabric rail or clos")
    if isinstance(fabric, Fabric) and up_gbs is not None and fabric.gives_rates:
        raise InputError(f"up rate: {fabric.name} gives the rates of its uplinks itself")


def _bases(hosts: Sequence[Topology]) -> list[int]:
    """Return the first rank of each host."""
    return [0, *itertools.accumulate(host.ranks for host in hosts[:-1])]


def _cluster_name(hosts: Sequence[Topology]) -> str:
    kinds = Counter(host.name for host in hosts)
    return " + ".join(f"{count}x {name}" for name, count in kinds.items())[:255]


def _id_in(name: str, host: Topology) -> Callable[[str], str]:
    """Return the function from an id of ``host`` alone to its id in a cluster."""
    # A host that was joined before has its old name in front of its ids.
    prefix = f"{host.hosts[0]}/"
    if not all(part.id.startswith(prefix) for part in host.nodes):
        prefix = ""
    return lambda part_id: f"{name}/{part_id.removeprefix(prefix)}"


def _without_nics(host: Topology, name: str, absent: set[str]) -> Topology:
    """Return ``host`` without the NICs whose ids in the cluster are ``absent``."""
    id_of = _id_in(name, host)
    ids = {part.id for part in host.nodes if id_of(part.id) in absent}
    if not ids:
        return host
    nodes = tuple(part for part in host.nodes if part.id not in ids)
    links = tuple(link for link in host.links if not ids & {link.src, link.dst})
    return msgspec.structs.replace(host, nodes=nodes, links=links)


def _copy(host: Topology, name: str, base: int) -> tuple[list[Node], list[Link], list[FixedRoute]]:
    id_of = _id_in(name, host)
    nodes = []
    for part in host.nodes:
        rank = None if part.rank is None else part.rank + base
        nodes.append(msgspec.structs.replace(part, id=id_of(part.id), host=name, rank=rank))
    links = [
        msgspec.structs.replace(link, src=id_of(link.src), dst=id_of(link.dst))
        for link in host.links
    ]
    routes = [
        FixedRoute(id_of(r.src), id_of(r.dst), tuple(id_of(i) for i in r.via)) for r in host.routes
    ]
    return nodes, links, routes


def _with_port(part: Node, cable_gbs: Mapping[str, float]) -> Node:
    """Return ``part``, a NIC of unknown port rate with that of its cable."""
    if part.kind != "nic" or part.port_gbs is not None or part.id not in cable_gbs:
        return part
    return msgspec.structs.replace(part, port_gbs=cable_gbs[part.id])


def _ports(hosts: Sequence[Topology], names: Sequence[str], down_gbs: float | None) -> list[Port]:
    ports = []
    for host, name in zip(hosts, names, strict=True):
        hops = merged_hops(host.links)
        id_of = _id_in(name, host)
        for index, nic in enumerate(part for part in host.nodes if part.kind == "nic"):
            gbs, source = nic.port_gbs, "the NIC's port rate"
            if gbs is None:
                gbs = max((hop.bandwidth for hop in hops.values() if hop.src == nic.id), default=0)
                source = "port rate unknown: the NIC's PCIe rate taken"
            if down_gbs is not None and down_gbs < gbs:
                gbs, source = down_gbs, f"the switch port's {down_gbs:g} GB/s"
            assumed = nic.port_gbs is None and gbs != down_gbs
            names_of = (nic.device, nic.guid)
            ports.append(Port(id_of(nic.id), name, index, gbs, assumed, source, *names_of))
    return ports


_Built = tuple[list[Node], list[Link]]


def _single(ports: list[Port], _: float | None) -> _Built:
    return [Node("leaf0", "switch")], [port.link("leaf0") for port in ports]


def _rail(ports: list[Port], up_gbs: float | None) -> _Built:
    rails = [f"rail{index}" for index in range(max(port.index for port in ports) + 1)]
    links = [port.link(rails[port.index]) for port in ports]
    if up_gbs is None:
        return [Node(rail, "switch") for rail in rails], links
    up = [_uplink(rail, up_gbs, "given", assumed=False) for rail in rails]
    return [Node(name, "switch") for name in (*rails, "spine0")], links + up


def _clos(ports: list[Port], up_gbs: float | None) -> _Built:
    hosts = dict.fromkeys(port.host for port in ports)
    tor_of = {host: f"tor{number}" for number, host in enumerate(hosts)}
    links = [port.link(tor_of[port.host]) for port in ports]
    for host, tor in tor_of.items():
        down = sum(port.gbs for port in ports if port.host == host)
        source = "given" if up_gbs is not None else "not blocking: as much as all its NICs"
        links.append(_uplink(tor, up_gbs or down, source, assumed=up_gbs is None))
    return [Node(name, "switch") for name in (*tor_of.values(), "spine0")], links


def _uplink(switch: str, gbs: float, source: str, *, assumed: bool) -> Link:
    text = f"uplink rate {source}; latency {rates.SPINE_US_SOURCE}"
    return Link(switch, "spine0", "network", gbs, rates.SPINE_US, True, assumed, text)


FABRICS: dict[str, Callable[[list[Port], float | None], _Built]] = {
    "single": _single,
    "rail": _rail,
    "clos": _clos,
}


def _with_routes(topology: Topology, hosts: Sequence[Topology], names: Sequence[str]) -> Topology:
    gpus = [gpu.id for gpu in topology.gpus]
    ids = [_id_in(name, host) for name, host in zip(names, hosts, strict=True)]
    fixed = {(route.src, route.dst) for route in topology.routes}
    routes = list(topology.routes)
    planned = merge_nics(topology)
    spread = _Spread(topology, hosts, ids)
    for host, id_of, base in zip(hosts, ids, _bases(hosts), strict=True):
        for src in range(base, base + host.ranks):
            vias: dict[int, tuple[str, ...] | None] = dict(spread.vias(src))
            for dst in range(base, base + host.ranks):
                if src != dst:
                    vias[dst] = _via_inside(planned, host, id_of, (src, dst), base)
            for dst, via in sorted(vias.items()):
                if via is not None and (gpus[src], gpus[dst]) not in fixed:
                    routes.append(FixedRoute(gpus[src], gpus[dst], via))
    return msgspec.structs.replace(topology, routes=tuple(routes)) if routes else topology


def _via_inside(
    planned: Topology, host: Topology, id_of: Callable[[str], str], pair: tuple[int, int], base: int
) -> tuple[str, ...] | None:
    """Return the relays of the route inside a host, None where messages stay inside anyhow."""
    path = find_path(planned, *pair)
    if path is None or not path.crosses_network:
        return None
    inside = all_paths(host).get((pair[0] - base, pair[1] - base))
    return None if inside is None else tuple(id_of(hop.src) for hop in inside.hops[1:])


# Of one route: its GPUs, its relays where it is to be fixed, and whether others are images of it.
_Via = tuple[tuple[str, str], tuple[str, ...] | None, bool]


class _Spread:
    """Routes between hosts that take the NICs of `bound_nics`.

    Ranks are of one kind where swaps of hosts take their GPUs, and the NICs of these, to the same
    nodes: so routes from one kind to another are images of one, if all paths they may take are.
    """

    def __init__(
        self, topology: Topology, hosts: Sequence[Topology], ids: Sequence[Callable[[str], str]]
    ) -> None:
        self._topology = topology
        self._relays = topology.derived(RelayPaths)
        self._gpus = [gpu.id for gpu in topology.gpus]
        several = {rank for rank, nics in own_nics(topology).items() if len(nics) > 1}
        self._nics: list[tuple[str, ...]] = []
        for host, id_of in zip(hosts, ids, strict=True):
            nic_of = host.derived(bound_nics)
            for rank, nearest in enumerate(host.derived(_nearest)):
                spread = rank in nic_of and len(self._nics) not in several
                nics = (nic_of[rank], *nearest) if spread else ()
                self._nics.append(tuple(id_of(nic) for nic in nics))
        parts = zip(self._gpus, self._nics, strict=True)
        self._kinds = [self._relays.swaps.canonical((gpu, *nics)) for gpu, nics in parts]
        self._ranks: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for rank, kind in enumerate(self._kinds):
            if self._nics[rank]:
                self._ranks[kind].append(rank)
        self._first: dict[tuple[tuple[str, ...], ...], _Via] = {}

    def vias(self, src: int) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield ranks on other hosts, with the relays of the route there, where one is needed."""
        host_of = self._topology.host_of
        for kind, ranks in self._ranks.items() if self._nics[src] else ():
            kinds = self._kinds[src], kind
            for dst in ranks:
                if host_of(dst) == host_of(src):
                    continue
                if kinds not in self._first:
                    images = self._has_images(src, dst)
                    self._first[kinds] = self._ends(src, dst), self._tied(src, dst), images
                ends, via, images = self._first[kinds]
                if images and via is None:
                    break
                if via is None or not images:
                    via = self._tied(src, dst)
                else:
                    via = self._relays.swaps.moved(via, ends, self._ends(src, dst))
                if via is not None:
                    yield dst, via

    def _ends(self, src: int, dst: int) -> tuple[str, str]:
        return self._gpus[src], self._gpus[dst]

    def _tied(self, src: int, dst: int) -> tuple[str, ...] | None:
        path, out_nic = find_path(self._topology, src, dst), self._nics[src][0]
        if path is None:
            return None
        return tied_via(self._topology, path, self._ends(src, dst), out_nic, self._nics[dst])

    def _has_images(self, src: int, dst: int) -> bool:
        """Return whether every path that `_tied` looks at has images; merged NICs have none."""
        (one, other), out_nic = self._ends(src, dst), self._nics[src][0]
        paths = [(one, other), (one, out_nic)]
        for nic in self._nics[dst]:
            paths += [(out_nic, nic), (nic, other)]
        whole = merge_nics(self._topology) is self._topology
        return whole and all(self._relays.has_images(*ends) for ends in paths)


def _nearest(host: Topology) -> list[tuple[str, ...]]:
    return [nearest_nics(host, local) for local in range(host.ranks)]
