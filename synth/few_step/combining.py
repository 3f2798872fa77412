"""Allreduces in which groups of ranks each sum for themselves: fewer steps, more bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.fan_in import Whole
from tuccl.synth.classic.host_moves import reversed_sketch
from tuccl.synth.few_step.host_waves import EqualParts, Inside, equal_parts, inside_waves
from tuccl.synth.few_step.waves import Wave, estimated_us, spread_waves, steps_of, sum_waves
from tuccl.synth.model.demand import Demand
from tuccl.synth.model.network import Network
from tuccl.synth.model.trace import Trace

__all__ = ["Combination", "combinations", "written"]


# What it costs to keep several ranks' values aside and add them up behind (estimate).
_ASIDE_US = 6.0


class _Sum(NamedTuple):
    """Each of `ranks` is to have the sum over them of chunks `first`..`first + length - 1`."""

    ranks: tuple[int, ...]
    first: int
    length: int


@dataclass(frozen=True)
class Combination:
    """An allreduce: sums on the way `up`, run backwards; sums in groups, stage by stage; `down`."""

    up: tuple[Wave, ...]
    stages: tuple[tuple[_Sum, ...], ...]
    down: tuple[Wave, ...]

    @property
    def steps(self) -> int:
        """Return its messages in a row, at most."""
        return steps_of(self.up) + len(self.stages) + steps_of(self.down)

    def us(self, wires: Network, sketch: Sketch, chunk_bytes: float) -> float:
        """Return about what it takes in us."""
        back = estimated_us(self.up, wires.reverse, reversed_sketch(sketch), chunk_bytes)
        across = [
            Wave(step, src, dst, one.first, one.length)
            for step, stage in enumerate(self.stages)
            for one in stage
            for src, dst in permutations(one.ranks, 2)
        ]
        onward = estimated_us(self.down, wires, sketch, chunk_bytes)
        aside = any(len(one.ranks) > 2 for one in self.stages[0]) * _ASIDE_US
        return back + estimated_us(across, wires, sketch, chunk_bytes) + aside + onward


def combinations(wires: Network, total: int, inside: Inside) -> Iterator[Combination]:
    """Yield ways to sum `total` chunks on all ranks.

    - Whole buffers in each group of ranks that are all joined, hosts or even blocks of ranks, then
      among equal places of the groups: two steps.
    - Each rank of a host, or one for each NIC, sums one part of the buffer; equal places of all
      hosts sum these among themselves, one step over slow links where a reduce-scatter and an
      allgather have two; the parts spread inside.
    """
    for size in (None, *(size for size in range(2, wires.ranks) if wires.ranks % size == 0)):
        groups = equal_parts(wires, size)
        if groups is None:
            continue
        if len(groups.gates) == groups.places and _all_joined(groups):
            peers = tuple(zip(*groups.members, strict=True))
            sums = ([_Sum(ranks, 0, total) for ranks in sets] for sets in (groups.members, peers))
            yield Combination((), tuple(tuple(stage) for stage in sums), ())
        if size is None:
            for gates in dict.fromkeys((groups.gates, tuple(door[0] for door in groups.doors))):
                if total % len(gates) == 0:
                    yield from _by_parts(groups, gates, total // len(gates), inside)


def _all_joined(groups: EqualParts) -> bool:
    return len(groups.inside.pairs) == groups.places * (groups.places - 1)


def _by_parts(
    hosts: EqualParts, gates: Sequence[int], share: int, inside: Inside
) -> Iterator[Combination]:
    """Yield the way on which each of `gates` sums `share` chunks of its host, then of all."""
    everyone = frozenset(range(hosts.places))
    items = tuple(Demand(gate, everyone - {gate}) for gate in gates)
    up, down = inside(hosts.inside.reverse, items), inside(hosts.inside, items)
    if up is None or down is None:
        return
    runs = [(number * share, share) for number in range(len(gates))]
    stage = tuple(
        _Sum(tuple(ranks[gate] for ranks in hosts.members), *run)
        for gate, run in zip(gates, runs, strict=True)
    )
    yield Combination(
        tuple(wave for ranks in hosts.members for wave in inside_waves(ranks, up, 0, runs)),
        (stage,),
        tuple(wave for ranks in hosts.members for wave in inside_waves(ranks, down, 0, runs)),
    )


def written(trace: Trace, way: Combination, nbytes: int) -> None:
    """Add the transfers of `way` to `trace`."""
    sum_waves(trace, way.up, nbytes)
    for stage in way.stages:
        for one in stage:
            if len(one.ranks) == 2:
                trace.exchange(one.first, *one.ranks, count=one.length, last=True)
            else:
                _sum_in(trace, one)
    spread_waves(trace, way.down, 1)


def _sum_in(trace: Trace, one: _Sum) -> None:
    """Give every rank of a group the sum, added in one order everywhere."""
    ranks = one.ranks
    sums = [Whole(trace, rank, one.length, ranks, one.first) for rank in ranks]
    for ahead in range(1, len(ranks)):
        for place, src in enumerate(ranks):
            if place:
                sums[(place + ahead) % len(ranks)].receive(src)
    for dst in sums[1:]:
        dst.receive(ranks[0])
    for each in sums:
        each.finish()
