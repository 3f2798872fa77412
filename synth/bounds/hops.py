"""Messages that wait for each other: how many a schedule has in a chain, and how few would do."""

from __future__ import annotations

from collections import deque

from tuccl.synth.model.collective import Collective
from tuccl.synth.model.schedule import Address, Schedule, Transfer
from tuccl.topology import Topology, all_paths

__all__ = ["fewest_hops", "hop_bound", "longest_chain"]

_Cell = tuple[int, Address]


def hop_bound(t: Topology, collective: Collective) -> int:
    """Return the fewest messages in a row that trees for `collective` need on `t`; relays are free.

    Notes:
        Without a root: the largest distance between two ranks; for an allreduce the least over
        all roots of the distance to the root and back. With one: the farthest rank's distance.

    >>> from tuccl.topology import load_profile
    >>> hop_bound(load_profile("v100x4"), Collective("allgather", 4))
    1
    """
    onward: list[list[int]] = [[] for _ in range(t.ranks)]
    back: list[list[int]] = [[] for _ in range(t.ranks)]
    for src, dst in all_paths(t):
        onward[src].append(dst)
        back[dst].append(src)
    if collective.name == "allreduce":
        return min(_farthest(onward, r) + _farthest(back, r) for r in range(t.ranks))
    if collective.rooted:
        ways = onward if collective.name in ("broadcast", "scatter") else back
        return _farthest(ways, collective.root)
    return max(_farthest(onward, rank) for rank in range(t.ranks))


def fewest_hops(t: Topology, collective: Collective) -> int:
    """Return the fewest messages in a row of any program for `collective` on `t`.

    That is `hop_bound`, but for allreduce: there every rank may sum for itself what all have sent,
    which takes as many as an allgather does.
    """
    if collective.name == "allreduce":
        return hop_bound(t, Collective("allgather", collective.ranks))
    return hop_bound(t, collective)


def _farthest(onward: list[list[int]], root: int) -> int:
    depth = {root: 0}
    waiting = deque([root])
    while waiting and len(depth) < len(onward):
        rank = waiting.popleft()
        for following in onward[rank]:
            if following not in depth:
                depth[following] = depth[rank] + 1
                waiting.append(following)
    return max(depth.values())


def longest_chain(schedule: Schedule) -> int:
    """Return the most messages of `schedule` of which each carries what the one before brought."""
    length: dict[_Cell, int] = {}
    for transfer in schedule.transfers:
        brought = max(
            (length.get(cell, 0) for cell in _cells(transfer.src, transfer.src_at, transfer)),
            default=0,
        ) + (not transfer.local)
        if (operand := transfer.operand_at) is not None:
            cells = _cells(transfer.dst, operand, transfer)
            brought = max(brought, *(length.get(cell, 0) for cell in cells))
        length.update((cell, brought) for cell in _cells(transfer.dst, transfer.dst_at, transfer))
    return max(length.values(), default=0)


def _cells(rank: int, at: Address, transfer: Transfer) -> list[_Cell]:
    return [(rank, at.shifted(chunk)) for chunk in range(transfer.count)]
