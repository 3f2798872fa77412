"""Tasks of a program's thread blocks, with messages and dependencies resolved."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

from tuccl.program import Program, Step
from tuccl.synth.model.schedule import Address

_RECEIVES = frozenset({"r", "rcs", "rrs", "rrc", "rrcs"})
_SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})
MOST_SOURCES = 9  # that one `re` adds to its first: an operation has ten buffers


@dataclass(eq=False)
class Message:
    """Message of `count` chunks, which one step sends and another receives.

    From a `source` the receiver reads it there; the sender only lets it. Within a rank it is
    packets in its scratch, of several senders a part each.
    """

    src: int
    dst: int
    count: int
    source: Address | None = None


@dataclass(eq=False)
class Task:
    """A step without numbers: what it moves, and which tasks of its rank it waits for.

    `sources` are added to `src` by a reduction; `waits` holds (thread block, task) pairs, each of
    them later than any that the thread block waited for before. `parts` holds the first chunk that
    it takes of a message, where that is not the whole.
    """

    op: str
    src: Address
    dst: Address
    count: int
    receives: list[Message] = field(default_factory=list)
    sends: list[Message] = field(default_factory=list)
    sources: tuple[Address, ...] = ()
    waits: list[tuple[int, int]] = field(default_factory=list)
    parts: dict[Message, int] = field(default_factory=dict)


def tasks_of(program: Program, *, in_place: bool, equal_counts: bool) -> list[list[list[Task]]]:
    """Return the tasks of each thread block of each rank.

    Copies of a chunk onto itself and nops move nothing; additions to one place become one task.
    `equal_counts` cuts runs so that all tasks move as many chunks, and two that share one share
    all: pieces and parts of a run then meet the same piece or part of every other.
    """
    part = _common_run(program) if equal_counts else 0
    messages: dict[tuple[int, int, int], list[Message]] = defaultdict(list)
    ranks = [
        _Rank(program, rank, in_place, part, messages).tasks() for rank in range(program.ngpus)
    ]
    taken: dict[tuple[int, int, int], int] = defaultdict(int)
    for rank, gpu in enumerate(program.gpus):
        for block, tasks in zip(gpu.threadblocks, ranks[rank], strict=True):
            key = block.channel, block.recv_peer, rank
            for task in (task for task in tasks if task.op in _RECEIVES):
                task.receives = [messages[key][taken[key]]]
                taken[key] += 1
    return ranks


def _common_run(program: Program) -> int:
    """Return the chunks of which all runs, their places and the ranks' shares are multiples."""
    steps = [s for g in program.gpus for b in g.threadblocks for s in b.steps if s.count]
    numbers = {n for s in steps for n in (s.count, s.src_offset, s.dst_offset)}
    return math.gcd(*numbers, program.nchunks // program.ngpus)


class _Rank:
    def __init__(
        self,
        program: Program,
        rank: int,
        in_place: bool,
        part: int,
        messages: dict[tuple[int, int, int], list[Message]],
    ) -> None:
        self.program = program
        self.rank = rank
        self.in_place = in_place
        self.part = part
        self.messages = messages
        self.blocks = program.gpus[rank].threadblocks
        self.place = {block.id: number for number, block in enumerate(self.blocks)}

    def tasks(self) -> list[list[Task]]:
        awaited = {
            (self.place[step.dep_tb], step.dep_step)
            for block in self.blocks
            for step in block.steps
            if step.dep_tb >= 0
        }
        made = [self.block(number, awaited) for number in range(len(self.blocks))]
        blocks = [tasks for tasks, _ in made]
        for task in (task for tasks in blocks for task in tasks):
            task.waits = [(block, made[block][1][step]) for block, step in task.waits]
        newest_waits(blocks)
        return blocks

    def block(self, number: int, awaited: set[tuple[int, int]]) -> tuple[list[Task], list[int]]:
        """Return the block's tasks, whose waits name steps, and the last task of each step."""
        tasks: list[Task] = []
        last: list[int] = []
        waits: list[tuple[int, int]] = []
        for at, step in enumerate(self.blocks[number].steps):
            if step.dep_tb >= 0:
                waits.append((self.place[step.dep_tb], step.dep_step))
            if step.op != "nop":
                before = tasks[-1] if tasks and (number, at - 1) not in awaited else None
                parts = self.parts(number, step)
                if before is None or waits or not _joined(before, parts):
                    parts[0].waits, waits = waits, []
                    tasks += parts
            last.append(len(tasks) - 1)
        return tasks, last

    def parts(self, number: int, step: Step) -> list[Task]:
        """Return the tasks that a step becomes."""
        part = self.part or step.count
        block = self.blocks[number]
        tasks = []
        for first in range(0, step.count, part):
            src = Address(step.src_buffer, step.src_offset + first)  # type: ignore[arg-type]
            dst = Address(step.dst_buffer, step.dst_offset + first)  # type: ignore[arg-type]
            task = Task(step.op, src, dst, part)
            if step.op in _SENDS:
                message = Message(self.rank, block.send_peer, part)
                task.sends = [message]
                self.messages[block.channel, self.rank, block.send_peer].append(message)
            if step.op == "re":
                task.src, task.sources = dst, (src,)
            if step.op == "cpy" and self.memory(src) == self.memory(dst):
                task.op = "nop"
            tasks.append(task)
        return tasks

    def memory(self, at: Address) -> Address:
        return output_place(self.program, self.rank, at) if self.in_place else at


def newest_waits(blocks: list[list[Task]]) -> None:
    """Drop the waits of one rank's tasks that earlier ones of their thread blocks imply."""
    for number, tasks in enumerate(blocks):
        newest: dict[int, int] = {}
        for at, task in enumerate(tasks):
            waits: dict[int, int] = {}
            for block, last in task.waits:
                waits[block] = max(last, waits.get(block, -1))
            task.waits = [
                (block, last)
                for block, last in waits.items()
                if newest.get(block, -1) < last and (block != number or last >= at)
            ]
            newest.update(task.waits)


def output_place(program: Program, rank: int, at: Address) -> Address:
    """Return where a chunk of the input lies in the output of a call in place."""
    if at.buffer != "i":
        return at
    share = program.nchunks // program.ngpus if program.collective == "allgather" else 0
    return Address("o", at.offset + rank * share)


def _joined(before: Task, parts: list[Task]) -> bool:
    """Have `before` add what the one task in `parts` adds to the same place, if it does."""
    task = parts[0]
    same = (before.op, before.dst, before.count) == ("re", task.dst, task.count)
    if task.op != "re" or not same or len(parts) > 1 or len(before.sources) == MOST_SOURCES:
        return False
    before.sources += task.sources
    return True
