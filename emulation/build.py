"""Building an emulated cluster: bridges, veth pairs, addresses, and queues with the rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from ipaddress import ip_interface
from math import ceil
from pathlib import Path

import msgspec

from tuccl.emulation.cluster import FABRIC, EmulatedCluster, EmulatedHost, Port
from tuccl.emulation.netns import batch, set_controls

_BURST_S = 1e-3  # a bucket holds what the link carries in that time, within the bounds
_LEAST_BURST, _USUAL_BURST = 20_000, 64_000
_MTU = 9000
_LATE_S = 2e-4  # a bucket's timer may fire so late: with less room over a packet the rate falls
# Networks of clusters lose nothing: a queue that overflowed would cost TCP 200 ms a time.
_QUEUE_BYTES = 16_000_000
_CONTROLS = {
    "net/ipv4/conf/all/rp_filter": "0",
    # A link keeps its rate between iterations: it is the network that is emulated, not TCP.
    "net/ipv4/tcp_slow_start_after_idle": "0",
    # The same TCP on every machine. Reno is in all kernels, and starts no timer for each packet as
    # BBR does, which some have as their default: the processors are short, not the links.
    "net/ipv4/tcp_congestion_control": "reno",
    # No loss stops it: this limits the bytes under way on each connection.
    "net/ipv4/tcp_wmem": "4096 16384 524288",
}
# Beside others' traffic: a large window would fill the queues of links that they share, and a small
# message then waits for all that is in them; each connection's part would hang on its past, too.
_SHARED = {"net/ipv4/tcp_wmem": "4096 16384 65536"}
# Where queues overflow a connection finds its own limit; timeouts are as short as the network.
# Routes name Cubic since namespaces may not choose what their machine does not allow users.
_LOSSY = {"net/ipv4/tcp_wmem": "4096 16384 4194304"}
_LOSSY_ROUTE = " rto_min 5ms congctl cubic"
CONTROL = ("ca", "cb")  # the endings of the two namespaces that control links join
_FILTERS = Path("/proc/sys/net/bridge")  # there where the kernel filters what crosses bridges
_UNFILTERED = {
    f"net/bridge/bridge-nf-call-{tables}": "0" for tables in ("iptables", "ip6tables", "arptables")
}
_TABLE = 100  # a routing table for each NIC


def connect(cluster: EmulatedCluster, spaces: Mapping[str, str]) -> None:
    """Make the bridges, the links between namespaces, and the fixed paths through the bridges.

    Bridges learn nothing and flood nothing: so a fabric may have several paths, and loops.
    """
    if _FILTERS.is_dir():
        set_controls(spaces[FABRIC], _UNFILTERED)
    bridge = {switch: f"s{number}" for number, switch in enumerate(cluster.switches)}
    by_space: dict[str, list[str]] = defaultdict(list)
    for name in bridge.values():
        lines = [f"link add {name} type bridge stp_state 0 mcast_snooping 0"]
        by_space[FABRIC] += [*lines, f"link set {name} addrgenmode none mtu {_MTU} up"]
    every_port = (*cluster.ports, *cluster.outside_ports)
    for near, far in zip(every_port[::2], every_port[1::2], strict=True):
        peer = f"peer name {far.device} netns {spaces[far.space]}"
        by_space[near.space].append(f"link add {near.device} type veth {peer}")
    for space, lines in by_space.items():
        batch("ip", spaces[space], lines)
    bridge_ports = [port for port in every_port if port.space == FABRIC]
    batch(
        "ip",
        spaces[FABRIC],
        [f"link set {p.device} addrgenmode none mtu {_MTU}" for p in bridge_ports],
    )
    batch(
        "ip",
        spaces[FABRIC],
        [f"link set {p.device} master {bridge[p.src]} up" for p in bridge_ports],
    )
    quiet = "learning off flood off mcast_flood off bcast_flood off"
    device = {(p.src, p.dst): p.device for p in bridge_ports}
    nics = cluster.all_nics
    batch(
        "bridge",
        spaces[FABRIC],
        [f"link set dev {p.device} {quiet}" for p in bridge_ports]
        + [
            f"fdb replace {nics[nic].mac} dev {device[switch, next_node]} master static"
            for switch, nic, next_node in cluster.forwarding
        ],
    )


def address(cluster: EmulatedCluster, host: EmulatedHost, space: str) -> None:
    """Give a host's NICs their addresses, fixed neighbours, and a table each.

    Packets from a NIC's address leave by that NIC, whichever NIC they are for. They reach its
    queue as large as its bucket bears, since each costs the processors the same.
    """
    nics = cluster.all_nics
    rates = {port.src: port.rate_bps for port in cluster.ports}
    slowest = min(rates.values())  # a host outside the job has no queue of its own
    bits = 16 if host in cluster.outside else 24
    lines = []
    for nic in host.nics:
        lines += [
            f"link set {nic.device} address {nic.mac} addrgenmode none mtu {_MTU}",
            f"link set {nic.device} gso_max_size {_largest_packet(rates.get(nic.id, slowest))}",
            *_addressed(cluster, nic.device, nic.address, bits),
        ]
        lines += [
            f"neigh replace {nics[peer].address} lladdr {nics[peer].mac} dev {nic.device} "
            f"nud permanent"
            for src, peer in (*cluster.reaches, *cluster.outside_reaches)
            if src == nic.id
        ]
    for rail, device in _other_rails(cluster, host).items():
        lines.append(f"route add 10.77.{rail}.0/24 dev {device}")
    for number, nic in enumerate(host.nics, _TABLE):
        lines.append(f"route add 10.77.0.0/16 dev {nic.device} table {number}{_tcp_of(cluster)}")
        lines.append(f"rule add from {nic.address} table {number}")
    set_controls(space, _controls(cluster))
    batch("ip", space, lines)


def _controls(cluster: EmulatedCluster) -> dict[str, str]:
    return _CONTROLS | (_LOSSY if cluster.queue_bytes else _SHARED if cluster.control else {})


def _tcp_of(cluster: EmulatedCluster) -> str:
    """Return what a route says of the TCP over it."""
    return _LOSSY_ROUTE if cluster.queue_bytes else ""


def _addressed(cluster: EmulatedCluster, device: str, address: str, bits: int) -> list[str]:
    """Return what gives a device its address and a route to its subnet, and starts it."""
    subnet = ip_interface(f"{address}/{bits}").network
    return [
        f"addr add {address}/{bits} dev {device} noprefixroute",
        f"link set {device} up",
        f"route add {subnet} dev {device} src {address}{_tcp_of(cluster)}",
    ]


def join_control(cluster: EmulatedCluster, spaces: Mapping[str, str]) -> None:
    """Join the namespaces `CONTROL` by a link for each of the cluster's control rates."""
    near, far = (spaces[ending] for ending in CONTROL)
    for space in (near, far):
        set_controls(space, _controls(cluster))
    batch(
        "ip",
        near,
        (f"link add {p.device} type veth peer {p.device} netns {far}" for p in cluster.control),
    )
    for side, space in enumerate((near, far)):
        lines: list[str] = []
        for number, port in enumerate(cluster.control):
            lines += [
                f"link set {port.device} addrgenmode none mtu {_MTU}",
                f"link set {port.device} gso_max_size {_largest_packet(port.rate_bps)}",
                *_addressed(cluster, port.device, control_address(number, side), 24),
            ]
        batch("ip", space, lines)
    for ending in CONTROL:
        ports = [msgspec.structs.replace(port, space=ending) for port in cluster.control]
        shape(ports, spaces, cluster.queue_bytes)


def control_address(control: int, side: int) -> str:
    """Return the address of one end of a control link."""
    return f"10.78.{control}.{side + 1}"


def _other_rails(cluster: EmulatedCluster, host: EmulatedHost) -> dict[str, str]:
    """Return the device by which a host reaches each rail that it has no NIC of."""
    nics = cluster.nics
    devices = {nic.device for nic in host.nics}
    by_rail: dict[str, str] = {}
    for nic in host.nics:
        for src, dst in cluster.reaches:
            if src == nic.id and nics[dst].device not in devices:
                by_rail.setdefault(nics[dst].device.removeprefix("rail"), nic.device)
    return by_rail


def _bucket(rate_bps: int) -> int:
    """Return the bytes of a bucket; larger packets are cut into frames there."""
    return round(min(max(rate_bps / 8 * _BURST_S, _LEAST_BURST), _USUAL_BURST))


def refill_us(ports: tuple[Port, ...]) -> int:
    """Return how many us the slowest to fill of the ports' buckets takes, its timer included."""
    return ceil(burst_us(ports) + _LATE_S * 1e6) if ports else 0


def burst_us(ports: tuple[Port, ...]) -> float:
    """Return how many us of its rate a port sends at once when its bucket is full, at most."""
    return max((_bucket(p.rate_bps) * 8e6 / p.rate_bps for p in ports), default=0.0)


def _largest_packet(rate_bps: int) -> int:
    """Return the bytes handed to a bucket at once: whole frames, two at least."""
    room = _bucket(rate_bps) - rate_bps / 8 * _LATE_S
    return max(2, int(room) // _MTU) * _MTU


def shape(ports: Iterable[Port], spaces: Mapping[str, str], queue_bytes: int = 0) -> None:
    """Put a token bucket on each port, or another rate into the one it has.

    What is beyond ``queue_bytes`` in its queue is lost; 0: none ever is.
    """
    limit = queue_bytes or _QUEUE_BYTES
    by_space: dict[str, list[str]] = defaultdict(list)
    for port in ports:
        burst = _bucket(port.rate_bps)
        tbf = f"tbf rate {port.rate_bps}bit burst {burst}b limit {limit}b"
        by_space[port.space].append(f"qdisc replace dev {port.device} root {tbf}")
    for space, lines in by_space.items():
        batch("tc", spaces[space], lines)
