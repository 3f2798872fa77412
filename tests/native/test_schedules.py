"""The verifier against programs actually run, transfer by transfer, in random orders.

What it accepts must come out right in every order; what it calls a deadlock must get stuck; where
it sees a race, the step it calls second must be able to run while the first is held back.
"""

from __future__ import annotations

import random
import re
from collections import Counter, deque
from types import ModuleType
from typing import Any

import pytest

from tuccl.planners import chunk_counts
from tuccl.program import Gpu, Program, Step, ThreadBlock, verify

Chunk = Counter[tuple[int, int]]  # how often each (rank, input chunk) is in it
Place = tuple[int, int, int, int]  # gpu, tb, step, chunk of it
_FIELDS = (
    *("op", "src_buffer", "src_offset", "dst_buffer", "dst_offset", "count"),
    *("dep_tb", "dep_step", "has_dep"),
)
_SENDS = {"s", "rcs", "rrs", "rrcs"}
_RECEIVES = {"r", "rcs", "rrs", "rrc", "rrcs"}
_SHIFTED = {"allgather": "i", "gather": "i", "reduce-scatter": "o", "scatter": "o"}


class Machine:
    """Runs a program one transfer of one step at a time."""

    def __init__(
        self, program: Program, in_place: bool, depth: int | None = None, merged: int = 1
    ) -> None:
        """Lay out the buffers.

        `depth` transfers fit a connection, None for any number; one holds `merged` chunks.
        """
        self.program, self.in_place, self.depth = program, in_place, depth
        self.merged = merged
        self.memory: dict[tuple[int, str, int], Chunk] = {}
        self.wires: dict[tuple[int, int, int], deque[list[Chunk]]] = {}
        self.at: dict[tuple[int, int], tuple[int, int]] = {}  # step and chunk each block is at
        for gpu in program.gpus:
            inputs, _ = self.counts(gpu.id)
            for j in range(inputs):
                self.memory[self.where(gpu.id, "i", j)] = Counter({(gpu.id, j): 1})
            for tb in gpu.threadblocks:
                self.at[gpu.id, tb.id] = (0, 0)

    def counts(self, rank: int) -> tuple[int, int]:
        p = self.program
        return chunk_counts(p.collective, p.nchunks, p.ngpus, rank, 0)

    def where(self, rank: int, buffer: str, offset: int) -> tuple[int, str, int]:
        """Return the one name of a chunk of memory, however the buffers alias."""
        p = self.program
        if buffer == "s" or not self.in_place:
            return rank, buffer, offset
        rooted = p.collective in {"gather", "scatter"}
        if rooted and rank != 0:
            return rank, buffer, offset
        shifted = _SHIFTED.get(p.collective) == buffer
        return rank, "user", offset + (rank * p.nchunks // p.ngpus if shifted else 0)

    def ready(self, held: Place | None = None) -> list[tuple[int, int]]:
        """Return the thread blocks whose next chunk can go."""
        out = []
        for (gpu, tb), (s, part) in self.at.items():
            steps = self.program.gpus[gpu].threadblocks[tb].steps
            if s < len(steps) and (gpu, tb, s, part) != held and self.free(gpu, tb):
                out.append((gpu, tb))
        return out

    def free(self, gpu: int, tb: int) -> bool:
        s, part = self.at[gpu, tb]
        block = self.program.gpus[gpu].threadblocks[tb]
        step = block.steps[s]
        if part == 0 and step.dep_tb >= 0 and self.at[gpu, step.dep_tb][0] <= step.dep_step:
            return False
        if step.op in _RECEIVES and not self.wire(block.recv_peer, gpu, block.channel):
            return False
        full = self.depth is not None and step.op in _SENDS
        return not full or len(self.wire(gpu, block.send_peer, block.channel)) < (self.depth or 0)

    def wire(self, src: int, dst: int, channel: int) -> deque[list[Chunk]]:
        return self.wires.setdefault((src, dst, channel), deque())

    def advance(self, gpu: int, tb: int) -> None:
        """Run the next transfer of a thread block."""
        s, part = self.at[gpu, tb]
        block = self.program.gpus[gpu].threadblocks[tb]
        step = block.steps[s]
        end = min(part + self.merged, step.count)
        got: list[Chunk] = []
        if step.op in _RECEIVES:
            got = self.wire(block.recv_peer, gpu, block.channel).popleft()
        if step.op != "nop":
            moved = [
                self.move(gpu, step, j, got[j - part] if got else Counter())
                for j in range(part, end)
            ]
            if step.op in _SENDS:
                self.wire(gpu, block.send_peer, block.channel).append(moved)
        self.at[gpu, tb] = (s + 1, 0) if end >= step.count else (s, end)

    def move(self, gpu: int, step: Step, part: int, value: Chunk) -> Chunk:
        """Return chunk `part` of a step as it is sent, having stored what it stores."""
        source = self.where(gpu, step.src_buffer, step.src_offset + part)
        target = self.where(gpu, step.dst_buffer, step.dst_offset + part)
        value = value.copy()
        if step.op in {"s", "rrs", "rrc", "rrcs", "cpy", "re"}:
            value += self.memory.get(source, Counter({(-1, -1): 1}))
        if step.op == "re":
            value += self.memory.get(target, Counter({(-1, -1): 1}))
        if step.op not in {"s", "rrs"}:
            self.memory[target] = value
        return value

    def run(self, rng: random.Random, held: Place | None = None) -> bool:
        """Run blocks in a random order, in bursts; return whether all got through."""
        while blocks := self.ready(held):
            gpu, tb = rng.choice(blocks)
            for _ in range(rng.choice((1, 1, 2, 8, 64))):
                self.advance(gpu, tb)
                if (gpu, tb) not in self.ready(held):
                    break
        return all(
            s == len(self.program.gpus[gpu].threadblocks[tb].steps)
            for (gpu, tb), (s, _) in self.at.items()
        )

    def right(self) -> bool:
        """Return whether every output chunk holds what the collective demands."""
        return all(
            self.memory.get(self.where(rank, "o", j)) == self.wanted(rank, j)
            for rank in range(self.program.ngpus)
            for j in range(self.counts(rank)[1])
        )

    def wanted(self, rank: int, j: int) -> Chunk:
        p = self.program
        share = p.nchunks // p.ngpus
        if p.collective in {"allreduce", "reduce"}:
            return Counter((r, j) for r in range(p.ngpus))
        if p.collective == "reduce-scatter":
            return Counter((r, rank * share + j) for r in range(p.ngpus))
        if p.collective in {"allgather", "gather"}:
            return Counter([(j // share, j % share)])
        if p.collective == "alltoall":
            return Counter([(j // share, rank * share + j % share)])
        return Counter([(0, j if p.collective == "broadcast" else rank * share + j)])


def touched(program: Program, rng: random.Random) -> Program:
    """Return the program with one small change that may or may not make it wrong."""
    gpus = [[list(tb.steps) for tb in gpu.threadblocks] for gpu in program.gpus]
    steps = rng.choice([block for gpu in gpus for block in gpu if block])
    at = rng.randrange(len(steps))
    kind = rng.randrange(5)
    if kind == 4:  # everywhere alike, so that everybody may wait for everybody
        for alike in (block for gpu in gpus for block in gpu[: rng.choice((1, 9))]):
            alike[:2] = reversed(alike[:2])
    elif kind == 0 and len(steps) > 1:
        at = rng.randrange(len(steps) - 1)
        steps[at], steps[at + 1] = steps[at + 1], steps[at]
    elif kind == 1:
        steps[at] = altered(steps[at], dep_tb=-1, dep_step=-1)
    elif kind == 2:
        steps[at] = altered(
            steps[at], dst_offset=max(0, steps[at].dst_offset + rng.choice((-1, 1)))
        )
    else:
        steps[at] = altered(steps[at], src_buffer=rng.choice("ios"))
    return Program(
        program.name, program.collective, program.protocol, program.nchannels, program.nchunks,
        [
            Gpu(g.id, g.input_chunks, g.output_chunks, g.scratch_chunks, [
                ThreadBlock(tb.id, tb.send_peer, tb.recv_peer, tb.channel, steps)
                for tb, steps in zip(g.threadblocks, blocks, strict=True)
            ])
            for g, blocks in zip(program.gpus, gpus, strict=True)
        ],
        in_place=program.in_place,
    )  # fmt: skip


def altered(step: Step, **fields: object) -> Step:
    """Return the step with some fields replaced."""
    values: dict[str, Any] = {name: getattr(step, name) for name in _FIELDS} | fields
    return Step(**values)


def subjects(handmade: ModuleType) -> list[Program]:
    echoes = [
        handmade.echo(shift, fused)
        for shift, fused in ((0, True), (1, False), (1, True), (2, True))
    ]
    return [*handmade.everything(3), *handmade.everything(4), *echoes]


def forms(program: Program) -> list[bool]:
    return [False, True] if program.in_place else [False]


DEPTH = {"Simple": 2, "LL": 8, "LL128": 8}


@pytest.mark.parametrize("seed", range(4))
def test_accepted_programs_come_out_right_in_every_order(handmade: ModuleType, seed: int) -> None:
    rng = random.Random(seed)
    accepted = 0
    for program in subjects(handmade):
        for candidate in [program, *(touched(program, rng) for _ in range(12))]:
            report = verify(candidate)
            if not report.ok:
                continue
            accepted += 1
            for in_place in forms(candidate):
                depth = DEPTH[candidate.protocol]
                for slots, merged in ((depth, 71), (depth, 1), (None, 1), (None, 1)):
                    machine = Machine(candidate, in_place, slots, merged)
                    assert machine.run(rng), candidate.name
                    assert machine.right(), candidate.name
    assert accepted >= len(subjects(handmade))


@pytest.mark.parametrize("seed", range(4))
def test_refusals_are_true(handmade: ModuleType, seed: int) -> None:
    rng = random.Random(seed)
    told: Counter[str] = Counter()
    for program in subjects(handmade):
        for candidate in (touched(program, rng) for _ in range(30)):
            codes = {e.code for e in verify(candidate).errors}
            if codes <= {"race"}:
                told.update(codes)
                races_are_true(candidate, rng)
            if codes == {"deadlock"}:
                told.update(codes)
                machine = Machine(candidate, False, DEPTH[candidate.protocol], 71)
                assert not machine.run(rng), candidate.name
            if codes and codes <= {"wrong-result", "missing-copy"}:
                told.update(codes)
                runs = [Machine(candidate, in_place) for in_place in forms(candidate)]
                assert not all(m.run(rng) and m.right() for m in runs), candidate.name
    assert {"race", "deadlock", "wrong-result"} <= set(told)


def races_are_true(program: Program, rng: random.Random) -> None:
    """Hold back a chunk of the step that a race names first: the second must still get to run."""
    for error in verify(program).errors:
        found = re.search(r"which gpu (\d+) tb (\d+) step (\d+) ", error.message)
        assert found is not None
        gpu, tb, step = (int(number) for number in found.groups())
        count = program.gpus[gpu].threadblocks[tb].steps[step].count
        overtakes = False
        for part in range(count):
            machine = Machine(program, "(in place)" in error.message)
            machine.run(rng, (gpu, tb, step, part))
            overtakes |= machine.at[error.gpu, error.tb] > (error.step, 0)
        assert overtakes, error.message
