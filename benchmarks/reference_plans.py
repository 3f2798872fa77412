"""MSCCL++ plans written by hand: small, right, and together using every kind of operation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tuccl.mscclpp import (
    BufferRef,
    Channel,
    ExecutionPlan,
    Gpu,
    IterContext,
    Operation,
    RankGroup,
    RemoteBuffer,
    RemoteBufferRefs,
    Semaphore,
    ThreadBlock,
    ThreadBlockChannels,
    ThreadBlockGroup,
)

MOST = 1 << 20  # bytes
NOP = Operation(name="nop")


@dataclass
class Rank:
    """A GPU under construction: lists that grow as blocks name peers."""

    rank: int
    peers: dict[str, list[int]] = field(default_factory=lambda: {"memory": [], "port": []})
    remote: list[RemoteBuffer] = field(default_factory=list)
    blocks: list[ThreadBlock] = field(default_factory=list)

    def add(self, ops: list[Operation], kind: str, links: list[tuple[int, str]]) -> None:
        """Add a block with a channel to each peer of ``links`` and the buffer named there."""
        channels, buffers = [], []
        for peer, buffer in links:
            channels.append(len(self.peers[kind]))
            self.peers[kind].append(peer)
            buffers.append(len(self.remote))
            self.remote.append(RemoteBuffer(peer, buffer, (kind,)))
        used = (ThreadBlockChannels(kind, tuple(channels)),) if links else ()
        refs = (RemoteBufferRefs(kind, tuple(buffers)),) if links else ()
        self.blocks.append(ThreadBlock(len(self.blocks), tuple(ops), used, refs))

    def gpu(self, inputs: int, outputs: int, scratch: int, semaphores: int = 0) -> Gpu:
        """Return it as a value."""
        channels = tuple(Channel(kind, tuple(peers)) for kind, peers in self.peers.items() if peers)
        remote, blocks = tuple(self.remote), tuple(self.blocks)
        waits = (Semaphore(0),) * semaphores
        return Gpu(self.rank, inputs, outputs, scratch, channels, remote, blocks, waits)


def operations(plan: ExecutionPlan) -> Iterator[Operation]:
    """Yield every operation; those of a pipeline follow it."""
    for gpu in plan.gpus:
        for block in gpu.threadblocks:
            yield from (each for op in block.ops for each in (op, *op.ops))


def local(buffer: str, index: int, size: int = 1) -> BufferRef:
    """Chunks of this rank."""
    return BufferRef(index, size, type=buffer)


def remote(number: int, index: int, size: int = 1) -> BufferRef:
    """Chunks of the block's remote buffer ``number``."""
    return BufferRef(index, size, buffer_id=number)


def move(name: str, src: list[BufferRef], dst: list[BufferRef], kind: str = "none") -> Operation:
    """Return a data operation; through ports each target has its own channel."""
    ids = tuple(range(len(dst))) if kind == "port" else ()
    return Operation(
        name=name,
        channel_type=kind,
        channel_ids=ids,
        src_buff=tuple(src),
        dst_buff=tuple(dst),
    )


def sync(name: str, kind: str = "memory", *ids: int) -> Operation:
    """Return a signal, wait or their like on channels, 0 where none is named."""
    return Operation(name=name, channel_type=kind, channel_ids=ids or (0,))


def plan(name: str, collective: str, gpus: list[Gpu], **fields: object) -> ExecutionPlan:
    """Return a plan for sizes up to MOST; out of place and Simple unless ``fields`` say so."""
    values: dict[str, object] = {"protocol": "Simple", "inplace": False, "max_message_size": MOST}
    return ExecutionPlan(name, collective, gpus=tuple(gpus), **(values | fields))  # type: ignore[arg-type]


def allpairs_allgather(ranks: int, inplace: bool = False, group: int = 1) -> ExecutionPlan:
    """Every rank puts its part into every other's output; ``group`` blocks share each put."""
    gpus = []
    for r in range(ranks):
        rank = Rank(r)
        for p in range(ranks):
            for part in range(group):
                parts = ThreadBlockGroup(part, group)
                if p == r:
                    copy = move("copy", [local("i", 0)], [local("o", r)])
                    rank.add([_with(copy, parts)] if not inplace else [NOP], "memory", [])
                    continue
                put = move("put", [local("i", 0)], [remote(0, r)], "memory")
                ready = [sync("rlxsignal"), sync("rlxwait"), NOP]
                ops = [*ready, _with(put, parts), NOP, sync("signal"), sync("wait"), NOP]
                rank.add(ops, "memory", [(p, "o")])
        gpus.append(rank.gpu(1, ranks, 0))
    return plan(f"allpairs_allgather_{ranks}", "allgather", gpus, inplace=inplace)


def _with(op: Operation, parts: ThreadBlockGroup) -> Operation:
    return op.replace(tbg_info=parts) if parts.tbg_size > 1 else op


def _ring(rank: int, ranks: int) -> tuple[list[tuple[int, str]], int, int]:
    """Return a block's links on a ring, its channel to the next rank and to the one before.

    Of two ranks, channel k of one is channel k of the other: there they change places.
    """
    links = [((rank + 1) % ranks, "s"), ((rank - 1) % ranks, "s")]
    return (links[::-1], 1, 0) if (rank, ranks) == (1, 2) else (links, 0, 1)


def ring_allreduce(ranks: int, unit_size: int = 0) -> ExecutionPlan:
    """One block a rank goes round twice; every message has a place in the receiver's scratch.

    With ``unit_size`` the walk is a pipeline over pieces of a chunk.
    """
    gpus = []
    for r in range(ranks):
        rank = Rank(r)
        links, to, source = _ring(r, ranks)
        ready = [sync("rlxsignal", "memory", source), sync("rlxwait", "memory", to), NOP]
        walk: list[Operation] = []
        for hop in range(2 * ranks - 1):
            chunk = (r - hop) % ranks
            if hop:
                walk += [sync("wait", "memory", source), NOP]
            slot, here = remote(to, hop), local("s", hop - 1)
            mine, target = local("i", chunk), local("o", chunk)
            if hop == 0:
                walk.append(move("put", [mine], [slot], "memory"))
            elif hop < ranks - 1:
                walk.append(move("res", [mine, here], [here, slot], "memory"))
            elif hop == ranks - 1:
                walk.append(move("res", [mine, here], [target, slot], "memory"))
            else:
                walk.append(move("copy", [here], [target]))
                if hop < 2 * ranks - 2:
                    walk.append(move("put", [here], [slot], "memory"))
            if hop < 2 * ranks - 2:
                walk += [NOP, sync("signal", "memory", to)]
        if unit_size:
            walk = [
                Operation(name="pipeline", iter_context=IterContext(unit_size, 1), ops=(*walk, NOP))
            ]
        rank.add([*ready, *walk], "memory", links)
        gpus.append(rank.gpu(ranks, ranks, 2 * ranks - 2))
    return plan(f"ring_allreduce_{ranks}_{unit_size}", "allreduce", gpus)


def port_ring_allgather(ranks: int) -> ExecutionPlan:
    """One block a rank, through ports: from scratch to scratch, each put with its signal."""
    gpus = []
    for r in range(ranks):
        rank = Rank(r)
        links, to, before = _ring(r, ranks)
        ops = [
            sync("signal", "port", before),
            sync("wait", "port", to),
            move("copy", [local("i", 0)], [local("s", ranks - 1)]),
            move("copy", [local("i", 0)], [local("o", r)]),
            NOP,
        ]
        for hop in range(ranks - 1):
            source = local("s", ranks - 1 if hop == 0 else hop - 1)
            ops.append(_through(move("pws", [source], [remote(to, hop)]), to))
            ops += [sync("wait", "port", before), NOP]
            ops.append(move("copy", [local("s", hop)], [local("o", (r - 1 - hop) % ranks)]))
        ops += [NOP, _flushing(sync("flush", "port", to))]
        rank.add(ops, "port", links)
        gpus.append(rank.gpu(1, ranks, ranks))
    return plan(f"port_ring_allgather_{ranks}", "allgather", gpus)


def _flushing(flush: Operation) -> Operation:
    """With a target of no chunk, without which a flush does nothing."""
    return flush.replace(dst_buff=(remote(0, 0, 0),))


def packet_allreduce(ranks: int, kind: str = "memory") -> ExecutionPlan:
    """Two steps of packets between all pairs: each rank adds up one chunk and hands it round."""
    gpus = []
    for r in range(ranks):
        rank = Rank(r)
        peers = [p for p in range(ranks) if p != r]
        links = [(p, "s") for p in peers]
        if kind == "memory":
            sends = [
                move("ppkt", [local("i", p)], [remote(k, r)], kind) for k, p in enumerate(peers)
            ]
            rank.add(sends, kind, links)
            ops = [
                move(
                    "respkt",
                    [local("i", r), *(local("s", p) for p in peers)],
                    [local("o", r), *(remote(k, ranks + r) for k in range(len(peers)))],
                    kind,
                )
            ]
        else:
            # Ports move packets from scratch to scratch only.
            sends = [move("cpkt", [local("i", p)], [local("s", 2 * ranks + p)]) for p in peers]
            sends.append(NOP)
            for k, p in enumerate(peers):
                sends.append(
                    _through(move("rppkt", [local("s", 2 * ranks + p)], [remote(k, r)]), k)
                )
            rank.add(sends, kind, links)
            ops = [
                move(
                    "recpkt",
                    [local("i", r), *(local("s", p) for p in peers)],
                    [local("o", r), local("s", 3 * ranks)],
                ),
                NOP,
                move(
                    "rppkt",
                    [local("s", 3 * ranks)],
                    [remote(k, ranks + r) for k in range(len(peers))],
                    kind,
                ),
            ]
        rank.add(ops, kind, links)
        rank.add([move("upkt", [local("s", ranks + p)], [local("o", p)]) for p in peers], kind, [])
        scratch = 2 * ranks if kind == "memory" else 3 * ranks + 1
        gpus.append(rank.gpu(ranks, ranks, -(-scratch // 8) * 8))
    fields = {"protocol": "LL", "use_double_scratch_buffer": True}
    return plan(f"packet_allreduce_{kind}_{ranks}", "allreduce", gpus, **fields)


def _through(op: Operation, channel: int) -> Operation:
    return op.replace(channel_type="port", channel_ids=(channel,))


def pull_reducescatter(ranks: int) -> ExecutionPlan:
    """Every rank reads its chunk from all others' inputs."""
    gpus = []
    for r in range(ranks):
        rank = Rank(r)
        peers = [p for p in range(ranks) if p != r]
        every = tuple(range(len(peers)))
        reads = [local("i", r), *(remote(k, r) for k in every)]
        ops = [
            sync("signal", "memory", *every),
            sync("wait", "memory", *every),
            NOP,
            move("rre", reads, [local("o", 0)], "memory"),
            NOP,
            sync("signal", "memory", *every),
            sync("wait", "memory", *every),
        ]
        rank.add(ops, "memory", [(p, "i") for p in peers])
        gpus.append(rank.gpu(ranks, 1, 0))
    return plan(f"pull_reducescatter_{ranks}", "reducescatter", gpus)


def chain_broadcast(ranks: int, barrier: bool = False) -> ExecutionPlan:
    """From rank 0 on; one block receives, another sends on, with a semaphore or a barrier."""
    gpus = []
    for r in range(ranks):
        rank = Rank(r)
        meet = Operation(name="barrier", barrier_id=0, num_threadblocks=2)
        release = Operation(name="sem_release", semaphore_ids=(0,))
        acquire = Operation(name="sem_acquire", semaphore_ids=(0,))
        done = [meet] if barrier else [release]
        go = [meet] if barrier else [acquire, NOP]
        if r == 0:
            rank.add([move("copy", [local("i", 0)], [local("o", 0)]), NOP, *done], "memory", [])
        else:
            receive = [sync("signal"), sync("wait"), NOP, *done]
            rank.add(receive, "memory", [(r - 1, "o")])
        if r < ranks - 1:
            put = move("put", [local("o", 0)], [remote(0, 0)], "memory")
            send = [sync("wait"), *go, put, NOP, sync("signal")]
            rank.add(send, "memory", [(r + 1, "o")])
        else:
            rank.add(go, "memory", [])
        gpus.append(rank.gpu(1, 1, 0, semaphores=1))
    return plan(f"chain_broadcast_{ranks}_{barrier:d}", "broadcast", gpus)


def switch_allreduce(ranks: int) -> ExecutionPlan:
    """Every rank adds up one chunk through the switch, which writes it to all."""
    gpus = []
    group = (RankGroup(ranks, tuple(range(ranks))),)
    for r in range(ranks):
        rank = Rank(r)
        peers = [p for p in range(ranks) if p != r]
        every = tuple(range(len(peers)))
        meet = [NOP, sync("signal", "memory", *every), sync("wait", "memory", *every), NOP]
        reduce = Operation(
            name="glres",
            channel_type="switch",
            src_buff=(BufferRef(r, 1, switch_channel_id=0),),
            dst_buff=(BufferRef(r, 1, switch_channel_id=1),),
        )
        rank.add([*meet, reduce, *meet], "memory", [(p, "o") for p in peers])
        gpu = rank.gpu(ranks, ranks, 0)
        switches = (Channel("switch", (), "i", group), Channel("switch", (), "o", group))
        block = gpu.threadblocks[0]
        used = (*block.channels, ThreadBlockChannels("switch", (0, 1)))
        block = ThreadBlock(block.id, block.ops, used, block.remote_buffer_refs)
        gpus.append(_rebuilt(gpu, (*gpu.channels, *switches), block))
    return plan(f"switch_allreduce_{ranks}", "allreduce", gpus)


def _rebuilt(gpu: Gpu, channels: tuple[Channel, ...], block: ThreadBlock) -> Gpu:
    return gpu.replace(channels=channels, threadblocks=(block,))


def alltoall_slots(ranks: int, slots: int = 2) -> ExecutionPlan:
    """Each pair's messages share ``slots`` places in scratch, given back by credits.

    For an odd number of ranks: of an even one, two would be each other's next and before.
    """
    parts = 3  # chunks for each rank
    gpus = []
    for r in range(ranks):
        rank = Rank(r)
        for k in range(1, ranks):
            to, source = (r + k) % ranks, (r - k) % ranks
            send: list[Operation] = [sync("rlxwait"), NOP]
            receive: list[Operation] = [sync("rlxsignal")]
            for n in range(parts):
                # A channel both signals and waits: a second one carries the credits.
                if n >= slots:
                    send += [sync("wait", "memory", 1), NOP]
                slot = (k - 1) * slots + n % slots
                put = move("put", [local("i", to * parts + n)], [remote(0, slot)], "memory")
                send += [put, NOP, sync("signal")]
                take = move("copy", [local("s", slot)], [local("o", source * parts + n)])
                receive += [sync("wait"), NOP, take]
                if n + slots < parts:
                    receive += [NOP, sync("signal", "memory", 1)]
            rank.add(send, "memory", [(to, "s"), (to, "s")])
            rank.add(receive, "memory", [(source, "s"), (source, "s")])
        copy = move("copy", [local("i", r * parts, parts)], [local("o", r * parts, parts)])
        rank.add([copy], "memory", [])
        gpus.append(rank.gpu(ranks * parts, ranks * parts, (ranks - 1) * slots))
    return plan(f"alltoall_slots_{ranks}", "alltoall", gpus)


def reference_plans() -> Iterator[ExecutionPlan]:
    """Yield each of them in a small size."""
    for ranks in (2, 4):
        yield allpairs_allgather(ranks)
        yield allpairs_allgather(ranks, inplace=True)
        yield allpairs_allgather(ranks, group=3)
        yield ring_allreduce(ranks)
        yield ring_allreduce(ranks, unit_size=1 << 12)
        yield port_ring_allgather(ranks)
        yield packet_allreduce(ranks)
        yield packet_allreduce(ranks, "port")
        yield pull_reducescatter(ranks)
        yield chain_broadcast(ranks)
        yield chain_broadcast(ranks, barrier=True)
        yield switch_allreduce(ranks)
        yield alltoall_slots(ranks + 1)
