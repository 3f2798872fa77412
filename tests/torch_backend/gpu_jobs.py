"""Calls by the communicator for GPUs, with the CPU in a GPU's place: pointers are CPU tensors'."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist

from tests.torch_backend.ranks import begin, job, reference
from tuccl.errors import Unavailable
from tuccl.torch.calls import CollectiveCall
from tuccl.torch.gpus import GpuCollectives

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
COUNT = 960  # every chunking of the tables divides it


def drawn(count: int = COUNT, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(RANK * 1000 + count)
    return torch.randint(1, 9, (count,), generator=generator).to(dtype)


def collectives(*tables: str) -> GpuCollectives:
    begin()
    store = dist.distributed_c10d._get_default_store()
    return GpuCollectives(dist.PrefixStore("on-gpus/", store), RANK, SIZE, tables)


@job
def programs_on_gpus() -> None:
    gpus = collectives(os.environ["TUCCL_TABLE"])
    gloo = reference()
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        mine = drawn(dtype=dtype)
        right = mine.clone()
        dist.all_reduce(right, group=gloo)
        assert gpus.run(CollectiveCall("allreduce", mine, [mine], [mine]), 0)
        assert torch.equal(mine, right)
    strided = drawn(2 * COUNT)[::2]
    right = strided.contiguous()
    dist.all_reduce(right, dist.ReduceOp.MAX, group=gloo)
    assert gpus.run(CollectiveCall("allreduce", strided, [strided], [strided], "max"), 0)
    assert torch.equal(strided, right)

    mine, parts = drawn(), [torch.empty(COUNT) for _ in range(SIZE)]
    right = torch.empty(COUNT * SIZE)
    dist.all_gather_single(right, mine, group=gloo)
    assert gpus.run(CollectiveCall("allgather", mine, [mine], parts), 0)
    assert torch.equal(torch.cat(parts), right)

    whole = drawn(COUNT * SIZE)
    share, total = torch.empty(COUNT), whole.clone()
    dist.all_reduce(total, group=gloo)
    given = list(whole.chunk(SIZE))
    assert gpus.run(CollectiveCall("reduce-scatter", share, given, [share]), 0)
    assert torch.equal(share, total.chunk(SIZE)[RANK])

    for root in range(SIZE):
        mine = drawn()
        right = mine.clone()
        dist.broadcast(right, root, group=gloo)
        assert gpus.run(CollectiveCall("broadcast", mine, [mine], [mine], root=root), 0)
        assert torch.equal(mine, right)
        mine = drawn()
        right = mine.clone()
        dist.reduce(right, root, group=gloo)
        assert gpus.run(CollectiveCall("reduce", mine, [mine], [mine], root=root), 0)
        assert RANK != root or torch.equal(mine, right)

    parts, right = [torch.empty(COUNT) for _ in range(SIZE)], torch.empty(COUNT * SIZE)
    dist.all_to_all_single(right, whole, group=gloo)
    assert gpus.run(CollectiveCall("alltoall", given[0], given, parts), 0)
    assert torch.equal(torch.cat(parts), right)

    assert not gpus.run(CollectiveCall("gather", mine, [mine], []), 0)
    wide = torch.empty(COUNT, dtype=torch.complex128)
    assert not gpus.run(CollectiveCall("allreduce", wide, [wide], [wide]), 0)
    assert not gpus.run(CollectiveCall("allreduce", mine, [mine], [mine], None), 0)
    gpus.close()
    gpus.close()


@job
def no_programs_on_gpus() -> None:
    """Neither a table for other ranks nor a rank without the library leaves anyone waiting."""
    mine = drawn()
    call = CollectiveCall("allreduce", mine, [mine], [mine])
    gpus = collectives(os.environ["OTHER_TABLE"])
    assert not gpus.run(call, 0) and "no table is for" in gpus.refusal
    try:
        gpus.other()
    except Unavailable as missing:
        assert "no NCCL" in str(missing)
    if RANK == 1:
        os.environ["TUCCL_CUDA_LIBRARY"] = str(Path("/nowhere/lib.so"))
    store = dist.PrefixStore("again/", dist.distributed_c10d._get_default_store())
    gpus = GpuCollectives(store, RANK, SIZE, [os.environ["TUCCL_TABLE"]])
    assert not gpus.run(call, 0) and "make cuda" in gpus.refusal
