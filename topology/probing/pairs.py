"""Pairs to probe: neighbours first, then flows of all at once; no pairs that jobs do not use."""

from __future__ import annotations

import ipaddress
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from tuccl.errors import InputError
from tuccl.files import printable_path, read_bounded
from tuccl.topology.graph import Topology, quoted
from tuccl.topology.probing.prober import Pair

Busy = frozenset[frozenset[str]]

_MOST_BYTES = 1 << 24
_MOST_DIGITS = 18
_LEAST_USE = 0.01  # of the busiest pair's: what has less is not probed


class Endpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host's NIC that probes go through.

    Attributes:
        host: its name in the topology.
        nic: id of the NIC in the topology.
        address: IP address of the NIC.
        rack: the switch that it is thought to hang on; empty where nothing is known.
        mac: of the NIC, where known.
        model: of the NIC, where known.
        others: further NICs of the host and their addresses; flows at the same time use them too.
    """

    host: str
    nic: str
    address: str = ""
    rack: str = ""
    mac: str = ""
    model: str = ""
    others: tuple[tuple[str, str], ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the addresses of all NICs, the first one's first."""
        return (self.address, *(address for _, address in self.others))

    @property
    def hardware(self) -> str:
        """Return what NICs of equal rate have in common: the model, else the MAC's vendor."""
        return self.model or self.mac.lower()[:8]


def endpoints_of(
    topology: Topology, addresses: Mapping[str, Sequence[str]]
) -> tuple[Endpoint, ...]:
    """Return the first NICs with a network link of each host, at the host's addresses.

    Its rack is the switch that it hangs on in ``topology``, which only orders the probes.

    Args:
        topology: a cluster.
        addresses: by host, of its NICs in their order; hosts without any are left out.

    Raises:
        InputError: a host has fewer NICs with a network link than addresses.
    """
    switch_of: dict[str, str] = {}
    for link in topology.links:
        if link.kind == "network":
            switch_of.setdefault(link.src, link.dst)
            switch_of.setdefault(link.dst, link.src)
    endpoints = []
    for host in topology.hosts:
        if not (given := addresses.get(host)):
            continue
        nics = [nic for nic in topology.nics_of(host) if nic in switch_of]
        if len(nics) < len(given):
            raise InputError(
                f"host {quoted(host)} has {len(nics)} NICs with a network link, and "
                f"{len(given)} addresses to probe; expected one or more NICs"
            )
        node = topology.node(nics[0])
        model = node.model or (f"{node.port_gbs:g} GB/s" if node.port_gbs else "")
        others = tuple(zip(nics[1:], given[1:], strict=False))
        rack = switch_of[nics[0]]
        endpoints.append(Endpoint(host, nics[0], given[0], rack, model=model, others=others))
    return tuple(endpoints)


def racks(endpoints: Sequence[Endpoint]) -> list[list[int]]:
    """Return the endpoints thought to be side by side: of one rack, else of one subnet.

    >>> e = [Endpoint("a", "n", "10.0.0.1"), Endpoint("b", "n", "10.0.1.1")]
    >>> racks([*e, Endpoint("c", "n", "10.0.0.2")])
    [[0, 2], [1]]
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for index, endpoint in enumerate(endpoints):
        groups[endpoint.rack or _subnet(endpoint.address)].append(index)
    return list(groups.values())


def neighbour_pairs(endpoints: Sequence[Endpoint], busy: Busy | None = None) -> list[Pair]:
    """Return pairs such that each endpoint is in one: in its rack where it can be, else across.

    An endpoint left over is paired with one that has a pair already; one that no job uses with
    any other is in none.
    """
    pairs: list[Pair] = []
    left: list[int] = []
    for group in racks(endpoints):
        left += _matched(group, endpoints, busy, pairs)
    left = _matched(left, endpoints, busy, pairs)
    for single in left:
        others = [i for pair in pairs for i in pair] or [i for i in left if i != single]
        partner = next((i for i in others if used(endpoints, (single, i), busy)), None)
        if partner is not None:
            pairs.append((partner, single))
    return pairs


def all_at_once(
    endpoints: Sequence[Endpoint],
    busy: Busy | None = None,
    *,
    second: bool = False,
) -> list[Pair]:
    """Return a flow from each endpoint to another, no two to the same, most of them across racks.

    Endpoints stand in the order of their racks and send half way round; ``second`` one further, so
    that racks in any regular order are crossed by one of both.
    """
    order = [index for group in racks(endpoints) for index in group]
    count = len(order)
    step = count // 2 + (1 if second else 0)
    if step % count == 0:
        return []
    flows = [(src, order[(place + step) % count]) for place, src in enumerate(order)]
    return [flow for flow in flows if used(endpoints, flow, busy)]


def busy_pairs(use: Mapping[frozenset[str], float]) -> Busy:
    """Return the pairs of hosts that exchange 1 % of what the busiest one does, or more."""
    least = _LEAST_USE * max(use.values(), default=0.0)
    return frozenset(hosts for hosts, nbytes in use.items() if nbytes >= least)


def used(endpoints: Sequence[Endpoint], pair: Pair, busy: Busy | None) -> bool:
    """Return whether jobs use a pair, as far as is known."""
    return busy is None or frozenset(endpoints[i].host for i in pair) in busy


def read_use(path: str | os.PathLike[str]) -> dict[frozenset[str], float]:
    """Return the bytes that each pair of hosts exchanged, from lines ``host host bytes``.

    Both directions add up; empty lines and those that begin with # are left out.

    Raises:
        InputError: the file cannot be read, or a line is none of these; names it.
    """
    place = printable_path(path)
    use: dict[frozenset[str], float] = defaultdict(float)
    for number, line in enumerate(
        read_bounded(path, _MOST_BYTES).decode("utf-8", "replace").splitlines(), 1
    ):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        is_sound = len(words) == 3 and words[0] != words[1] and words[2].isdecimal()
        if not is_sound or len(words[2]) > _MOST_DIGITS:
            raise InputError(
                f"{place}:{number}: {quoted(line)}; expected two different hosts and a number of "
                f"bytes of at most {_MOST_DIGITS} digits"
            )
        use[frozenset(words[:2])] += float(words[2])
    if not any(use.values()):
        raise InputError(f"{place}: no pair of hosts in use; expected lines `host host bytes`")
    return dict(use)


def _matched(
    group: Sequence[int],
    endpoints: Sequence[Endpoint],
    busy: Busy | None,
    pairs: list[Pair],
) -> list[int]:
    """Append pairs of ``group`` to ``pairs``, neighbours first; return who is in none."""
    left = list(group)
    alone = []
    while left:
        first = left.pop(0)
        partner = next((i for i in left if used(endpoints, (first, i), busy)), None)
        if partner is None:
            alone.append(first)
        else:
            left.remove(partner)
            pairs.append((first, partner))
    return alone


def _subnet(address: str) -> str:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return ""
    return str(ipaddress.ip_network(f"{ip}/{24 if ip.version == 4 else 64}", strict=False))
