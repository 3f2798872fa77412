"""What the processes of a test do with single calls: each function is a job (ranks.py)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist

import tuccl.torch
import tuccl.torch.group as group_module
from tests.torch_backend.ranks import begin, begin_again, job, reference

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
Op = dist.ReduceOp


def drawn(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return small whole numbers that no partial sum or product of 8 of them rounds."""
    generator = torch.Generator().manual_seed(RANK * 1000 + count)
    return torch.randint(1, 3, (count,), generator=generator).to(dtype)


TYPES = (
    *(torch.int8, torch.uint8, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
CASES = (*((t, 1000) for t in TYPES), *((torch.float32, n) for n in (1, 40009, 300_007)))


def reductions(group: dist.ProcessGroup) -> Iterator[torch.Tensor]:
    for dtype, count in CASES:
        for op in (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX):
            a = drawn(count, dtype)
            dist.all_reduce(a, op, group=group)
            b = drawn(count, dtype)
            dist.reduce(b, (count + 1) % SIZE, op, group=group)
            c, shares = torch.empty(count, dtype=dtype), drawn(count * SIZE, dtype)
            dist.reduce_scatter_single(c, shares, op, group=group)
            d = torch.empty(count, dtype=dtype)
            dist.reduce_scatter(d, list(shares.chunk(SIZE)), op, group=group)
            yield from (a, c, d)
            if (count + 1) % SIZE == RANK:
                yield b


def moves(group: dist.ProcessGroup) -> Iterator[torch.Tensor]:
    for dtype, count in CASES:
        root = count % SIZE
        mine = drawn(count, dtype)
        a = torch.empty(count * SIZE, dtype=dtype)
        dist.all_gather_single(a, mine, group=group)
        b = [torch.empty(count, dtype=dtype) for _ in range(SIZE)]
        dist.all_gather(b, mine, group=group)
        c = drawn(count, dtype)
        dist.broadcast(c, root, group=group)
        big = drawn(count * SIZE, dtype)
        d = torch.empty_like(big)
        dist.all_to_all_single(d, big, group=group)
        e = [torch.empty(count, dtype=dtype) for _ in range(SIZE)]
        dist.gather(mine, e if root == RANK else None, root, group=group)
        f = torch.empty(count, dtype=dtype)
        dist.scatter(f, list(big.chunk(SIZE)) if root == RANK else None, root, group=group)
        yield from (a, *b, c, d, f)
        if root == RANK:
            yield from e


@job
def operations() -> None:
    """Every operation as Gloo does it, to the last bit, and by programs."""
    begin()
    gloo = reference()
    for kind in (reductions, moves):
        for ours, theirs in zip(kind(dist.group.WORLD), kind(gloo), strict=True):
            assert torch.equal(ours, theirs), (kind, ours.dtype, ours.shape, ours, theirs)
    counts = dist.group.WORLD.counts
    assert counts["program"] > 10 * counts["gloo"], counts


@job
def more_operations() -> None:
    """What Gloo has no equal of to compare with: against what must come out."""
    begin()
    world = dist.group.WORLD
    flags = [torch.empty(5, dtype=torch.bool) for _ in range(SIZE)]
    dist.all_gather(flags, torch.full((5,), RANK % 2 == 0))
    assert [bool(f.all()) for f in flags] == [r % 2 == 0 for r in range(SIZE)]

    mean = torch.tensor([float(RANK), -3.0, 1e6])
    dist.all_reduce(mean, Op.AVG)
    assert torch.equal(mean, torch.tensor([(SIZE - 1) / 2, -3.0, 1e6]))
    towards_zero = torch.tensor([-(RANK + 1) * 5 for _ in range(9)])
    dist.all_reduce(towards_zero, Op.AVG)
    assert towards_zero.tolist() == [-(5 * SIZE * (SIZE + 1) // 2 // SIZE)] * 9

    wide = torch.arange(24.0).reshape(4, 6).t() * (RANK + 1)  # with gaps
    dist.all_reduce(wide)
    assert torch.equal(wide, torch.arange(24.0).reshape(4, 6).t() * SIZE * (SIZE + 1) / 2)

    whole = torch.full((SIZE * 3,), -1)
    dist.all_gather_single(whole, whole[RANK * 3 : RANK * 3 + 3].fill_(RANK))  # in place
    assert whole.tolist() == [r for r in range(SIZE) for _ in range(3)]
    if SIZE > 1:
        shares = torch.arange(SIZE * 2)
        dist.reduce_scatter_single(shares[RANK * 2 : RANK * 2 + 2], shares)  # in place
        assert shares[RANK * 2 :][:2].tolist() == [SIZE * RANK * 2, SIZE * (RANK * 2 + 1)]

    many = [torch.full((n,), float(RANK)) for n in (1, 100, 5)]
    with dist._coalescing_manager():
        for tensor in many:
            dist.all_reduce(tensor)
    assert all((t == SIZE * (SIZE - 1) / 2).all() for t in many)

    empty = torch.empty(0)
    dist.all_reduce(empty)
    objects: list[object] = [None] * SIZE
    dist.all_gather_object(objects, {"rank": RANK})
    assert objects == [{"rank": r} for r in range(SIZE)]
    dist.barrier()
    assert dist.group.WORLD.counts["program"] > 0
    bits = torch.tensor([1 << RANK])
    dist.all_reduce(bits, Op.BOR)  # no program knows it
    assert bits.item() == (1 << SIZE) - 1
    assert world.name() == "tuccl" and dist.get_backend() == "tuccl"


@job
def unequal_shares() -> None:
    begin()
    gives = [(RANK + peer) % 3 + 1 for peer in range(SIZE)]
    takes = [(RANK + peer) % 3 + 1 for peer in range(SIZE)]
    given = torch.cat([torch.full((n,), RANK * 10 + peer) for peer, n in enumerate(gives)])
    taken = torch.empty(sum(takes), dtype=torch.int64)
    dist.all_to_all_single(taken, given, takes, gives)
    assert taken.tolist() == [p * 10 + RANK for p, n in enumerate(takes) for _ in range(n)]
    lists = [torch.empty(n, dtype=torch.int64) for n in takes]
    dist.all_to_all(lists, list(given.split(gives)))
    assert torch.cat(lists).tolist() == taken.tolist()
    before = dist.group.WORLD.counts
    for count in (1, 1000, 40009):
        even = [torch.empty(count) for _ in range(SIZE)]
        sums = dist.all_reduce(torch.ones(100), async_op=True)
        dist.all_to_all(even, [torch.full((count,), RANK * 10.0 + p) for p in range(SIZE)])
        sums.wait()
        assert [(t[0].item(), t[-1].item()) for t in even] == [
            (p * 10.0 + RANK,) * 2 for p in range(SIZE)
        ]
    after = dist.group.WORLD.counts
    assert after["program"] == before["program"] + 6 and after["gloo"] == before["gloo"], after
    # Equal on ranks 0 and 1 alone.
    mixed = [torch.empty(3 if p < 2 and RANK < 2 else 2) for p in range(SIZE)]
    dist.all_to_all(mixed, [torch.full((t.numel(),), RANK * 1.0) for t in mixed])
    assert [t[0].item() for t in mixed] == list(range(SIZE)), mixed
    nothing = [torch.empty(0) for _ in range(SIZE)]
    dist.all_to_all(nothing, [torch.empty(0) for _ in range(SIZE)])


@job
def messages() -> None:
    """Sends and receives: tags, whoever comes first, beside collectives."""
    begin()
    left, right = (RANK - 1) % SIZE, (RANK + 1) % SIZE
    sums = dist.all_reduce(torch.ones(1000), async_op=True)
    sends = [dist.isend(torch.tensor([RANK * 10 + tag]), right, tag=tag) for tag in (1, 2)]
    for tag in (2, 1):
        got = torch.empty(1, dtype=torch.int64)
        dist.recv(got, left, tag=tag)
        assert got.item() == left * 10 + tag
    for work in (*sends, sums):
        work.wait()
    if RANK == 0:
        seen = []
        for _ in range(SIZE - 1):
            got = torch.empty(1, dtype=torch.int64)
            assert dist.recv(got) == got.item()
            seen.append(got.item())
        assert sorted(seen) == list(range(1, SIZE))
    else:
        dist.send(torch.tensor([RANK]), 0)


@job
def sub_groups() -> None:
    """Pairs have a table of their own, three ranks have none; groups run side by side."""
    begin()
    pairs = [dist.new_group([r, r + 1]) for r in range(0, SIZE, 2)]
    three = dist.new_group(list(range(3)))
    mine = pairs[RANK // 2]
    assert mine.size() == 2
    inner = torch.full((1000,), float(RANK))
    outer = torch.full((100003,), float(RANK))
    order = [(inner, mine), (outer, None)]
    # Each rank starts its groups' collectives in an order of its own.
    works = [
        dist.all_reduce(t, group=g, async_op=True) for t, g in (order if RANK % 2 else order[::-1])
    ]
    for work in works:
        work.wait()
    assert (inner == RANK // 2 * 4 + 1).all() and (outer == SIZE * (SIZE - 1) / 2).all()
    assert mine.counts["program"] == 1
    plain = dist.new_group(pg_options=tuccl.torch.Options())
    dist.all_reduce(inner, group=plain)
    assert plain.counts == {"program": 0, "gloo": 1}
    if RANK < 3:
        few = torch.tensor([RANK])
        dist.all_reduce(few, group=three)
        assert few.item() == 3 and three.counts == {"program": 0, "gloo": 1}


@job
def order() -> None:
    """Collectives of a group on the same memory, none waited for: each sees what came before."""
    begin()
    tensor = torch.full((5000,), float(RANK + 1))
    works = []
    for turn in range(12):
        if turn % 3 == 2:  # by Gloo: no program multiplies bits
            flags = tensor.view(torch.int32)
            works.append(dist.all_reduce(flags, Op.BAND, async_op=True))
            continue
        works.append(dist.all_reduce(tensor, Op.SUM if turn == 0 else Op.MAX, async_op=True))
    (held,) = works[-1].get_future().wait()
    assert held.data_ptr() == tensor.data_ptr()
    assert all(w.wait() for w in works) and all(w.is_completed() for w in works)
    assert (tensor == SIZE * (SIZE + 1) / 2).all()


@job
def modes() -> None:
    """Tensors with gaps under every mode of autograd, as Gloo takes them."""
    begin(timeout=timedelta(seconds=10))
    gloo = reference()

    def transposed(*, requires_grad: bool = False) -> torch.Tensor:
        return torch.full((16, 17), RANK + 1.0, requires_grad=requires_grad).t()

    def compare(ours: torch.Tensor, theirs: torch.Tensor) -> None:
        dist.all_reduce(theirs, group=gloo)
        dist.all_reduce(ours)
        assert torch.equal(ours, theirs), ours
        share = theirs.new_full((SIZE * 16,), RANK + 1.0)
        gaps = [torch.empty(16, 2)[:, 0] for _ in range(SIZE)]
        dist.all_to_all(gaps, list(share.chunk(SIZE)))
        assert [t[3].item() for t in gaps] == [r + 1.0 for r in range(SIZE)]

    with torch.inference_mode():
        compare(transposed(), transposed())
        inference, other = transposed(), transposed()
    compare(inference, other)
    with torch.no_grad():
        compare(transposed(requires_grad=True), transposed(requires_grad=True))
    leaf = torch.ones(16, 16, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(leaf.t())
    dist.all_reduce((leaf * 2).t())
    assert leaf.is_leaf and leaf[0, 0].item() == SIZE
    assert dist.group.WORLD.counts["gloo"] == 0


@job
def callbacks_that_raise() -> None:
    """The thread that ends collectives survives; what fails is the work's error."""
    begin(timeout=timedelta(seconds=10))
    work = dist.all_reduce(torch.ones(16, 16).t(), async_op=True)
    work.wait()
    broken = torch.ones(16, 16).t()
    put_back = group_module._put_back

    def fails(call: object) -> None:
        raise MemoryError("no memory to copy back")

    group_module._put_back = fails
    try:
        dist.all_reduce(broken)
        raise AssertionError("done though nothing was copied back")
    except MemoryError as error:
        assert "copy back" in str(error)
    finally:
        group_module._put_back = put_back
    again = torch.full((16, 16), float(RANK)).t()
    dist.all_reduce(again)
    assert (again == SIZE * (SIZE - 1) / 2).all()


@job
def different_calls() -> None:
    """Ranks that call different things all get an error that names both calls."""
    begin(timeout=timedelta(seconds=20))
    kind = os.environ["DIFFERENCE"]
    mine = torch.ones(256)
    try:
        dist.all_reduce(torch.ones(256))  # a slow rank may learn it here already
        if kind == "operation" and RANK == 0:
            dist.broadcast(mine, 0)
        elif kind == "type" and RANK == 0:
            dist.all_reduce(mine.to(torch.int32))
        elif kind == "reduction" and RANK == 0:
            dist.all_reduce(mine, Op.MAX)
        elif kind == "root":
            dist.broadcast(mine, RANK % 2)
        elif kind == "size" and RANK == 0:
            dist.all_reduce(torch.ones(255))
        else:
            dist.all_reduce(mine)
        dist.all_reduce(mine)  # whose own part of the first was over may learn it here
        raise AssertionError("all went well")
    except RuntimeError as error:
        print("TOLD", error)
    os._exit(0)


@job
def late_peer() -> None:
    """A collective that one rank does not join is waited for as long as asked, then fails."""
    begin(timeout=timedelta(seconds=3))
    dist.all_reduce(torch.ones(10))
    if RANK == SIZE - 1:
        time.sleep(8)
        return
    work = dist.all_reduce(torch.ones(100000), async_op=True)
    assert not work.is_completed()
    try:
        work.wait(timedelta(seconds=0.2))
        raise AssertionError("done without the last rank")
    except RuntimeError as error:
        assert "not done after 0.2 s" in str(error), error
    try:
        work.wait()
        raise AssertionError("done without the last rank")
    except RuntimeError as error:
        print("TOLD", error)
    assert work.is_completed() and not work.is_success()
    try:
        dist.all_reduce(torch.ones(100000))
        raise AssertionError("a broken group went on")
    except RuntimeError as error:
        assert f"rank {RANK}" in str(error), error
    os._exit(0)


@job
def killed_peer() -> None:
    begin()
    dist.all_reduce(torch.ones(10))
    if RANK == 1:
        work = dist.all_reduce(torch.ones(3_000_000), async_op=True)
        os.kill(os.getpid(), signal.SIGKILL)
        work.wait()
    try:
        dist.all_reduce(torch.ones(3_000_000))
        dist.all_reduce(torch.ones(3_000_000))
        raise AssertionError("done without rank 1")
    except RuntimeError as error:
        print("TOLD", error)
    os._exit(0)


@job
def delayed() -> None:
    """Messages of programs have the latencies of an emulated cluster, in every group."""
    begin()
    for group in (dist.group.WORLD, dist.new_group()):
        tensor = torch.full((10,), float(RANK))
        dist.barrier(group)
        began = time.monotonic()
        dist.all_reduce(tensor, group=group)
        assert (tensor == SIZE * (SIZE - 1) / 2).all()
        assert time.monotonic() - began >= 0.1
        assert group.counts["program"] == 1


@job
def few_calls() -> None:
    begin()
    dist.all_reduce(torch.ones(1000))


@job
def growing_calls() -> None:
    begin()
    for count in [1000] * 100 + [50_000] * 200:
        time.sleep(0.01)  # rounds go on meanwhile
        tensor = torch.full((count,), float(dist.get_rank()))
        dist.all_reduce(tensor)
        assert bool((tensor == SIZE * (SIZE - 1) / 2).all())
    assert dist.group.WORLD.counts == {"program": 300, "gloo": 0}


@job
def no_table() -> None:
    begin()
    tensor = torch.ones(1000)
    share = torch.zeros(2)
    dist.reduce_scatter_single(share, torch.ones(2 * SIZE))
    assert share.tolist() == [SIZE, SIZE]
    dist.all_reduce(tensor)
    assert (tensor == SIZE).all()
    assert dist.group.WORLD.counts == {"program": 0, "gloo": 2}


@job
def odd_calls() -> None:
    """What is seldom called, and what ends and begins anew."""
    begin()
    peers = [(RANK + 1) % SIZE, (RANK - 1) % SIZE]
    got = torch.empty(3)
    pair = [dist.P2POp(dist.isend, torch.full((3,), float(RANK)), peers[0])]
    for work in dist.batch_isend_irecv([*pair, dist.P2POp(dist.irecv, got, peers[1])]):
        work.wait()
    assert (got == peers[1]).all()
    objects = [{"rank": RANK}, None] if RANK == 1 else [None, None]
    dist.broadcast_object_list(objects, src=1)
    assert objects == [{"rank": 1}, None]
    mine: list[object] = [None]
    dist.scatter_object_list(mine, list(range(SIZE)) if RANK == 0 else None, src=0)
    assert mine == [RANK]
    dist.group.WORLD.monitored_barrier(timedelta(seconds=30))
    with dist._coalescing_manager(async_ops=True) as both:
        many = [torch.full((n,), float(RANK)) for n in (3, 700)]
        for tensor in many:
            dist.all_reduce(tensor, Op.MAX)
    both.wait()
    assert all((t == SIZE - 1).all() for t in many)
    gaps = torch.zeros(10, 2)[:, 0]
    dist.broadcast(gaps.add_(RANK), 1)
    assert (gaps == 1).all()
    halves = torch.full((777,), RANK / 2, dtype=torch.float16)
    dist.all_reduce(halves, Op.AVG)
    assert (halves == (SIZE - 1) / 4).all()


@job
def threads() -> None:
    """Two groups at a time, each from a thread of its own; then a world that begins anew."""
    for turn in range(2):
        begin_again(turn)
        groups = [dist.group.WORLD, dist.new_group(list(range(SIZE)))]
        wrong: list[int] = []

        def use(group: dist.ProcessGroup, wrong: list[int] = wrong) -> None:
            for count in (1, 10_007, 300_001) * 3:
                tensor = torch.full((count,), float(RANK))
                dist.all_reduce(tensor, group=group)
                wrong.append(int((tensor != SIZE * (SIZE - 1) / 2).sum()))

        users = [threading.Thread(target=use, args=(group,)) for group in groups]
        for user in users:
            user.start()
        for user in users:
            user.join()
        assert wrong == [0] * 18
        assert all(group.counts == {"program": 9, "gloo": 0} for group in groups)
        dist.destroy_process_group()
