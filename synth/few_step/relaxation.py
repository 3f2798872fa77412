"""What few-step programs are sought for: items that spread over pairs in steps of whole rounds."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from tuccl.sketches.symmetry import rotation
from tuccl.synth.model.demand import Demand
from tuccl.synth.model.network import Network
from tuccl.synth.model.symmetry import LinkGraph, Symmetry, symmetry_of

__all__ = ["Spread", "symmetry"]


@dataclass(frozen=True)
class Spread:
    """Demands that spread over pairs of ranks, step by step, each step some rounds long.

    In a round a wire of rate `unit` carries one item, another rate / `unit` of them; a step of r
    rounds carries as many whole items as r rounds do. What a rank gets in a step it may pass on
    from the next on: SCCL's k-synchronous schedules.

    Attributes:
        wires: The pairs, and what they share.
        items: What spreads.
        unit: The rate, in GB/s, that carries one item a round.
    """

    wires: Network
    items: tuple[Demand, ...]
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
        for way in self.wires.routes:
            for wire in way:
                users[wire] += len(self.items)
        loads = zip(users, self.wires.rates, strict=True)
        most = max((count * self.unit / rate for count, rate in loads), default=Fraction())
        return math.ceil(most) + (self.fewest_steps or 0)

    def _rates(self, end: int) -> list[Fraction]:
        """Return the most GB/s that can leave (0) or enter (1) each rank, by its ways' nearest wires."""
        near: list[dict[int, Fraction]] = [{} for _ in range(self.wires.ranks)]
        for pair, way in zip(self.wires.pairs, self.wires.routes, strict=True):
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


def symmetry(spread: Spread) -> Symmetry:
    """Return a group of rotations of ranks under which `spread` stays as it is."""
    wires = spread.wires
    graph = LinkGraph(
        wires.ranks,
        ends=wires.pairs,
        costs=[tuple(wires.rates[wire] for wire in way) for way in wires.routes],
        resources=wires.routes,
    )
    return symmetry_of(graph, spread.items, _rotations(wires.ranks))


def _rotations(ranks: int) -> list[tuple[int, ...]]:
    """Return rotations of all ranks, then of blocks of them, the finest of each size first."""
    sizes = [size for size in range(ranks, 1, -1) if ranks % size == 0]
    return [
        rotation(ranks, offset, size)
        for size in sizes
        for offset in range(1, size)
        if size % offset == 0
    ]
