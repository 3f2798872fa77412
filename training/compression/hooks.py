"""Communication hooks of DDP that send sparse gradients: AR-Topk, LWTopk and MSTopk.

>>> from tuccl.training.compression.state import ARTopkState
>>> ddp.register_comm_hook(ARTopkState(compression_ratio=0.1), ar_topk_hook)  # doctest: +SKIP
"""

# DDP looks at a hook's annotations themselves: they must not be postponed to strings.
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from tuccl.errors import InputError
from tuccl.training.compression.exchanges import values_sent
from tuccl.training.compression.indices import (
    INDEX,
    largest_indices,
    layer_indices,
    threshold_indices,
)
from tuccl.training.compression.state import ARTopkState

# The indices to send of a whole model's gradient, whose parameters have those sizes.
_Choose = Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]
_MOST_ELEMENTS = 1 << 31
# The name since PyTorch 2.13, and before.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}  # sums of squares need it


def ar_topk_hook(state: ARTopkState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Return the mean of the ranks' largest gradients, at one rank's indices or at all ranks'.

    A model's buckets are held until the last: the largest are those of the whole model.

    Notes:
        AR-Topk of "Flexible Communication for Optimal Distributed Learning over Unpredictable
        Networks", sections 3-A and 3-B; with ``allgather`` its equation 2.
    """
    ratio = state.compression_ratio

    def choose(gradient: torch.Tensor, _: tuple[int, ...]) -> torch.Tensor:
        return largest_indices(gradient, values_sent(gradient.numel(), ratio))

    def reduce(gradient: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
        count = values_sent(gradient.numel(), ratio)
        state.exchange = state.exchange_for(count)
        if state.exchange == "allgather":
            return _by_allgather(state, gradient, sizes, choose)
        return _by_allreduce(state, gradient, sizes, choose, count)

    return _with_whole_model(state, bucket, reduce)


def lw_topk_hook(state: ARTopkState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Return the mean of each layer's largest gradients of every rank, by all-gather (LWTopk)."""
    ratio = state.compression_ratio

    def choose(gradient: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
        return layer_indices(gradient, sizes, [values_sent(size, ratio) for size in sizes])

    return _baseline(state, bucket, choose)


def ms_topk_hook(state: ARTopkState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Return the mean of every rank's gradients above a threshold, by all-gather (MSTopk)."""
    ratio = state.compression_ratio

    def choose(gradient: torch.Tensor, _: tuple[int, ...]) -> torch.Tensor:
        return threshold_indices(gradient, values_sent(gradient.numel(), ratio))

    return _baseline(state, bucket, choose)


def _baseline(
    state: ARTopkState, bucket: dist.GradBucket, choose: _Choose
) -> torch.futures.Future[torch.Tensor]:
    def reduce(gradient: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
        state.exchange = "allgather"
        return _by_allgather(state, gradient, sizes, choose)

    return _with_whole_model(state, bucket, reduce)


def _with_whole_model(
    state: ARTopkState,
    bucket: dist.GradBucket,
    reduce: Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor],
) -> torch.futures.Future[torch.Tensor]:
    """Hold a bucket until the last of the step is there, then ``reduce`` all of them as one."""
    if bucket.index() == 0:
        state.pending = []
    order = state.order_of(bucket.parameters())
    if state.iter < state.start_ARTopk_iter:
        state.iter += bucket.is_last()
        return allreduce_hook(state.process_group, bucket)
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    state.pending.append((bucket.buffer(), order, [g.numel() for g in bucket.gradients()], future))
    if not bucket.is_last():
        return future
    buffers, orders, sizes, futures = zip(*state.pending, strict=True)
    state.pending = []
    places = tuple(place for part in orders for place in part)
    lengths = tuple(size for part in sizes for size in part)
    gradient = torch.cat(buffers)
    if gradient.numel() >= _MOST_ELEMENTS:
        raise InputError(
            f"{gradient.numel()} gradient elements exceed the 32-bit index limit {_MOST_ELEMENTS}"
        )
    if state.use_error_feedback:
        state.lay_out(places, lengths, gradient)
    mean = reduce(gradient, lengths)
    state.iter += 1
    for buffer, part, held in zip(
        buffers, mean.split([b.numel() for b in buffers]), futures, strict=True
    ):
        held.set_result(buffer.copy_(part))
    return future


def _by_allgather(
    state: ARTopkState, gradient: torch.Tensor, sizes: tuple[int, ...], choose: _Choose
) -> torch.Tensor:
    """Return the mean of what every rank sends of its own indices.

    Values, sums of squares and indices go as bytes, in one call.
    """
    ranks = dist.get_world_size(state.process_group)
    gradient = state.add_residual(gradient)
    began = time.perf_counter()
    index = choose(gradient, sizes)
    state.compression_us = (time.perf_counter() - began) * 1e6
    values, squares = _taken(gradient, index.long())
    sent = torch.cat([squares.view(torch.uint8), index.view(torch.uint8), values.view(torch.uint8)])
    gathered = sent.new_empty(ranks * sent.numel())
    with _observed(state, "allgather", gathered.nbytes):
        _all_gather(gathered, sent, group=state.process_group)
    mean = torch.zeros_like(gradient)
    total = torch.zeros_like(squares)
    parts = [squares.nbytes, index.nbytes, values.nbytes]
    for one in gathered.split(sent.numel()):  # in the ranks' order, so that all add up alike
        theirs, where, what = (part.clone() for part in one.split(parts))
        total += theirs.view(squares.dtype)
        mean.index_add_(0, where.view(INDEX).long(), what.view(values.dtype))
    state.root, state.gain = None, _gain(total)
    state.keep(gradient, index.numel())
    return mean.div_(ranks)


def _by_allreduce(
    state: ARTopkState,
    gradient: torch.Tensor,
    sizes: tuple[int, ...],
    choose: _Choose,
    count: int,
) -> torch.Tensor:
    """Return the mean at the indices of one rank, which it broadcasts.

    The sums of squares that give the gain are appended to the values.
    """
    group = state.process_group
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    root = state.iter % ranks if state.selection == "star" else _largest_norm(state, gradient)
    gradient = state.add_residual(gradient)
    began = time.perf_counter()
    index = choose(gradient, sizes) if rank == root else gradient.new_empty(count, dtype=INDEX)
    state.compression_us = (time.perf_counter() - began) * 1e6
    dist.broadcast(index, group=group, group_src=root)
    where = index.long()
    values, squares = _taken(gradient, where)
    wide = _WIDE.get(values.dtype, values.dtype)
    payload = torch.cat([values.to(wide), squares.to(wide)])
    reducing = state.tree_group if state.exchange == "tree-allreduce" else group
    with _observed(state, state.exchange or "allreduce", payload.nbytes):
        dist.all_reduce(payload, group=reducing)
    mean = torch.zeros_like(gradient)
    mean[where] = payload[:count].div_(ranks).to(mean.dtype)
    state.root, state.gain = root, _gain(payload[count:])
    state.keep(gradient, count)
    return mean


@contextmanager
def _observed(state: ARTopkState, call: str, nbytes: int) -> Iterator[None]:
    """Report the time of the block to the state's monitor."""
    began = time.perf_counter()
    yield
    if state.monitor is not None:
        state.monitor.observe(call, nbytes, (time.perf_counter() - began) * 1e6)


def _taken(gradient: torch.Tensor, where: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Take values out of the gradient, where zeros stay; also return both sums of squares."""
    wide = _WIDE.get(gradient.dtype, gradient.dtype)
    values = gradient[where]
    squares = torch.stack([values.to(wide).square().sum(), gradient.to(wide).square().sum()])
    gradient[where] = 0
    return values, squares


def _gain(squares: torch.Tensor) -> float:
    """Return the part of the squares that was sent; 1 where there is nothing to send."""
    sent, whole = squares.tolist()
    return sent / whole if whole > 0 else 1.0


def _largest_norm(state: ARTopkState, gradient: torch.Tensor) -> int:
    """Return the rank whose gradient has the largest norm, the lowest of equals."""
    mine = torch.tensor([state.smoothed_norm(gradient)])
    norms = torch.empty(dist.get_world_size(state.process_group))
    _all_gather(norms, mine, group=state.process_group)
    every: list[float] = norms.tolist()
    return every.index(max(every))
