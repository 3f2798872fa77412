"""A step of a method, again and again: what all have in common, and timers for computing."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

from tuccl.training.bucket_schedule import BucketSchedule
from tuccl.training.model import Model
from tuccl.training.ranks.calls import Calls
from tuccl.training.timeline import Kind, Span

_LATE_S = 2e-4  # by which a thread that was waited for may wake up late


class Steps(Protocol):
    """Something that makes one step after another."""

    def run(self, count: int) -> list[float]:
        """Make ``count`` steps; return the time of each in us."""

    def spans(self) -> list[Span]:
        """Return what happened in the last step, in us from its begin."""


class IdleSteps:
    """Steps in which this process has nothing to do: a server's, where there are no servers."""

    def run(self, count: int) -> list[float]:
        """Return 0 us for each of ``count`` steps."""
        return [0.0] * count

    def spans(self) -> list[Span]:
        """Return nothing."""
        return []


class PlannedSteps:
    """Steps whose buckets go by ``calls`` as they become ready.

    With a barrier a step ends when all is updated. Without one the next step begins at once, and
    each of its layers waits for its own tensors; a run's last step then ends when all is reduced.
    """

    def __init__(self, schedule: BucketSchedule, calls: Calls) -> None:
        """Prepare steps of ``schedule``."""
        self.schedule, self.calls = schedule, calls
        self.overlap = not schedule.barrier
        self._layers: list[list[Span]] = [[]]
        self._begins = [0.0, 0.0]

    def run(self, count: int) -> list[float]:
        """Make ``count`` steps; return the time in us from each one's begin to the next one's."""
        self._layers, self._begins = [], []
        self.calls.begin(count)
        for number in range(count):
            self._begins.append(time.perf_counter())
            self._layers.append([])
            self.step(number)
        self.drain(count - 1)
        self._begins.append(time.perf_counter())
        self.calls.end()
        return [(end - begin) * 1e6 for begin, end in pairwise(self._begins)]

    def step(self, number: int) -> None:
        """Make the step ``number``."""
        raise NotImplementedError

    def drain(self, number: int) -> None:
        """Wait until all of the last step, ``number``, is reduced and updated."""
        raise NotImplementedError

    def note(self, kind: Kind, name: str, start: float, end: float) -> None:
        """Take note of computing in the present step, in s."""
        self._layers[-1].append(Span(kind, "compute", name, start, end))

    def spans(self) -> list[Span]:
        """Return the last step, in us from its begin; before one that overlaps there is another."""
        place = -2 if self.overlap and len(self._layers) > 1 else -1
        begin, end = self._begins[place - 1], self._begins[place]
        return [
            replace(
                span,
                start_us=(max(span.start_us, begin) - begin) * 1e6,
                end_us=(min(span.end_us, end) - begin) * 1e6,
            )
            for span in (*self._layers[place], *self.calls.log.spans())
            if span.end_us > begin and span.start_us < end
        ]


class TimerSteps(PlannedSteps):
    """Timers in place of computing; the buckets' bytes are reduced for real."""

    def __init__(self, model: Model, schedule: BucketSchedule, calls: Calls) -> None:
        """Prepare steps that take the time of ``model``'s layers."""
        super().__init__(schedule, calls)
        self._model = model
        layers = range(len(model.parameters))
        self._buckets_of: list[list[int]] = [[] for _ in layers]
        self._ended_by: list[list[int]] = [[] for _ in layers]
        for number, bucket in enumerate(schedule.buckets):
            self._ended_by[bucket.first].append(number)
            for layer in range(bucket.first, bucket.last):
                self._buckets_of[layer].append(number)

    def step(self, number: int) -> None:
        """Let the layers' times pass, and make each call when its bucket is due."""
        parameters = self._model.parameters
        begin = due = self._begins[-1]
        for layer, parameter in enumerate(parameters):
            start, us = due, parameter.forward_us
            if self.overlap:
                if number:
                    self.calls.wait(number - 1, self._buckets_of[layer])
                start = max(due, time.perf_counter() - _LATE_S)
                us += self._model.update_us * parameter.nbytes / self._model.nbytes
            due = start + us / 1e6
            self.note("forward", parameter.name, start, due)
        for layer in reversed(range(len(parameters))):
            start, due = due, due + parameters[layer].backward_us / 1e6
            self.note("backward", parameters[layer].name, start, due)
            for bucket in self._ended_by[layer]:
                _sleep_until(max(due, begin + self.schedule.buckets[bucket].release_us / 1e6))
                self.calls.ready(number, bucket)
        _sleep_until(due)
        self.calls.graded(number)
        if not self.overlap:
            self.calls.wait(number, range(len(self.schedule.buckets)))
            start = time.perf_counter()
            _sleep_until(start + self._model.update_us / 1e6)
            self.note("update", "all", start, time.perf_counter())

    def drain(self, number: int) -> None:
        """Wait until all of the step ``number`` is reduced."""
        if self.overlap:
            self.calls.wait(number, range(len(self.schedule.buckets)))


def _sleep_until(moment: float) -> None:
    if (left := moment - time.perf_counter()) > 0:
        time.sleep(left)
