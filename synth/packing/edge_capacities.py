"""Whole capacities of the pairs of ranks, on which trees are packed.

ForestColl (arXiv 2402.06787) finds the optimal time by a search over maximum flows and removes
switches by edge splitting. Here chunks are whole, and each pair of ranks has one route; so
capacities are sought first as fair shares of the routes' resources, which give shallow trees and
few connections, and by edge splitting where those need more time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from tuccl.errors import Infeasible
from tuccl.planners import split_relays, suffices
from tuccl.synth.bounds.graph import Fabric, max_min_shares
from tuccl.synth.model.network import Network

_Triple = tuple[int, int, int]

# Pairs up to which all of them share the resources fairly, and up to which relays are split off
# exactly; above, only pairs inside hosts and of equal local ranks are used.
_MOST_SHARED = 1200
_MOST_SPLIT = 400
# How much longer than cuts allow fair shares may take: tried in turn.
_LONGER = tuple(1 + Fraction(percent, 100) for percent in (0, 1, 2, 4, 7, 10, 15, 25, 50, 100, 300))
# A time so many times that of the ranks' own links is not reached by waiting longer.
_MOST_TIMES_LONGER = 1 << 20


@dataclass(frozen=True)
class TreeProblem:
    """Chunks that every rank must get: `chunks_per_root[r]` of them start at rank r.

    Times are seconds for chunks of 1 GB.

    Attributes:
        network: The pairs that may carry them.
        fabric: The machine with its relays, for cuts that no choice of pairs can beat.
        chunks_per_root: Chunks by rank.
    """

    network: Network
    fabric: Fabric
    chunks_per_root: tuple[int, ...]

    def solved_by(self, capacities: Sequence[int]) -> bool:
        """Return whether every rank can get every chunk if each pair carries so many."""
        return suffices(self.network.ranks, self.arcs(capacities), self.chunks_per_root)

    def arcs(self, capacities: Sequence[int]) -> list[_Triple]:
        """Return (src, dst, chunks) of the pairs that carry any."""
        carried = zip(self.network.pairs, capacities, strict=True)
        return [(src, dst, chunks) for (src, dst), chunks in carried if chunks]

    def busiest_s(self, capacities: Sequence[int]) -> Fraction:
        """Return the time of the busiest resource if each pair carries so many chunks."""
        return self.network.busiest_s(self.network.loads(capacities))

    def scaled_fabric(self, time_s: Fraction) -> list[_Triple]:
        """Return the arcs of the fabric, each with the whole chunks that it carries in a time."""
        rates, kinds = self.fabric.distinct_rates
        chunks = [min(int(rate * time_s), 1 << 40) for rate in rates]
        return [
            (tail, head, chunks[kind])
            for (tail, head), kind in zip(self.fabric.ends, kinds, strict=True)
        ]

    def next_time_s(self, time_s: Fraction) -> Fraction:
        """Return the first later time at which some resource has carried one more chunk."""
        return min((int(time_s * rate) + 1) / rate for rate in self.rates)

    def times_between(self, low: Fraction, high: Fraction) -> int:
        """Return how many such times (at most) lie after `low` and not after `high`."""
        return sum(int(high * rate) - int(low * rate) for rate in self.rates)

    @cached_property
    def rates(self) -> tuple[Fraction, ...]:
        """Return the different rates of the resources."""
        return tuple(sorted(self.network.distinct_rates[0]))

    def ingress_time_s(self) -> Fraction:
        """Return the time that the links into the ranks take at least.

        Raises:
            Infeasible: no link leads to some rank.
        """
        ingress = [0] * self.network.ranks
        for _, head, rate in self.fabric.capacities:
            if head < self.network.ranks:
                ingress[head] += rate
        total = sum(self.chunks_per_root)
        for rank, rate in enumerate(ingress):
            if not rate and total > self.chunks_per_root[rank]:
                raise Infeasible(f"packing: no link leads to rank {rank}")
        return max(
            Fraction((total - chunks) * self.fabric.denominator, rate)
            for chunks, rate in zip(self.chunks_per_root, ingress, strict=True)
            if rate
        )


def least_time_s(problem: TreeProblem) -> Fraction:
    """Return the least time, in seconds for chunks of 1 GB, that cuts of whole chunks allow.

    Raises:
        Infeasible: some rank cannot be reached.

    Notes:
        ForestColl's optimality search, over the times of whole chunks instead of over rates.
    """
    vertices = len(problem.fabric.names)

    def allows(time_s: Fraction) -> bool:
        return suffices(vertices, problem.scaled_fabric(time_s), problem.chunks_per_root)

    first = low = high = problem.ingress_time_s()
    while not allows(high):
        if high > _MOST_TIMES_LONGER * first:
            raise Infeasible("packing: the links do not join all ranks both ways")
        low, high = high, 2 * high
    if low == high:
        return low
    while problem.next_time_s(low) < high and problem.times_between(low, high) > len(problem.rates):
        # Any time between will do; a float's denominator does not grow.
        middle = Fraction(float(low + high) / 2)
        if not low < middle < high:
            break
        low, high = (low, middle) if allows(middle) else (middle, high)
    while not allows(low):
        low = problem.next_time_s(low)
    return low


def edge_capacities(problem: TreeProblem) -> list[int]:
    """Return chunks for each pair that solve `problem` in little time.

    Fair shares of the resources among few and among all pairs are tried, then relays are split off
    exactly.

    Raises:
        Infeasible: some rank cannot be reached.
    """
    least = least_time_s(problem)
    shares = list(_fair_shares(problem.network))
    candidates = []
    for longer in _LONGER:
        time_s = problem.next_time_s(least * longer) if longer > 1 else least
        capacities = _first_solution(problem, shares, time_s)
        if capacities is not None:
            candidates.append(capacities)
            break
    if not candidates or problem.busiest_s(candidates[0]) > least:
        candidates += _split_capacities(problem, least)
    if not candidates:
        raise Infeasible("packing: the links do not join all ranks both ways")
    return min(candidates, key=problem.busiest_s)


def _first_solution(
    problem: TreeProblem, shares: list[Callable[[list[int]], list[int]]], time_s: Fraction
) -> list[int] | None:
    rates, kinds = problem.network.distinct_rates
    chunks = [int(rate * time_s) for rate in rates]
    budget = [chunks[kind] for kind in kinds]
    return next((c for share in shares if problem.solved_by(c := share(budget))), None)


def _split_capacities(problem: TreeProblem, time_s: Fraction) -> list[list[int]]:
    """Return the capacities of the pairs after the fabric's relays are split off; [] if that fails.

    It fails where a split path is not the route of its pair.
    """
    network, fabric = problem.network, problem.fabric
    if len(network.pairs) > _MOST_SPLIT:
        return []
    capacities = [0] * len(network.pairs)
    arcs = problem.scaled_fabric(time_s)
    for src, dst, chunks in split_relays(len(fabric.names), arcs, problem.chunks_per_root):
        if (src, dst) in network.index:
            capacities[network.index[src, dst]] = chunks
    return [capacities] if problem.solved_by(capacities) else []


def _fair_shares(network: Network) -> Iterator[Callable[[list[int]], list[int]]]:
    """Yield functions that share out whole chunks: among near pairs, then among all."""
    few = [n for n, pair in enumerate(network.pairs) if same_host_or_rail(network.hosts, *pair)]
    yield _FairShare(network, few).capacities
    if len(few) < len(network.pairs) <= _MOST_SHARED:
        yield _FairShare(network, list(range(len(network.pairs)))).capacities


def same_host_or_rail(hosts: tuple[int, ...], src: int, dst: int) -> bool:
    """Return whether two ranks share a host or have the same local rank on theirs."""
    if hosts[src] == hosts[dst]:
        return True
    return hosts[:src].count(hosts[src]) == hosts[:dst].count(hosts[dst])


class _FairShare:
    """Max-min fair shares of the resources for some pairs, in whole chunks."""

    def __init__(self, network: Network, pairs: list[int]) -> None:
        ranks = network.ranks
        # Left-over chunks go round by distance, so that no rank has more of them than others.
        distance = {n: (network.pairs[n][1] - network.pairs[n][0]) % ranks for n in pairs}
        self.pairs = sorted(pairs, key=lambda n: (distance[n], network.pairs[n]))
        self.network = network
        routes = [network.routes[n] for n in self.pairs]
        self.shares = max_min_shares(routes, network.rates)
        self.levels = sorted(set(self.shares))
        # Of the resources that any pair uses, one of each rate.
        used = {resource for route in network.routes for resource in route}
        self.resource_of_rate = {network.rates[resource]: resource for resource in used}

    def capacities(self, budget: list[int]) -> list[int]:
        """Return chunks for each pair; no resource carries more than its `budget`."""
        network, left = self.network, list(budget)
        capacities = [0] * len(network.pairs)
        # The time for which fair shares are whole chunks of no resource too many.
        time_s = max(budget[resource] / rate for rate, resource in self.resource_of_rate.items())
        chunks = {level: int(level * time_s) for level in self.levels}
        for pair, share in zip(self.pairs, self.shares, strict=True):
            self._add(capacities, left, pair, chunks[share])
        unfilled = self.pairs
        while unfilled:
            unfilled = [pair for pair in unfilled if self._add(capacities, left, pair, 1)]
        return capacities

    def _add(self, capacities: list[int], left: list[int], pair: int, chunks: int) -> bool:
        """Give a pair more chunks, as far as its resources have them; return whether any."""
        route = self.network.routes[pair]
        chunks = min(chunks, *(left[resource] for resource in route))
        capacities[pair] += chunks
        for resource in route:
            left[resource] -= chunks
        return chunks > 0
