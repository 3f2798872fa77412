"""What the processes of a test train: each function is a job (ranks.py)."""

import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    powerSGD_hook,
)

from tests.torch_backend.ranks import begin, job, reference

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
Future: TypeAlias = torch.futures.Future[torch.Tensor]  # as DDP wants hooks to be annotated
Hook = Callable[..., Future]


def trained(group: dist.ProcessGroup) -> list[torch.Tensor]:
    """Return the weights of a small network after some steps on this rank's share of the data."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 8 * 8, 101),
        torch.nn.Linear(101, 10),
    )
    data = torch.Generator().manual_seed(RANK)
    parallel = torch.nn.parallel.DistributedDataParallel(
        model, process_group=group, bucket_cap_mb=0.1
    )
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05, momentum=0.9)
    for _ in range(8):
        images = torch.randn(16, 1, 16, 16, generator=data)
        labels = (images.mean((1, 2, 3)) * 40).long().clamp(0, 9)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(parallel(images), labels).backward()
        optimizer.step()
    return [t.detach().clone() for t in parallel.state_dict().values()]


@job
def training() -> None:
    """DDP ends with Gloo's weights: bit by bit on two ranks, where a sum has one order."""
    begin()
    torch.set_num_threads(1)
    ours = trained(dist.group.WORLD)
    assert dist.group.WORLD.counts["program"] > 20, dist.group.WORLD.counts
    theirs = trained(reference())
    for a, b in zip(ours, theirs, strict=True):
        if SIZE == 2:
            assert torch.equal(a, b)
        else:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    copies = [torch.empty_like(ours[0]) for _ in range(SIZE)]
    dist.all_gather(copies, ours[0])
    assert all(torch.equal(copy, ours[0]) for copy in copies)


def power_sgd(group: dist.ProcessGroup) -> powerSGD_hook.PowerSGDState:
    return powerSGD_hook.PowerSGDState(
        process_group=group,
        matrix_approximation_rank=1,
        start_powerSGD_iter=2,
        min_compression_rate=0.5,
    )


def of_group(group: dist.ProcessGroup) -> dist.ProcessGroup:
    return group


def bf16(state: object, bucket: dist.GradBucket) -> Future:
    """Run PyTorch's hook, which DDP refuses by its name unless there is CUDA."""
    return default_hooks.bf16_compress_hook(state, bucket)


STOCK_HOOKS: dict[str, tuple[Callable[[dist.ProcessGroup], object], Hook]] = {
    "noop": (of_group, debugging_hooks.noop_hook),
    "allreduce": (of_group, default_hooks.allreduce_hook),
    "fp16": (of_group, default_hooks.fp16_compress_hook),
    "bf16": (of_group, bf16),
    "PowerSGD": (power_sgd, powerSGD_hook.powerSGD_hook),
    "PowerSGD of fp16": (
        power_sgd,
        default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook),
    ),
}


def hooked(group: dist.ProcessGroup, name: str) -> list[torch.Tensor]:
    """Return what a model's weights are after steps with one of PyTorch's hooks."""
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 32)),
        process_group=group,
        bucket_cap_mb=0.02,
    )
    state_of, hook = STOCK_HOOKS[name]
    model.register_comm_hook(state_of(group), hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        torch.manual_seed(100 * step + RANK)
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


@job
def stock_hooks() -> None:
    """Hooks that PyTorch has: PowerSGD's callbacks wait for further collectives."""
    begin()
    torch.set_num_threads(1)
    gloo = reference()
    for name in STOCK_HOOKS:
        before = dist.group.WORLD.counts["program"]
        ours = hooked(dist.group.WORLD, name)
        assert dist.group.WORLD.counts["program"] > before, name  # noop: DDP's first broadcast
        for mine, theirs in zip(ours, hooked(gloo, name), strict=True):
            assert torch.equal(mine, theirs), (name, (mine - theirs).abs().max())


@job
def killed_in_backward() -> None:
    """A rank dies; the reducer of DDP, which is C++, raises on the other."""
    begin()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        model(torch.ones(2, 4)).sum().backward()
        raise AssertionError("went on without a rank")
    except RuntimeError as error:
        print("TOLD", str(error).splitlines()[0])
        sys.stdout.flush()
    os._exit(0)


class Branches(torch.nn.Module):  # type: ignore[misc]
    """Layers of which a forward pass leaves one out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first = torch.nn.Linear(16, 16)
        self.branches = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(2))

    def forward(self, given: torch.Tensor, branch: int) -> torch.Tensor:
        return self.branches[branch](self.first(given).relu())


def branched(group: dist.ProcessGroup) -> list[torch.Tensor]:
    """Return weights after steps with accumulation, unused parameters and clipping."""
    model = torch.nn.parallel.DistributedDataParallel(
        Branches(), process_group=group, find_unused_parameters=True, bucket_cap_mb=0.001
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = torch.Generator().manual_seed(RANK)
    for step in range(4):
        optimizer.zero_grad()
        with model.no_sync():
            model(torch.randn(4, 16, generator=data), step % 2).square().sum().backward()
        # Ranks use different branches: only together do they know which was left out.
        model(torch.randn(4, 16, generator=data), (step + RANK) % 2).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


@job
def ddp_in_use() -> None:
    begin()
    theirs = branched(reference())
    for mine, expected in zip(branched(dist.group.WORLD), theirs, strict=True):
        assert torch.equal(mine, expected)


@job
def restarted() -> None:
    """Under torchrun: rank 1 dies at step 3 of the first start; the second goes on from a file."""
    begin()
    first_start = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    checkpoint = Path(os.environ["LOGS"], "checkpoint.pt")
    model = torch.nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        step = saved["step"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    assert step == (0 if first_start else 3)
    for number in range(step, 6):
        if first_start and number == 3 and RANK == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        torch.manual_seed(10 * number + RANK)
        optimizer.zero_grad()
        model(torch.randn(8, 33)).square().mean().backward()
        optimizer.step()
        saved = {"step": number + 1, "model": model.state_dict()}
        saved["optimizer"] = optimizer.state_dict()
        if RANK == 0:
            torch.save(saved, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").rename(checkpoint)
        dist.barrier()
    assert dist.group.WORLD.counts["program"] > 0
    print("RESTARTED", os.environ["TORCHELASTIC_RESTART_COUNT"])


def network() -> torch.nn.Module:
    torch.manual_seed(11)
    layers = [
        torch.nn.Sequential(torch.nn.Linear(33, 57), torch.nn.GELU(), torch.nn.Linear(57, 33))
    ]
    layers += [torch.nn.Sequential(torch.nn.LayerNorm(33), torch.nn.Linear(33, 33))]
    return torch.nn.Sequential(*layers, torch.nn.Linear(33, 7))


def stepped(model: torch.nn.Module, synchronize: Callable[[bool], None] | None = None) -> None:
    """Train ``model`` for 4 steps, clipped; every other one of two backward passes."""
    data = torch.Generator().manual_seed(RANK)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(4):
        optimizer.zero_grad()
        if synchronize is not None and step % 2:
            synchronize(False)
            model(torch.randn(8, 33, generator=data)).square().mean().backward()
            synchronize(True)
        model(torch.randn(8, 33, generator=data)).square().mean().backward()
        if synchronize is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


def fully_sharded(group: dist.ProcessGroup) -> list[torch.Tensor]:
    """Return this rank's part of the weights after some steps of ``fully_shard``."""
    from torch.distributed.checkpoint import state_dict as checkpoints
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = network(), DeviceMesh.from_group(group, "cpu")
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    stepped(model, model.set_requires_gradient_sync)
    whole = checkpoints.StateDictOptions(full_state_dict=True)
    saved = checkpoints.get_model_state_dict(model, options=whole)
    restored = fully_shard(network(), mesh=mesh)
    checkpoints.set_model_state_dict(restored, saved, options=whole)
    weights = [p.to_local().detach().clone() for p in model.parameters()]
    for mine, again in zip(model.parameters(), restored.parameters(), strict=True):
        assert torch.equal(mine.full_tensor(), again.full_tensor())
    return weights


def flat_sharded(group: dist.ProcessGroup) -> list[torch.Tensor]:
    """Return the same of the older class."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FullyShardedDataParallel(
            network(),
            process_group=group,
            device_id=torch.device("cpu"),
            auto_wrap_policy=ModuleWrapPolicy({torch.nn.Sequential}),
            use_orig_params=True,
        )
        stepped(model)
    return [p.detach().clone() for p in model.parameters()]


@job
def sharded_training() -> None:
    """Weights that are kept in shards come out as with Gloo, and their shards go by programs."""
    begin()
    torch.set_num_threads(1)
    gloo = reference()
    for trained_by in (fully_sharded, flat_sharded):
        before = dist.group.WORLD.counts
        ours = trained_by(dist.group.WORLD)
        after = dist.group.WORLD.counts
        assert after["program"] >= before["program"] + 16, (before, after)
        theirs = trained_by(gloo)
        for a, b in zip(ours, theirs, strict=True):
            if SIZE == 2:
                assert torch.equal(a, b), trained_by
            else:
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
