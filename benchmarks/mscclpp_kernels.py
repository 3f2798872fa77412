"""Plans that do what MSCCL++'s native kernels do, to hold the simulator against them."""

from __future__ import annotations

from tuccl.mscclpp import (
    BufferRef,
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
)

NOP = Operation("nop")


def allreduce_kernel(ranks: int, hosts: int, lanes: int, unit_bytes: int) -> ExecutionPlan:
    """Return an allreduce in place as the native kernels of large arrays do it.

    In each host a GPU pulls and adds up its share, exchanges it with its like on the other host (at
    most two), and puts the sum to all. Each part has `lanes` thread blocks a GPU, piece after
    piece, so that the parts overlap.
    """
    return ExecutionPlan(
        f"kernel-allreduce-{ranks}-{lanes}",
        "allreduce",
        "Simple",
        inplace=True,
        gpus=tuple(_gpu(rank, ranks // hosts, hosts, lanes, unit_bytes) for rank in range(ranks)),
        max_message_size=(1 << 32) - 1,
    )


def _gpu(rank: int, near: int, hosts: int, lanes: int, unit_bytes: int) -> Gpu:
    host, place = divmod(rank, near)
    peers = [host * near + (place + step) % near for step in range(1, near)]
    far = [other * near + place for other in range(hosts) if other != host]
    blocks: list[ThreadBlock] = []
    context = IterContext(unit_bytes, 1)

    def block(ops: list[Operation], lane: int, memory: int | None, *, port: bool = False) -> None:
        channels, buffers = [], []
        if memory is not None:
            first = (memory * lanes + lane) * len(peers)
            ids = tuple(range(first, first + len(peers)))
            channels.append(ThreadBlockChannels("memory", ids))
            buffers.append(RemoteBufferRefs("memory", tuple(range(len(peers)))))
        if port:
            channels.append(ThreadBlockChannels("port", (lane,)))
            buffers.append(RemoteBufferRefs("port", (len(peers),)))
        blocks.append(ThreadBlock(len(blocks), tuple(ops), tuple(channels), tuple(buffers)))

    for lane in range(lanes):
        own = BufferRef(place * lanes + lane, 1, type="i")
        theirs = tuple(BufferRef(own.index, 1, buffer_id=k) for k in range(len(peers)))
        leaving, landing = BufferRef(lane, 1, type="s"), BufferRef(lanes + lane, 1, type="s")
        ids = tuple(range(len(peers)))
        pulled = Operation("rre", "memory", ids, (own, *theirs), (own,))
        meet = [Operation(f"rlx{name}", "memory", ids) for name in ("signal", "wait")]
        loop: tuple[Operation, ...] = (pulled, NOP, Operation("sem_release", semaphore_ids=(lane,)))
        block([*meet, NOP, Operation("pipeline", iter_context=context, ops=loop)], lane, 0)
        ready = lane
        if far:
            there = BufferRef(lanes + lane, 1, buffer_id=0)
            loop = (
                Operation("sem_acquire", semaphore_ids=(lane,)),
                NOP,
                Operation("copy", src_buff=(own,), dst_buff=(leaving,)),
                NOP,
                Operation("sem_release", semaphore_ids=(lanes + lane,)),
                Operation("pws", "port", (0,), (leaving,), (there,)),
            )
            block([Operation("pipeline", iter_context=context, ops=loop)], lane, None, port=True)
            ready = 2 * lanes + lane
            loop = (
                Operation("wait", "port", (0,)),
                Operation("sem_acquire", semaphore_ids=(lanes + lane,)),
                NOP,
                Operation("re", src_buff=(own, landing), dst_buff=(own,)),
                NOP,
                Operation("sem_release", semaphore_ids=(ready,)),
            )
            block([Operation("pipeline", iter_context=context, ops=loop)], lane, None, port=True)
        loop = (
            Operation("sem_acquire", semaphore_ids=(ready,)),
            NOP,
            Operation("put", "memory", ids, (own,) * len(peers), theirs),
        )
        end = [Operation(name, "memory", ids) for name in ("signal", "wait")]
        block([Operation("pipeline", iter_context=context, ops=loop), NOP, *end], lane, 1)
    remote = [RemoteBuffer(peer, "i", ("memory",)) for peer in peers]
    remote += [RemoteBuffer(peer, "s", ("port",)) for peer in far]
    channels = [Channel("memory", tuple(peers) * 2 * lanes)]
    channels += [Channel("port", tuple(far) * lanes)] if far else []
    return Gpu(
        rank,
        near * lanes,
        near * lanes,
        2 * lanes,
        tuple(channels),
        tuple(remote),
        tuple(blocks),
        tuple(Semaphore(0) for _ in range(3 * lanes)),
    )
