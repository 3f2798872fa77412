"""Jobs whose hosts come and go (HOSTS names that of each rank)."""

from __future__ import annotations

import os
import signal

import torch
import torch.distributed as dist

from tests.torch_backend.ranks import begin, job, reference

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ["WORLD_SIZE"])
COUNTS = (1, 255, 1000, 70_001)


@job
def on_the_hosts_there() -> None:
    """Do as Gloo does, in a sub-group too; tell how many calls ran by programs."""
    begin()
    gloo = reference()
    pair = dist.new_group([0, 1])
    for count in COUNTS:
        whole = torch.arange(count, dtype=torch.float32) + RANK
        ours, theirs = whole.clone(), whole.clone()
        dist.all_reduce(ours)
        dist.all_reduce(theirs, group=gloo)
        assert torch.equal(ours, theirs)
        all_ours, all_theirs = ([torch.empty_like(whole) for _ in range(SIZE)] for _ in range(2))
        dist.all_gather(all_ours, whole)
        dist.all_gather(all_theirs, whole, group=gloo)
        assert all(torch.equal(a, b) for a, b in zip(all_ours, all_theirs, strict=True))
        if RANK < 2:
            dist.all_reduce(whole, group=pair)
            assert torch.equal(whole, 2 * torch.arange(count, dtype=torch.float32) + 1)
    print("TOLD", dist.group.WORLD.counts["program"])


@job
def a_host_goes() -> None:
    """A rank is killed amid calls; the others get an error, and no wrong sum before it."""
    begin()
    killed = int(os.environ.get("KILLED", SIZE - 1))
    try:
        for step in range(1000):
            if RANK == killed and step == 5:
                work = dist.all_reduce(torch.ones(3_000_000), async_op=True)
                os.kill(os.getpid(), signal.SIGKILL)
                work.wait()
            given = torch.ones(50_000)
            dist.all_reduce(given)
            assert torch.equal(given, torch.full((50_000,), float(SIZE)))
        raise AssertionError("done without that rank")
    except RuntimeError as error:
        print("TOLD", error)
    os._exit(0)
