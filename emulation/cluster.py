"""An emulated cluster: hosts, NICs, switches and links, worked out from a topology.

Nothing here touches the machine. Every name that reaches the kernel is made of numbers; names of
the topology only ever stand in text files, and only after `safe_names`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from tuccl.errors import InputError
from tuccl.topology import Topology, all_paths, own_nics
from tuccl.topology.relays import Hop, merged_hops

FABRIC = "fabric"
USUAL_FASTEST_BPS = 1e9

_OUTSIDE = "outside"  # the device of a host outside the job
_MOST_HOSTS = 64
_MOST_NICS = 128
_LOWEST_BPS = 1e6
_FASTEST_BPS = 4e9  # what two cores carry in all (docs/howto/run-on-cpus.md)


class EmulatedNic(msgspec.Struct, frozen=True):
    """A NIC of the topology as a device ``railN`` of its host's namespace."""

    id: str
    device: str
    address: str
    mac: str


class EmulatedHost(msgspec.Struct, frozen=True):
    """A host of the topology: its namespace's ending, host name, ranks and NICs."""

    host: str
    space: str
    name: str
    ranks: tuple[int, ...]
    nics: tuple[EmulatedNic, ...]


class Port(msgspec.Struct, frozen=True):
    """The sending side of one direction of a link: a device whose queue holds the rate in bit/s."""

    src: str
    dst: str
    space: str
    device: str
    rate_bps: int
    nominal_bps: float


class RouteLatency(msgspec.Struct, frozen=True):
    """The topology's latency between two ranks in us; the kernel adds none of it."""

    src: int
    dst: int
    latency_us: float


class EmulatedCluster(msgspec.Struct, frozen=True):
    """An emulated cluster.

    Attributes:
        name: the topology's.
        scale: emulated rate over nominal rate.
        hosts: in the order of their first rank.
        switches: ids; switch ``i`` is the bridge ``si`` in the fabric's namespace.
        ports: two a link, next to each other, one a direction.
        forwarding: (switch, NIC, next node) for every NIC a switch can reach.
        reaches: (NIC, NIC) pairs on different hosts that the network joins.
        nic_of: the NIC that each rank uses, by rank, of several its first; empty where ranks must
            use them all.
        latencies: of every pair of ranks on different hosts.
        outside: hosts outside the job, named after the switch that they are at, one NIC each.
        outside_ports: two an outside host, without a rate.
        outside_reaches: (NIC, NIC) pairs of which one is an outside host's.
        control: a link of its own for each link that cross traffic fills, by whose ends and rate
            it is called; it joins nothing else (see `emulation.cross_traffic`).
        queue_bytes: what waits at a port at most; 0: so much that none is ever lost.
    """

    name: str
    scale: float
    hosts: tuple[EmulatedHost, ...]
    switches: tuple[str, ...]
    ports: tuple[Port, ...]
    forwarding: tuple[tuple[str, str, str], ...]
    reaches: tuple[tuple[str, str], ...]
    nic_of: dict[int, str]
    latencies: tuple[RouteLatency, ...]
    outside: tuple[EmulatedHost, ...] = ()
    outside_ports: tuple[Port, ...] = ()
    outside_reaches: tuple[tuple[str, str], ...] = ()
    control: tuple[Port, ...] = ()
    queue_bytes: int = 0

    @property
    def nics(self) -> dict[str, EmulatedNic]:
        """Return the NICs by id."""
        return {nic.id: nic for host in self.hosts for nic in host.nics}

    @property
    def all_nics(self) -> dict[str, EmulatedNic]:
        """Return the NICs by id, those of hosts outside the job among them."""
        return self.nics | {host.nics[0].id: host.nics[0] for host in self.outside}

    @property
    def fastest_bps(self) -> int:
        """Return the rate of the fastest NIC in bit/s, as emulated."""
        nics = self.nics
        return max(port.rate_bps for port in self.ports if port.src in nics)


def emulated_cluster(
    topology: Topology, scale: float | None = None, outside: Iterable[str] = ()
) -> EmulatedCluster:
    """Return the emulated cluster for ``topology``, with all rates multiplied by ``scale``.

    Args:
        topology: at least two hosts, joined by NICs and links of kind ``network``.
        scale: None makes the fastest NIC 1 Gb/s, and slower clusters as they are.
        outside: ids of switches that get a host outside the job.

    >>> from tuccl.topology import join, load_profile
    >>> emulated = emulated_cluster(join(load_profile("ndv2"), 2))
    >>> emulated.scale, [nic.address for nic in emulated.hosts[1].nics]
    (0.01, ['10.77.0.2'])

    Raises:
        InputError: the hosts are too few or too many, their network is not made of NICs and
            switches, or a rate is out of what can be emulated.
    """
    hops = {ends: hop for ends, hop in merged_hops(topology.links).items() if hop.kind == "network"}
    _check_network(topology, hops)
    rates = {ends: _bps(topology, hop) for ends, hop in hops.items()}
    nics = _nics(topology, hops)
    factor = _scale(max(rate for (src, _), rate in rates.items() if src in nics), scale)
    switches = tuple(
        n.id for n in topology.nodes if n.kind == "switch" and any(n.id in e for e in hops)
    )
    forwarding = tuple(step for nic in nics for step in _towards(nic, hops, set(switches)))
    reaches = _reaches(nics, hops, forwarding)
    hosts = _hosts(topology, nics, reaches)
    bound = {rank: nics[0] for rank, nics in own_nics(topology).items()}
    crossing = [
        pair
        for pair in all_paths(topology)
        if topology.host_of(pair[0]) != topology.host_of(pair[1])
    ]
    all_bound = all((bound.get(a), bound.get(b)) in set(reaches) for a, b in crossing)
    outsiders = _outside_hosts(tuple(outside), switches)
    return _with_outside(
        EmulatedCluster(
            topology.name,
            factor,
            hosts,
            switches,
            _ports(hosts, switches, rates, factor),
            forwarding,
            reaches,
            bound if all_bound else {},
            tuple(RouteLatency(*pair, all_paths(topology)[pair].latency) for pair in crossing),
        ),
        outsiders,
        nics,
        hops,
    )


def safe_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return a host name for each of ``names``: letters, digits and hyphens, all different.

    >>> safe_names(["n0", "a b", "a_b", ";rm -rf /"])
    ('n0', 'a-b', 'a-b-2', 'rm-rf')
    """
    used: list[str] = []
    for number, name in enumerate(names):
        clean = re.sub("[^a-z0-9]+", "-", name.lower())[:40].strip("-") or "host"
        used.append(f"{clean}-{number}" if clean in used else clean)
    return tuple(used)


def _check_network(topology: Topology, hops: dict[tuple[str, str], Hop]) -> None:
    if not 2 <= len(topology.hosts) <= _MOST_HOSTS:
        raise InputError(
            f"topology {topology.name[:60]!r} has {len(topology.hosts)} hosts; "
            f"2 to {_MOST_HOSTS} are emulated"
        )
    for (src, dst), hop in hops.items():
        for end in (src, dst):
            if topology.node(end).kind not in ("nic", "switch"):
                raise InputError(
                    f"network link {src[:60]!r} to {dst[:60]!r}: {end[:60]!r} is a "
                    f"{topology.node(end).kind}; only NICs and switches are emulated"
                )
        if (dst, src) not in hops:
            raise InputError(
                f"network link {src[:60]!r} to {dst[:60]!r} has no way back; expected both ways"
            )
        if hop.bandwidth <= 0:
            raise InputError(f"network link {src[:60]!r} to {dst[:60]!r} has no bandwidth")


def _bps(topology: Topology, hop: Hop) -> float:
    ports = [topology.node(end).port_gbs for end in (hop.src, hop.dst)]
    return 8e9 * min([hop.bandwidth, *(gbs for gbs in ports if gbs is not None)])


def _nics(topology: Topology, hops: dict[tuple[str, str], Hop]) -> dict[str, str]:
    """Return the host of each NIC that has a network link, in the order of hosts and file."""
    neighbours: dict[str, list[str]] = defaultdict(list)
    for src, dst in hops:
        neighbours[src].append(dst)
    host_of = {
        nic: host for host in topology.hosts for nic in topology.nics_of(host) if nic in neighbours
    }
    for host in topology.hosts:
        if host not in host_of.values():
            raise InputError(f"host {host[:60]!r} has no NIC with a network link")
    for nic in host_of:
        if len(neighbours[nic]) > 1:
            raise InputError(
                f"NIC {nic[:60]!r} has links to {len(neighbours[nic])} nodes; one is emulated a NIC"
            )
    if len(host_of) > _MOST_NICS:
        raise InputError(f"{len(host_of)} NICs; at most {_MOST_NICS} are emulated")
    return host_of


def _scale(fastest_bps: float, scale: float | None) -> float:
    factor = min(1.0, USUAL_FASTEST_BPS / fastest_bps) if scale is None else scale
    if not _LOWEST_BPS <= fastest_bps * factor <= _FASTEST_BPS:
        raise InputError(
            f"scale {factor:g}: the fastest NIC would run at {fastest_bps * factor / 1e6:g} Mb/s; "
            f"{_LOWEST_BPS / 1e6:g} to {_FASTEST_BPS / 1e6:g} can be emulated"
        )
    return factor


def _towards(
    nic: str, hops: dict[tuple[str, str], Hop], switches: set[str]
) -> list[tuple[str, str, str]]:
    """Return (switch, NIC, next node) of the shortest path to ``nic`` from every switch.

    Ties go to the widest next hop, then to the smallest id, as `tuccl.topology.path` has it.
    """
    import networkx as nx

    back = nx.DiGraph((dst, src) for src, dst in hops if src in switches)
    back.add_node(nic)
    distance = nx.single_source_shortest_path_length(back, nic)
    steps = []
    for switch in sorted(distance, key=lambda node: (distance[node], node)):
        nearer = [n for n in back.predecessors(switch) if distance.get(n) == distance[switch] - 1]
        if nearer:
            widest = min(nearer, key=lambda node: (-hops[switch, node].bandwidth, node))
            steps.append((switch, nic, widest))
    return steps


def _reaches(
    nics: dict[str, str],
    hops: dict[tuple[str, str], Hop],
    forwarding: tuple[tuple[str, str, str], ...],
) -> tuple[tuple[str, str], ...]:
    neighbour = {src: dst for src, dst in hops if src in nics}
    forwarded = {(switch, nic) for switch, nic, _ in forwarding}
    return tuple(
        (src, dst)
        for src in nics
        for dst in nics
        if nics[src] != nics[dst] and (neighbour[src] == dst or (neighbour[src], dst) in forwarded)
    )


def _hosts(
    topology: Topology, nics: dict[str, str], reaches: tuple[tuple[str, str], ...]
) -> tuple[EmulatedHost, ...]:
    """Number NICs so that those of one rail reach each other: a rail is a subnet."""
    import networkx as nx

    joined = nx.Graph(reaches)
    joined.add_nodes_from(nics)
    parts = nx.connected_components(joined)
    network_of = {nic: number for number, part in enumerate(parts) for nic in part}
    rails: dict[tuple[int, int], int] = {}
    hosts = []
    for number, (host, name) in enumerate(
        zip(topology.hosts, safe_names(topology.hosts), strict=True)
    ):
        rail_counts: dict[int, int] = defaultdict(int)
        host_nics = []
        for nic in (n for n, at in nics.items() if at == host):
            key = network_of[nic], rail_counts[network_of[nic]]
            rail_counts[network_of[nic]] += 1
            rail = rails.setdefault(key, len(rails))
            mac = f"02:74:63:00:{rail:02x}:{number:02x}"
            host_nics.append(EmulatedNic(nic, f"rail{rail}", f"10.77.{rail}.{number + 1}", mac))
        hosts.append(
            EmulatedHost(host, f"h{number}", name, topology.gpus_of(host), tuple(host_nics))
        )
    return tuple(hosts)


def _outside_hosts(outside: tuple[str, ...], switches: tuple[str, ...]) -> tuple[EmulatedHost, ...]:
    if len(outside) > _MOST_HOSTS or not set(outside) <= set(switches):
        raise InputError(
            f"hosts outside the job at {', '.join(outside)[:60]}: expected up to {_MOST_HOSTS} "
            f"switches of the network, like {', '.join(switches)[:60] or 'none of this topology'}"
        )
    return tuple(
        EmulatedHost(
            switch,
            f"x{n}",
            f"outside-{n}",
            (),
            (
                EmulatedNic(
                    f"outside of {switch}",
                    _OUTSIDE,
                    f"10.77.255.{n + 1}",
                    f"02:74:63:01:00:{n:02x}",
                ),
            ),
        )
        for n, switch in enumerate(outside)
    )


def _with_outside(
    cluster: EmulatedCluster,
    outside: tuple[EmulatedHost, ...],
    nics: dict[str, str],
    hops: dict[tuple[str, str], Hop],
) -> EmulatedCluster:
    """Return ``cluster`` with the hosts outside the job, each a hop from its switch."""
    if not outside:
        return cluster
    own = {host.nics[0].id: host for host in outside}
    ends = {(nic, host.host) for nic, host in own.items()}
    joined = hops | {
        pair: Hop(*pair, "network", math.inf, 0.0) for end in ends for pair in (end, end[::-1])
    }
    steps = [step for nic in own for step in _towards(nic, joined, set(cluster.switches))]
    forwarding = (*cluster.forwarding, *steps)
    reaches = _reaches(nics | {nic: nic for nic in own}, joined, forwarding)
    ports = [
        (
            Port(nic, host.host, host.space, _OUTSIDE, 0, 0.0),
            Port(host.host, nic, FABRIC, host.space, 0, 0.0),
        )
        for nic, host in own.items()
    ]
    return msgspec.structs.replace(
        cluster,
        forwarding=forwarding,
        outside=outside,
        outside_ports=tuple(port for pair in ports for port in pair),
        outside_reaches=tuple(pair for pair in reaches if not own.keys().isdisjoint(pair)),
    )


def _ports(
    hosts: tuple[EmulatedHost, ...],
    switches: tuple[str, ...],
    rates: dict[tuple[str, str], float],
    factor: float,
) -> tuple[Port, ...]:
    devices = {nic.id: (host.space, nic.device) for host in hosts for nic in host.nics}
    links = [(src, dst) for src, dst in rates if (dst, src) not in rates or src < dst]
    ports = []
    for number, link in enumerate(links):
        for side, (src, dst) in enumerate((link, link[::-1])):
            space, device = devices.get(src, (FABRIC, f"p{number}-{side}"))
            nominal = rates[src, dst]
            rate = max(1, round(nominal * factor))
            if rate < _LOWEST_BPS:
                raise InputError(
                    f"link {src[:60]!r} to {dst[:60]!r} would run at {rate / 1e6:g} Mb/s; "
                    f"at least {_LOWEST_BPS / 1e6:g} can be emulated: choose a larger scale"
                )
            ports.append(Port(src, dst, space, device, rate, nominal))
    return tuple(ports)
