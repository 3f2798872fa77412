"""How much can leave groups of GPUs, and the bound of an allreduce that follows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property

from tuccl._native import isolation
from tuccl.synth.bounds.cuts import MOST_NATIVE, Cut, allgather_cut, broadcast_cut, gbs, place
from tuccl.synth.bounds.graph import Fabric
from tuccl.synth.bounds.maxflow import FlowNetwork

__all__ = ["Isolation", "allreduce_cut"]

_MOST_JOINED = 32


def allreduce_cut(whole: Fabric) -> Cut:
    """Return the tightest cut or partition found; the part is the whole buffer.

    Notes:
        Between p parts each element takes at least 2(p - 1) messages (gossip; Harary and Schwenk
        1974), each leaving one part and entering another. Tried are one part for each GPU, one for
        each host, the two sides of the allgather's tight cut, and for up to 32 GPUs those that
        come of joining, time and again, the two parts that leave the tightest partition. And what
        any GPU has must get to every other: the narrowest cut between two GPUs, in either
        direction, carries each element at least once.
    """
    gpus = range(whole.ranks)
    by_host: dict[str, list[int]] = {}
    for gpu in gpus:
        by_host.setdefault(whole.hosts[gpu], []).append(gpu)
    tight = frozenset(gpu for gpu in allgather_cut(whole).side if gpu < whole.ranks)
    partitions = [
        ([frozenset({gpu}) for gpu in gpus], "GPUs"),
        ([frozenset(group) for group in by_host.values()], "hosts"),
        ([tight, frozenset(gpus) - tight], "sides of " + place(whole, tight)),
    ]
    if whole.ranks <= _MOST_JOINED:
        partitions += [(parts, "groups of GPUs") for parts in _joined(whole)]
    cuts = [_partition(whole, parts, what) for parts, what in partitions if len(parts) > 1]
    cuts += [broadcast_cut(whole, 0), broadcast_cut(whole.reverse, 0, backwards=True)]
    return max(cuts, key=lambda cut: cut.ratio)


def _joined(whole: Fabric) -> Iterator[list[frozenset[int]]]:
    """Yield partitions into fewer and fewer parts: each joins the two that leave the tightest."""
    isolated = Isolation(whole)
    everyone = frozenset(range(whole.ranks))
    parts = [frozenset({gpu}) for gpu in range(whole.ranks)]
    while len(parts) > 2:
        pairs = list(itertools.combinations(parts, 2))
        groups = [*parts, *(one | other for one, other in pairs)]
        out = isolated.known(groups)
        rest = isolated.known([everyone - group for group in groups])
        into = {group: rest[everyone - group] for group in groups}
        crossing = [(sum(known[part] for part in parts), known) for known in (out, into)]
        left = [
            min(total - known[a] - known[b] + known[a | b] for total, known in crossing)
            for a, b in pairs
        ]
        one, other = pairs[left.index(min(left))]
        parts = [part for part in parts if part not in (one, other)] + [one | other]
        yield parts


def _partition(whole: Fabric, parts: list[frozenset[int]], what: str) -> Cut:
    everyone = frozenset(range(whole.ranks))
    isolated = Isolation(whole)
    out = sum(isolated.rates(parts), Fraction(0))
    into = sum(isolated.rates([everyone - part for part in parts]), Fraction(0))
    load = Fraction(2 * (len(parts) - 1))
    home = {gpu: number for number, part in enumerate(parts) for gpu in part}
    apart = (w.latency for w in whole.wires if home.get(w.tail, -1) != home.get(w.head, -2))
    rate = min(out, into)
    words = (
        f"between the {len(parts)} {what} each element must cross {load} times "
        f"and {'all leaving' if out <= into else 'all entering'} wires carry {gbs(rate)}"
    )
    return Cut(load, rate, frozenset(), words, min(apart, default=0.0))


class Isolation:
    """Narrowest cuts between a set of GPUs and the others, relays on whichever side is better."""

    def __init__(self, whole: Fabric) -> None:
        """Take the wires of `whole`."""
        self._whole = whole
        self._source, self._sink = len(whole.names), len(whole.names) + 1
        self._endless = sum(whole.whole_rates) + 1
        self._known: dict[frozenset[int], Fraction] = {}

    def rates(self, groups: Sequence[frozenset[int]]) -> list[Fraction]:
        """Return the GB/s that can leave each of the groups."""
        whole = self._whole
        if self._endless > MOST_NATIVE:
            return [self._cut(group)[0] for group in groups]
        arcs = [(*ends, rate) for ends, rate in zip(whole.arcs, whole.whole_rates, strict=True)]
        found = isolation(len(whole.names), arcs, whole.ranks, [sorted(group) for group in groups])
        return [Fraction(value, whole.denominator) for value in found]

    def known(self, groups: Iterable[frozenset[int]]) -> dict[frozenset[int], Fraction]:
        """Return what `rates` says of each group, and of all asked for before."""
        new = [group for group in dict.fromkeys(groups) if group not in self._known]
        self._known.update(zip(new, self.rates(new), strict=True))
        return self._known

    def side(self, group: frozenset[int]) -> frozenset[int]:
        """Return the vertices that the narrowest cut leaves on the group's side."""
        return self._cut(group)[1]

    def _cut(self, group: frozenset[int]) -> tuple[Fraction, frozenset[int]]:
        gpus = range(self._whole.ranks)
        feeds = [self._endless if gpu in group else 0 for gpu in gpus]
        drains = [0 if gpu in group else self._endless for gpu in gpus]
        capacities = [*self._whole.whole_rates, *feeds, *drains]
        value = self._network.flow(self._source, self._sink, capacities)
        side = self._network.source_side(self._source) - {self._source}
        return Fraction(value, self._whole.denominator), side

    @cached_property
    def _network(self) -> FlowNetwork:
        gpus = range(self._whole.ranks)
        ends = [(self._source, gpu) for gpu in gpus] + [(gpu, self._sink) for gpu in gpus]
        return FlowNetwork(self._sink + 1, [*self._whole.arcs, *ends])
