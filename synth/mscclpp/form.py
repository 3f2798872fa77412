"""One form of a plan of a program's tasks: its thread blocks, channels and buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tuccl.errors import Infeasible
from tuccl.mscclpp import (
    Channel,
    Gpu,
    IterContext,
    Operation,
    RemoteBuffer,
    RemoteBufferRefs,
    Semaphore,
    ThreadBlock,
    ThreadBlockChannels,
    ThreadBlockGroup,
)
from tuccl.program import Program
from tuccl.synth.mscclpp.block_writer import BlockWriter
from tuccl.synth.mscclpp.knobs import PlanKnobs
from tuccl.synth.mscclpp.layout import Layout, Part, Slots
from tuccl.synth.mscclpp.packets import packet_places, write_packets
from tuccl.synth.mscclpp.simple import simple_places, write_simple
from tuccl.synth.mscclpp.tasks import Task, output_place

_MOST_OPERATIONS = 64  # of a thread block
_MOST_BLOCKS = 108  # that are surely there at once: an A100's multiprocessors
_PACKET_CHUNKS = 8  # of which as many chunks of any bytes, doubled twice, fill pairs of 16 bytes


class Ways(NamedTuple):
    """Means by which a plan is safe, and how it saves.

    Attributes:
        lands_in_place: Messages land where they are stored, not in scratch.
        ready: A sender waits until its receiver has begun.
        flushes: A sender ends when the proxies have read all that they put.
        fuses: Tasks of several thread blocks become one where that saves a wait.
        pulls: Sums read other ranks' input, which is not put.
    """

    lands_in_place: bool
    ready: bool
    flushes: bool
    fuses: bool
    pulls: bool


@dataclass(frozen=True)
class Form:
    """One form of a plan of a program: knobs, placement and where messages land."""

    program: Program
    ranks_per_host: int
    in_place: bool
    knobs: PlanKnobs
    ways: Ways

    def gpus(self, tasks: list[list[list[Task]]]) -> tuple[Gpu, ...]:
        """Return the ranks of the plan, their thread blocks cut to 64 operations.

        Raises:
            Infeasible: a rank needs more thread blocks than run at once.
        """
        cuts: dict[tuple[int, int], int] = {}
        while True:
            layout = Layout(tasks, cuts, self.ranks_per_host)
            writers, scratch = self.written(layout)
            longer = dict(cuts)
            for parts, of_rank in zip(layout.parts, writers, strict=True):
                for part, writer in zip(parts, of_rank, strict=True):
                    count = sum(1 + len(op.ops) for op in writer.ops)
                    key = layout.origin[part]
                    if count > _MOST_OPERATIONS or writer.too_wide:
                        before = cuts.get(key, 1)
                        longer[key] = max(longer.get(key, 1), before + 1)
            blocks = max(sum(bool(writer.ops) for writer in of_rank) for of_rank in writers)
            if blocks * self.knobs.group_size > _MOST_BLOCKS:
                raise Infeasible(
                    f"{self.program.name}: more than {_MOST_BLOCKS} thread blocks of "
                    f"{_MOST_OPERATIONS} operations; use fewer chunks, instances or blocks a group"
                )
            if longer == cuts:
                return tuple(
                    self.gpu(layout, rank, writers[rank], scratch[rank])
                    for rank in range(self.program.ngpus)
                )
            cuts = longer

    def written(self, layout: Layout) -> tuple[list[list[BlockWriter]], list[int]]:
        """Return the operations of each part of each rank, and the chunks of scratch of each."""
        scratch = [Slots(gpu.scratch_chunks) for gpu in self.program.gpus]
        write: Callable[[Part, Task, BlockWriter], None]
        if self.knobs.packets:
            packets = packet_places(layout, scratch)
            write = partial(write_packets, layout=layout, places=packets)
        else:
            simple = simple_places(
                layout, scratch, in_place=self.ways.lands_in_place, slots=self.knobs.slots
            )
            write = partial(write_simple, layout=layout, places=simple)
        writers = [[self.block(layout, part, write) for part in parts] for parts in layout.parts]
        chunks = [each.chunks for each in scratch]
        if self.knobs.packets:
            # A rank finds the second half of another's scratch where its own begins. That must be
            # at a whole packet, whatever the allocation's size, by which the loader reckons.
            most = -(-max(chunks) // _PACKET_CHUNKS) * _PACKET_CHUNKS
            chunks = [most] * len(chunks)
        return writers, chunks

    def block(
        self, layout: Layout, part: Part, write: Callable[[Part, Task, BlockWriter], None]
    ) -> BlockWriter:
        """Return the operations of one part."""
        program, in_place = self.program, self.in_place
        writer = BlockWriter(lambda at: output_place(program, part.rank, at) if in_place else at)
        incoming = layout.incoming(part, pulled=False)
        outgoing = layout.outgoing(part, pulled=False)
        sources = layout.incoming(part, pulled=True)
        readers = layout.outgoing(part, pulled=True)
        if self.ways.ready:
            signals = [(link.kind, link.receiving) for link in incoming]
            signals += [(link.kind, link.sending) for link in readers]
            waits = [(link.kind, link.sending) for link in outgoing]
            waits += [(link.kind, link.receiving) for link in sources]
            writer.signal(signals, relaxed=True)
            writer.wait(waits, relaxed=True)
        start = len(writer.ops)
        if self.knobs.unit_bytes and writer.waits:
            writer.nop()
            start = len(writer.ops)
        for number, task in enumerate(part.tasks):
            writer.acquire(part.acquires[number])
            writer.due = part.releases[number]
            write(part, task, writer)
            writer.release()
        if self.knobs.unit_bytes and len(writer.ops) > start:
            writer.loop(start, IterContext(self.knobs.unit_bytes, part.tasks[0].count))
        ports = [link.sending for link in outgoing if link.kind == "port"]
        # What others read must stay until they have read it.
        if sources:
            writer.signal([(link.kind, link.receiving) for link in sources])
        writer.wait([(link.kind, link.sending) for link in readers])
        if self.ways.flushes:
            writer.flush(ports)
        return writer

    def gpu(self, layout: Layout, rank: int, writers: list[BlockWriter], scratch: int) -> Gpu:
        """Return one rank of the plan."""
        program, size = self.program, self.knobs.group_size
        shares = {"allgather": (program.ngpus, 1), "reduce-scatter": (1, program.ngpus)}
        inputs, outputs = shares.get(program.collective, (1, 1))
        remote = dict.fromkeys(
            (kind, *at)
            for writer in writers
            for kind, some in writer.buffers.items()
            for at in some
        )
        number = {each: k for k, each in enumerate(remote)}
        peers = layout.peers[rank]
        semaphores = layout.semaphores[rank]
        blocks: list[ThreadBlock] = []
        for writer in [writer for writer in writers if writer.ops] or writers[:1]:
            buffers = tuple(
                RemoteBufferRefs(kind, tuple(number[(kind, *at)] for at in some))
                for kind, some in writer.buffers.items()
                if some
            )
            # Blocks of a group share nothing but the operations' bytes: each has channels and
            # semaphores of its own, behind all those of the blocks before it.
            for part in range(size):
                channels = tuple(
                    ThreadBlockChannels(kind, tuple(k + part * len(peers[kind]) for k in ids))
                    for kind, ids in writer.channels.items()
                    if ids
                )
                ops = tuple(_part(op, part, size, semaphores) for op in writer.ops)
                ops = ops or (Operation("nop"),)
                blocks.append(ThreadBlock(len(blocks), ops, channels, buffers))
        return Gpu(
            rank,
            program.nchunks // inputs,
            program.nchunks // outputs,
            scratch,
            tuple(Channel(kind, tuple(some) * size) for kind, some in peers.items() if some),
            tuple(RemoteBuffer(peer, buffer, (kind,)) for kind, peer, buffer in remote),
            tuple(blocks),
            (Semaphore(0),) * (semaphores * size),
        )


def _part(op: Operation, part: int, size: int, semaphores: int) -> Operation:
    """Return what block `part` of a group of `size` does of an operation."""
    if size == 1:
        return op
    group = ThreadBlockGroup(part, size) if op.src_buff else op.tbg_info
    ids = tuple(k + part * semaphores for k in op.semaphore_ids)
    return op.replace(tbg_info=group, semaphore_ids=ids)
