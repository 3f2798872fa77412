"""NICs of hosts at their places in a fabric file, and the switches between them."""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tuccl.errors import InputError
from tuccl.topology import rates
from tuccl.topology.graph import Link, Node, quoted
from tuccl.topology.switches import Adapter, Fabric, Trunk, distances, merged, natural


class Port(msgspec.Struct, frozen=True):
    """A link of one NIC into a fabric: the NIC's id, its host and its index there."""

    nic: str
    host: str
    index: int
    gbs: float
    assumed: bool
    source: str
    device: str | None = None
    guid: str | None = None

    def link(self, switch: str) -> Link:
        """Return the link from the NIC to ``switch``."""
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


def host_order(fabric: Fabric, names: Sequence[str]) -> tuple[str, ...]:
    """Return ``names`` by rack, as the fabric has them; those it does not name come last."""
    place = {_short(host): number for number, host in enumerate(fabric.hosts)}
    return tuple(sorted(names, key=lambda n: (place.get(_short(n), len(place)), natural(n))))


def cabled(
    fabric: Fabric, ports: Sequence[Port], up_gbs: float | None
) -> tuple[list[Node], list[Link], tuple[str, ...]]:
    """Return the switches between ``ports``, the links to and among them, and warnings.

    It keeps the switches on shortest paths between ports, as subnet managers route. Switches of
    one tier above the leaves that share a switch below become one, whose links add up: traffic
    spreads over equal paths, and a topology has one path for each pair of GPUs.

    Args:
        fabric: the switches.
        ports: the NICs of all hosts.
        up_gbs: of a switch's uplinks together, where the file gives no rate; without it, they
            carry all that comes from below.

    Raises:
        InputError: a host has no place in the fabric, or no cable joins two hosts.
    """
    adapters, warnings = _adapters_of(fabric, ports)
    _check_joined(fabric, adapters, ports)
    switch_of = _switches_of(fabric, {adapter.switch for adapter in adapters.values()})
    links = [
        _limited(port, adapters[port.nic], fabric.name).link(switch_of[adapters[port.nic].switch])
        for port in ports
        if port.nic in adapters
    ]
    nodes = [Node(switch, "switch") for switch in dict.fromkeys(switch_of.values())]
    return nodes, [*links, *_trunk_links(fabric, switch_of, links, up_gbs)], warnings


def _adapters_of(
    fabric: Fabric, ports: Sequence[Port]
) -> tuple[dict[str, Adapter], tuple[str, ...]]:
    """Return the adapter of each NIC by its id, and a line for each NIC without one."""
    by_guid: dict[str, list[Adapter]] = defaultdict(list)
    by_host: dict[str, list[Adapter]] = defaultdict(list)
    for adapter in sorted(fabric.adapters, key=lambda a: natural(a.id)):
        for guid in dict.fromkeys(adapter.guids):
            by_guid[guid].append(adapter)
        if adapter.host is not None:
            by_host[_short(adapter.host)].append(adapter)
    ports_of: dict[str, list[Port]] = defaultdict(list)
    for port in ports:
        ports_of[port.host].append(port)
    adapters: dict[str, Adapter] = {}
    left_out: dict[str, list[str]] = defaultdict(list)
    for host, of_host in ports_of.items():
        places = _by_guid(of_host, by_guid)
        rest = [port for port in of_host if port.nic not in places]
        places |= _by_name(rest, [a for a in by_host[_short(host)] if a not in places.values()])
        missing = [port for port in of_host if port.nic not in places]
        if len(missing) == len(of_host):
            raise InputError(_no_place(fabric, host, of_host))
        if missing:
            nics = ", ".join(f"{port.nic.rpartition('/')[2]}{_called(port)}" for port in missing)
            left_out[nics].append(host)
        adapters |= places
    return adapters, tuple(
        f"{fabric.name}: left out, with no place in it: {nics} of {_listed(hosts)}"
        for nics, hosts in left_out.items()
    )


def _listed(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more hosts" if len(hosts) > 4 else "")


def _by_guid(ports: Iterable[Port], by_guid: Mapping[str, Sequence[Adapter]]) -> dict[str, Adapter]:
    """Return the adapters whose GUID the ports have.

    Notes:
        NCCL writes the card's GUID (its system image's) as a number of the host's byte order, so
        it counts forwards and backwards; the ports of a card, which share it, go by their order.
    """
    places: dict[str, Adapter] = {}
    for port in ports:
        if port.guid is None:
            continue
        backwards = bytes.fromhex(port.guid)[::-1].hex()
        same = by_guid.get(port.guid) or by_guid.get(backwards) or ()
        free = [adapter for adapter in same if adapter not in places.values()]
        named = [a for a in free if port.device and _canonical(a.device) == port.device]
        if named or free:
            places[port.nic] = (named or free)[0]
    return places


def _by_name(ports: Sequence[Port], adapters: Sequence[Adapter]) -> dict[str, Adapter]:
    """Return the adapters of the ports' host by the device's name, else by order if as many."""
    of_host = [a for a in adapters if a.device is None and not a.guids]
    if len(of_host) == 1:
        return {port.nic: of_host[0] for port in ports}
    by_device: dict[str, list[Adapter]] = defaultdict(list)
    for adapter in adapters:
        by_device[_canonical(adapter.device)].append(adapter)
    places = {
        port.nic: by_device[port.device][0]
        for port in ports
        if port.device and len(by_device.get(port.device, ())) == 1
    }
    unnamed = not all(port.device for port in ports) or not any(a.guids for a in adapters)
    if not places and unnamed and len(ports) == len(adapters):
        ordered = sorted(adapters, key=lambda a: natural(_canonical(a.device) or a.id))
        places = {port.nic: adapter for port, adapter in zip(ports, ordered, strict=True)}
    return places


def _canonical(device: str | None) -> str:
    """Return the device's name; ``HCA-1`` of a node description is the first, mlx5_0."""
    match = re.fullmatch("HCA-([0-9]{1,4})", device or "")
    return f"mlx5_{int(match[1]) - 1}" if match else device or ""


def _short(host: str) -> str:
    """Return the host's name without a domain, in lower case; ``host.3`` has none."""
    match = re.fullmatch(r"(\w[\w-]*)\.[\w.-]*[a-zA-Z][\w.-]*", host)
    return (match[1] if match and not match[1].isdecimal() else host).casefold()


def _called(port: Port) -> str:
    names = [name for name in (port.device, port.guid and f"GUID {port.guid}") if name]
    return f" ({', '.join(names)})" if names else ""


def _no_place(fabric: Fabric, host: str, ports: Sequence[Port]) -> str:
    nics = ", ".join(f"{p.nic.rpartition('/')[2]}{_called(p)}" for p in ports[:2])
    more = f" and {len(ports) - 2} more" if len(ports) > 2 else ""
    text = f"{fabric.name}: host {quoted(host)} has no place in it: "
    there = [a.device or a.id for a in fabric.adapters if _short(a.host or "") == _short(host)]
    if there:
        return (
            f"{text}it lists {', '.join(sorted(there)[:8])} there, but neither by GUID nor by name "
            f"are these NICs {nics}{more}; describe the host by a file that names its NICs (NCCL's "
            "dump does)"
        )
    near = difflib.get_close_matches(host, fabric.hosts, 3) or fabric.hosts[:3]
    others = f"it names {', '.join(quoted(n) for n in near)}" if near else "it names no host"
    return (
        f"{text}it lists neither that name nor the GUIDs of its NICs {nics}{more}; {others}"
        f"{f' and {len(fabric.hosts) - len(near)} more' if near else ''}; name the hosts as it "
        "does (--names)"
    )


def _check_joined(fabric: Fabric, adapters: Mapping[str, Adapter], ports: Sequence[Port]) -> None:
    """Refuse hosts that no cable joins, not even through other hosts."""
    part_of = {switch: number for number, part in enumerate(fabric.parts) for switch in part}
    parts: dict[str, set[int]] = defaultdict(set)
    for port in ports:
        if port.nic in adapters:
            parts[port.host].add(part_of[adapters[port.nic].switch])
    first, *pending = parts
    reached = set(parts[first])
    while joined := [host for host in pending if parts[host] & reached]:
        reached |= set().union(*(parts[host] for host in joined))
        pending = [host for host in pending if host not in joined]
    if pending:
        raise InputError(
            f"{fabric.name}: no cable joins host {quoted(pending[0])} with {quoted(first)}: its "
            f"{len(part_of)} switches are {len(fabric.parts)} parts; join hosts of one part, or "
            "give the missing cables"
        )


def _switches_of(fabric: Fabric, leaves: set[str]) -> dict[str, str]:
    """Return the switches on shortest paths between ``leaves``, each with the one it becomes."""
    kept = set(leaves)
    for leaf in leaves:
        steps = distances(fabric.neighbours, [leaf])
        towards = set(leaves)
        for switch in sorted(steps, key=steps.__getitem__, reverse=True):
            if switch in towards:
                towards |= {o for o in fabric.neighbours[switch] if steps[o] < steps[switch]}
        kept |= towards & steps.keys()
    around = {
        s: [o for o in fabric.neighbours[s] if o in kept] for s in fabric.switches if s in kept
    }
    first_of = merged(around, distances(around, leaves))
    counts = Counter(first_of.values())
    return {
        switch: first if counts[first] == 1 else f"{first} and {counts[first] - 1} more"
        for switch, first in first_of.items()
    }


def _limited(port: Port, adapter: Adapter, fabric: str) -> Port:
    """Return the port at its cable's rate where that is known and lower, or the port's is not."""
    if adapter.gbs is None or (not port.assumed and port.gbs <= adapter.gbs):
        return port
    return msgspec.structs.replace(port, gbs=adapter.gbs, assumed=False, source=fabric)


def _trunk_links(
    fabric: Fabric, switch_of: Mapping[str, str], links: Sequence[Link], up_gbs: float | None
) -> list[Link]:
    """Return the links between the switches that are kept, lower switches first."""
    trunks: dict[tuple[str, str], list[Trunk]] = defaultdict(list)
    tiers = _tiers(fabric, switch_of, {link.dst for link in links})
    for trunk in fabric.trunks:
        ends = [switch_of.get(end) for end in (trunk.src, trunk.dst)]
        if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
            low, high = sorted((ends[0], ends[1]), key=lambda s: (tiers[s], natural(s)))
            trunks[low, high].append(trunk)
    carried: dict[str, float] = defaultdict(float)
    for link in links:
        carried[link.dst] += link.bandwidth
    ups: dict[str, int] = defaultdict(int)
    for low, _ in trunks:
        ups[low] += 1
    out = []
    for (low, high), group in sorted(trunks.items(), key=lambda item: tiers[item[0][0]]):
        rates_gbs = [trunk.gbs for trunk in group if trunk.gbs is not None]
        gbs, assumed, source = sum(rates_gbs), False, fabric.name
        if len(rates_gbs) < len(group) or not gbs:
            gbs, assumed = (carried[low] if up_gbs is None else up_gbs) / ups[low], up_gbs is None
            source = "given" if up_gbs is not None else "not blocking: as much as all below"
        if tiers[high] > tiers[low]:
            carried[high] += gbs
        cables = sum(trunk.cables for trunk in group)
        text = f"uplink rate {source} ({cables} cables); latency {rates.SPINE_US_SOURCE}"
        out.append(Link(low, high, "network", gbs, rates.SPINE_US, True, assumed, text))
    return out


def _tiers(fabric: Fabric, switch_of: Mapping[str, str], leaves: set[str]) -> dict[str, int]:
    around: dict[str, set[str]] = {switch: set() for switch in switch_of.values()}
    for trunk in fabric.trunks:
        if trunk.src in switch_of and trunk.dst in switch_of:
            around[switch_of[trunk.src]].add(switch_of[trunk.dst])
            around[switch_of[trunk.dst]].add(switch_of[trunk.src])
    return distances(around, leaves)
