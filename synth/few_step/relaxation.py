"""What few-step programs are sought for: items that spread over pairs in steps of whole rounds."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from tuccl.sketches.symmetry import rotate
from tuccl.synth.packing.pair_network import PairWires
from tuccl.synth.taccl.symmetry import spanned

__all__ = ["Alike", "Item", "Spread", "alike"]

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Item:
    """Something that `source` has and all of `targets` must get; others may pass it on."""

    source: int
    targets: frozenset[int]


@dataclass(frozen=True)
class Alike:
    """Permutations of ranks, the first identity, under which pairs, wires and items stay alike.

    Attributes:
        pairs: For each permutation, where it takes each pair.
        items: For each permutation, where it takes each item.
    """

    pairs: tuple[tuple[int, ...], ...]
    items: tuple[tuple[int, ...], ...]

    @property
    def leaders(self) -> tuple[int, ...]:
        """Return the least item of each set of like ones."""
        return tuple(sorted({min(orbit) for orbit in zip(*self.items, strict=True)}))

    @property
    def trivial(self) -> Alike:
        """Return identity alone."""
        return Alike(self.pairs[:1], self.items[:1])


@dataclass(frozen=True)
class Spread:
    """Items that spread over pairs of ranks, step by step, each step some rounds long.

    In a round a wire of rate `unit` carries one item, another rate / `unit` of them; a step of r
    rounds carries as many whole items as r rounds do. What a rank gets in a step it may pass on
    from the next on: SCCL's k-synchronous schedules.

    Attributes:
        wires: The pairs, and what they share.
        items: What spreads.
        unit: The rate, in GB/s, that carries one item a round.
    """

    wires: PairWires
    items: tuple[Item, ...]
    unit: Fraction

    @cached_property
    def distances(self) -> tuple[tuple[int, ...], ...]:
        """Return the messages in a row from each rank to each; -1 where there is no way."""
        onward: list[list[int]] = [[] for _ in range(self.wires.ranks)]
        for src, dst in self.wires.pairs:
            onward[src].append(dst)
        return tuple(_distances(onward, rank) for rank in range(self.wires.ranks))

    @cached_property
    def fewest_steps(self) -> int | None:
        """Return the steps that the farthest target needs; None where one is out of reach."""
        reach = [self.distances[item.source][to] for item in self.items for to in item.targets]
        return None if min(reach, default=0) < 0 else max(reach, default=0)

    @cached_property
    def least_rounds(self) -> Fraction:
        """Return the rounds that some cut alone takes: those round one rank or its like.

        What enters a rank, or leaves the only rank that has it, passes the wires next to it.
        """
        lacking = [0] * self.wires.ranks
        owned = [0] * self.wires.ranks
        for item in self.items:
            owned[item.source] += bool(item.targets - {item.source})
            for rank in item.targets - {item.source}:
                lacking[rank] += 1
        rates_in, rates_out = self._rates(1), self._rates(0)
        loads = (*zip(lacking, rates_in, strict=True), *zip(owned, rates_out, strict=True))
        return max((count * self.unit / rate for count, rate in loads if count), default=Fraction())

    @cached_property
    def enough_rounds(self) -> int:
        """Return rounds in which any ways of the items, all in one step, are over."""
        users = [0] * len(self.wires.rates)
        for way in self.wires.ways:
            for wire in way:
                users[wire] += len(self.items)
        loads = zip(users, self.wires.rates, strict=True)
        most = max((count * self.unit / rate for count, rate in loads), default=Fraction())
        return math.ceil(most) + (self.fewest_steps or 0)

    def _rates(self, end: int) -> list[Fraction]:
        """Return the most GB/s that can leave (0) or enter (1) each rank, by its ways' nearest wires."""
        near: list[dict[int, Fraction]] = [{} for _ in range(self.wires.ranks)]
        for pair, way in zip(self.wires.pairs, self.wires.ways, strict=True):
            wire = way[-end]
            near[pair[end]][wire] = self.wires.rates[wire]
        return [sum(wires.values(), Fraction(0)) for wires in near]


def _distances(onward: Sequence[Sequence[int]], root: int) -> tuple[int, ...]:
    found = [-1] * len(onward)
    found[root] = 0
    waiting = deque([root])
    while waiting:
        rank = waiting.popleft()
        for following in onward[rank]:
            if found[following] < 0:
                found[following] = found[rank] + 1
                waiting.append(following)
    return tuple(found)


def alike(spread: Spread) -> Alike:
    """Return a group of rotations of ranks under which `spread` stays as it is.

    None but identity keeps a rank in place: so ranks fall in sets of one size, and what one of
    each does tells what all do.
    """
    wires = spread.wires
    kept: list[Ranks] = []
    identity = tuple(range(wires.ranks))
    best: list[tuple[Ranks, tuple[int, ...], tuple[int, ...]]] = []
    for move in (identity, *_rotations(wires.ranks)):
        found = _group(spread, [*kept, move])
        if found is not None and len(found) > len(best):
            kept.append(move)
            best = found
    return Alike(tuple(pairs for _, pairs, _ in best), tuple(items for _, _, items in best))


def _rotations(ranks: int) -> list[Ranks]:
    """Return rotations of all ranks, then of blocks of them, the finest of each size first."""
    sizes = [size for size in range(ranks, 1, -1) if ranks % size == 0]
    return [
        tuple(rotate(rank, offset, size) for rank in range(ranks))
        for size in sizes
        for offset in range(1, size)
        if size % offset == 0
    ]


def _group(
    spread: Spread, moves: list[Ranks]
) -> list[tuple[Ranks, tuple[int, ...], tuple[int, ...]]] | None:
    """Return what `moves` span, with where it takes pairs and items; None if one cannot hold."""
    moved = [(_moved_pairs(spread.wires, move), _moved_items(spread.items, move)) for move in moves]
    if any(pairs is None or items is None for pairs, items in moved):
        return None
    group = []
    for element in spanned(spread.wires.ranks, moves) or ():
        still = [rank for rank, image in enumerate(element) if rank == image]
        if still and len(still) < len(element):
            return None
        pairs, items = _moved_pairs(spread.wires, element), _moved_items(spread.items, element)
        assert pairs is not None, "what symmetries span are symmetries"
        assert items is not None, "what symmetries span are symmetries"
        group.append((element, pairs, items))
    return group or None


def _moved_pairs(wires: PairWires, move: Ranks) -> tuple[int, ...] | None:
    """Return where `move` takes each pair, None where rates or what pairs share would change."""
    to: dict[int, int] = {}
    back: dict[int, int] = {}
    moved = []
    for (src, dst), way in zip(wires.pairs, wires.ways, strict=True):
        image = wires.number.get((move[src], move[dst]))
        if image is None or len(wires.ways[image]) != len(way):
            return None
        for wire, other in zip(way, wires.ways[image], strict=True):
            same = wires.rates[wire] == wires.rates[other]
            if (
                not same
                or to.setdefault(wire, other) != other
                or back.setdefault(other, wire) != wire
            ):
                return None
        moved.append(image)
    return tuple(moved)


def _moved_items(items: Sequence[Item], move: Ranks) -> tuple[int, ...] | None:
    """Return where `move` takes each item, the first of like ones to the first."""
    free: dict[Item, list[int]] = {}
    for number, item in enumerate(items):
        free.setdefault(item, []).append(number)
    turn: dict[Item, int] = dict.fromkeys(free, 0)
    moved = []
    for item in items:
        image = Item(move[item.source], frozenset(move[to] for to in item.targets))
        place = turn[item]
        turn[item] += 1
        if len(free.get(image, ())) <= place:
            return None
        moved.append(free[image][place])
    return tuple(moved)
