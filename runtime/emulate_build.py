"""Building an emulated cluster: bridges and wires, addresses, and the queues that hold the rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tuccl.runtime.emulate_plan import FABRIC, EmulatedHost, Plan, Port
from tuccl.runtime.netns import batch, set_controls

__all__ = ["address", "shape", "wire"]

_BURST_S = 1e-3  # a bucket holds what the link carries in that time, within the bounds
_LEAST_BURST, _USUAL_BURST = 20_000, 64_000
_MTU = 9000
_LARGEST_PACKET = 18_000  # as handed to a queue: below any bucket, so that none is cut up there
# Networks of clusters lose nothing: a queue that overflowed would cost TCP 200 ms a time.
_QUEUE_BYTES = 16_000_000
_CONTROLS = {
    "net/ipv4/conf/all/rp_filter": "0",
    # A link keeps its rate between iterations: it is the network that is emulated, not TCP.
    "net/ipv4/tcp_slow_start_after_idle": "0",
}
_TABLE = 100  # a routing table for each NIC


def wire(plan: Plan, spaces: Mapping[str, str]) -> None:
    """Make the bridges, the wires between namespaces, and the fixed ways through the bridges.

    Bridges learn nothing and flood nothing: so a fabric may have several ways, and loops.
    """
    bridge = {switch: f"s{number}" for number, switch in enumerate(plan.switches)}
    by_space: dict[str, list[str]] = defaultdict(list)
    for name in bridge.values():
        lines = [f"link add {name} type bridge stp_state 0 mcast_snooping 0"]
        by_space[FABRIC] += [*lines, f"link set {name} addrgenmode none mtu {_MTU} up"]
    for one, other in zip(plan.ports[::2], plan.ports[1::2], strict=True):
        peer = f"peer name {other.device} netns {spaces[other.space]}"
        by_space[one.space].append(f"link add {one.device} type veth {peer}")
    for space, lines in by_space.items():
        batch("ip", spaces[space], lines)
    inner = [port for port in plan.ports if port.space == FABRIC]
    batch("ip", spaces[FABRIC], [f"link set {p.device} addrgenmode none mtu {_MTU}" for p in inner])
    batch("ip", spaces[FABRIC], [f"link set {p.device} master {bridge[p.src]} up" for p in inner])
    quiet = "learning off flood off mcast_flood off bcast_flood off"
    device = {(p.src, p.dst): p.device for p in inner}
    nics = plan.nics
    batch(
        "bridge",
        spaces[FABRIC],
        [
            *(f"link set dev {p.device} {quiet}" for p in inner),
            *(
                f"fdb replace {nics[nic].mac} dev {device[switch, ahead]} master static"
                for switch, nic, ahead in plan.forwarding
            ),
        ],
    )


def address(plan: Plan, host: EmulatedHost, space: str) -> None:
    """Give a host's NICs their addresses, fixed neighbours, and a table each.

    What is sent from a NIC's address leaves by that NIC, whichever NIC it is for.
    """
    nics = plan.nics
    lines = []
    for nic in host.nics:
        lines += [
            f"link set {nic.device} address {nic.mac} addrgenmode none mtu {_MTU}",
            f"link set {nic.device} gso_max_size {_LARGEST_PACKET}",
            f"addr add {nic.address}/24 dev {nic.device}",
            f"link set {nic.device} up",
        ]
        lines += [
            f"neigh replace {nics[peer].address} lladdr {nics[peer].mac} dev {nic.device} "
            f"nud permanent"
            for own, peer in plan.reaches
            if own == nic.id
        ]
    for rail, device in _other_rails(plan, host).items():
        lines.append(f"route add 10.77.{rail}.0/24 dev {device}")
    for number, nic in enumerate(host.nics, _TABLE):
        lines.append(f"route add 10.77.0.0/16 dev {nic.device} table {number}")
        lines.append(f"rule add from {nic.address} table {number}")
    set_controls(space, _CONTROLS)
    batch("ip", space, lines)


def _other_rails(plan: Plan, host: EmulatedHost) -> dict[str, str]:
    """Return the device by which a host reaches each rail that it has no NIC of."""
    nics = plan.nics
    own = {nic.device for nic in host.nics}
    found: dict[str, str] = {}
    for nic in host.nics:
        for src, dst in plan.reaches:
            if src == nic.id and nics[dst].device not in own:
                found.setdefault(nics[dst].device.removeprefix("rail"), nic.device)
    return found


def shape(ports: tuple[Port, ...], spaces: Mapping[str, str]) -> None:
    """Put a token bucket on each port, or another rate into the one it has."""
    by_space: dict[str, list[str]] = defaultdict(list)
    for port in ports:
        second = port.rate_bps / 8
        burst = round(min(max(second * _BURST_S, _LEAST_BURST), _USUAL_BURST))
        tbf = f"tbf rate {port.rate_bps}bit burst {burst}b limit {_QUEUE_BYTES}b"
        by_space[port.space].append(f"qdisc replace dev {port.device} root {tbf}")
    for space, lines in by_space.items():
        batch("tc", spaces[space], lines)
