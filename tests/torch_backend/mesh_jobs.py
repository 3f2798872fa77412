"""Jobs on a mesh of ranks, whose groups have tables by their members: each function is a job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from tests.torch_backend.ddp_jobs import network, stepped
from tests.torch_backend.ranks import begin, job

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

RANK = int(os.environ["RANK"])
SHAPE, NAMES = (2, 2), ("dp", "tp")


def own_mesh() -> DeviceMesh:
    """Return the mesh, of this backend's groups."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", SHAPE, mesh_dim_names=NAMES)


def gloo_mesh() -> DeviceMesh:
    """Return the same mesh of PyTorch's own Gloo groups."""
    from torch.distributed.device_mesh import DeviceMesh

    ranks = torch.arange(4).reshape(SHAPE)
    groups = []
    for lines in (ranks.t(), ranks):
        made = [dist.new_group(line.tolist(), backend="gloo") for line in lines]
        groups.append(next(g for g, line in zip(made, lines, strict=True) if RANK in line))
    return DeviceMesh.from_group(groups, "cpu", mesh=ranks, mesh_dim_names=NAMES)


@job
def groups_of_a_mesh() -> None:
    """Two kinds of two ranks run the programs of their own tables; the world has none.

    The table of dp ends below 40,000 bytes.
    """
    begin()
    mesh = own_mesh()
    dp, tp = mesh.get_group("dp"), mesh.get_group("tp")
    assert dist.get_process_group_ranks(dp) == [RANK % 2, RANK % 2 + 2]
    for count, by_program in ((100, (1, 1)), (10_000, (0, 1))):
        for group, expected in zip((dp, tp), by_program, strict=True):
            before, values = group.counts["program"], torch.full((count,), float(RANK))
            dist.all_reduce(values, group=group)
            assert (values == sum(dist.get_process_group_ranks(group))).all()
            assert group.counts["program"] - before == expected, (count, group.counts)
    dist.all_reduce(torch.ones(10))
    assert dist.group.WORLD.counts["program"] == 0
    strange = dist.new_group([0, 3])  # of no kind
    if RANK in (0, 3):
        dist.all_reduce(torch.ones(10), group=strange)
        assert strange.counts == {"program": 0, "gloo": 1}


def replicated_shards(mesh: DeviceMesh) -> list[torch.Tensor]:
    """Return this rank's weights after some steps of ``fully_shard`` on both dimensions: HSDP."""
    from torch.distributed.fsdp import fully_shard

    model = network()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    stepped(model, model.set_requires_gradient_sync)
    return [p.to_local().detach().clone() for p in model.parameters()]


def tensor_parallel(mesh: DeviceMesh) -> list[torch.Tensor]:
    """Return the same of layers that are split over tp and sharded over dp."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(33, 64), torch.nn.GELU(), torch.nn.Linear(64, 33))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(model, mesh["tp"], plan)
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(RANK // 2)  # equal in a tp group
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 33, generator=data)).square().mean().backward()
        optimizer.step()
    return [p.to_local().detach().clone() for p in model.parameters()]


@job
def training_on_a_mesh() -> None:
    """Weights come out as on a mesh of Gloo groups, and both kinds run programs."""
    begin()
    torch.set_num_threads(1)
    mesh, reference = own_mesh(), gloo_mesh()
    for trained_by in (replicated_shards, tensor_parallel):
        before = [mesh.get_group(name).counts["program"] for name in NAMES]
        ours = trained_by(mesh)
        after = [mesh.get_group(name).counts["program"] for name in NAMES]
        assert all(b > a for a, b in zip(before, after, strict=True)), (trained_by, before, after)
        for a, b in zip(ours, trained_by(reference), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@job
def no_table_of_dp() -> None:
    """The groups of dp leave all to Gloo, those of tp do not."""
    begin()
    mesh = own_mesh()
    for name in NAMES:
        dist.all_reduce(torch.ones(100), group=mesh.get_group(name))
    assert [mesh.get_group(name).counts["program"] for name in NAMES] == [0, 1]
