"""Sketches made by hand, and running schedules and programs on numbers."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable

import pytest

from tuccl.program import Program, Step
from tuccl.sketches import Sketch
from tuccl.sketches.sketch import LogicalLink
from tuccl.synth import Collective, Schedule


def _mesh(hosts: list[int], kind: str = "mesh") -> Sketch:
    """Return a sketch of ranks on `hosts`.

    Between hosts there are all links (``mesh``), those of equal places (``rail``), or one from the
    first rank to the second (``gate``).
    """
    place = [hosts[:rank].count(host) for rank, host in enumerate(hosts)]

    def kept(a: int, b: int) -> bool:
        if hosts[a] == hosts[b] or kind == "mesh":
            return True
        if kind == "rail":
            return place[a] == place[b]
        return place[a] == 0 and place[b] == min(1, hosts.count(hosts[b]) - 1)

    ranks = range(len(hosts))
    links = tuple(
        LogicalLink(
            src=a,
            dst=b,
            inter=hosts[a] != hosts[b],
            alpha_us=5.0 if hosts[a] != hosts[b] else 1.0,
            beta_us_per_mb=80.0 if hosts[a] != hosts[b] else 10.0,
        )
        for a in ranks
        for b in ranks
        if a != b and kept(a, b)
    )
    name = f"{kind} {'+'.join(str(hosts.count(h)) for h in sorted(set(hosts)))}"
    return Sketch(name=name, ranks=len(hosts), hosts=tuple(hosts), links=links)


@pytest.fixture(scope="session")
def mesh() -> Callable[..., Sketch]:
    """Return a maker of sketches: hosts of the ranks, and which links hosts have."""
    return _mesh


class Memory:
    """Numbers in the buffers of all ranks, aliased as NCCL does where `in_place`."""

    def __init__(
        self, collective: Collective, share: int, rng: random.Random, in_place: bool
    ) -> None:
        self.collective, self.share, self.in_place = collective, share, in_place
        self.cells: dict[tuple[int, str, int], int | None] = {}
        self.given: dict[int, dict[int, int]] = defaultdict(dict)  # chunk -> rank -> value
        for rank in range(collective.ranks):
            for offset, chunk in collective.inputs(rank, share):
                self.given[chunk][rank] = value = rng.randrange(1 << 60)
                self.write(rank, "i", offset, value)

    def cell(self, rank: int, buffer: str, offset: int) -> tuple[int, str, int]:
        """Return the one name of a chunk of memory, spelt out apart from the code under test."""
        if not self.in_place or buffer == "s":
            return rank, buffer, offset
        name, shift = self.collective.name, rank * self.share
        if name in ("allgather", "gather"):
            return rank, "user", offset + (shift if buffer == "i" else 0)
        if name in ("reduce-scatter", "scatter"):
            return rank, "user", offset + (shift if buffer == "o" else 0)
        return rank, "user", offset

    def read(self, rank: int, buffer: str, offset: int) -> int:
        """Return the number there; nothing was written: a number that makes any sum wrong."""
        value = self.cells.get(self.cell(rank, buffer, offset))
        return -(1 << 90) if value is None else value

    def write(self, rank: int, buffer: str, offset: int, value: int) -> None:
        self.cells[self.cell(rank, buffer, offset)] = value

    def right(self) -> bool:
        """Return whether every output holds what the collective asks for."""
        for rank in range(self.collective.ranks):
            for offset, chunk in self.collective.outputs(rank, self.share):
                if self.read(rank, "o", offset) != sum(self.given[chunk].values()):
                    return False
        return True


def _run_schedule(schedule: Schedule, rng: random.Random, in_place: bool) -> bool:
    memory = Memory(schedule.collective, schedule.chunks_per_rank, rng, in_place)
    for t in schedule.whole().transfers:
        moved = [memory.read(t.src, *t.src_at.shifted(k)) for k in range(t.count)]
        if t.reduce:
            operand = t.operand or t.dst_at
            moved = [v + memory.read(t.dst, *operand.shifted(k)) for k, v in enumerate(moved)]
        for k, value in enumerate(moved):
            memory.write(t.dst, *t.dst_at.shifted(k), value)
    return memory.right()


@pytest.fixture(scope="session")
def run_schedule() -> Callable[[Schedule, random.Random, bool], bool]:
    """Return a function that runs a schedule on random numbers and says if the result is right."""
    return _run_schedule


class Machine:
    """Runs a program's thread blocks in random order, two messages a connection.

    A message is one chunk, as at large sizes, unless the program claims small sizes alone.
    """

    def __init__(self, program: Program, memory: Memory, rng: random.Random) -> None:
        self.memory, self.rng = memory, rng
        steps = [s for gpu in program.gpus for tb in gpu.threadblocks for s in tb.steps]
        self.room = 2 * (max(s.count for s in steps) if program.max_bytes else 1)
        self.blocks = [(gpu.id, tb) for gpu in program.gpus for tb in gpu.threadblocks]
        self.at = {(gpu, tb.id): 0 for gpu, tb in self.blocks}
        self.done_chunks = dict.fromkeys(self.at, 0)
        self.fifo: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)

    def run(self) -> bool:
        """Return whether all thread blocks came to their end."""
        waiting = list(range(len(self.blocks)))
        while waiting:
            self.rng.shuffle(waiting)
            moved = [n for n in waiting if self.turn(n)]
            waiting = [n for n in waiting if self.at[self.key(n)] < len(self.blocks[n][1].steps)]
            if not moved and waiting:
                return False
        return True

    def key(self, number: int) -> tuple[int, int]:
        gpu, tb = self.blocks[number]
        return gpu, tb.id

    def turn(self, number: int) -> bool:
        """Do one chunk of the block's step if it can be done."""
        gpu, tb = self.blocks[number]
        key = (gpu, tb.id)
        if self.at[key] >= len(tb.steps):
            return False
        step = tb.steps[self.at[key]]
        if step.dep_tb >= 0 and self.at[gpu, step.dep_tb] <= step.dep_step:
            return False
        if step.op != "nop":
            into = self.fifo[tb.recv_peer, gpu, tb.channel]
            out = self.fifo[gpu, tb.send_peer, tb.channel]
            receives = step.op in ("r", "rcs", "rrs", "rrc", "rrcs")
            sends = step.op in ("s", "rcs", "rrs", "rrcs")
            if (receives and not into) or (sends and len(out) >= self.room):
                return False
            value = self.work(gpu, step, into.popleft() if receives else 0, self.done_chunks[key])
            if sends:
                out.append(value)
            self.done_chunks[key] += 1
        if step.op == "nop" or self.done_chunks[key] == step.count:
            self.at[key] += 1
            self.done_chunks[key] = 0
        return True

    def work(self, gpu: int, step: Step, received: int, chunk: int) -> int:
        """Return what the step sends on (or has computed) for its chunk number `chunk`."""
        value = received
        if step.op in ("s", "cpy", "rrs", "rrc", "rrcs", "re"):
            value += self.memory.read(gpu, step.src_buffer, step.src_offset + chunk)
        if step.op == "re":
            value += self.memory.read(gpu, step.dst_buffer, step.dst_offset + chunk)
        if step.op in ("r", "rcs", "rrc", "rrcs", "cpy", "re"):
            self.memory.write(gpu, step.dst_buffer, step.dst_offset + chunk, value)
        return value


def _run_program(
    program: Program, collective: Collective, rng: random.Random, in_place: bool
) -> bool:
    memory = Memory(collective, program.nchunks // collective.ranks, rng, in_place)
    return Machine(program, memory, rng).run() and memory.right()


@pytest.fixture(scope="session")
def run_program() -> Callable[[Program, Collective, random.Random, bool], bool]:
    """Return a function that runs a program in a random order and says if the result is right."""
    return _run_program
