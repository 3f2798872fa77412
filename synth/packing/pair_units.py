"""How many whole chunks each pair of ranks carries, so that all can be served in the least time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from tuccl._native import split_relays, suffices
from tuccl.errors import Infeasible
from tuccl.synth.bounds.graph import Fabric, max_min_shares
from tuccl.synth.model.network import Network

__all__ = ["Demand", "least_counts", "least_span", "near"]

# Pairs up to which all of them share the wires evenly, and up to which relays are split off
# exactly; above, only pairs inside hosts and between equal places of hosts are used.
_MOST_EVEN = 1200
_MOST_SPLIT = 400
# How much longer than cuts allow even shares may take: tried in turn.
_LONGER = tuple(1 + Fraction(percent, 100) for percent in (0, 1, 2, 4, 7, 10, 15, 25, 50, 100, 300))
# No time is sought that is more often the one that the ranks' own wires allow.
_MOST_TIMES_LONGER = 1 << 20


@dataclass(frozen=True)
class Demand:
    """Chunks that every rank must get: `feeds[r]` of them start at rank r.

    Attributes:
        wires: The pairs that may carry them.
        fabric: The machine with its relays, for cuts that no choice of pairs can beat.
        feeds: Chunks by rank.
    """

    wires: Network
    fabric: Fabric
    feeds: tuple[int, ...]

    @property
    def total(self) -> int:
        """Return the chunks that every rank ends with."""
        return sum(self.feeds)

    def served(self, counts: Sequence[int]) -> bool:
        """Return whether every rank can get every chunk if each pair carries so many."""
        arcs = self.arcs(counts)
        return suffices(self.wires.ranks, arcs, list(self.feeds))

    def arcs(self, counts: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return (src, dst, chunks) of the pairs that carry any."""
        carried = zip(self.wires.pairs, counts, strict=True)
        return [(src, dst, count) for (src, dst), count in carried if count]

    def following(self, span: Fraction) -> Fraction:
        """Return the first time after `span` at which some wire has carried one more chunk."""
        return min((int(span * rate) + 1) / rate for rate in self.rates)

    def between(self, low: Fraction, high: Fraction) -> int:
        """Return how many such times (at most) lie after `low` and not after `high`."""
        return sum(int(high * rate) - int(low * rate) for rate in self.rates)

    @cached_property
    def rates(self) -> tuple[Fraction, ...]:
        """Return the different rates of the wires."""
        return tuple(sorted(set(self.wires.rates)))

    def fastest(self) -> Fraction:
        """Return a time that the wires into the ranks do not allow to beat.

        Raises:
            Infeasible: no wire leads to some rank.
        """
        into = [Fraction(0)] * self.wires.ranks
        for wire in self.fabric.wires:
            if wire.head < self.wires.ranks:
                into[wire.head] += wire.rate
        for rank, rate in enumerate(into):
            if not rate and self.total > self.feeds[rank]:
                raise Infeasible(f"packing: no link leads to rank {rank}")
        return max(
            (self.total - fed) / rate for fed, rate in zip(self.feeds, into, strict=True) if rate
        )


def least_span(demand: Demand) -> Fraction:
    """Return the least time that cuts of whole chunks allow.

    Raises:
        Infeasible: some rank cannot be reached.
    """
    fabric, feeds = demand.fabric, list(demand.feeds)
    vertices = len(fabric.names)

    def allows(span: Fraction) -> bool:
        return suffices(vertices, _whole(fabric, span), feeds)

    low = high = demand.fastest()
    while not allows(high):
        if high > _MOST_TIMES_LONGER * demand.fastest():
            raise Infeasible("packing: the links do not join all ranks both ways")
        low, high = high, 2 * high
    if low == high:
        return low
    while demand.following(low) < high and demand.between(low, high) > len(demand.rates):
        # Any time between will do; a float's denominator does not grow.
        middle = Fraction(float(low + high) / 2)
        if not low < middle < high:
            break
        low, high = (low, middle) if allows(middle) else (middle, high)
    span = low
    while not allows(span):
        span = demand.following(span)
    return span


def _whole(fabric: Fabric, span: Fraction) -> list[tuple[int, int, int]]:
    wires = fabric.wires
    return [(w.tail, w.head, min(int(w.rate * span), 1 << 40)) for w in wires]


def least_counts(demand: Demand) -> list[int]:
    """Return chunks for each pair that serve `demand` in the least time found.

    Tried are even shares of the wires for few and for all pairs, then the relays split off
    exactly; the first two give shallow trees and few connections.

    Raises:
        Infeasible: some rank cannot be reached.
    """
    first = least_span(demand)
    fills = list(_fills(demand.wires))
    best: list[int] | None = None
    for longer in _LONGER:
        span = demand.following(first * longer) if longer > 1 else first
        best = _first_served(demand, fills, span)
        if best is not None:
            break
    if best is None or demand.wires.busiest_s(demand.wires.loads(best)) > first:
        return _better(demand, best, _split(demand, first))
    return best


def _first_served(
    demand: Demand, fills: list[Callable[[list[int]], list[int]]], span: Fraction
) -> list[int] | None:
    units = [int(rate * span) for rate in demand.wires.rates]
    for fill in fills:
        counts = fill(units)
        if demand.served(counts):
            return counts
    return None


def _better(demand: Demand, one: list[int] | None, other: list[int] | None) -> list[int]:
    """Return which of the two takes less time.

    Raises:
        Infeasible: there is neither.
    """
    found = [counts for counts in (one, other) if counts is not None]
    if not found:
        raise Infeasible("packing: the links do not join all ranks both ways")
    return min(found, key=lambda counts: demand.wires.busiest_s(demand.wires.loads(counts)))


def _split(demand: Demand, span: Fraction) -> list[int] | None:
    """Return what remains of the fabric after its relays are split off, None where that fails.

    It fails where a split way is not the one that messages of its pair take.
    """
    wires = demand.wires
    if len(wires.pairs) > _MOST_SPLIT:
        return None
    fabric = demand.fabric
    counts = [0] * len(wires.pairs)
    arcs = _whole(fabric, span)
    for src, dst, units in split_relays(len(fabric.names), arcs, list(demand.feeds)):
        if (src, dst) in wires.index:
            counts[wires.index[src, dst]] = units
    return counts if demand.served(counts) else None


def _fills(wires: Network) -> Iterator[Callable[[list[int]], list[int]]]:
    """Yield ways to share out the wires: among near pairs, then among all."""
    few = [place for place, pair in enumerate(wires.pairs) if near(wires.hosts, *pair)]
    yield _Filling(wires, few).counts
    if len(few) < len(wires.pairs) <= _MOST_EVEN:
        yield _Filling(wires, list(range(len(wires.pairs)))).counts


def near(hosts: tuple[int, ...], src: int, dst: int) -> bool:
    """Return whether two ranks share a host or have the same place on theirs."""
    if hosts[src] == hosts[dst]:
        return True
    return hosts[:src].count(hosts[src]) == hosts[:dst].count(hosts[dst])


class _Filling:
    """Even whole shares of the wires for some pairs."""

    def __init__(self, wires: Network, places: list[int]) -> None:
        ranks = wires.ranks
        # Left-over chunks go round by distance, so that no rank has more of them than others.
        turn = {place: (wires.pairs[place][1] - wires.pairs[place][0]) % ranks for place in places}
        self.places = sorted(places, key=lambda place: (turn[place], wires.pairs[place]))
        self.wires = wires
        ways = [wires.routes[place] for place in self.places]
        self.shares = max_min_shares(ways, wires.rates)

    def counts(self, units: list[int]) -> list[int]:
        """Return chunks for each pair; no wire carries more than its `units`."""
        wires, left = self.wires, list(units)
        counts = [0] * len(wires.pairs)
        scale = self.scale(units)
        for place, share in zip(self.places, self.shares, strict=True):
            self.give(counts, left, place, int(share * scale))
        waiting = self.places
        while waiting:
            waiting = [place for place in waiting if self.give(counts, left, place, 1)]
        return counts

    def scale(self, units: list[int]) -> Fraction:
        """Return the time for which even shares are whole chunks of no wire too many."""
        return max(units[w] / self.wires.rates[w] for way in self.wires.routes for w in way)

    def give(self, counts: list[int], left: list[int], place: int, chunks: int) -> bool:
        """Give a pair more chunks, as far as its wires have them; return whether it got any."""
        way = self.wires.routes[place]
        chunks = min(chunks, *(left[wire] for wire in way))
        counts[place] += chunks
        for wire in way:
            left[wire] -= chunks
        return chunks > 0
