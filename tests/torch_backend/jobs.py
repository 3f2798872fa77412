"""What the processes of a test do: python jobs.py NAME, told by the environment who they are."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import torch
import torch.distributed as dist

import tuccl.torch  # noqa: F401

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
Op = dist.ReduceOp
JOBS: dict[str, Callable[[], None]] = {}


def job(function: Callable[[], None]) -> Callable[[], None]:
    JOBS[function.__name__] = function
    return function


def begin(**more: object) -> None:
    where = f"file://{os.environ['STORE']}"
    more.setdefault("timeout", timedelta(seconds=60))
    dist.init_process_group("tuccl", init_method=where, rank=RANK, world_size=SIZE, **more)


def drawn(count: int, dtype: torch.dtype, rank: int = RANK) -> torch.Tensor:
    """Return small whole numbers that no partial sum or product of 8 of them rounds."""
    generator = torch.Generator().manual_seed(rank * 1000 + count)
    return torch.randint(1, 3, (count,), generator=generator).to(dtype)


TYPES = (
    *(torch.int8, torch.uint8, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
COUNTS = (1, 7, 1000, 40009)


def reductions(group: dist.ProcessGroup) -> Iterator[torch.Tensor]:
    for dtype in TYPES:
        for count in COUNTS:
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
    for dtype in (*TYPES, torch.bool, torch.complex64):
        for count in COUNTS:
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
    gloo = dist.new_group(backend="gloo")
    for kind in (reductions, moves):
        for ours, theirs in zip(kind(dist.group.WORLD), kind(gloo), strict=True):
            assert torch.equal(ours, theirs), (kind, ours.dtype, ours.shape, ours, theirs)
    counts = dist.group.WORLD.counts
    assert counts["program"] > 10 * counts["gloo"], counts


if __name__ == "__main__":
    JOBS[sys.argv[1]]()
    if dist.is_initialized():
        dist.destroy_process_group()
