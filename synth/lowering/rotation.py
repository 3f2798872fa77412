"""Programs of schedules that a rotation of ranks leaves the same: a part is lowered and rotated."""

from __future__ import annotations

from dataclasses import replace

from tuccl.program import Gpu, Step, ThreadBlock
from tuccl.synth.model.schedule import Schedule


def period(schedule: Schedule) -> Schedule:
    """Return `schedule` with those transfers alone that touch its first `rotation` ranks.

    Lowered, it has the right thread blocks for these ranks, and only for them.
    """
    near = schedule.hints.rotation
    transfers = tuple(t for t in schedule.transfers if t.src < near or t.dst < near)
    return replace(schedule, transfers=transfers)


def rotated_gpus(schedule: Schedule, first: list[Gpu]) -> list[Gpu] | None:
    """Return the ranks' GPUs from those of the first `rotation` ranks; None if a run would wrap."""
    nchunks, each = schedule.nchunks, schedule.chunks_per_rank
    try:
        return [
            _Rotation(schedule.collective.ranks, by, by * each, nchunks).gpu(gpu)
            for by in range(0, schedule.collective.ranks, schedule.hints.rotation)
            for gpu in first
        ]
    except ValueError:
        return None


class _Rotation:
    """One rotation: ranks by `ranks_on`, chunks of buffers that hold the whole by `chunks_on`."""

    def __init__(self, ranks: int, ranks_on: int, chunks_on: int, nchunks: int) -> None:
        self._ranks, self._ranks_on = ranks, ranks_on
        self._chunks_on, self._nchunks = chunks_on, nchunks

    def gpu(self, gpu: Gpu) -> Gpu:
        rotating = {
            name
            for name, chunks in (("i", gpu.input_chunks), ("o", gpu.output_chunks))
            if chunks == self._nchunks
        }
        blocks = [
            ThreadBlock(
                block.id,
                self.rank(block.send_peer),
                self.rank(block.recv_peer),
                block.channel,
                [self.step(step, rotating) for step in block.steps],
            )
            for block in gpu.threadblocks
        ]
        sizes = gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks
        return Gpu(self.rank(gpu.id), *sizes, blocks)

    def rank(self, rank: int) -> int:
        return rank if rank < 0 else (rank + self._ranks_on) % self._ranks

    def step(self, step: Step, rotating: set[str]) -> Step:
        return Step(
            step.op,
            step.src_buffer,
            self.offset(step.src_offset, step.count, step.src_buffer in rotating),
            step.dst_buffer,
            self.offset(step.dst_offset, step.count, step.dst_buffer in rotating),
            step.count,
            step.dep_tb,
            step.dep_step,
            step.has_dep,
        )

    def offset(self, offset: int, count: int, rotates: bool) -> int:
        if offset < 0 or not rotates:
            return offset
        rotated = (offset + self._chunks_on) % self._nchunks
        if rotated + count > self._nchunks:
            raise ValueError("a run of chunks would begin at the end and go on at the start")
        return rotated
