"""A rank of test_torch.py: the calls of `tuccl` on a GPU against those of Gloo on the host."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

import tuccl.torch  # noqa: F401

COUNT = 960 << 10
MANY = 200  # calls in a row; with TUCCL_ADAPT=1 some of them are timed


def main() -> None:
    """Run each call in both ways, in a graph too, then reduce a gradient."""
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("tuccl")
    gloo = dist.new_group(backend="gloo")
    size = dist.get_world_size()

    def drawn(count: int) -> torch.Tensor:
        return torch.randint(1, 9, (count,), device="cuda").float()

    a = drawn(COUNT)
    b = a.cpu()
    dist.all_reduce(a)
    dist.all_reduce(b, group=gloo)
    assert torch.equal(a.cpu(), b)
    mine = drawn(COUNT)
    a, b = torch.empty(COUNT * size, device="cuda"), torch.empty(COUNT * size)
    dist.all_gather_into_tensor(a, mine)
    dist.all_gather_into_tensor(b, mine.cpu(), group=gloo)
    assert torch.equal(a.cpu(), b)
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

    a = torch.full((1024,), rank + 1.0, device="cuda")
    for _ in range(MANY):
        dist.all_reduce(a, op=dist.ReduceOp.AVG)
    assert bool((a == (size + 1) / 2).all())

    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 64).cuda()
    layer(drawn(64)).sum().backward()
    gradient = layer.weight.grad
    other = gradient.cpu()
    work = dist.all_reduce(gradient, async_op=True)
    dist.all_reduce(other, group=gloo)
    work.wait()
    assert torch.allclose(gradient.cpu(), other)

    if torch.cuda.device_count() >= size:  # what DDP starts with is done by NCCL
        model = torch.nn.parallel.DistributedDataParallel(layer, [rank])
        model(drawn(64)).sum().backward()
        other = layer.weight.grad.cpu()
        dist.broadcast(other, 0, group=gloo)
        assert torch.equal(layer.weight.grad.cpu(), other)
    dist.destroy_process_group()
    print("all is right")


if __name__ == "__main__":
    main()
