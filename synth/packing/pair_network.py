"""The pairs of ranks that a program may send between, and the wires that each pair shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.synth.bounds.graph import Fabric, exact_rate, routed_fabric
from tuccl.topology import Topology, all_paths, path

__all__ = ["Pair", "PairWires", "pair_wires"]

Pair = tuple[int, int]
_MOST_ROUTED = 128


@dataclass(frozen=True)
class PairWires:
    """Pairs of ranks and the wires on the one way that a message of each pair takes.

    Attributes:
        hosts: Number of each rank's host.
        pairs: (sending, receiving) ranks.
        ways: For each pair the numbers of its wires, in the order in which a message takes them.
        rates: Rate of each wire in GB/s.
    """

    hosts: tuple[int, ...]
    pairs: tuple[Pair, ...]
    ways: tuple[tuple[int, ...], ...]
    rates: tuple[Fraction, ...]

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return len(self.hosts)

    @cached_property
    def reverse(self) -> PairWires:
        """Return the same wires with every pair turned round."""
        turned = tuple((dst, src) for src, dst in self.pairs)
        return PairWires(self.hosts, turned, tuple(way[::-1] for way in self.ways), self.rates)

    @cached_property
    def fabric(self) -> Fabric:
        """Return the graph of the pairs' ways, for cuts (`routed_fabric`)."""
        names = [f"rank {rank}" for rank in range(self.ranks)]
        ways = dict(zip(self.pairs, self.ways, strict=True))
        rates = dict(enumerate(self.rates))
        return routed_fabric(names, [str(host) for host in self.hosts], ways, rates)

    @cached_property
    def number(self) -> dict[Pair, int]:
        """Return the place of each pair."""
        return {pair: place for place, pair in enumerate(self.pairs)}

    def inside(self, members: Sequence[int]) -> PairWires:
        """Return the pairs among `members` and their wires, as of one host; ranks are places."""
        place = {rank: number for number, rank in enumerate(members)}
        kept = [n for n, (src, dst) in enumerate(self.pairs) if src in place and dst in place]
        used = sorted({wire for n in kept for wire in self.ways[n]})
        renamed = {wire: number for number, wire in enumerate(used)}
        return PairWires(
            (0,) * len(members),
            tuple((place[self.pairs[n][0]], place[self.pairs[n][1]]) for n in kept),
            tuple(tuple(renamed[wire] for wire in self.ways[n]) for n in kept),
            tuple(self.rates[wire] for wire in used),
        )

    def units(self, span: Fraction) -> list[int]:
        """Return how many whole chunks each wire carries in `span` (chunks of 1 GB: seconds)."""
        return [int(rate * span) for rate in self.rates]

    def loads(self, counts: Sequence[int]) -> list[int]:
        """Return the chunks on each wire where each pair sends so many."""
        loads = [0] * len(self.rates)
        for way, count in zip(self.ways, counts, strict=True):
            for wire in way:
                loads[wire] += count
        return loads

    def span(self, loads: Sequence[int]) -> Fraction:
        """Return the time that the busiest wire takes for its load."""
        return max(
            (load / rate for load, rate in zip(loads, self.rates, strict=True)),
            default=Fraction(0),
        )


def pair_wires(sketch: Sketch, topology: Topology | None = None) -> PairWires:
    """Return the pairs of `sketch`, with the wires of `topology` or those that the sketch names.

    Notes:
        A sketch alone knows NICs and switch ports; each is taken to be as fast as the fastest link
        that it serves.

    >>> from tuccl.sketches import full_mesh
    >>> from tuccl.topology import load_profile
    >>> t = load_profile("v100x4")
    >>> pair_wires(full_mesh(t), t).ranks
    4
    """
    keys, rates = _of_topology(sketch, topology) if topology else _of_sketch(sketch)
    numbers: dict[object, int] = {}
    ways = tuple(tuple(numbers.setdefault(key, len(numbers)) for key in way) for way in keys)
    pairs = tuple((link.src, link.dst) for link in sketch.links)
    return PairWires(sketch.hosts, pairs, ways, tuple(rates[key] for key in numbers))


_Keys = list[tuple[object, ...]]


def _of_topology(sketch: Sketch, t: Topology) -> tuple[_Keys, dict[object, Fraction]]:
    # Of very many ranks a sketch has few pairs: the ways of the others are not looked for.
    paths = all_paths(t) if sketch.ranks <= _MOST_ROUTED else None
    keys: _Keys = []
    rates: dict[object, Fraction] = {}
    for link in sketch.links:
        ends = link.src, link.dst
        hops = (paths[ends] if paths else path(t, *ends)).hops
        keys.append(tuple((hop.src, hop.dst) for hop in hops))
        rates.update({(hop.src, hop.dst): exact_rate(hop.bandwidth) for hop in hops})
    return keys, rates


def _of_sketch(sketch: Sketch) -> tuple[_Keys, dict[object, Fraction]]:
    keys: _Keys = []
    rates: dict[object, Fraction] = {}
    for link in sketch.links:
        rate = exact_rate(round(link.bandwidth_gbs, 6))
        way = ((link.src, link.dst), *_shared(sketch, link))
        keys.append(way)
        for key in way:
            rates[key] = max(rate, rates.get(key, rate))
    return keys, rates


def _shared(sketch: Sketch, link: LogicalLink) -> list[object]:
    """Return names for what `link` shares with others: NICs, or ports of a switch."""
    if link.inter:
        return list(zip(("out", "in"), link.nics, strict=False))
    return [
        (way, number, rank)
        for number, ranks in enumerate(sketch.switches)
        if link.src in ranks and link.dst in ranks
        for way, rank in (("up", link.src), ("down", link.dst))
    ]
