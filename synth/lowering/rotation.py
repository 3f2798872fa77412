"""Programs of schedules that repeat round the circle of ranks: a part is lowered, then turned."""

from __future__ import annotations

from dataclasses import replace

from tuccl._native import Gpu, Step, ThreadBlock
from tuccl.synth.model.schedule import Schedule

__all__ = ["period", "turned_gpus"]


def period(schedule: Schedule) -> Schedule:
    """Return `schedule` with those transfers alone that touch its first `rotation` ranks.

    Lowered, it has the right thread blocks for these ranks, and only for them.
    """
    near = schedule.hints.rotation
    kept = tuple(t for t in schedule.transfers if t.src < near or t.dst < near)
    return replace(schedule, transfers=kept)


def turned_gpus(schedule: Schedule, first: list[Gpu]) -> list[Gpu] | None:
    """Return all ranks' GPUs from those of the first `rotation` ranks; None where a run would wrap."""
    whole, share = schedule.nchunks, schedule.chunks_per_rank
    try:
        return [
            _Turn(schedule.collective.ranks, by, by * share, whole).gpu(gpu)
            for by in range(0, schedule.collective.ranks, schedule.hints.rotation)
            for gpu in first
        ]
    except ValueError:
        return None


class _Turn:
    """One turn: ranks by `ranks_on`, chunks of buffers that hold the whole by `chunks_on`."""

    def __init__(self, ranks: int, ranks_on: int, chunks_on: int, whole: int) -> None:
        self._ranks, self._ranks_on = ranks, ranks_on
        self._chunks_on, self._whole = chunks_on, whole

    def gpu(self, gpu: Gpu) -> Gpu:
        turning = {
            name
            for name, chunks in (("i", gpu.input_chunks), ("o", gpu.output_chunks))
            if chunks == self._whole
        }
        blocks = [
            ThreadBlock(
                block.id,
                self.rank(block.send_peer),
                self.rank(block.recv_peer),
                block.channel,
                [self.step(step, turning) for step in block.steps],
            )
            for block in gpu.threadblocks
        ]
        sizes = gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks
        return Gpu(self.rank(gpu.id), *sizes, blocks)

    def rank(self, rank: int) -> int:
        return rank if rank < 0 else (rank + self._ranks_on) % self._ranks

    def step(self, step: Step, turning: set[str]) -> Step:
        return Step(
            step.op,
            step.src_buffer,
            self.offset(step.src_offset, step.count, step.src_buffer in turning),
            step.dst_buffer,
            self.offset(step.dst_offset, step.count, step.dst_buffer in turning),
            step.count,
            step.dep_tb,
            step.dep_step,
            step.has_dep,
        )

    def offset(self, offset: int, count: int, turns: bool) -> int:
        if offset < 0 or not turns:
            return offset
        turned = (offset + self._chunks_on) % self._whole
        if turned + count > self._whole:
            raise ValueError("a run of chunks would begin at the end and go on at the start")
        return turned
