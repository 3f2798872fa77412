"""A step of a method, again and again: with timers for computing, with a real module, by DDP."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch

from tuccl.training.model import ELEMENT_BYTES, Model
from tuccl.training.plan import BucketPlan
from tuccl.training.ranks.calls import BucketCalls
from tuccl.training.ranks.modules import Loss
from tuccl.training.timeline import Span

__all__ = [
    "LEARNING_RATE",
    "DdpSteps",
    "LocalSteps",
    "ReplaySteps",
    "SeparateSteps",
    "Steps",
    "TrainSteps",
    "layer_spans",
]

LEARNING_RATE = 0.05


class Steps(Protocol):
    """Something that makes one step after another."""

    def run(self, count: int) -> list[float]:
        """Make ``count`` steps; return the time of each in us."""

    def spans(self) -> list[Span]:
        """Return what happened in the last step, in us from its begin."""


class SeparateSteps:
    """Steps one after another, each ending in a barrier."""

    def run(self, count: int) -> list[float]:
        """Make ``count`` steps; return the time of each in us."""
        times = []
        for number in range(count):
            begin = time.perf_counter()
            self.step(number)
            times.append((time.perf_counter() - begin) * 1e6)
        return times

    def step(self, number: int) -> None:
        """Make the step ``number``."""
        raise NotImplementedError


def _buffers(plan: BucketPlan) -> list[torch.Tensor]:
    return [torch.zeros(bucket.nbytes // ELEMENT_BYTES) for bucket in plan.buckets]


def layer_spans(model: Model) -> list[Span]:
    """Return when the layers' timers run in a step, in us from its begin."""
    spans, at = [], 0.0
    for parameter in model.parameters:
        spans.append(Span("forward", "compute", parameter.name, at, at + parameter.forward_us))
        at += parameter.forward_us
    for parameter in reversed(model.parameters):
        spans.append(Span("backward", "compute", parameter.name, at, at + parameter.backward_us))
        at += parameter.backward_us
    return spans


class ReplaySteps(SeparateSteps):
    """Timers in place of computing; the buckets' bytes are reduced for real."""

    def __init__(self, model: Model, plan: BucketPlan, group: Any) -> None:  # noqa: ANN401
        """Prepare the buckets."""
        self._model, self._plan = model, plan
        self.buffers = _buffers(plan)
        self._calls = BucketCalls(plan, self.buffers, group)

    def step(self, number: int) -> None:
        """Wait through forward and backward, make each call when its bucket is due, then wait."""
        model, calls, ready_us = self._model, self._calls, self._model.ready_us
        calls.begin()
        for place, bucket in enumerate(self._plan.buckets):
            self._sleep_until(max(ready_us[bucket.first], bucket.release_us))
            calls.ready(place)
        self._sleep_until(model.forward_us + model.backward_us)
        calls.wait()
        if model.update_us:
            time.sleep(model.update_us / 1e6)

    def _sleep_until(self, us: float) -> None:
        if (left_us := us - self._calls.now_us()) > 0:
            time.sleep(left_us / 1e6)

    def spans(self) -> list[Span]:
        """Return the timers, and the calls as they were."""
        return [*layer_spans(self._model), *self._calls.spans()]


class LocalSteps(SeparateSteps):
    """Steps of a module without communication: the baseline of one rank."""

    def __init__(self, module: torch.nn.Module, loss: Loss) -> None:
        """Prepare the optimizer, stochastic gradient descent."""
        self.module, self._loss = module, loss
        self._optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
        self._marks = (0.0, 0.0)

    def step(self, number: int) -> None:
        """Make the step ``number``."""
        begin = time.perf_counter()
        self._optimizer.zero_grad()
        loss = self._loss(number)
        forward = time.perf_counter()
        loss.backward()
        self._marks = ((forward - begin) * 1e6, (time.perf_counter() - begin) * 1e6)
        self.reduce()
        self._optimizer.step()

    def reduce(self) -> None:
        """Leave gradients as they are."""

    def spans(self) -> list[Span]:
        """Return the forward and the backward pass."""
        forward_us, end_us = self._marks
        return [
            Span("forward", "compute", "all", 0.0, forward_us),
            Span("backward", "compute", "all", forward_us, end_us),
        ]


class DdpSteps(LocalSteps):
    """PyTorch's own DistributedDataParallel."""

    def __init__(self, module: torch.nn.Module, loss: Loss, group: Any) -> None:  # noqa: ANN401
        """Wrap the module; its forward goes through DDP from now on."""
        super().__init__(module, loss)
        ddp = torch.nn.parallel.DistributedDataParallel(module, process_group=group)
        self._bind(ddp)

    def _bind(self, ddp: torch.nn.parallel.DistributedDataParallel) -> None:
        """Let the module's calls go through ``ddp``, whose reducer must see every forward."""
        module, inner = self.module, self.module.forward
        entered = False

        def forward(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            nonlocal entered
            if entered:
                return inner(*args, **kwargs)
            entered = True
            try:
                return ddp(*args, **kwargs)
            finally:
                entered = False

        module.forward = forward


class TrainSteps(LocalSteps):
    """A module whose gradients are reduced by a plan, from hooks on its parameters."""

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Loss,
        plan: BucketPlan,
        group: Any,  # noqa: ANN401
        ranks: int,
    ) -> None:
        """Hook the parameters, which the plan counts in their order."""
        super().__init__(module, loss)
        self._plan, self._ranks = plan, ranks
        self._buffers = _buffers(plan)
        self._calls = BucketCalls(plan, self._buffers, group)
        self._missing: list[int] = []
        self._views: dict[int, torch.Tensor] = {}
        self._weights = [p for p in module.parameters() if p.requires_grad]
        for number, bucket in enumerate(plan.buckets):
            offset = 0
            for place in range(bucket.first, bucket.last):
                weight = self._weights[place]
                part = self._buffers[number][offset : offset + weight.numel()]
                self._views[place] = part.view_as(weight)
                offset += weight.numel()
                weight.register_post_accumulate_grad_hook(self._hook(number, place))

    def _hook(self, number: int, place: int) -> Any:  # noqa: ANN401
        def graded(weight: torch.Tensor) -> None:
            torch.mul(weight.grad, 1.0 / self._ranks, out=self._views[place])
            self._missing[number] -= 1
            if not self._missing[number]:
                self._calls.ready(number)

        return graded

    def step(self, number: int) -> None:
        """Make the step ``number``."""
        self._missing = [bucket.last - bucket.first for bucket in self._plan.buckets]
        self._calls.begin()
        super().step(number)

    def reduce(self) -> None:
        """Wait for the calls, and take the reduced gradients; unused parameters count as zero."""
        for number, missing in enumerate(self._missing):
            if missing:
                bucket = self._plan.buckets[number]
                for place in range(bucket.first, bucket.last):
                    if self._weights[place].grad is None:
                        self._views[place].zero_()
                        self._weights[place].grad = torch.zeros_like(self._weights[place])
                self._calls.ready(number)
        self._calls.wait()
        for place, weight in enumerate(self._weights):
            assert weight.grad is not None
            weight.grad.copy_(self._views[place])

    def spans(self) -> list[Span]:
        """Return the passes and the calls."""
        return [*super().spans(), *self._calls.spans()]
