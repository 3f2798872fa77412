"""Instances of a finished program: several copies side by side, each with a part of every chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tuccl._native import Gpu, Program, Step, ThreadBlock, chunk_counts
from tuccl.errors import InputError

__all__ = ["replicate"]


def replicate(program: Program, instances: int) -> Program:
    """Return a program that runs `instances` copies of `program`, each on channels of its own.

    Every chunk is cut in `instances` parts and copy j moves part j. Within a rank's share of a
    buffer the parts of one copy lie side by side, so runs within a share stay runs; if the program
    has runs over several shares, all its runs are cut into single chunks.

    Raises:
        InputError: `instances` is less than 1.
    """
    if instances < 1:
        raise InputError(f"{instances} instances: expected at least 1")
    if instances == 1:
        return program
    layout = _Layout.of(program, instances)
    gpus = [_replicated(gpu, layout, program.nchannels) for gpu in program.gpus]
    return Program(
        program.name,
        program.collective,
        program.protocol,
        program.nchannels * instances,
        program.nchunks * instances,
        gpus,
        in_place=program.in_place,
        out_of_place=program.out_of_place,
        min_bytes=program.min_bytes,
        max_bytes=program.max_bytes,
        nthreads=program.nthreads,
    )


@dataclass(frozen=True)
class _Layout:
    """Where chunk `offset` of a buffer has its part of each copy.

    `share` is the run of chunks whose parts stay together: a rank's share of the whole buffer
    where the collective has such shares, else the whole buffer.
    """

    share: int
    instances: int
    singles: bool

    @classmethod
    def of(cls, program: Program, instances: int) -> _Layout:
        inputs, outputs = chunk_counts(program.collective, program.nchunks, program.ngpus, 0, 0)
        shared = inputs != outputs or program.collective == "alltoall"
        share = max(1, program.nchunks // program.ngpus) if shared else program.nchunks
        whole = cls(share, instances, singles=False)
        crossing = any(
            whole.crosses(buffer, offset, step.count)
            for gpu in program.gpus
            for tb in gpu.threadblocks
            for step in tb.steps
            for buffer, offset in _ends(step)
        )
        return cls(share, instances, singles=crossing)

    def crosses(self, buffer: str, offset: int, count: int) -> bool:
        """Return whether a run of chunks spans two shares."""
        return buffer != "s" and offset % self.share + count > self.share

    def at(self, buffer: str, offset: int, copy: int, scratch: int) -> int:
        """Return where the part of `copy` of the chunk at `offset` lies."""
        if offset < 0:
            return offset
        share = scratch if buffer == "s" else self.share
        block, within = divmod(offset, share)
        return block * share * self.instances + copy * share + within


def _ends(step: Step) -> tuple[tuple[str, int], tuple[str, int]]:
    return (step.src_buffer, step.src_offset), (step.dst_buffer, step.dst_offset)


def _replicated(gpu: Gpu, layout: _Layout, nchannels: int) -> Gpu:
    blocks = [list(_parts(tb, layout)) for tb in gpu.threadblocks]
    number = {tb.id: i for i, tb in enumerate(gpu.threadblocks)}
    # The position of a step's last part, where whoever depends on the step is to wait.
    last = [_last_positions(parts) for parts in blocks]
    copies = [
        ThreadBlock(
            tb.id + copy * len(blocks),
            tb.send_peer,
            tb.recv_peer,
            tb.channel + copy * nchannels,
            [
                _placed(step, part, copy, layout, gpu, len(blocks), number, last)
                for step, part, _ in parts
            ],
        )
        for copy in range(layout.instances)
        for tb, parts in zip(gpu.threadblocks, blocks, strict=True)
    ]
    n = layout.instances
    return Gpu(gpu.id, gpu.input_chunks * n, gpu.output_chunks * n, gpu.scratch_chunks * n, copies)


def _parts(tb: ThreadBlock, layout: _Layout) -> Iterator[tuple[Step, int, bool]]:
    """Yield (step, which part of it or -1 for the whole, whether it is the last one)."""
    for step in tb.steps:
        if not layout.singles or step.count <= 1:
            yield step, -1, True
            continue
        for part in range(step.count):
            yield step, part, part == step.count - 1


def _last_positions(parts: list[tuple[Step, int, bool]]) -> list[int]:
    return [position for position, (_, _, last) in enumerate(parts) if last]


def _placed(
    step: Step,
    part: int,
    copy: int,
    layout: _Layout,
    gpu: Gpu,
    blocks: int,
    number: dict[int, int],
    last: list[list[int]],
) -> Step:
    shift = max(part, 0)
    scratch = max(1, gpu.scratch_chunks)

    def moved(buffer: str, offset: int) -> int:
        return layout.at(buffer, offset + shift if offset >= 0 else offset, copy, scratch)

    waits = step.dep_tb >= 0 and part <= 0
    return Step(
        step.op,
        step.src_buffer,
        moved(step.src_buffer, step.src_offset),
        step.dst_buffer,
        moved(step.dst_buffer, step.dst_offset),
        step.count if part < 0 else 1,
        step.dep_tb + copy * blocks if waits else -1,
        last[number[step.dep_tb]][step.dep_step] if waits else -1,
        step.has_dep and (part < 0 or part == step.count - 1),
    )
