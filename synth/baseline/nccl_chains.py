"""The orders of ranks that NCCL's channels follow on a topology."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice, pairwise, permutations
from typing import NamedTuple

from tuccl.sketches import bind
from tuccl.topology import Topology, own_nics
from tuccl.topology.paths import find_path

# Extensions of a partial chain tried at one width before a narrower one is allowed.
_MOST_EXTENSIONS = 20_000
# Orders compared for a ring, and times that each ring is planned anew around the others.
_MOST_ORDERS = 400
_ROUNDS = 3


class Chain(NamedTuple):
    """The GPUs of one host in the order in which a ring passes them.

    Attributes:
        ranks: From the one where data enters to the one where it leaves.
        head: The one next to the channel's NIC in the tree, one of the two ends.
    """

    ranks: tuple[int, ...]
    head: int

    @property
    def from_head(self) -> tuple[int, ...]:
        """Return the ranks with the head first."""
        return self.ranks if self.ranks[0] == self.head else self.ranks[::-1]


def chains(topology: Topology, channels: int) -> list[tuple[Chain, ...]]:
    """Return for each channel the chain of each host; chained one after another they are its ring.

    Notes:
        Channel n leaves hosts by their NIC n modulo the number of NICs. A ring enters a host at a
        GPU of that NIC and leaves it at another GPU of the same or the next NIC, in reverse
        on every second host, so that each hop between hosts keeps to its rail.
    """
    columns = [_host_chains(topology, number, channels) for number in range(len(topology.hosts))]
    return list(zip(*columns, strict=True))


def _host_chains(topology: Topology, number: int, channels: int) -> list[Chain]:
    """Return the chain of each channel on one host, spread evenly over its links."""
    reverse = number % 2 == 1
    links = _HostLinks(topology, topology.hosts[number])
    nics = _nics(topology, topology.hosts[number])
    ends = [_ends(topology, topology.hosts[number], nics, channel) for channel in range(channels)]
    orders: list[tuple[int, ...]] = [()] * channels
    for _ in range(_ROUNDS if links.direct else 1):
        for channel, (entry, leave) in enumerate(ends):
            links.use(orders[channel], leave is None, -1)
            start, end = (entry, leave) if not reverse or leave is None else (leave, entry)
            orders[channel] = links.order(start, end)
            links.use(orders[channel], leave is None, 1)
    return [Chain(order, order[-1] if reverse else order[0]) for order in orders]


def _nics(topology: Topology, host: str) -> list[tuple[int, ...]]:
    """Return the ranks bound to each NIC in use on a host, once for each NIC that is theirs.

    Notes:
        NCCL 2.19, src/graph/search.cc, ncclTopoSelectNets: GPU after GPU its NICs, in the order in
        which channels take them.
    """
    own, bindings = own_nics(topology), topology.derived(bind)
    bound: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank in topology.gpus_of(host):
        if rank in bindings:
            bound[own.get(rank, (bindings[rank],))].append(rank)
    place = {nic: number for number, nic in enumerate(topology.nics_of(host))}
    return [tuple(bound[nics]) for nics in sorted(bound, key=lambda n: place[n[0]]) for _ in nics]


def _ends(
    topology: Topology, host: str, nics: list[tuple[int, ...]], channel: int
) -> tuple[int, int | None]:
    """Return where a channel enters and leaves a host; None where its ring closes inside it."""
    ranks = topology.gpus_of(host)
    if len(topology.hosts) == 1:
        return ranks[channel % len(ranks)], None
    nics = nics or [ranks]
    nic = nics[channel % len(nics)]
    if len(ranks) == 1:
        return ranks[0], ranks[0]
    if len(nic) > 1:
        return nic[0], nic[1]
    following = (nics[(channel + step) % len(nics)][0] for step in range(1, len(nics)))
    return nic[0], next(r for r in (*following, *ranks) if r != nic[0])


class _HostLinks:
    """Rates of the links between the GPUs of a host, and the number of rings on each."""

    def __init__(self, topology: Topology, host: str) -> None:
        self.ranks = topology.gpus_of(host)
        self._used: dict[tuple[int, int], int] = defaultdict(int)
        self._rate: dict[tuple[int, int], float] = {}
        # Pairs with a link of their own; a switch or bridge serves its rings all alike.
        self.direct: set[tuple[int, int]] = set()
        for pair in permutations(self.ranks, 2):
            route = find_path(topology, *pair)
            if route is None:  # joined by other GPUs only, which pass nothing on for NCCL
                continue
            self._rate[pair] = route.bandwidth
            if len(route.hops) == 1:
                self.direct.add(pair)

    def use(self, order: tuple[int, ...], closed: bool, rings: int) -> None:
        """Count a ring along `order` in, or with -1 out again."""
        for pair in _pairs(order, closed):
            self._used[pair] += rings

    def order(self, entry: int, leave: int | None) -> tuple[int, ...]:
        """Return an order over the widest, and among those the least used, links."""
        widths = {
            pair: rate / (1 + self._used[pair]) if pair in self.direct else rate
            for pair, rate in self._rate.items()
        }
        for least in sorted(set(widths.values()), reverse=True):
            orders = _orders(self.ranks, entry, leave, widths, least)
            candidates = list(islice(orders, _MOST_ORDERS if self.direct else 1))
            if candidates:
                return min(candidates, key=lambda order: self._load(order, leave is None))
        return (entry, *(rank for rank in self.ranks if rank != entry))

    def _load(self, order: tuple[int, ...], closed: bool) -> float:
        pairs = _pairs(order, closed)
        return sum(self._used[pair] / self._rate[pair] for pair in pairs if pair in self.direct)


def _pairs(order: tuple[int, ...], closed: bool) -> Iterator[tuple[int, int]]:
    return pairwise(order + order[:1] if closed else order)


def _orders(
    ranks: tuple[int, ...],
    entry: int,
    leave: int | None,
    widths: dict[tuple[int, int], float],
    least: float,
) -> Iterator[tuple[int, ...]]:
    """Yield orders from `entry` to `leave`, or closed, over links of at least the width."""
    waiting: list[tuple[int, ...]] = [(entry,)]
    for _ in range(_MOST_EXTENSIONS):
        if not waiting:
            return
        order = waiting.pop()
        if len(order) == len(ranks):
            closed = (
                leave is not None or len(ranks) == 1 or widths.get((order[-1], entry), 0.0) >= least
            )
            if closed and (leave is None or order[-1] == leave):
                yield order
            continue
        start = ranks.index(order[-1])
        for rank in (ranks[start:] + ranks[:start])[:0:-1]:
            early = rank == leave and len(order) < len(ranks) - 1
            if rank not in order and not early and widths.get((order[-1], rank), 0.0) >= least:
                waiting.append((*order, rank))
