"""Allreduces in which groups of ranks each sum for themselves: fewer steps, more bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.fan_in import LocalSum
from tuccl.synth.classic.local_routes import reversed_sketch
from tuccl.synth.few_step.hierarchy import InsideSolver, mapped_sends
from tuccl.synth.few_step.sends import RangeSend, add_reductions, add_sends, estimate_us, step_count
from tuccl.synth.model.demand import Demand
from tuccl.synth.model.hierarchy import EqualGroups, equal_groups
from tuccl.synth.model.network import Network
from tuccl.synth.model.trace import Trace

# Cost of keeping several ranks' values in scratch and adding them up behind (estimate).
_VIA_SCRATCH_US = 6.0


class _GroupSum(NamedTuple):
    """Each of `ranks` is to have the sum over them of chunks `first`..`first + length - 1`."""

    ranks: tuple[int, ...]
    first: int
    length: int


@dataclass(frozen=True)
class GroupAllreduce:
    """An allreduce: sums `up` (sends run backwards), then in groups by stage, then `down`."""

    up: tuple[RangeSend, ...]
    stages: tuple[tuple[_GroupSum, ...], ...]
    down: tuple[RangeSend, ...]

    @property
    def steps(self) -> int:
        """Return its messages in a row, at most."""
        return step_count(self.up) + len(self.stages) + step_count(self.down)

    def estimate_us(self, network: Network, sketch: Sketch, chunk_bytes: float) -> float:
        """Return about what it takes in us."""
        up_us = estimate_us(self.up, network.reverse, reversed_sketch(sketch), chunk_bytes)
        across = [
            RangeSend(step, src, dst, group.first, group.length)
            for step, stage in enumerate(self.stages)
            for group in stage
            for src, dst in permutations(group.ranks, 2)
        ]
        down_us = estimate_us(self.down, network, sketch, chunk_bytes)
        scratch_us = any(len(group.ranks) > 2 for group in self.stages[0]) * _VIA_SCRATCH_US
        return up_us + estimate_us(across, network, sketch, chunk_bytes) + scratch_us + down_us


def group_allreduces(network: Network, total: int, solve: InsideSolver) -> Iterator[GroupAllreduce]:
    """Yield allreduces of `total` chunks.

    - Whole buffers in each group of fully connected ranks, hosts or even blocks of ranks, then
      among equal local ranks of the groups: two steps.
    - Each rank of a host, or one for each NIC, sums one part of the buffer; equal local ranks of
      all hosts sum these among themselves, one step over slow links where a reduce-scatter and an
      allgather have two; the parts spread inside.
    """
    for size in (None, *(size for size in range(2, network.ranks) if network.ranks % size == 0)):
        groups = equal_groups(network, size)
        if groups is None or not groups.relays:
            continue
        if len(groups.relays) == groups.local_ranks and _fully_connected(groups):
            peers = tuple(zip(*groups.members, strict=True))
            sums = (
                [_GroupSum(ranks, 0, total) for ranks in sets] for sets in (groups.members, peers)
            )
            yield GroupAllreduce((), tuple(tuple(stage) for stage in sums), ())
        if size is None:
            for relays in dict.fromkeys(
                (groups.relays, tuple(group[0] for group in groups.nic_groups))
            ):
                if total % len(relays) == 0:
                    yield from _summed_by_parts(groups, relays, total // len(relays), solve)


def _fully_connected(groups: EqualGroups) -> bool:
    return len(groups.inside.pairs) == groups.local_ranks * (groups.local_ranks - 1)


def _summed_by_parts(
    hosts: EqualGroups, relays: Sequence[int], share: int, solve: InsideSolver
) -> Iterator[GroupAllreduce]:
    """Yield the one in which each of `relays` sums `share` chunks of its host, then of all."""
    everyone = frozenset(range(hosts.local_ranks))
    demands = tuple(Demand(relay, everyone - {relay}) for relay in relays)
    up, down = solve(hosts.inside.reverse, demands), solve(hosts.inside, demands)
    if up is None or down is None:
        return
    ranges = [(number * share, share) for number in range(len(relays))]
    stage = tuple(
        _GroupSum(tuple(ranks[relay] for ranks in hosts.members), first, count)
        for relay, (first, count) in zip(relays, ranges, strict=True)
    )
    halves = (
        tuple(
            send
            for ranks in hosts.members
            for send in mapped_sends(ranks, half, 0, [[each] for each in ranges])
        )
        for half in (up, down)
    )
    yield GroupAllreduce(next(halves), (stage,), next(halves))


def add_group_allreduce(trace: Trace, allreduce: GroupAllreduce, nbytes: int) -> None:
    """Add the transfers of `allreduce` to `trace`."""
    add_reductions(trace, allreduce.up, nbytes)
    for stage in allreduce.stages:
        for group in stage:
            if len(group.ranks) == 2:
                trace.exchange(group.first, *group.ranks, count=group.length, last=True)
            else:
                _sum_in(trace, group)
    add_sends(trace, allreduce.down, 1)


def _sum_in(trace: Trace, group: _GroupSum) -> None:
    """Give every rank of a group the sum, added in one order everywhere."""
    ranks = group.ranks
    sums = [LocalSum(trace, rank, group.length, ranks, group.first) for rank in ranks]
    for ahead in range(1, len(ranks)):
        for local, src in enumerate(ranks):
            if local:
                sums[(local + ahead) % len(ranks)].receive(src)
    for dst in sums[1:]:
        dst.receive(ranks[0])
    for each in sums:
        each.finish()
