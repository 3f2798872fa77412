"""Programs of schedules that a rotation of ranks leaves the same: a part is lowered and rotated."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from operator import eq

from tuccl.errors import Infeasible
from tuccl.planners import chunk_counts
from tuccl.program import Gpu, Step, ThreadBlock
from tuccl.synth.model.schedule import Address, Schedule, Transfer

_Message = tuple[Address, Address, int, bool, Address | None]


class Wrapped(Infeasible):
    """A run of chunks goes past the end of a buffer once it is rotated."""


def rotation_of(schedule: Schedule) -> int:
    """Return the least rotation of ranks that leaves `schedule` as it is, 0 if none does.

    Each connection has to carry the image of what its own image backwards carries, in that order.
    """
    ranks = schedule.collective.ranks
    messages: dict[tuple[int, int, int], list[_Message]] = defaultdict(list)
    for t in schedule.transfers:
        message = t.src_at, t.dst_at, t.count, t.reduce, t.operand
        messages[t.channel, t.src, t.dst].append(message)
    for by in (by for by in range(1, ranks // 2 + 1) if ranks % by == 0):
        images = {
            connection: (connection[0], (connection[1] + by) % ranks, (connection[2] + by) % ranks)
            for connection in messages
        }
        if not messages.keys() >= set(images.values()):
            continue
        image = _Rotation(schedule, by).message
        if all(
            len(messages[to]) == len(own) and all(map(eq, map(image, own), messages[to]))
            for own, to in ((own, images[connection]) for connection, own in messages.items())
        ):
            return by
    return 0


def rotated_connection(
    connection: tuple[int, int, int], near: int, ranks: int
) -> tuple[int, int, int]:
    """Return the image of a connection whose sender is one of the first `near` ranks.

    >>> rotated_connection((0, 9, 2), 4, 12)
    (0, 1, 6)
    """
    channel, src, dst = connection
    return channel, src % near, (dst - src + src % near) % ranks


def period(schedule: Schedule) -> Schedule:
    """Return `schedule` with those transfers alone that touch its first `rotation` ranks.

    Lowered, it has the right thread blocks for these ranks, and only for them.
    """
    near = schedule.hints.rotation
    transfers = tuple(t for t in schedule.transfers if t.src < near or t.dst < near)
    return replace(schedule, transfers=transfers)


def alike_channels(schedule: Schedule) -> Schedule:
    """Return `schedule`, a period, with what comes from other ranks on the channel of its image.

    That is what one of the first ranks sends; so all ranks send and receive by the same channels.
    """
    near = schedule.hints.rotation
    channel_of: dict[tuple[int, int, Address, Address], int] = {}
    rotations = [_Rotation(schedule, by) for by in range(0, schedule.collective.ranks, near)]

    def image(transfer: Transfer) -> tuple[int, int, Address, Address]:
        back = rotations[-(transfer.src // near) % len(rotations)]
        src, dst = back.rank(transfer.src), back.rank(transfer.dst)
        return src, dst, back.address(transfer.src_at), back.address(transfer.dst_at)

    for transfer in schedule.transfers:
        if transfer.src < near:
            channel_of[image(transfer)] = transfer.channel
    transfers = (
        t if t.src < near else replace(t, channel=channel_of.get(image(t), t.channel))
        for t in schedule.transfers
    )
    return replace(schedule, transfers=tuple(transfers))


def rotated_gpus(schedule: Schedule, first: list[Gpu]) -> list[Gpu]:
    """Return the ranks' GPUs from those of the first `rotation` ranks.

    Raises:
        Wrapped: a run of chunks would begin at the end of a buffer and go on at its start.
    """
    return [
        _Rotation(schedule, by).gpu(gpu)
        for by in range(0, schedule.collective.ranks, schedule.hints.rotation)
        for gpu in first
    ]


class _Rotation:
    """The rotation of a schedule by some ranks, and of the buffers that hold the whole."""

    def __init__(self, schedule: Schedule, by: int) -> None:
        collective = schedule.collective
        self._ranks, self._ranks_on = collective.ranks, by
        self._chunks_on, self._nchunks = by * schedule.chunks_per_rank, schedule.nchunks
        sizes = chunk_counts(collective.name, schedule.nchunks, collective.ranks, 0, 0)
        self._rotating = {
            name for name, chunks in zip("io", sizes, strict=True) if chunks == schedule.nchunks
        }

    def gpu(self, gpu: Gpu) -> Gpu:
        blocks = [
            ThreadBlock(
                block.id,
                self.rank(block.send_peer),
                self.rank(block.recv_peer),
                block.channel,
                [self.step(step) for step in block.steps],
            )
            for block in gpu.threadblocks
        ]
        sizes = gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks
        return Gpu(self.rank(gpu.id), *sizes, blocks)

    def rank(self, rank: int) -> int:
        return rank if rank < 0 else (rank + self._ranks_on) % self._ranks

    def address(self, address: Address) -> Address:
        return address._replace(offset=self.offset(address.offset, 1, address.buffer))

    def message(self, message: _Message) -> _Message:
        src, dst, count, reduce, operand = message
        return (
            self.address(src),
            self.address(dst),
            count,
            reduce,
            operand and self.address(operand),
        )

    def step(self, step: Step) -> Step:
        return Step(
            step.op,
            step.src_buffer,
            self.offset(step.src_offset, step.count, step.src_buffer),
            step.dst_buffer,
            self.offset(step.dst_offset, step.count, step.dst_buffer),
            step.count,
            step.dep_tb,
            step.dep_step,
            step.has_dep,
        )

    def offset(self, offset: int, count: int, buffer: str) -> int:
        if offset < 0 or buffer not in self._rotating:
            return offset
        rotated = (offset + self._chunks_on) % self._nchunks
        if rotated + count > self._nchunks:
            raise Wrapped("a run of chunks would begin at the end and go on at the start")
        return rotated
