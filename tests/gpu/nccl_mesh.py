"""A rank of test_nccl.py: allreduces of a DeviceMesh's groups by NCCL, all on one GPU."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def main() -> None:
    """Reduce as many floats in each dimension's group as its argument says, and compare."""
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
    for name, count in (word.split("=") for word in sys.argv[1:]):
        group = mesh.get_group(name)
        expected = sum(rank + 1 for rank in dist.get_process_group_ranks(group))
        for _ in range(3):
            data = torch.full((int(count),), dist.get_rank() + 1.0, device="cuda")
            dist.all_reduce(data, group=group)
            assert bool((data == expected).all())
    print(f"\nrank {dist.get_rank()} is right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
