"""Partitions of the GPUs: the capacity that leaves each part, and the bound of an allreduce."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from fractions import Fraction
from operator import mul

from tuccl.planners import group_cuts, min_cut
from tuccl.synth.bounds.cuts import Cut, allgather_cut, broadcast_cut, gbs, place
from tuccl.synth.bounds.graph import Fabric

_MOST_MERGED = 32


def allreduce_cut(fabric: Fabric) -> Cut:
    """Return the tightest cut or partition found; the part is the whole buffer.

    Notes:
        Between p parts each element takes at least 2(p - 1) messages (gossip; Harary and Schwenk
        1974), each leaving one part and entering another. The partitions evaluated are single GPUs,
        hosts, the two sides of the allgather's tight cut, and for up to 32 GPUs a greedy merge of
        the two parts that leave the tightest partition. And what any GPU has must get to every
        other: the narrowest cut between two GPUs, in either direction, carries each element at
        least once.
    """
    gpus = range(fabric.ranks)
    by_host: dict[str, list[int]] = {}
    for gpu in gpus:
        by_host.setdefault(fabric.hosts[gpu], []).append(gpu)
    tight = frozenset(gpu for gpu in allgather_cut(fabric).side if gpu < fabric.ranks)
    partitions = [
        ([frozenset({gpu}) for gpu in gpus], "GPUs"),
        ([frozenset(group) for group in by_host.values()], "hosts"),
        ([tight, frozenset(gpus) - tight], "sides of " + place(fabric, tight)),
    ]
    if fabric.ranks <= _MOST_MERGED:
        partitions += [(parts, "groups of GPUs") for parts in _merged_parts(fabric)]
    cuts = [_partition(fabric, parts, what) for parts, what in partitions if len(parts) > 1]
    cuts += [broadcast_cut(fabric, 0), broadcast_cut(fabric.reverse, 0, backwards=True)]
    return max(cuts, key=lambda cut: cut.ratio)


def _merged_parts(fabric: Fabric) -> Iterator[list[frozenset[int]]]:
    """Yield partitions into fewer and fewer parts by merging the two that leave the tightest."""
    cuts = GroupCuts(fabric)
    everyone = frozenset(range(fabric.ranks))
    parts = [frozenset({gpu}) for gpu in range(fabric.ranks)]
    while len(parts) > 2:
        pairs = list(itertools.combinations(parts, 2))
        groups = [*parts, *(first | second for first, second in pairs)]
        egress = dict(zip(groups, cuts.rates(groups), strict=True))
        rest = cuts.rates([everyone - group for group in groups])
        ingress = dict(zip(groups, rest, strict=True))
        crossing = [(sum(rates[part] for part in parts), rates) for rates in (egress, ingress)]
        left = [
            min(total - rates[a] - rates[b] + rates[a | b] for total, rates in crossing)
            for a, b in pairs
        ]
        first, second = pairs[left.index(min(left))]
        parts = [part for part in parts if part not in (first, second)] + [first | second]
        yield parts


def _partition(fabric: Fabric, parts: list[frozenset[int]], what: str) -> Cut:
    everyone = frozenset(range(fabric.ranks))
    cuts = GroupCuts(fabric)
    count = Counter(map(cuts.kind, parts))
    some = cuts.distinct(parts)
    out, into = cuts.rates(some), cuts.rates([everyone - part for part in some])
    numbers = [count[cuts.kind(part)] for part in some]
    egress, ingress = (sum(map(mul, numbers, rates), Fraction(0)) for rates in (out, into))
    load = Fraction(2 * (len(parts) - 1))
    home = {gpu: number for number, part in enumerate(parts) for gpu in part}
    latencies = (a.latency for a in fabric.arcs if home.get(a.tail, -1) != home.get(a.head, -2))
    rate = min(egress, ingress)
    words = (
        f"between the {len(parts)} {what} each element must cross {load} times "
        f"and {'all leaving' if egress <= ingress else 'all entering'} links carry {gbs(rate)}"
    )
    return Cut(load, rate, frozenset(), words, min(latencies, default=0.0))


class GroupCuts:
    """Narrowest cuts between a set of GPUs and the others, relays on whichever side is better."""

    def __init__(self, fabric: Fabric) -> None:
        """Take the arcs of `fabric`."""
        self._fabric = fabric
        self._cached: dict[frozenset[int], Fraction] = {}

    def rates(self, groups: Sequence[frozenset[int]]) -> list[Fraction]:
        """Return the GB/s that can leave each of the groups."""
        new = [group for group in dict.fromkeys(groups) if group not in self._cached]
        fabric = self._fabric
        members = [sorted(group) for group in new]
        capacities = group_cuts(len(fabric.names), fabric.capacities, fabric.ranks, members)
        for group, capacity in zip(new, capacities, strict=True):
            self._cached[group] = Fraction(capacity, fabric.denominator)
        return [self._cached[group] for group in groups]

    def distinct(self, groups: Iterable[frozenset[int]]) -> list[frozenset[int]]:
        """Return the first group of each kind."""
        first: dict[Hashable, frozenset[int]] = {}
        for group in groups:
            first.setdefault(self.kind(group), group)
        return list(first.values())

    def kind(self, group: frozenset[int]) -> Hashable:
        """Return what groups that swaps of hosts take into each other have in common."""
        if not self._fabric.spots:
            return group
        places: dict[tuple[int, int], list[int]] = {}
        for rank in sorted(group):
            kind, host, place = self._fabric.spots[rank]
            places.setdefault((kind, host), []).append(place)
        alike = Counter((kind, tuple(some)) for (kind, _), some in places.items())
        return frozenset(alike.items())

    def side(self, group: frozenset[int]) -> frozenset[int]:
        """Return the vertices that the narrowest cut leaves on the group's side."""
        fabric = self._fabric
        source, sink = len(fabric.names), len(fabric.names) + 1
        endless = sum(capacity for *_, capacity in fabric.capacities) + 1
        outer = [
            (source, gpu, endless) if gpu in group else (gpu, sink, endless)
            for gpu in range(fabric.ranks)
        ]
        _, side = min_cut(sink + 1, fabric.capacities + outer, source, sink)
        return frozenset(side) - {source}
