"""Steps of a schedule in virtual time: when each layer computes, each call waits, moves, ends."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Literal

from tuccl.training.bucket_schedule import Bucket, BucketSchedule
from tuccl.training.costs import Costs
from tuccl.training.model import Model

Kind = Literal["forward", "backward", "queue", "wire", "update"]
_STEPS = 8  # without a barrier, until steps repeat
_SETTLED = 4


@dataclass(frozen=True)
class Span:
    """Something that lasts from ``start_us`` to ``end_us``; ``track`` is where it happens."""

    kind: Kind
    track: str
    name: str
    start_us: float
    end_us: float


@dataclass(frozen=True)
class StepTimeline:
    """One step, simulated or replayed: its time, its spans from its begin on, what was exposed.

    ``exposed`` holds the times in us in which the rank moves data or waits and computes nothing.
    """

    step_us: float
    spans: tuple[Span, ...]
    exposed: tuple[tuple[float, float], ...] = field(default=())

    @property
    def exposed_us(self) -> float:
        """Time in us in which nothing was computed."""
        return math.fsum(end - start for start, end in self.exposed)


def simulate_steps(model: Model, schedule: BucketSchedule, costs: Costs) -> StepTimeline:
    """Return a step of ``schedule`` as it repeats: the last of several where steps overlap.

    Raises:
        InputError: the costs know none of the schedule's calls.
    """
    steps = 1 if schedule.barrier else _STEPS
    run = _Run(model, schedule, costs, steps)
    run.walk()
    begin, step_us = 0.0, run.end_us
    if not schedule.barrier:
        step_us = (run.begins[-1] - run.begins[_SETTLED]) / (_STEPS - 1 - _SETTLED)
        begin = run.begins[-1] - step_us
    window = (begin, begin + step_us)
    spans = tuple(
        Span(
            s.kind,
            s.track,
            s.name,
            max(s.start_us, begin) - begin,
            min(s.end_us, window[1]) - begin,
        )
        for s in run.spans
        if s.end_us > begin and s.start_us < window[1]
    )
    return StepTimeline(step_us, spans, gaps(spans, step_us))


def gaps(spans: tuple[Span, ...], step_us: float) -> tuple[tuple[float, float], ...]:
    """Return the times of a step in which no layer computes and nothing is updated."""
    busy = sorted((s.start_us, s.end_us) for s in spans if s.kind not in ("queue", "wire"))
    gaps, end = [], 0.0
    for start, stop in [*busy, (step_us, step_us)]:
        if start - end > 1e-6:
            gaps.append((end, start))
        end = max(end, stop)
    return tuple(gaps)


class _Link:
    """A link: it moves one call at a time, the least key first."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, int, Callable[[], None]]] = []
        self.busy = False


class _Run:
    """Events of some steps: one rank computes, links carry calls one after another."""

    def __init__(self, model: Model, schedule: BucketSchedule, costs: Costs, steps: int) -> None:
        self._model, self._schedule, self._costs, self._steps = model, schedule, costs, steps
        self._layers = len(model.parameters)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._now = 0.0
        self._links: dict[str, _Link] = {}
        self._of_layer: list[int] = [0] * self._layers
        for bucket in schedule.buckets:
            for layer in range(bucket.first, bucket.last):
                self._of_layer[layer] += 1
        self._ended_by: list[list[int]] = [[] for _ in range(self._layers)]
        for number, bucket in enumerate(schedule.buckets):
            self._ended_by[bucket.first].append(number)
        self._missing: dict[tuple[int, int], int] = {}
        self._updated = [0] * self._layers
        self._owed: list[float] = [0.0] * self._layers
        self._place = (0, 0)  # step and operation that computes next: L forward, L backward
        self._computing = False
        self._through = 0
        self._credit = float(schedule.credit_bytes or math.inf)
        self._asked: list[tuple[int, int, Bucket, int]] = []
        self._turn = 0
        self._early: dict[int, Callable[[], None]] = {}
        self._finished: dict[int, int] = {}
        self.spans: list[Span] = []
        self.begins: list[float] = []
        self.end_us = 0.0

    def walk(self) -> None:
        """Go through all events."""
        self._compute()
        while self._events:
            self._now, _, action = heapq.heappop(self._events)
            action()

    def _at(self, us: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (us, next(self._number), action))

    def _compute(self) -> None:
        """Begin the next layer unless it waits for its tensors."""
        step, operation = self._place
        if self._computing or step == self._steps:
            return
        forward = operation < self._layers
        layer = operation if forward else 2 * self._layers - 1 - operation
        if forward and step and self._updated[layer] < step:
            return
        parameter = self._model.parameters[layer]
        start = self._now
        if operation == 0:
            self.begins.append(start)
        if forward and self._owed[layer]:
            start += self._owed[layer]
            self._span("update", "compute", parameter.name, self._now, start)
            self._owed[layer] = 0.0
        end = start + (parameter.forward_us if forward else parameter.backward_us)
        self._span("forward" if forward else "backward", "compute", parameter.name, start, end)
        self._computing = True
        self._at(end, lambda: self._computed(step, operation, layer))

    def _computed(self, step: int, operation: int, layer: int) -> None:
        self._computing = False
        is_last = operation == 2 * self._layers - 1
        self._place = (step + 1, 0) if is_last else (step, operation + 1)
        if operation >= self._layers:
            self._grade(step, layer)
        self._compute()

    def _grade(self, step: int, layer: int) -> None:
        """Make the calls whose last gradient this was; backward ends at a bucket's first tensor."""
        for number in self._ended_by[layer]:
            bucket = self._schedule.buckets[number]
            release = bucket.release_us if self._schedule.barrier else 0.0
            action = partial(self._ready, step, number, bucket)
            self._at(max(self._now, release), action)

    def _ready(self, step: int, number: int, bucket: Bucket) -> None:
        if self._schedule.order == "fixed":
            self._early[step * len(self._schedule.buckets) + number] = lambda: self._post(
                step, number, bucket, 0, float(self._turn)
            )
            while self._turn in self._early:
                self._early.pop(self._turn)()
                self._turn += 1
            return
        heapq.heappush(self._asked, (bucket.priority, next(self._number), bucket, step))
        self._spend()

    def _spend(self) -> None:
        while self._asked and self._credit > 0:
            _, number, bucket, step = heapq.heappop(self._asked)
            self._credit -= bucket.nbytes
            self._post(step, number, bucket, 0, float(number))

    def _post(self, step: int, number: int, bucket: Bucket, stage: int, key: float) -> None:
        """Hand the bucket's call of ``stage`` to its link, where it waits."""
        call = self._schedule.calls[stage]
        track, us = self._costs.wire(call), self._costs.of(call)(bucket.nbytes)
        link = self._links.setdefault(track, _Link())
        posted = self._now

        def begin() -> None:
            name = f"{call} of {bucket.nbytes} bytes, tensors {bucket.first} to {bucket.last - 1}"
            if self._now > posted:
                self._span("queue", f"queue of {track}", name, posted, self._now)
            self._span("wire", track, name, self._now, self._now + us)
            self._at(self._now + us, lambda: self._moved(step, number, bucket, stage, link))

        heapq.heappush(link.waiting, (key, next(self._number), begin))
        self._serve(link)

    def _serve(self, link: _Link) -> None:
        if not link.busy and link.waiting:
            link.busy = True
            heapq.heappop(link.waiting)[2]()

    def _moved(self, step: int, number: int, bucket: Bucket, stage: int, link: _Link) -> None:
        link.busy = False
        schedule = self._schedule
        if schedule.calls[stage] == schedule.credited and schedule.credit_bytes:
            self._credit = min(self._credit + bucket.nbytes, float(schedule.credit_bytes))
            self._spend()
        if stage + 1 == len(schedule.calls):
            self._reduced(step, bucket)
        elif schedule.late:
            self._through += 1
            if self._through == len(schedule.buckets):
                self._through = 0
                for late, other in reversed(list(enumerate(schedule.buckets))):
                    self._post(step, late, other, stage + 1, float(next(self._number)))
        else:
            ordered = schedule.server_order and schedule.calls[stage + 1] == "pull"
            key = bucket.priority if ordered else next(self._number)
            self._post(step, number, bucket, stage + 1, float(key))
        self._serve(link)

    def _reduced(self, step: int, bucket: Bucket) -> None:
        done = self._finished[step] = self._finished.get(step, 0) + 1
        if self._schedule.barrier:
            if done == len(self._schedule.buckets):
                self._update()
            return
        share = self._model.update_us / self._model.nbytes
        for layer in range(bucket.first, bucket.last):
            left = self._missing.get((step, layer), self._of_layer[layer]) - 1
            self._missing[step, layer] = left
            if not left:
                self._updated[layer] = step + 1
                self._owed[layer] = share * self._model.parameters[layer].nbytes
        self._compute()

    def _update(self) -> None:
        end = self._now + self._model.update_us
        if end > self._now:
            self._span("update", "compute", "all", self._now, end)
        self.end_us = end

    def _span(self, kind: Kind, track: str, name: str, start: float, end: float) -> None:
        self.spans.append(Span(kind, track, name, start, end))
