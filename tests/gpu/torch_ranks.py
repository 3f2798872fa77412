"""A rank of test_torch.py: the calls of `tuccl` on its GPU against those of NCCL."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

import tuccl.torch  # noqa: F401

COUNT = 960 << 10


def main() -> None:
    """Run each call in both ways, in a graph too, then train a step by DDP."""
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("tuccl")
    nccl = dist.new_group(backend="nccl")
    size = dist.get_world_size()

    def drawn(count: int) -> torch.Tensor:
        return torch.randint(1, 9, (count,), device="cuda").float()

    a = drawn(COUNT)
    b = a.clone()
    dist.all_reduce(a)
    dist.all_reduce(b, group=nccl)
    assert torch.equal(a, b)
    a, b = torch.empty(COUNT * size, device="cuda"), torch.empty(COUNT * size, device="cuda")
    mine = drawn(COUNT)
    dist.all_gather_single(a, mine)
    dist.all_gather_single(b, mine, group=nccl)
    assert torch.equal(a, b)
    counts = dist.group.WORLD.counts
    assert counts["program"] == 2, counts

    a, graph = torch.ones(COUNT, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(a)
    a.fill_(1.0)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert bool((a == size**3).all())

    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda(), [rank])
    model(drawn(64)).sum().backward()
    gradient = model.module.weight.grad
    other = gradient.clone()
    dist.broadcast(other, 0, group=nccl)
    assert torch.equal(gradient, other)
    dist.destroy_process_group()
    print("all is right")


if __name__ == "__main__":
    main()
