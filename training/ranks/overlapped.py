"""Steps that overlap: the next forward begins before all of the last step is reduced."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist

from tuccl.training.model import ELEMENT_BYTES, Model
from tuccl.training.plan import BucketPlan
from tuccl.training.timeline import Span

__all__ = ["DearSteps", "PrioritySteps"]

_BATCH = 64


class _Overlapped:
    """Timers of layers; each forward waits for the buckets that its layer's tensors are in."""

    def __init__(self, model: Model, plan: BucketPlan) -> None:
        self._model, self._plan = model, plan
        self._layers = len(model.parameters)
        self._buckets_of: list[list[int]] = [[] for _ in range(self._layers)]
        self._ended_by: list[list[int]] = [[] for _ in range(self._layers)]
        for number, bucket in enumerate(plan.buckets):
            self._ended_by[bucket.first].append(number)
            for layer in range(bucket.first, bucket.last):
                self._buckets_of[layer].append(number)
        self._spans: list[Span] = []

    def spans(self) -> list[Span]:
        """Return the layers of the last step; calls overlap several, and are left out."""
        return self._spans

    def run(self, count: int) -> list[float]:
        """Make ``count`` steps; return the time in us from each one's begin to the next one's.

        One more follows several, for the last one's end; one alone ends when all is reduced.
        """
        begins, steps = [], self._steps(count)
        for step in range(steps):
            begin = due = time.perf_counter()
            begins.append(begin)
            self._spans = []
            for layer, parameter in enumerate(self._model.parameters):
                if step:
                    self._await(step - 1, self._buckets_of[layer])
                share = self._model.update_us * parameter.nbytes / self._model.nbytes
                due = self._compute("forward", layer, begin, due, share + parameter.forward_us)
            for layer in reversed(range(self._layers)):
                us = self._model.parameters[layer].backward_us
                due = self._compute("backward", layer, begin, due, us)
                for number in self._ended_by[layer]:
                    self._ready(step, number)
            self._after_backward(step)
        self._await(steps - 1, range(len(self._plan.buckets)))
        edges = [*begins, time.perf_counter()]
        return [(end - begin) * 1e6 for begin, end in pairwise(edges[: count + 1])]

    def _steps(self, count: int) -> int:
        return count + 1 if count > 1 else 1

    def _compute(self, kind: str, layer: int, begin: float, due: float, us: float) -> float:
        """Let a layer's time pass; it begins when the one before was due, unless it waited."""
        start = max(due, time.perf_counter() - 2e-4)
        end = start + us / 1e6
        if (left := end - time.perf_counter()) > 0:
            time.sleep(left)
        name = self._model.parameters[layer].name
        spanned = ((start - begin) * 1e6, (end - begin) * 1e6)
        self._spans.append(Span(kind, "compute", name, *spanned))  # type: ignore[arg-type]
        return end

    def _await(self, step: int, numbers: Sequence[int]) -> None:
        raise NotImplementedError

    def _ready(self, step: int, number: int) -> None:
        raise NotImplementedError

    def _after_backward(self, step: int) -> None:
        """Do what a method does when all gradients are there."""


class DearSteps(_Overlapped):
    """DeAR: buckets are reduce-scattered in backward and gathered as the next forward needs them.

    Notes:
        Zhang, Shi, Chu et al., "DeAR", ICDCS 2023. All ranks know the order of the calls.
    """

    def __init__(self, model: Model, plan: BucketPlan, group: Any, rank: int, ranks: int) -> None:  # noqa: ANN401
        """Prepare the buckets, each filled up to a multiple of the ranks."""
        super().__init__(model, plan)
        self._group = group
        self.buffers = [
            torch.zeros(-(-bucket.nbytes // ELEMENT_BYTES // ranks) * ranks)
            for bucket in plan.buckets
        ]
        self._shares = [
            buffer[rank * (len(buffer) // ranks) :][: len(buffer) // ranks]
            for buffer in self.buffers
        ]
        self._scattered: list[Any] = []
        self._gathered: dict[int, Any] = {}

    def _ready(self, step: int, number: int) -> None:
        work = dist.reduce_scatter_single(
            self._shares[number], self.buffers[number], group=self._group, async_op=True
        )
        self._scattered.append(work)

    def _after_backward(self, step: int) -> None:
        for work in self._scattered:
            work.wait()
        self._scattered = []
        for number in reversed(range(len(self.buffers))):
            self._gathered[number] = dist.all_gather_single(
                self.buffers[number], self._shares[number], group=self._group, async_op=True
            )

    def _await(self, step: int, numbers: Sequence[int]) -> None:
        for number in numbers:
            if work := self._gathered.pop(number, None):
                work.wait()


class PrioritySteps(_Overlapped):
    """ByteScheduler: rank 0 picks the ready parts of least priority while credit lasts.

    The others follow the picks that it broadcasts; a thread of its own makes the calls.

    Notes:
        Peng et al., "A Generic Communication Scheduler for Distributed DNN Training Acceleration",
        SOSP 2019.
    """

    def __init__(
        self,
        model: Model,
        plan: BucketPlan,
        group: Any,  # noqa: ANN401
        control: Any,  # noqa: ANN401
        rank: int,
    ) -> None:
        """Prepare the parts; picks go over the group ``control``, which carries nothing else."""
        super().__init__(model, plan)
        self._group, self._control, self._rank = group, control, rank
        self.buffers = [torch.zeros(bucket.nbytes // ELEMENT_BYTES) for bucket in plan.buckets]
        self._changed = threading.Condition()
        self._begin()

    def _begin(self) -> None:
        self._waiting: list[tuple[int, int, int]] = []
        self._graded: set[tuple[int, int]] = set()
        self._reduced: set[tuple[int, int]] = set()
        self._credit = self._plan.credit_bytes
        self._error: BaseException | None = None

    def run(self, count: int) -> list[float]:
        """Make ``count`` steps, as their base does, with the calls beside them."""
        self._begin()
        calls = threading.Thread(target=self._calls, args=(self._steps(count),), daemon=True)
        calls.start()
        times = super().run(count)
        calls.join()
        return times

    def _ready(self, step: int, number: int) -> None:
        with self._changed:
            self._graded.add((step, number))
            priority = self._plan.buckets[number].priority
            heapq.heappush(self._waiting, (priority, step, number))
            self._changed.notify_all()

    def _await(self, step: int, numbers: Sequence[int]) -> None:
        wanted = {(step, number) for number in numbers}
        with self._changed:
            self._changed.wait_for(lambda: self._error or wanted <= self._reduced)
        if self._error is not None:
            raise self._error

    def _calls(self, count: int) -> None:
        """Make all calls of ``count`` steps, in the order of rank 0's picks."""
        left = count * len(self._plan.buckets)
        try:
            while left:
                picks = self._picks()
                for step, number in picks:
                    self._call(step, number)
                left -= len(picks)
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _picks(self) -> list[tuple[int, int]]:
        """Rank 0's next picks, on every rank: step and part of each."""
        message = torch.full((_BATCH, 2), -1, dtype=torch.int64)
        if self._rank == 0:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting and self._credit > 0)
                for place in range(_BATCH):
                    if not self._waiting or self._credit <= 0:
                        break
                    _, step, number = heapq.heappop(self._waiting)
                    self._credit -= self._plan.buckets[number].nbytes
                    message[place] = torch.tensor([step, number])
        dist.broadcast(message, 0, group=self._control)
        return [(step, number) for step, number in message.tolist() if step >= 0]

    def _call(self, step: int, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: (step, number) in self._graded)
        work = dist.all_reduce(self.buffers[number], group=self._group, async_op=True)
        work.get_future().add_done_callback(lambda _: self._end(step, number))

    def _end(self, step: int, number: int) -> None:
        with self._changed:
            self._reduced.add((step, number))
            credit = self._credit + self._plan.buckets[number].nbytes
            self._credit = min(credit, self._plan.credit_bytes)
            self._changed.notify_all()
