"""A schedule's calls over a process group of PyTorch: made when ready, awaited, noted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
import torch.distributed as dist

from tuccl.training.bucket_schedule import Bucket, BucketSchedule
from tuccl.training.model import ELEMENT_BYTES
from tuccl.training.timeline import Span


class CallLog:
    """Calls that have ended, on tracks that carry one after another. Times are in s."""

    def __init__(self) -> None:
        """Begin without any."""
        self._calls: list[tuple[float, float, str, str]] = []

    def clear(self) -> None:
        """Forget all."""
        self._calls = []

    def add(self, track: str, name: str, posted: float, ended: float | None = None) -> None:
        """Take note of a call that was posted then, and has ended now if not said otherwise."""
        self._calls.append((ended or time.perf_counter(), posted, track, name))

    def spans(self) -> list[Span]:
        """Return calls in s: each moves after the one before on its track, and is queued before."""
        spans, before = [], dict[str, float]()
        for end, posted, track, name in sorted(self._calls):
            start = min(max(before.get(track, 0.0), posted), end)
            if start > posted:
                spans.append(Span("queue", f"queue of {track}", name, posted, start))
            spans.append(Span("wire", track, name, start, end))
            before[track] = end
        return spans


class Calls(Protocol):
    """The calls of a schedule, step by step.

    Attributes:
        buffers: of the buckets, summed in place; longer than a bucket where calls need it.
        log: the calls of the last run.
    """

    buffers: list[torch.Tensor]
    log: CallLog

    def begin(self, steps: int) -> None:
        """Begin a run of so many steps."""

    def ready(self, step: int, number: int) -> None:
        """Say that the buffer of bucket ``number`` is ready."""

    def graded(self, step: int) -> None:
        """Say that all buffers of ``step`` are."""

    def wait(self, step: int, numbers: Iterable[int]) -> None:
        """Wait until the buckets ``numbers`` of ``step`` are summed.

        Raises:
            RuntimeError: a call failed, as PyTorch says it.
        """

    def end(self) -> None:
        """End the run, whose buckets have all been awaited."""


class AllreduceCalls:
    """All-reduces in the schedule's order, not negotiated; an early bucket waits, as in DDP.

    All ranks make them in that order.
    """

    def __init__(self, schedule: BucketSchedule, group: Any, multiple: int = 1) -> None:  # noqa: ANN401
        """Prepare the buffers, each filled up to a ``multiple`` of elements."""
        self._schedule, self._group = schedule, group
        self.buffers = [
            torch.zeros(-(-bucket.nbytes // ELEMENT_BYTES // multiple) * multiple)
            for bucket in schedule.buckets
        ]
        self.log = CallLog()
        self._works: dict[int, Any] = {}

    def begin(self, steps: int) -> None:
        """Begin a run of so many steps."""
        self.log.clear()
        self._ready: set[int] = set()
        self._turn = 0

    def ready(self, step: int, number: int) -> None:
        """Say that the buffer of bucket ``number`` is ready; calls whose turn it is are made."""
        self._ready.add(number)
        while self._turn in self._ready:
            self._works[self._turn] = self._post(self._turn)
            self._turn += 1

    def _post(self, number: int) -> Any:  # noqa: ANN401
        work = dist.all_reduce(self.buffers[number], group=self._group, async_op=True)
        return self._noted("allreduce", number, work)

    def _noted(self, call: str, number: int, work: Any) -> Any:  # noqa: ANN401
        name, posted = call_name(call, self._schedule.buckets[number]), time.perf_counter()
        return _noted(work, lambda: self.log.add("wire", name, posted))

    def graded(self, step: int) -> None:
        """Say that all buffers of ``step`` are ready."""
        self._ready, self._turn = set(), 0

    def wait(self, step: int, numbers: Iterable[int]) -> None:
        """Wait until the buckets ``numbers`` are summed."""
        for number in numbers:
            if work := self._works.pop(number, None):
                work.wait()

    def end(self) -> None:
        """End the run."""


class ScatteredCalls(AllreduceCalls):
    """DeAR: buckets are reduce-scattered in backward and gathered as the next forward needs them.

    Notes:
        Zhang, Shi, Chu et al., "DeAR", ICDCS 2023. All ranks know the order of the calls.
    """

    def __init__(self, schedule: BucketSchedule, group: Any, rank: int, ranks: int) -> None:  # noqa: ANN401
        """Prepare the buckets, each filled up to a multiple of the ranks."""
        super().__init__(schedule, group, ranks)
        self._shares = [
            buffer[rank * (len(buffer) // ranks) :][: len(buffer) // ranks]
            for buffer in self.buffers
        ]

    def _post(self, number: int) -> Any:  # noqa: ANN401
        work = dist.reduce_scatter_single(
            self._shares[number], self.buffers[number], group=self._group, async_op=True
        )
        return self._noted("reduce-scatter", number, work)

    def graded(self, step: int) -> None:
        """Gather all buckets, the first layers' first, once all are scattered."""
        self.wait(step, range(len(self.buffers)))
        for number in reversed(range(len(self.buffers))):
            work = dist.all_gather_single(
                self.buffers[number], self._shares[number], group=self._group, async_op=True
            )
            self._works[number] = self._noted("allgather", number, work)
        super().graded(step)


def call_name(call: str, bucket: Bucket) -> str:
    """Return what a timeline calls it."""
    return f"{call} of {bucket.nbytes} bytes, tensors {bucket.first} to {bucket.last - 1}"


def _noted(work: Any, note: Callable[[], None]) -> Any:  # noqa: ANN401
    """Do ``note`` when ``work`` has ended; return what to wait for, once.

    Some of Gloo's calls only let wait, and put their results in place each time that one does.
    """
    try:
        work.get_future().add_done_callback(lambda _: note())
    except RuntimeError:
        future: torch.futures.Future[None] = torch.futures.Future()

        def wait() -> None:
            try:
                work.wait()
                note()
                future.set_result(None)
            except RuntimeError as error:
                future.set_exception(error)

        threading.Thread(target=wait, daemon=True).start()
        return future
    return work
