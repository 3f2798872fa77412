"""Times of collectives on a process group, measured: probes, and costs to choose an exchange by."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import torch
import torch.distributed as dist

from tuccl.training.costs import Cost, Costs

_SIZES = tuple(1 << power for power in range(8, 23, 2))
_WARM = 1
# The name since PyTorch 2.13, and before.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def exchange_probe(
    process_group: dist.ProcessGroup | None = None,
    repeats: int = 5,
    tree_group: dist.ProcessGroup | None = None,
) -> Callable[[str, int], float]:
    """Return a probe for `ProbingMonitor`: us of an exchange, the median of the slowest rank's.

    All ranks must call it alike. ``tree_group`` does the all-reduce of ``tree-allreduce``.
    """

    def probe(exchange: str, values: int) -> float:
        if exchange == "allgather":
            ranks = dist.get_world_size(process_group)
            calls = [_call("allgather", 8 * values * ranks, process_group)]
        else:
            by_tree = exchange == "tree-allreduce"
            calls = [
                _call("broadcast", 4 * values, process_group),
                _call("allreduce", 4 * values, tree_group if by_tree else process_group),
            ]
        return _timed(calls, process_group, repeats)

    return probe


def measured_costs(
    process_group: dist.ProcessGroup | None = None,
    sizes: Sequence[int] = _SIZES,
    repeats: int = 5,
    tree_group: dist.ProcessGroup | None = None,
) -> Costs:
    """Return what collectives take on a group, equal on all ranks.

    Between ``sizes``, in bytes of the whole array, and beyond them times are straight lines. All
    ranks must call it alike.
    """
    groups = dict.fromkeys(("allreduce", "broadcast", "allgather"), process_group)
    by_call = {name: _measured(name, group, sizes, repeats) for name, group in groups.items()}
    if tree_group is not None:
        by_call["tree-allreduce"] = _measured("allreduce", tree_group, sizes, repeats)
    costs: Mapping[str, Cost] = {name: _line_through(points) for name, points in by_call.items()}
    return Costs(costs, by_call["allreduce"][0][1], "measured on this group")


def _measured(
    name: str, group: dist.ProcessGroup | None, sizes: Sequence[int], repeats: int
) -> list[tuple[int, float]]:
    return [(n, _timed([_call(name, n, group)], group, repeats)) for n in sorted(sizes)]


def _call(name: str, nbytes: int, group: dist.ProcessGroup | None) -> Callable[[], object]:
    """Return a call of a collective on an array of ``nbytes`` bytes in all."""
    if name == "allgather":
        ranks = dist.get_world_size(group)
        share = torch.zeros(max(nbytes // ranks, 1), dtype=torch.uint8)
        whole = torch.zeros(share.numel() * ranks, dtype=torch.uint8)
        return lambda: _all_gather(whole, share, group=group)
    values = torch.zeros(max(nbytes // 4, 1))
    if name == "broadcast":
        return lambda: dist.broadcast(values, group=group, group_src=0)
    return lambda: dist.all_reduce(values, group=group)


def _timed(
    calls: Sequence[Callable[[], object]], group: dist.ProcessGroup | None, repeats: int
) -> float:
    """Return the us of all ``calls`` in turn: the median, each time of the slowest rank."""
    times: list[float] = []
    for _ in range(_WARM + repeats):
        dist.barrier(group)
        began = time.perf_counter()
        for call in calls:
            call()
        took = torch.tensor([(time.perf_counter() - began) * 1e6], dtype=torch.float64)
        dist.all_reduce(took, dist.ReduceOp.MAX, group=group)
        times.append(float(took.item()))
    return median(times[_WARM:])


def _line_through(points: Sequence[tuple[int, float]]) -> Cost:
    sizes = [size for size, _ in points]

    def cost(nbytes: int) -> float:
        after = min(max(bisect_right(sizes, nbytes), 1), len(points) - 1)
        (low, low_us), (high, high_us) = points[after - 1], points[after]
        us = low_us + (nbytes - low) * (high_us - low_us) / (high - low)
        return max(us, low_us if nbytes >= low else 0.0)

    return cost
