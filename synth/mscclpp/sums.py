"""Sums of a program: which of them one rank alone makes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tuccl.synth.model.schedule import Address
from tuccl.synth.mscclpp.tasks import Message, Task

Terms = frozenset[tuple[int, int]]  # ranks' own chunks that a chunk is the sum of


def lone_sums(ranks: Sequence[list[list[Task]]]) -> set[Task]:
    """Return the sums of an allreduce whose every chunk no other rank makes too.

    Packets are added before a rank's own chunk, so ranks that make one sum would add it up in
    different orders.
    """
    values: dict[tuple[int, Address], Terms] = {}
    sent: dict[Message, list[Terms]] = {}
    made: dict[Task, list[Terms]] = {}
    makers: dict[Terms, set[int]] = defaultdict(set)
    done: list[list[int]] = [[0] * len(blocks) for blocks in ranks]
    blocks = [(rank, block) for rank, some in enumerate(ranks) for block in range(len(some))]
    before = -1
    while sum(map(sum, done)) > before:  # until none goes on: at the end, or in a deadlock
        before = sum(map(sum, done))
        for rank, block in blocks:
            for task in ranks[rank][block][done[rank][block] :]:
                if not all(message in sent for message in task.receives) or not all(
                    done[rank][other] > at for other, at in task.waits
                ):
                    break
                _run(rank, task, values, sent)
                if task.op in ("re", "rrc", "rrs", "rrcs"):
                    made[task] = _result(rank, task, values, sent)
                    for terms in made[task]:
                        makers[terms].add(rank)
                done[rank][block] += 1
    return {task for task, sums in made.items() if all(len(makers[t]) == 1 for t in sums)}


def _result(
    rank: int,
    task: Task,
    values: dict[tuple[int, Address], Terms],
    sent: dict[Message, list[Terms]],
) -> list[Terms]:
    if task.op == "rrs":
        return sent[task.sends[0]]
    return [values[rank, task.dst.shifted(k)] for k in range(task.count)]


def _run(
    rank: int,
    task: Task,
    values: dict[tuple[int, Address], Terms],
    sent: dict[Message, list[Terms]],
) -> None:
    """Have a task read, add up, store and send."""
    if task.op == "nop":
        return
    result = []
    for k in range(task.count):
        parts = [sent[message][k] for message in task.receives]
        if task.op not in ("r", "rcs"):
            for at in (task.src, *task.sources):
                own = frozenset([(rank, at.offset + k)])  # where nothing was stored: the input
                parts.append(values.get((rank, at.shifted(k)), own))
        result.append(frozenset().union(*parts))
    if task.op not in ("s", "rrs"):
        values |= {(rank, task.dst.shifted(k)): terms for k, terms in enumerate(result)}
    sent |= dict.fromkeys(task.sends, result)
