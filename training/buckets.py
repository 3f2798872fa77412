"""Gradients into buckets: pure functions of sizes, ready times and the cost of a collective.

Tensors count in forward order, 0 to L - 1; backward makes them ready from the last to the first.
A group is a half-open range of them, which one collective reduces; groups come in the order of
their calls, so from the last tensors to the first. ``cost`` gives us for bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

Cost = Callable[[int], float]
Group = tuple[int, int]


def groups_end_us(
    sizes: Sequence[int], ready_us: Sequence[float], groups: Sequence[Group], cost: Cost
) -> float:
    """Return when the last of ``groups`` is reduced, in us: one at a time, each once it is ready.

    >>> groups_end_us([8, 8], [5.0, 3.0], [(1, 2), (0, 1)], lambda nbytes: 1.0 + nbytes)
    21.0
    """
    end = 0.0
    for first, last in groups:
        end = max(end, ready_us[first]) + cost(sum(sizes[first:last]))
    return end


def merged_groups(
    sizes: Sequence[int], ready_us: Sequence[float], cost: Cost, alpha_us: float
) -> tuple[Group, ...]:
    """Return MG-WFBP's groups by its published greedy rule.

    Args:
        sizes: bytes of each tensor.
        ready_us: when each is ready.
        cost: us of an all-reduce of so many bytes.
        alpha_us: the start-up time of an all-reduce, which merging saves.

    Notes:
        Shi, Chu, Li, "MG-WFBP", INFOCOM 2019, Algorithm 1: tensor l goes with the one before it if
        that is ready before l's call would have paid its start-up, ready_{l-1} < s_l + a.
    """
    groups = []
    end, last = 0.0, len(sizes)
    for first in range(len(sizes) - 1, -1, -1):
        begin = max(end, ready_us[first])
        if first == 0 or ready_us[first - 1] >= begin + alpha_us:
            groups.append((first, last))
            end, last = begin + cost(sum(sizes[first:last])), first
    return tuple(groups)


def merged_groups_exact(
    sizes: Sequence[int], ready_us: Sequence[float], cost: Cost
) -> tuple[Group, ...]:
    """Return the groups after which the last all-reduce ends earliest, for any ``cost``.

    Notes:
        F_{L+1} = 0; F_j = min over i > j of max(F_i, ready_j) + cost(p_j + .. + p_{i-1}). F_i are
        least by themselves, so O(L^2) costs find the optimum. Ties go to fewer calls.

    >>> merged_groups_exact([4, 4], [2.0, 1.0], lambda nbytes: 10.0 + nbytes)
    ((0, 2),)
    """
    total = list(accumulate(sizes, initial=0))
    count = len(sizes)
    best: list[tuple[float, int]] = [(math.inf, 0)] * count + [(0.0, 0)]
    upto = [0] * count
    for first in range(count - 1, -1, -1):
        for last in range(count, first, -1):
            end, calls = best[last]
            us = max(end, ready_us[first]) + cost(total[last] - total[first])
            if (us, calls + 1) < best[first]:
                best[first], upto[first] = (us, calls + 1), last
    edges = [0]
    while edges[-1] < count:
        edges.append(upto[edges[-1]])
    return tuple(reversed(list(pairwise(edges))))


def ddp_groups(
    sizes: Sequence[int], cap_bytes: int = 25 << 20, first_cap_bytes: int = 1 << 20
) -> tuple[Group, ...]:
    """Return the buckets of PyTorch's DDP: closed by the tensor that fills them to their cap.

    Notes:
        torch.distributed, compute_bucket_assignment_by_size over the order of readiness, as DDP
        rebuilds them after the first step; the first has a cap of its own; tensors stay whole.
    """
    groups: list[Group] = []
    last, filled = len(sizes), 0
    for first in range(len(sizes) - 1, -1, -1):
        filled += sizes[first]
        if filled >= (cap_bytes if groups else min(first_cap_bytes, cap_bytes)) or first == 0:
            groups.append((first, last))
            last, filled = first, 0
    return tuple(groups)


def fused_groups(
    sizes: Sequence[int],
    ready_us: Sequence[float],
    threshold_bytes: int = 64 << 20,
    cycle_us: float = 1000.0,
) -> tuple[tuple[Group, float], ...]:
    """Return Horovod's fusion: groups, each with the tick in us at which its call is made.

    At every ``cycle_us`` what became ready since is fused up to ``threshold_bytes``; a larger
    tensor goes alone.
    """
    groups: list[tuple[Group, float]] = []
    last, filled, tick = len(sizes), 0, 0.0
    for place in range(len(sizes) - 1, -1, -1):
        ready = ready_us[place]
        due = math.ceil(ready / cycle_us) * cycle_us if cycle_us > 0 else ready
        if filled and (due != tick or filled + sizes[place] > threshold_bytes):
            groups.append(((place + 1, last), tick))
            last, filled = place + 1, 0
        filled += sizes[place]
        tick = due
    return (*groups, ((0, last), tick))


def partitions(elements: int, most: int) -> tuple[int, ...]:
    """Return the elements of the parts, as equal as can be, of a tensor cut at ``most``.

    >>> partitions(10, 4)
    (4, 3, 3)
    """
    count = -(-elements // most)
    least, larger = divmod(elements, count)
    return (least + 1,) * larger + (least,) * (count - larger)
