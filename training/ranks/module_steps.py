"""Steps of a real module: alone, under PyTorch's DDP, or with gradients reduced by a schedule."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from tuccl.training.bucket_schedule import BucketSchedule
from tuccl.training.model import ELEMENT_BYTES
from tuccl.training.ranks.calls import Calls
from tuccl.training.ranks.modules import Loss
from tuccl.training.ranks.steps import PlannedSteps
from tuccl.training.timeline import Span

LEARNING_RATE = 0.05


class LocalSteps:
    """Steps of a module without communication: the baseline of one rank."""

    def __init__(self, module: torch.nn.Module, loss: Loss) -> None:
        """Prepare the optimizer, stochastic gradient descent."""
        self.module, self.loss = module, loss
        self._optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
        self._marks = (0.0, 0.0)

    def run(self, count: int) -> list[float]:
        """Make ``count`` steps; return the time of each in us."""
        times = []
        for number in range(count):
            begin = time.perf_counter()
            self._optimizer.zero_grad()
            loss = self.loss(number)
            forward = time.perf_counter()
            loss.backward()
            self._marks = ((forward - begin) * 1e6, (time.perf_counter() - begin) * 1e6)
            self._optimizer.step()
            times.append((time.perf_counter() - begin) * 1e6)
        return times

    @property
    def calls_made(self) -> int:
        """Return the collectives of a step that no schedule knows of."""
        return 0

    def spans(self) -> list[Span]:
        """Return the forward and the backward pass of the last step."""
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
        self.ddp = torch.nn.parallel.DistributedDataParallel(module, process_group=group)
        self._bind(self.ddp)

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


class ModuleSteps(PlannedSteps):
    """A module whose gradients are reduced by a schedule, from hooks on its parameters.

    A parameter is updated by itself, when its gradient is reduced: at the step's end, or without
    a barrier before the next forward of the module that it belongs to.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Loss,
        schedule: BucketSchedule,
        calls: Calls,
        ranks: int,
    ) -> None:
        """Hook the parameters, counted in their order, and the modules' forward."""
        super().__init__(schedule, calls)
        self.module, self.loss, self._ranks = module, loss, ranks
        self._weights = [p for p in module.parameters() if p.requires_grad]
        self._optimizers = [torch.optim.SGD([w], lr=LEARNING_RATE) for w in self._weights]
        self._buckets_of = [
            [n for n, bucket in enumerate(schedule.buckets) if bucket.first <= place < bucket.last]
            for place in range(len(self._weights))
        ]
        self._pieces = _pieces([weight.numel() for weight in self._weights], schedule)
        self._pending: dict[int, int] = {}  # tensors that are not updated yet, and of which step
        self._missing: list[int] = []
        self._number = 0
        self._forward_from = 0.0
        self._announced: set[str] | None = None  # modules whose forward was seen, until all were
        self._awaited_by: dict[str, list[int]] = {}
        for place, weight in enumerate(self._weights):
            weight.register_post_accumulate_grad_hook(self._hook(place))
        if self.overlap:
            self._announced = set()
            for name, each in module.named_modules():
                each.register_forward_pre_hook(self._before(name))

    def step(self, number: int) -> None:
        """Make the step ``number``."""
        buckets = self.schedule.buckets
        self._number, self._forward_from = number, time.perf_counter()
        self._settle(self._awaited_by.get("no module", ()))
        loss = self.loss(number)
        self._settle(list(self._pending))
        if self._announced is not None:
            self._awaited_by, self._announced = self._assign(self._announced), None
        begin = time.perf_counter()
        self.note("forward", "all", self._forward_from, begin)
        self._missing = [bucket.last - bucket.first for bucket in buckets]
        loss.backward()
        for place, weight in enumerate(self._weights):
            if place not in self._pending:  # it was not used, and counts as zero
                weight.grad = torch.zeros_like(weight)
                self._graded(place, weight)
        self.note("backward", "all", begin, time.perf_counter())
        self.calls.graded(number)
        if not self.overlap:
            self._settle(list(self._pending))

    def drain(self, number: int) -> None:
        """Take what is left of the last step."""
        self._settle(list(self._pending))

    def _hook(self, place: int) -> Callable[[torch.Tensor], None]:
        return lambda weight: self._graded(place, weight)

    def _graded(self, place: int, weight: torch.Tensor) -> None:
        """Bring a gradient into its buckets."""
        assert weight.grad is not None
        gradient = weight.grad.reshape(-1)
        for number, start, offset, count in self._pieces[place]:
            part = self.calls.buffers[number][start : start + count]
            torch.mul(gradient[offset : offset + count], 1.0 / self._ranks, out=part)
        self._pending[place] = self._number
        for number in self._buckets_of[place]:
            self._missing[number] -= 1
            if not self._missing[number]:
                self.calls.ready(self._number, number)

    def _settle(self, places: Iterable[int]) -> None:
        """Wait for the reduced gradients of ``places``, and update these tensors."""
        due = [(place, self._pending.pop(place)) for place in places if place in self._pending]
        if not due:
            return
        waited = time.perf_counter()
        for place, step in due:
            self.calls.wait(step, self._buckets_of[place])
        begin = time.perf_counter()
        for place, _ in due:
            weight = self._weights[place]
            parts = [self.calls.buffers[n][s : s + count] for n, s, _, count in self._pieces[place]]
            weight.grad = torch.cat(parts).view_as(weight)
            self._optimizers[place].step()
            weight.grad = None
        end = time.perf_counter()
        if self.overlap:
            self.note("forward", "all", self._forward_from, waited)
            self._forward_from = end
        self.note("update", "all", begin, end)

    def _before(self, name: str) -> Callable[..., None]:
        """Return the hook of a module's forward, for which its tensors must be updated."""

        def before(*_: object) -> None:
            if self._announced is not None:
                self._announced.add(name)
            self._settle(self._awaited_by.get(name, ()))

        return before

    def _assign(self, announced: set[str]) -> dict[str, list[int]]:
        """Return the tensors for which each module's forward waits.

        A module that was not called, as its parent takes its tensors itself, leaves them to the
        nearest above it that was; where there is none the step's begin waits for them.
        """
        place_of = {id(weight): place for place, weight in enumerate(self._weights)}
        awaited: dict[str, list[int]] = {}
        for name, weight in self.module.named_parameters(remove_duplicate=False):
            if id(weight) not in place_of:
                continue
            path = name.split(".")[:-1]
            above = [".".join(path[:length]) for length in range(len(path), -1, -1)]
            owner = next((each for each in above if each in announced), "no module")
            awaited.setdefault(owner, []).append(place_of[id(weight)])
        return awaited


# Of a tensor: the bucket, where in it, where in the tensor, how many elements.
_Piece = tuple[int, int, int, int]


def _pieces(counts: list[int], schedule: BucketSchedule) -> list[list[_Piece]]:
    """Return the parts of buckets that hold each tensor, of so many elements each, in order."""
    begins = [0]
    for count in counts:
        begins.append(begins[-1] + count)
    pieces: list[list[_Piece]] = [[] for _ in counts]
    for number, bucket in enumerate(schedule.buckets):
        begin = bucket.offset // ELEMENT_BYTES
        end = begin + bucket.nbytes // ELEMENT_BYTES
        for place in range(bucket.first, bucket.last):
            low, high = max(begin, begins[place]), min(end, begins[place + 1])
            if low < high:
                pieces[place].append((number, low - begin, low - begins[place], high - low))
    return [sorted(each, key=lambda piece: piece[2]) for each in pieces]
