"""A plan's all-reduces over a process group of PyTorch, made in order as buckets become ready."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch
import torch.distributed as dist

from tuccl.training.plan import Bucket, BucketPlan
from tuccl.training.timeline import Span

__all__ = ["BucketCalls"]


class BucketCalls:
    """The calls of one step: a bucket is all-reduced once it and all before it are ready.

    All ranks make the calls in the plan's order, which nobody negotiates; an early bucket waits,
    as in DDP.
    """

    def __init__(self, plan: BucketPlan, buffers: list[torch.Tensor], group: Any) -> None:  # noqa: ANN401
        """Prepare for steps whose buckets are reduced in ``buffers``."""
        self._plan, self._buffers, self._group = plan, buffers, group
        self._lock = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """Begin a step."""
        self._start = time.perf_counter()
        self._ready: set[int] = set()
        self._works: list[Any] = []
        self._asked: list[float] = []
        self._posted: list[float] = []
        self._ended: dict[int, float] = {}

    def now_us(self) -> float:
        """Return us since the step's begin."""
        return (time.perf_counter() - self._start) * 1e6

    def ready(self, number: int) -> None:
        """Say that the buffer of bucket ``number`` is ready; calls whose turn it is are made."""
        self._ready.add(number)
        while (turn := len(self._works)) in self._ready:
            self._posted.append(self.now_us())
            work = dist.all_reduce(self._buffers[turn], group=self._group, async_op=True)
            work.get_future().add_done_callback(lambda _, n=turn: self._end(n))
            self._works.append(work)

    def _end(self, number: int) -> None:
        with self._lock:
            self._ended[number] = self.now_us()

    def wait(self) -> None:
        """Wait until all buckets are reduced.

        Raises:
            RuntimeError: a call failed, as PyTorch says it.
        """
        for work in self._works:
            work.wait()

    def spans(self) -> list[Span]:
        """Return the calls of the last step: each on the wire after the one before, else queued."""
        spans, before = [], 0.0
        for number, posted in enumerate(self._posted):
            end = self._ended.get(number, posted)
            start = min(max(before, posted), end)
            name = _name(self._plan.buckets[number])
            if start > posted:
                spans.append(Span("queue", "queue of wire", name, posted, start))
            spans.append(Span("wire", "wire", name, start, end))
            before = max(before, end)
        return spans


def _name(bucket: Bucket) -> str:
    return f"allreduce of {bucket.nbytes} bytes, tensors {bucket.first} to {bucket.last - 1}"
