"""ByteScheduler's all-reduces: rank 0 picks what goes next, all ranks follow."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from tuccl.training.bucket_schedule import BucketSchedule
from tuccl.training.model import ELEMENT_BYTES
from tuccl.training.ranks.calls import CallLog, call_name

_BATCH = 64


class PriorityCalls:
    """Rank 0 picks the ready parts of least priority while credit lasts.

    The others follow the picks that it broadcasts; a thread of its own makes the calls.

    Notes:
        Peng et al., "A Generic Communication Scheduler for Distributed DNN Training Acceleration",
        SOSP 2019.
    """

    def __init__(self, schedule: BucketSchedule, group: Any, control: Any, rank: int) -> None:  # noqa: ANN401
        """Prepare the parts; picks go over the group ``control``, which carries nothing else."""
        self._schedule, self._group, self._control, self._rank = schedule, group, control, rank
        self.buffers = [torch.zeros(bucket.nbytes // ELEMENT_BYTES) for bucket in schedule.buckets]
        self.log = CallLog()
        self._changed = threading.Condition()

    def begin(self, steps: int) -> None:
        """Begin a run of so many steps, and the thread of their calls."""
        self.log.clear()
        self._waiting: list[tuple[int, int, int]] = []
        self._graded: dict[tuple[int, int], float] = {}
        self._reduced: set[tuple[int, int]] = set()
        self._credit = self._schedule.credit_bytes
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._calls, args=(steps,), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the run."""
        self._thread.join()

    def ready(self, step: int, number: int) -> None:
        """Say that the buffer of part ``number`` is ready."""
        with self._changed:
            self._graded[step, number] = time.perf_counter()
            priority = self._schedule.buckets[number].priority
            heapq.heappush(self._waiting, (priority, step, number))
            self._changed.notify_all()

    def graded(self, step: int) -> None:
        """Say that all are."""

    def wait(self, step: int, numbers: Iterable[int]) -> None:
        """Wait until the parts ``numbers`` of ``step`` are summed."""
        wanted = {(step, number) for number in numbers}
        with self._changed:
            self._changed.wait_for(lambda: self._error or wanted <= self._reduced)
        if self._error is not None:
            raise self._error

    def _calls(self, steps: int) -> None:
        """Make all calls of ``steps`` steps, in the order of rank 0's picks."""
        left = steps * len(self._schedule.buckets)
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
                    self._credit -= self._schedule.buckets[number].nbytes
                    message[place] = torch.tensor([step, number])
        dist.broadcast(message, 0, group=self._control)
        return [(step, number) for step, number in message.tolist() if step >= 0]

    def _call(self, step: int, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: (step, number) in self._graded)
            posted = self._graded.pop((step, number))
        work = dist.all_reduce(self.buffers[number], group=self._group, async_op=True)
        work.get_future().add_done_callback(lambda future: self._end(step, number, posted, future))

    def _end(self, step: int, number: int, posted: float, future: Any) -> None:  # noqa: ANN401
        self.log.add("wire", call_name("allreduce", self._schedule.buckets[number]), posted)
        with self._changed:
            try:
                future.value()
            except RuntimeError as error:
                self._error = error
            self._reduced.add((step, number))
            credit = self._credit + self._schedule.buckets[number].nbytes
            self._credit = min(credit, self._schedule.credit_bytes)
            self._changed.notify_all()
