"""From a program to an execution plan of MSCCL++."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tuccl._native import Program
from tuccl.errors import Infeasible, InputError
from tuccl.mscclpp import (
    Channel,
    ExecutionPlan,
    Gpu,
    IterContext,
    Operation,
    RemoteBuffer,
    RemoteBufferRefs,
    Semaphore,
    ThreadBlock,
    ThreadBlockChannels,
    verify_plan,
)
from tuccl.synth.mscclpp.block_writer import BlockWriter
from tuccl.synth.mscclpp.fuse import fuse_sends, fuse_sums, pull_sums
from tuccl.synth.mscclpp.layout import Layout, Part, Slots
from tuccl.synth.mscclpp.packets import packet_places, write_packets
from tuccl.synth.mscclpp.simple import simple_places, write_simple
from tuccl.synth.mscclpp.tasks import Task, output_place, tasks_of

__all__ = ["PLAN_COLLECTIVES", "lower_to_plan"]

# What plans are for, by the names in their files. A reduce is reached by the executor alone.
PLAN_COLLECTIVES = {
    "allgather": "allgather",
    "allreduce": "allreduce",
    "alltoall": "alltoall",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "reduce-scatter": "reducescatter",
}
ALIGNMENT = 16  # bytes: a thread moves and adds up so many at once
_MOST_OPERATIONS = 64  # of a thread block
_MOST_BLOCKS = 108  # that are surely there at once: an A100's multiprocessors
_PACKET_CHUNKS = 8  # of which as many chunks of any bytes, doubled twice, fill pairs of 16 bytes
_MOST_PIECES = 65535  # of a pipeline
_WORD = 1 << 32  # offsets have 32 bits
_SHARED_SCRATCH = 1 << 26  # bytes of half the scratch that plans share


class _Ways(NamedTuple):
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


# The cheapest first: the proof says which is enough. Where every rank needs every rank, the two
# halves of scratch keep packets apart without more.
_SIMPLE_WAYS = (
    _Ways(True, True, True, fuses=True, pulls=True),
    *(
        _Ways(lands_in_place, True, True, fuses, pulls=False)
        for fuses in (True, False)
        for lands_in_place in (True, False)
    ),
)
_PACKET_WAYS = tuple(
    _Ways(False, ready, flushes, fuses, pulls=False)
    for fuses in (True, False)
    for ready, flushes in ((False, False), (False, True), (True, True))
)


def lower_to_plan(
    program: Program,
    *,
    hosts: int = 1,
    protocol: str = "Simple",
    in_place: bool = False,
    min_bytes: int = 0,
    max_bytes: int = 1 << 30,
    threads: int = 1024,
    unit_bytes: int = 0,
    share_scratch: bool = False,
    root: int = 0,
    name: str | None = None,
) -> ExecutionPlan:
    """Return `program` as an execution plan for one placement, proved.

    Ranks of a host exchange data through memory channels, others through port channels; hosts have
    as many ranks each, one after the other. Under "Simple" messages land where they are stored if
    the proof shows that nobody uses it then, else in scratch, and `unit_bytes` > 0 moves chunks in
    pieces of so many bytes, as MSCCL's slices; "LL" sends packets. `share_scratch` has packets
    use the scratch that all such plans of a process share. Sizes are of the whole array, in bytes;
    the plan's largest size is less than `max_bytes` where offsets or shared scratch end before.

    Raises:
        Infeasible: MSCCL++ cannot run it: the message says what and how to mend it.
        InputError: an argument is out of range.

    Notes:
        MSCCL++ @1f5f065, src/core/executor. A connection becomes a channel of its own for each
        pair of thread blocks that uses it; a receiver signals that it has begun before anything
        is put; a dependency becomes a semaphore; thread blocks beyond 64 operations are cut.
    """
    _check(program, hosts, protocol, in_place, min_bytes, max_bytes, threads, unit_bytes)
    packets = protocol == "LL"
    ranks_per_host = program.ngpus // hosts
    problem = ""
    for ways in _PACKET_WAYS if packets else _SIMPLE_WAYS:
        tasks = tasks_of(program, in_place=in_place, equal_counts=unit_bytes > 0)
        if ways.fuses:
            fuse_sums(tasks, once=packets and program.collective == "allreduce")
            if packets:
                fuse_sends(tasks)
            if ways.pulls:
                pull_sums(tasks, ranks_per_host)
        form = _Form(program, ranks_per_host, packets, in_place, unit_bytes, ways)
        gpus = form.gpus(tasks)
        scratch = max(gpu.scratch_chunks for gpu in gpus)
        share = packets and share_scratch
        most = _most_bytes(program, scratch, packets, share, max_bytes)
        if unit_bytes:
            count = max(task.count for blocks in tasks for block in blocks for task in block)
            loop = _MOST_PIECES * unit_bytes // count * program.nchunks
            most = min(most, loop // _step(program) * _step(program))
        if most < max(min_bytes, _step(program)):
            raise Infeasible(
                f"{program.name}: {scratch} chunks of scratch leave sizes up to {most} bytes; use "
                "fewer chunks or ranks, or a smaller size"
            )
        plan = ExecutionPlan(
            name or f"{program.name}-{protocol}-{'in' if in_place else 'out'}",
            PLAN_COLLECTIVES[program.collective],
            protocol,
            in_place,
            gpus,
            reuse_resources=share,
            use_double_scratch_buffer=packets,
            buffer_alignment=ALIGNMENT,
            num_threads_per_block=threads,
            min_message_size=min_bytes,
            max_message_size=most,
        )
        report = verify_plan(plan, root=root)
        if report.ok:
            return plan
        problem = report.errors[0].message
    raise Infeasible(f"{program.name}: no plan of MSCCL++: {problem}")


def _check(
    program: Program,
    hosts: int,
    protocol: str,
    in_place: bool,
    min_bytes: int,
    max_bytes: int,
    threads: int,
    unit_bytes: int,
) -> None:
    if program.collective not in PLAN_COLLECTIVES:
        names = ", ".join(PLAN_COLLECTIVES)
        raise Infeasible(f"{program.collective}: MSCCL++ has no plans of it, only of {names}")
    if in_place and program.collective == "reduce-scatter":
        raise Infeasible(
            "reduce-scatter in place: MSCCL++ takes it for in place on rank 0 alone, so ranks "
            "would choose different plans; call it out of place"
        )
    if not (program.in_place if in_place else program.out_of_place):
        where = "in place" if in_place else "out of place"
        raise Infeasible(f"{program.name}: the program is not right {where}")
    if protocol not in ("Simple", "LL"):
        raise InputError(f"protocol {protocol[:20]!r}: MSCCL++ has Simple and LL")
    if hosts < 1 or program.ngpus % hosts:
        raise InputError(f"{hosts} hosts: expected a number that divides {program.ngpus} ranks")
    if not 0 <= min_bytes < 1 << 31 or max_bytes < max(1, min_bytes):
        raise InputError(f"sizes {min_bytes} to {max_bytes}: expected a range from below 2 GiB on")
    if not 32 <= threads <= 1024 or threads % 32:
        raise InputError(f"{threads} threads: expected a multiple of 32 up to 1024")
    if unit_bytes < 0 or unit_bytes % ALIGNMENT:
        raise InputError(f"pieces of {unit_bytes} bytes: expected a multiple of {ALIGNMENT}")
    if unit_bytes and protocol == "LL":
        raise InputError("packets move whole chunks: leave unit_bytes, or use protocol Simple")


def _step(program: Program) -> int:
    """Return the bytes of which every size is a multiple."""
    return program.nchunks * ALIGNMENT


def _most_bytes(program: Program, scratch: int, packets: bool, share: bool, max_bytes: int) -> int:
    """Return the largest size up to `max_bytes` whose offsets and scratch the loader can have."""
    chunk = _WORD - 1 if not scratch else _WORD // (scratch * (4 if packets else 1))
    if share and scratch:
        chunk = min(chunk, _SHARED_SCRATCH // (2 * scratch))
    inputs = program.nchunks
    if program.collective == "allgather":  # the loader takes the limit for the send buffer's
        inputs = inputs // program.ngpus if not share else inputs
    most = min(max_bytes, _WORD - 1, chunk * inputs)
    return most // _step(program) * _step(program)


@dataclass(frozen=True)
class _Form:
    """One way to make a plan of a program: protocol, placement and where messages land."""

    program: Program
    ranks_per_host: int
    packets: bool
    in_place: bool
    unit_bytes: int
    ways: _Ways

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
            if longer == cuts:
                return tuple(
                    self.gpu(layout, rank, writers[rank], scratch[rank])
                    for rank in range(self.program.ngpus)
                )
            cuts = longer
            if max(len(parts) for parts in layout.parts) > _MOST_BLOCKS:
                raise Infeasible(
                    f"{self.program.name}: more than {_MOST_BLOCKS} thread blocks of "
                    f"{_MOST_OPERATIONS} operations; use fewer chunks or instances"
                )

    def written(self, layout: Layout) -> tuple[list[list[BlockWriter]], list[int]]:
        """Return the operations of each part of each rank, and the chunks of scratch of each."""
        scratch = [Slots(gpu.scratch_chunks) for gpu in self.program.gpus]
        write: Callable[[Part, Task, BlockWriter], None]
        if self.packets:
            packets = packet_places(layout, scratch)
            write = partial(write_packets, layout=layout, places=packets)
        else:
            simple = simple_places(layout, scratch, in_place=self.ways.lands_in_place)
            write = partial(write_simple, layout=layout, places=simple)
        writers = [[self.block(layout, part, write) for part in parts] for parts in layout.parts]
        chunks = [each.chunks for each in scratch]
        if self.packets:
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
        if self.unit_bytes and writer.waits:
            writer.nop()
            start = len(writer.ops)
        for number, task in enumerate(part.tasks):
            writer.acquire(part.acquires[number])
            write(part, task, writer)
            writer.release(part.releases[number])
        if self.unit_bytes and len(writer.ops) > start:
            writer.loop(start, IterContext(self.unit_bytes, part.tasks[0].count))
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
        program = self.program
        shares = {"allgather": (program.ngpus, 1), "reduce-scatter": (1, program.ngpus)}
        inputs, outputs = shares.get(program.collective, (1, 1))
        peers = {kind: tuple(some) for kind, some in layout.peers[rank].items() if some}
        remote = dict.fromkeys(
            (kind, *at)
            for writer in writers
            for kind, some in writer.buffers.items()
            for at in some
        )
        number = {each: k for k, each in enumerate(remote)}
        blocks: list[ThreadBlock] = []
        for writer in [writer for writer in writers if writer.ops] or writers[:1]:
            channels = tuple(
                ThreadBlockChannels(kind, tuple(ids))  # type: ignore[arg-type]
                for kind, ids in writer.channels.items()
                if ids
            )
            buffers = tuple(
                RemoteBufferRefs(kind, tuple(number[(kind, *at)] for at in some))  # type: ignore[arg-type]
                for kind, some in writer.buffers.items()
                if some
            )
            ops = tuple(writer.ops) or (Operation("nop"),)
            blocks.append(ThreadBlock(len(blocks), ops, channels, buffers))
        return Gpu(
            rank,
            program.nchunks // inputs,
            program.nchunks // outputs,
            scratch,
            tuple(Channel(kind, some) for kind, some in peers.items()),  # type: ignore[arg-type]
            tuple(RemoteBuffer(peer, buffer, (kind,)) for kind, peer, buffer in remote),  # type: ignore[arg-type]
            tuple(blocks),
            tuple(Semaphore(0) for _ in range(layout.semaphores[rank])),
        )
