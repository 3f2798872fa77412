"""Tasks of different thread blocks made one: sums of many messages, sums sent to many ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tuccl.synth.model.schedule import Address
from tuccl.synth.mscclpp.tasks import MOST_SOURCES, Task, newest_waits

__all__ = ["fuse_sends", "fuse_sums", "pull_sums"]

Place = tuple[int, int]  # thread block, task
_SUMS = frozenset({"re", "rrc", "rrs", "rrcs"})
_MOST_SENDS = 7  # of one operation, which stores its result twice besides


def fuse_sums(ranks: Sequence[list[list[Task]]], *, once: bool) -> None:
    """Have a sum that goes on from another's result add all sources itself.

    It then waits for all messages at once, and no thread block hands its result to the next.
    `once`: only where no other rank adds up the same chunk, since packets are added in another
    order than before, and ranks that make one sum must all make it alike.
    """
    pairs = [(rank, *pair) for rank, blocks in enumerate(ranks) for pair in _sums(blocks)]
    makers: dict[Address, set[int]] = defaultdict(set)
    for rank, _, second in pairs:
        makers[ranks[rank][second[0]][second[1]].dst].add(rank)
    for rank, first, second in pairs:
        blocks = ranks[rank]
        before, task = blocks[first[0]][first[1]], blocks[second[0]][second[1]]
        sources = len(before.sources) + len(before.receives)
        sources += len(task.sources) + len(task.receives)
        if sources > MOST_SOURCES or (once and len(makers[task.dst]) > 1):
            continue
        task.src = before.src
        task.sources = before.sources + task.sources
        task.receives = before.receives + task.receives
        task.waits = [wait for wait in task.waits if wait != first] + before.waits
        before.op, before.sources, before.receives, before.waits = "nop", (), [], []
    for blocks in ranks:
        newest_waits(blocks)


def _sums(blocks: list[list[Task]]) -> list[tuple[Place, Place]]:
    """Return (first, second) where the second task goes on from what the first, only for it, made.

    They come in an order in which the second of a pair is the first of a later one.
    """
    waiting: dict[Place, list[Place]] = defaultdict(list)
    for block, tasks in enumerate(blocks):
        for at, task in enumerate(tasks):
            for wait in task.waits:
                waiting[wait].append((block, at))
    following: dict[Place, Place] = {}
    for block, tasks in enumerate(blocks):
        for at, task in enumerate(tasks):
            others = waiting[block, at]
            if not others and at + 1 < len(tasks):
                others = [(block, at + 1)]
            if task.op not in ("re", "rrc", "cpy") or len(others) != 1:
                continue
            after = blocks[others[0][0]][others[0][1]]
            same = after.src == after.dst == task.dst and after.count == task.count
            if after.op in _SUMS and same:
                following[block, at] = others[0]
    out = []
    starts = following.keys() - following.values()
    for start in sorted(starts):
        here = start
        while here in following:
            out.append((here, following[here]))
            here = following[here]
    return out


def pull_sums(ranks: Sequence[list[list[Task]]], ranks_per_host: int) -> None:
    """Have a sum read what other ranks of its host would send it of their input.

    Nothing is put then, and scratch holds nothing. It must be all that the sum adds.
    """
    senders = {
        message: task
        for blocks in ranks
        for tasks in blocks
        for task in tasks
        for message in task.sends
    }
    for blocks in ranks:
        for task in (task for tasks in blocks for task in tasks):
            if task.op not in ("rrc", "rrcs") or task.sources or not task.receives:
                continue
            sent = [(message, senders[message]) for message in task.receives]
            if all(
                sender.op == "s"
                and sender.src.buffer == "i"
                and not sender.waits
                and message.src // ranks_per_host == message.dst // ranks_per_host
                for message, sender in sent
            ) and all(m.src // ranks_per_host == m.dst // ranks_per_host for m in task.sends):
                for message, sender in sent:
                    message.source = sender.src


def fuse_sends(ranks: Sequence[list[list[Task]]]) -> None:
    """Have a task that made or got data send it wherever other thread blocks send it."""
    for blocks in ranks:
        moved: dict[Place, Place] = {}
        for block, tasks in enumerate(blocks):
            for at, task in enumerate(tasks):
                if task.op != "s" or len(task.waits) > 1 or (not task.waits and not at):
                    continue
                place = task.waits[0] if task.waits else (block, at - 1)
                maker = blocks[place[0]][place[1]]
                if (
                    maker.op in ("r", "rcs", "rrc", "rrcs", "re")
                    and (maker.op != "re" or maker.receives)
                    and (maker.dst, maker.count) == (task.src, task.count)
                    and len(maker.sends) < _MOST_SENDS
                ):
                    maker.sends = [*maker.sends, *task.sends]
                    task.op, task.sends, task.waits = "nop", [], []
                    moved[block, at] = place
        for tasks in blocks:
            for task in tasks:
                task.waits = [moved.get(wait, wait) for wait in task.waits]
        newest_waits(blocks)
