"""Small correct programs made by hand, for tests to verify, run and break."""

from __future__ import annotations

from collections.abc import Callable

from tuccl.planners import chunk_counts
from tuccl.program import Gpu, Program, Step, ThreadBlock


def program(
    collective: str,
    ranks: int,
    nchunks: int,
    blocks: Callable[[int], list[ThreadBlock]],
    *,
    protocol: str = "Simple",
    channels: int = 1,
    scratch: int = 0,
    in_place: bool = True,
    root: int = 0,
) -> Program:
    """Return the program whose rank r runs `blocks(r)`."""
    gpus = []
    for rank in range(ranks):
        inputs, outputs = chunk_counts(collective, nchunks, ranks, rank, root)
        gpus.append(Gpu(rank, inputs, outputs, scratch, blocks(rank)))
    return Program(
        f"{collective}_{ranks}", collective, protocol, channels, nchunks, gpus, in_place=in_place
    )


def send(buffer: str, offset: int, count: int = 1, **more: object) -> Step:
    """Return a send of `count` chunks."""
    return Step("s", buffer, offset, "o", -1, count, **more)  # type: ignore[arg-type]


def recv(buffer: str, offset: int, count: int = 1, **more: object) -> Step:
    """Return a receive of `count` chunks."""
    return Step("r", "i", -1, buffer, offset, count, **more)  # type: ignore[arg-type]


def copy(source: int, target: int, count: int = 1, **more: object) -> Step:
    """Return a copy from input to output."""
    return Step("cpy", "i", source, "o", target, count, **more)  # type: ignore[arg-type]


def ring_allgather(ranks: int, channels: int = 1, protocol: str = "Simple") -> Program:
    """Return a ring per channel; chunk `rank * channels + c` travels on channel c."""

    def blocks(rank: int) -> list[ThreadBlock]:
        out = []
        for c in range(channels):
            steps = [send("i", c)]
            for hop in range(1, ranks):
                chunk = (rank - hop) % ranks * channels + c
                op = "rcs" if hop < ranks - 1 else "r"
                steps.append(Step(op, "i", -1, "o", chunk, 1))
            out.append(ThreadBlock(c, (rank + 1) % ranks, (rank - 1) % ranks, c, steps))
        out.append(ThreadBlock(channels, -1, -1, 0, [copy(0, rank * channels, channels)]))
        return out

    return program(
        "allgather", ranks, ranks * channels, blocks, protocol=protocol, channels=channels
    )


def ring_allreduce(ranks: int, protocol: str = "Simple") -> Program:
    """Return the ring: reduce-scatter by rrs, then allgather by rcs, one chunk a rank."""

    def blocks(rank: int) -> list[ThreadBlock]:
        steps = [send("i", rank)]
        for hop in range(1, 2 * ranks - 1):
            chunk = (rank - hop) % ranks
            op = "rrs" if hop < ranks - 1 else "rrcs" if hop == ranks - 1 else "rcs"
            op = "r" if hop == 2 * ranks - 2 else op
            steps.append(Step(op, "i", chunk, "o", chunk, 1))
        return [ThreadBlock(0, (rank + 1) % ranks, (rank - 1) % ranks, 0, steps)]

    return program("allreduce", ranks, ranks, blocks, protocol=protocol)


def ring_reduce_scatter(ranks: int) -> Program:
    """Return the ring that ends with rank r owning chunk r."""

    def blocks(rank: int) -> list[ThreadBlock]:
        steps = [send("i", (rank - 1) % ranks)]
        for hop in range(2, ranks + 1):
            chunk = (rank - hop) % ranks
            op = "rrs" if hop < ranks else "rrc"
            steps.append(Step(op, "i", chunk, "o", 0, 1))
        return [ThreadBlock(0, (rank + 1) % ranks, (rank - 1) % ranks, 0, steps)]

    return program("reduce-scatter", ranks, ranks, blocks)


def allpairs_allreduce(ranks: int, protocol: str = "LL") -> Program:
    """Return reduction of chunk r on rank r from scratch, then a broadcast of it; out of place."""
    peers = {r: [p for p in range(ranks) if p != r] for r in range(ranks)}

    def blocks(rank: int) -> list[ThreadBlock]:
        out = []
        for t, peer in enumerate(peers[rank]):
            steps = [
                send("i", peer),
                recv("s", t, has_dep=True),
                send("o", rank, dep_tb=ranks - 1, dep_step=2 * len(peers[rank]) - 1),
                recv("o", peer),
            ]
            out.append(ThreadBlock(t, peer, peer, 0, steps))
        last = len(peers[rank]) - 1
        steps = [Step("nop", dep_tb=t, dep_step=1) for t in range(last)]
        steps += [copy(rank, rank, dep_tb=last, dep_step=1)]
        steps += [Step("re", "s", t, "o", rank, 1, has_dep=t == last) for t in range(last + 1)]
        out.append(ThreadBlock(ranks - 1, -1, -1, 0, steps))
        return out

    return program(
        "allreduce", ranks, ranks, blocks, protocol=protocol, scratch=ranks - 1, in_place=False
    )


def direct_alltoall(ranks: int) -> Program:
    """Return one thread block a peer, and a copy of the rank's own chunk; out of place."""

    def blocks(rank: int) -> list[ThreadBlock]:
        peers = [p for p in range(ranks) if p != rank]
        out = [ThreadBlock(t, p, p, 0, [send("i", p), recv("o", p)]) for t, p in enumerate(peers)]
        return [*out, ThreadBlock(ranks - 1, -1, -1, 0, [copy(rank, rank)])]

    return program("alltoall", ranks, ranks, blocks, in_place=False)


def chain_broadcast(ranks: int, root: int = 0) -> Program:
    """Return a chain from the root in rank order, two chunks in one message."""

    def blocks(rank: int) -> list[ThreadBlock]:
        place = (rank - root) % ranks
        after = (rank + 1) % ranks if place < ranks - 1 else -1
        if place == 0:
            return [
                ThreadBlock(0, after, -1, 0, [send("i", 0, 2)]),
                ThreadBlock(1, -1, -1, 0, [copy(0, 0, 2)]),
            ]
        op = "rcs" if after >= 0 else "r"
        return [ThreadBlock(0, after, (rank - 1) % ranks, 0, [Step(op, "i", -1, "o", 0, 2)])]

    return program("broadcast", ranks, 2, blocks, root=root)


def chain_reduce(ranks: int, root: int = 0) -> Program:
    """Return a chain that ends at the root."""

    def blocks(rank: int) -> list[ThreadBlock]:
        place = (rank - root - 1) % ranks  # 0 starts, ranks - 1 is the root
        after = (rank + 1) % ranks if place < ranks - 1 else -1
        before = (rank - 1) % ranks if place > 0 else -1
        op = "s" if place == 0 else "rrs" if after >= 0 else "rrc"
        return [ThreadBlock(0, after, before, 0, [Step(op, "i", 0, "o", 0, 2)])]

    return program("reduce", ranks, 2, blocks, root=root)


def direct_gather(ranks: int, root: int = 0) -> Program:
    """Return every rank's direct send to the root."""

    def blocks(rank: int) -> list[ThreadBlock]:
        if rank != root:
            return [ThreadBlock(0, root, -1, 0, [send("i", 0)])]
        peers = [p for p in range(ranks) if p != root]
        out = [ThreadBlock(t, -1, p, 0, [recv("o", p)]) for t, p in enumerate(peers)]
        return [*out, ThreadBlock(ranks - 1, -1, -1, 0, [copy(0, root)])]

    return program("gather", ranks, ranks, blocks, root=root)


def direct_scatter(ranks: int, root: int = 0) -> Program:
    """Return the root's direct send to every rank."""

    def blocks(rank: int) -> list[ThreadBlock]:
        if rank != root:
            return [ThreadBlock(0, -1, root, 0, [recv("o", 0)])]
        peers = [p for p in range(ranks) if p != root]
        out = [ThreadBlock(t, p, -1, 0, [send("i", p)]) for t, p in enumerate(peers)]
        return [*out, ThreadBlock(ranks - 1, -1, -1, 0, [copy(root, 0)])]

    return program("scatter", ranks, ranks, blocks, root=root)


def echo(shift: int, fused: bool) -> Program:
    """Return an allgather of two ranks beside which rank 1 echoes two scratch chunks of rank 0.

    The echo lands `shift` chunks further, in another thread block than the one that sent: only the
    trip through rank 1 orders the two. Fused, rank 1 forwards chunk by chunk, so with shift 1 the
    first chunk comes back onto the second while that may still have to be sent.
    """

    def exchange(rank: int) -> ThreadBlock:
        steps = [send("i", 0), recv("o", 1 - rank), copy(0, rank)]
        return ThreadBlock(1, 1 - rank, 1 - rank, 1, steps)

    fill = [Step("cpy", "i", 0, "s", 0, 1), Step("cpy", "i", 0, "s", 1, 1)]
    there = ThreadBlock(0, 1, -1, 0, [*fill, send("s", 0, 2)])
    back = ThreadBlock(2, -1, 1, 0, [recv("s", shift, 2)])
    steps = [Step("rcs", "i", -1, "s", 0, 2)] if fused else [recv("s", 0, 2), send("s", 0, 2)]
    blocks = {
        0: [there, exchange(0), back],
        1: [ThreadBlock(0, 0, 0, 0, steps), exchange(1)],
    }
    return program("allgather", 2, 2, blocks.__getitem__, channels=2, scratch=4)


def stalled(op: str, window: int = 2) -> Program:
    """Return a program of three ranks in which step `op` of rank 0's tb 0 waits for ever.

    Rank 1 sends, or takes, what it needs only after a message that rank 0 sends after the step;
    rank 2 waits for what comes after it too. The step is number 1, a send number `window`.
    """
    local = op in ("cpy", "re", "nop")
    receives = op in ("r", "rcs", "rrc", "rrs", "rrcs")
    sends = op in ("rcs", "rrs", "rrcs")
    waits = {"dep_tb": 2, "dep_step": 0} if local else {}
    source = -1 if op in ("r", "rcs", "nop") else 0
    step = Step(op, "i", source, "o", 0, 0 if op == "nop" else 1, **waits, has_dep=True)
    after = {"dep_tb": 0, "dep_step": 1}
    steps = [recv("o", 1), step]
    if op == "s":
        after["dep_step"] = window
        steps = [send("i", 0) for _ in range(window)] + [send("i", 0, has_dep=True)]
    main = ThreadBlock(0, 2 if sends else 1 if op == "s" else -1, -1 if op == "s" else 1, 0, steps)
    gate = ThreadBlock(1, 1, -1, 1, [send("i", 0, **after)])
    blocks = {0: [main, gate], 1: [], 2: [ThreadBlock(0, -1, 0, 0 if sends else 3, [recv("o", 0)])]}
    opened = {"dep_tb": 1, "dep_step": 0}
    if op == "s":
        taken = [recv("o", 0, **opened), *(recv("o", 0) for _ in range(window))]
        blocks[1].append(ThreadBlock(0, -1, 0, 0, taken))
    else:
        given = [send("i", 0), *([send("i", 0, **opened)] if receives else [])]
        blocks[1].append(ThreadBlock(0, 0, -1, 0, given))
    blocks[1].append(ThreadBlock(1, -1, 0, 1, [recv("o", 0, has_dep=True)]))
    if local:
        blocks[0].append(ThreadBlock(2, -1, 1, 2, [recv("o", 2, has_dep=True)]))
        blocks[1].append(ThreadBlock(2, 0, -1, 2, [send("i", 0, **opened)]))
    if not sends:
        blocks[0].append(ThreadBlock(3, 2, -1, 3, [send("i", 0, **after)]))
    return program("allreduce", 3, 3, blocks.__getitem__, channels=4)


def everything(ranks: int) -> list[Program]:
    """Return a correct program of each kind above, root 0."""
    return [
        ring_allgather(ranks),
        ring_allgather(ranks, channels=2, protocol="LL128"),
        ring_allreduce(ranks),
        ring_allreduce(ranks, protocol="LL"),
        ring_reduce_scatter(ranks),
        allpairs_allreduce(ranks),
        direct_alltoall(ranks),
        chain_broadcast(ranks),
        chain_reduce(ranks),
        direct_gather(ranks),
        direct_scatter(ranks),
    ]
