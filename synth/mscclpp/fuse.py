"""Tasks of different thread blocks made one: sums of many messages, sums sent to many ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence

from tuccl.synth.model.schedule import Address
from tuccl.synth.mscclpp.tasks import MOST_SOURCES, Message, Task, newest_waits

Place = tuple[int, int]  # thread block, task
_SUMS = frozenset({"re", "rrc", "rrs", "rrcs"})
_MOST_JOINED = 8  # thread blocks of receives, of which each has a channel of its own
_MOST_SENDS = 7  # of one operation, which stores its result twice besides


def fuse_receives(ranks: Sequence[list[list[Task]]], *, sums: Container[Task] | None) -> None:
    """Have `sums` (None: all) add packets where they landed, unpacked by no thread block.

    It must be all that the sum adds, and all that is done with the message.
    """
    for blocks in ranks:
        unpacked: dict[int, Place] = {}  # chunk of scratch, by the only task that writes it
        shared: set[int] = set()  # chunks of scratch that another task reads or writes
        readers: list[Task] = []
        for block, tasks in enumerate(blocks):
            for at, task in enumerate(tasks):
                received = task.op == "r" and task.dst.buffer == "s"
                for chunk in _scratch(task.dst, task.count):
                    shared |= {chunk} if not received or chunk in unpacked else set()
                    unpacked[chunk] = block, at
                shared |= set(_scratch(task.src, task.count))
                if task.op == "re":
                    readers.append(task)
        reads = {task: [_scratch(at, task.count) for at in task.sources] for task in readers}
        left = {task for task in readers if sums is not None and task not in sums}
        while True:  # a message that one sum cannot take is unpacked for all
            spoilt = {unpacked[chunk] for chunk in shared if chunk in unpacked}
            spoilt |= {
                unpacked[chunk]
                for task in left
                for chunks in reads[task]
                for chunk in chunks
                if chunk in unpacked
            }
            more = {
                task
                for task in readers
                if not all(
                    chunks
                    and len({unpacked.get(chunk) for chunk in chunks} - spoilt) == 1
                    and unpacked.get(chunks[0]) not in spoilt | {None}
                    for chunks in reads[task]
                )
            }
            if more <= left:
                break
            left |= more
        for task in readers:
            if task not in left:
                _take(blocks, task, [unpacked[chunks[0]] for chunks in reads[task]])
        for block, at in {unpacked[c[0]] for t in readers if t not in left for c in reads[t]}:
            blocks[block][at].op, blocks[block][at].receives = "nop", []
        newest_waits(blocks)


def _scratch(at: Address, count: int) -> range:
    return range(at.offset, at.offset + count) if at.buffer == "s" else range(0)


def _take(blocks: list[list[Task]], task: Task, places: list[Place]) -> None:
    """Have a sum take the messages of the tasks in `places`, and wait for what those followed."""
    for at, (block, number) in zip(task.sources, places, strict=True):
        before = blocks[block][number]
        task.receives.append(before.receives[0])
        task.parts[before.receives[0]] = at.offset - before.dst.offset
        earlier = [(block, number - 1)] if number else []
        task.waits = [wait for wait in task.waits if wait != (block, number)]
        task.waits += before.waits + earlier
    task.sources = ()


def fuse_sums(
    ranks: Sequence[list[list[Task]]], *, packets: bool, sums: Container[Task] | None = None
) -> None:
    """Have `sums` that go on from another's result add all sources themselves; None: all sums.

    They then wait for all messages at once, and no thread block hands its result to the next. Of
    `packets`, several sums may each take a part of one that they go on from.
    """
    pairs = [(rank, *pair) for rank, blocks in enumerate(ranks) for pair in _sums(blocks, packets)]
    for rank, first, seconds in pairs:
        blocks = ranks[rank]
        before = blocks[first[0]][first[1]]
        tasks = [blocks[block][at] for block, at in seconds]
        had = len(before.sources) + len(before.receives)
        if any(
            had + len(task.sources) + len(task.receives) > MOST_SOURCES
            or (sums is not None and task not in sums)
            for task in tasks
        ):
            continue
        for task in tasks:
            part = task.dst.offset - before.dst.offset
            task.src = before.src.shifted(part)
            task.sources = (*(at.shifted(part) for at in before.sources), *task.sources)
            if task.count < before.count:
                task.parts |= {m: before.parts.get(m, 0) + part for m in before.receives}
            else:
                task.parts |= before.parts
            task.receives = before.receives + task.receives
            task.waits = [wait for wait in task.waits if wait != first] + before.waits
        before.op, before.sources, before.receives, before.waits = "nop", (), [], []
    for blocks in ranks:
        newest_waits(blocks)


def _sums(blocks: list[list[Task]], packets: bool) -> list[tuple[Place, list[Place]]]:
    """Return (first, seconds) where each second goes on from its part of what the first made.

    The first made it only for them. They come in an order in which the second of a pair is the
    first of a later one.
    """
    waiting: dict[Place, list[Place]] = defaultdict(list)
    for block, tasks in enumerate(blocks):
        for at, task in enumerate(tasks):
            for wait in task.waits:
                waiting[wait].append((block, at))
    following: dict[Place, list[Place]] = {}
    for block, tasks in enumerate(blocks):
        for at, task in enumerate(tasks):
            others = waiting[block, at]
            if not others and at + 1 < len(tasks):
                others = [(block, at + 1)]
            if task.op not in ("re", "rrc", "cpy") or (len(others) != 1 and not packets):
                continue
            after = [blocks[b][k] for b, k in others]
            parts = sorted(
                chunk
                for each in after
                for chunk in range(each.dst.offset, each.dst.offset + each.count)
            )
            whole = parts == list(range(task.dst.offset, task.dst.offset + task.count))
            if whole and all(
                each.op in _SUMS and each.src == each.dst and each.dst.buffer == task.dst.buffer
                for each in after
            ):
                following[block, at] = others
    out: list[tuple[Place, list[Place]]] = []
    seconds = {place for places in following.values() for place in places}
    ready = sorted(following.keys() - seconds, reverse=True)
    while ready:
        here = ready.pop()
        out.append((here, following[here]))
        ready += [place for place in following[here] if place in following]
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


def fuse_sends(ranks: Sequence[list[list[Task]]], ranks_per_host: int, *, spread: bool) -> None:
    """Have a task that made or got data send it wherever other thread blocks send it.

    With `spread`, thread blocks that would send what another got pass it on from where it landed:
    all read the same packets, at once and without a semaphore. Sums of what came from another host
    are left to `pass_sums`: beside that path a move within the rank is short.
    """
    for rank, blocks in enumerate(ranks):
        host = rank // ranks_per_host
        moved: dict[Place, Place] = {}
        for block, tasks in enumerate(blocks):
            for at, task in enumerate(tasks):
                if task.op != "s" or len(task.waits) > 1 or (not task.waits and not at):
                    continue
                place = task.waits[0] if task.waits else (block, at - 1)
                maker = blocks[place[0]][place[1]]
                crossed = place[0] != block and any(
                    message.src // ranks_per_host != host for message in maker.receives
                )
                if (
                    maker.op in ("r", "rcs", "rrc", "rrcs", "re")
                    and not (spread and crossed and maker.op in _SUMS)
                    and (maker.op != "re" or maker.receives)
                    and (maker.dst, maker.count) == (task.src, task.count)
                    and len(maker.sends) < _MOST_SENDS
                ):
                    if spread and place[0] != block and maker.op in ("r", "rcs"):
                        task.receives, task.waits = maker.receives[:], []
                        continue
                    maker.sends = [*maker.sends, *task.sends]
                    task.op, task.sends, task.waits = "nop", [], []
                    moved[block, at] = place
        for tasks in blocks:
            for task in tasks:
                task.waits = [moved.get(wait, wait) for wait in task.waits]
        newest_waits(blocks)


def pass_sums(ranks: Sequence[list[list[Task]]]) -> None:
    """Have sums of packets leave packets within their rank for the tasks that send them.

    These see by the flags what is there, without a semaphore, and copy nothing. Several sums may
    each make a part of what is sent.
    """
    for rank, blocks in enumerate(ranks):
        passed: dict[Place, list[Place]] = {}
        left: dict[tuple[Place, ...], Message] = {}
        for block, tasks in enumerate(blocks):
            for at, task in enumerate(tasks):
                makers = [blocks[b][k] for b, k in task.waits]
                if task.op != "s" or task.receives or not _make(makers, task):
                    continue
                if tuple(task.waits) not in left:
                    within = left[tuple(task.waits)] = Message(rank, rank, task.count)
                    for maker in makers:
                        maker.sends = [*maker.sends, within]
                        maker.parts[within] = maker.dst.offset - task.src.offset
                passed[block, at] = task.waits
                task.receives, task.waits = [left[tuple(task.waits)]], []
        for tasks in blocks:
            for task in tasks:
                task.waits = [w for wait in task.waits for w in passed.get(wait, [wait])]
        newest_waits(blocks)


def _make(makers: list[Task], task: Task) -> bool:
    """Return whether `makers` are sums of packets that together make what `task` sends."""
    made = sorted(chunk for m in makers for chunk in range(m.dst.offset, m.dst.offset + m.count))
    return made == list(range(task.src.offset, task.src.offset + task.count)) and all(
        maker.op in ("re", "rrc", "rrcs") and maker.receives and maker.dst.buffer == task.src.buffer
        for maker in makers
    )


def join_receives(ranks: Sequence[list[list[Task]]]) -> None:
    """Have one thread block do what several do that only receive, for which nobody waits.

    What lands where it is stored leaves them nothing to move.
    """
    for blocks in ranks:
        awaited = {block for tasks in blocks for task in tasks for block, _ in task.waits}
        idle = [
            tasks
            for block, tasks in enumerate(blocks)
            if tasks and block not in awaited and all(task.op == "r" for task in tasks)
        ]
        for first in range(0, len(idle), _MOST_JOINED):
            joined, *others = idle[first : first + _MOST_JOINED]
            for tasks in others:
                joined += tasks
                tasks.clear()
