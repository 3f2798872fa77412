"""Hierarchical schedules of few steps: one host solved and mapped to all, few messages between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

from tuccl.synth.few_step.sends import RangeSend, step_count
from tuccl.synth.model.demand import Demand
from tuccl.synth.model.hierarchy import EqualGroups
from tuccl.synth.model.network import Network

_LocalSends = Sequence[tuple[int, int, int, int]]
_Ranges = Sequence[tuple[int, int]]
# Solves demands inside one host: (step, sending local rank, receiving one, demand); None where
# there is no path or no time.
InsideSolver = Callable[[Network, tuple[Demand, ...]], _LocalSends | None]


def mapped_sends(
    ranks: Sequence[int], sends: _LocalSends, start: int, ranges: Sequence[_Ranges]
) -> Iterator[RangeSend]:
    """Yield what is sent among `ranks` from step `start` on; demand n is of ``ranges[n]``."""
    for step, src, dst, demand in sends:
        for first, length in ranges[demand]:
            yield RangeSend(start + step, ranks[src], ranks[dst], first, length)


def hierarchical_allgathers(
    hosts: EqualGroups, chunks: int, solve: InsideSolver
) -> Iterator[list[RangeSend]]:
    """Yield schedules of an allgather of `chunks` chunks a rank.

    - Every rank sends its chunks to its local rank on all hosts; these go to all inside (one hop
      more).
    - Chunks go to all inside; every rank sends its local rank all of the host's: more bytes, but
      one message a host that lies in a row at both ends.
    - One relay for each NIC sends what the ranks around it have, as one; that goes to all inside.
    """
    everyone = frozenset(range(hosts.local_ranks))
    local = solve(
        hosts.inside,
        tuple(Demand(rank, everyone - {rank}) for rank in sorted(everyone) for _ in range(chunks)),
    )
    if local is None:
        return

    def mapped(owners: Sequence[int], ranks: Sequence[int], start: int) -> Iterator[RangeSend]:
        ranges = [[(owner * chunks + k, 1)] for owner in owners for k in range(chunks)]
        return mapped_sends(ranks, local, start, ranges)

    at_home = [send for ranks in hosts.members for send in mapped(ranks, ranks, 0)]
    if len(hosts.relays) == hosts.local_ranks:
        yield [
            *at_home,
            *(
                RangeSend(0, src, dst, src * chunks, chunks)
                for ranks, others in hosts.group_pairs
                for src, dst in zip(ranks, others, strict=True)
            ),
            *(send for owners, ranks in hosts.group_pairs for send in mapped(owners, ranks, 1)),
        ]
        last = step_count(at_home)
        yield [
            *at_home,
            *(
                RangeSend(last, src, dst, owner * chunks, chunks)
                for ranks, others in hosts.group_pairs
                for src, dst in zip(ranks, others, strict=True)
                for owner in ranks
            ),
        ]
    if len(hosts.nic_groups) < hosts.local_ranks:
        relays = tuple(Demand(relay, everyone - {relay}) for relay, _ in hosts.nic_shares)
        spread = solve(hosts.inside, relays)
        if spread is not None:
            yield [*at_home, *_allgather_by_nics(hosts, chunks, at_home, spread)]


def _allgather_by_nics(
    hosts: EqualGroups, chunks: int, at_home: Sequence[RangeSend], spread: _LocalSends
) -> Iterator[RangeSend]:
    """Yield what one relay for each NIC sends for the ranks around it, and how that spreads."""
    arrival = {(send.dst, send.first): send.step for send in at_home}
    for owners, others in hosts.group_pairs:
        for number, (relay, share) in enumerate(hosts.nic_shares):
            numbers = [owners[local] * chunks + k for local in share for k in range(chunks)]
            ready = 1 + max(arrival.get((owners[relay], chunk), -1) for chunk in numbers)
            for chunk in numbers:
                yield RangeSend(ready, owners[relay], others[relay], chunk, 1)
                for step, src, dst, demand in spread:
                    if demand == number:
                        yield RangeSend(ready + 1 + step, others[src], others[dst], chunk, 1)


def hierarchical_broadcasts(
    hosts: EqualGroups, total: int, root: int, solve: InsideSolver
) -> Iterator[list[RangeSend]]:
    """Yield schedules of a broadcast of the root's `total` chunks."""
    [home] = [ranks for ranks in hosts.members if root in ranks]
    local_root = home.index(root)
    everyone = frozenset(range(hosts.local_ranks))
    first = hosts.nic_groups[0][0]
    for relay in dict.fromkeys((local_root if local_root in hosts.relays else first, first)):
        before = solve(hosts.inside, (Demand(local_root, everyone - {local_root}),))
        after = solve(hosts.inside, (Demand(relay, everyone - {relay}),))
        if before is None or after is None:
            return
        ready = 1 + max((step for step, _, dst, _ in before if dst == relay), default=-1)
        sends = [*mapped_sends(home, before, 0, [[(0, total)]])]
        for ranks in hosts.members:
            if ranks is not home:
                sends.append(RangeSend(ready, home[relay], ranks[relay], 0, total))
                sends += mapped_sends(ranks, after, ready + 1, [[(0, total)]])
        yield sends


def hierarchical_alltoalls(
    hosts: EqualGroups, chunks: int, solve: InsideSolver
) -> Iterator[list[RangeSend]]:
    """Yield schedules of an alltoall of `chunks` chunks for each pair of ranks.

    - Inside, chunks go to the local rank that they are for, wherever its host; then every rank
      sends its local rank on each other host all that its host has for it, as one message.
    - One relay for each NIC gathers what the ranks around it have for other hosts, sends each of
      these one message, and its local rank there hands out what came (more steps, fewer messages).
    """
    pairs = list(permutations(range(hosts.local_ranks), 2))
    local = solve(hosts.inside, tuple(Demand(src, frozenset({dst})) for src, dst in pairs))
    if local is None:
        return

    def mapped(ranks: Sequence[int], targets: Sequence[int]) -> Iterator[RangeSend]:
        ranges = [[_range(hosts, chunks, ranks[src], targets[dst])] for src, dst in pairs]
        return mapped_sends(ranks, local, 0, ranges)

    at_home = [send for ranks in hosts.members for send in mapped(ranks, ranks)]
    last = step_count(at_home)
    if len(hosts.relays) == hosts.local_ranks:
        yield [
            *at_home,
            *(send for ranks, others in hosts.group_pairs for send in mapped(ranks, others)),
            *(
                RangeSend(last, relay, target, *_range(hosts, chunks, source, target))
                for ranks, others in hosts.group_pairs
                for relay, target in zip(ranks, others, strict=True)
                for source in ranks
            ),
        ]
    if len(hosts.nic_groups) < hosts.local_ranks:
        by_nics = _alltoall_by_nics(hosts, chunks, solve)
        if by_nics is not None:
            yield [*at_home, *by_nics]


def _alltoall_by_nics(
    hosts: EqualGroups, chunks: int, solve: InsideSolver
) -> list[RangeSend] | None:
    """Return what one relay for each NIC gathers, sends and hands out; None where not solved."""
    shares = hosts.nic_shares
    gathered = [(rank, relay) for relay, share in shares for rank in share if rank != relay]
    handed = [
        (rank, relay, share)
        for relay, share in shares
        for rank in range(hosts.local_ranks)
        if rank != relay
    ]
    up = solve(hosts.inside, tuple(Demand(src, frozenset({relay})) for src, relay in gathered))
    down = solve(hosts.inside, tuple(Demand(relay, frozenset({dst})) for dst, relay, _ in handed))
    if up is None or down is None:
        return None
    sends: list[RangeSend] = []
    across = 1 + max((step for step, *_ in up), default=-1)
    for ranks, others in hosts.group_pairs:
        ranges = [
            [_range(hosts, chunks, ranks[src], target) for target in others] for src, _ in gathered
        ]
        sends += mapped_sends(ranks, up, 0, ranges)
        sends += (
            RangeSend(
                across, ranks[relay], others[relay], *_range(hosts, chunks, ranks[src], target)
            )
            for relay, share in shares
            for src in share
            for target in others
        )
        ranges = [
            [_range(hosts, chunks, ranks[src], others[dst]) for src in share]
            for dst, _, share in handed
        ]
        sends += mapped_sends(others, down, across + 1, ranges)
    return sends


def _range(hosts: EqualGroups, chunks: int, source: int, target: int) -> tuple[int, int]:
    """Return the first of the chunks that one rank has for another, and how many they are."""
    return (source * hosts.network.ranks + target) * chunks, chunks
