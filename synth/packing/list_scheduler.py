"""The order in which messages can start: a timetable over wires that serve one chunk at a time."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from tuccl.sketches.sketch import Sketch
from tuccl.synth.model.network import Network

__all__ = ["Leg", "Timetable"]


class Leg(NamedTuple):
    """A chunk's message over a pair of ranks.

    Attributes:
        pair: Number of the pair in the wires.
        after: Numbers of the legs, all earlier, that bring what it carries.
        left: Legs of the longest chain that waits for it.
    """

    pair: int
    after: tuple[int, ...]
    left: int


class Timetable:
    """Wires that serve chunks of one size one at a time.

    A chunk keeps each wire on its way busy while its bytes pass, and arrives whole: ranks pass on
    nothing sooner. Where several wait, the pair that has sent least goes first, and of a pair's
    chunks the one with the longest chain of messages behind it.
    """

    def __init__(self, wires: Network, sketch: Sketch, chunk_bytes: float) -> None:
        """Take the latency of each pair from `sketch`, rates from `wires`."""
        self._wires = wires
        self._passing = [chunk_bytes / float(rate) / 1e3 for rate in wires.rates]
        alphas = {(link.src, link.dst): link.alpha_us for link in sketch.links}
        self._travel = [
            alphas[pair] + max((self._passing[wire] for wire in way), default=0.0)
            for pair, way in zip(wires.pairs, wires.routes, strict=True)
        ]

    def order(self, legs: Sequence[Leg]) -> list[int]:
        """Return the numbers of all legs by start."""
        run = _Run(self._wires, self._passing, self._travel, legs)
        return run.order()


class _Run:
    """One timing; events are (time, messages that the pair has sent, distance, pair)."""

    def __init__(
        self,
        wires: Network,
        passing: Sequence[float],
        travel: Sequence[float],
        legs: Sequence[Leg],
    ) -> None:
        self._wires, self._passing, self._travel, self._legs = wires, passing, travel, legs
        self._lacking = [len(leg.after) for leg in legs]
        self._ready = [0.0] * len(legs)
        self._followers: list[list[int]] = [[] for _ in legs]
        for number, leg in enumerate(legs):
            for before in leg.after:
                self._followers[before].append(number)
        self._free = [0.0] * len(wires.rates)
        self._sent = [0] * len(wires.pairs)
        self._distance = [(dst - src) % wires.ranks for src, dst in wires.pairs]
        self._due = [math.inf] * len(wires.pairs)
        # Of each pair (ready, leg) that come and (-left, ready, leg) that are there.
        self._coming: dict[int, list[tuple[float, int]]] = defaultdict(list)
        self._waiting: dict[int, list[tuple[int, float, int]]] = defaultdict(list)
        self._events: list[tuple[float, int, int, int]] = []
        self._started: list[int] = []

    def order(self) -> list[int]:
        for number, lacking in enumerate(self._lacking):
            if not lacking:
                self._await(number)
        while self._events:
            now, _, _, pair = heapq.heappop(self._events)
            self._serve(now, pair)
        return self._started

    def _await(self, number: int) -> None:
        """Have a leg wait for its pair from when it is ready."""
        pair, ready = self._legs[number].pair, self._ready[number]
        heapq.heappush(self._coming[pair], (ready, number))
        self._look(ready, pair)

    def _look(self, when: float, pair: int) -> None:
        """Serve a pair at `when` or as soon as its wires are free, unless that is due before."""
        when = max(when, *(self._free[wire] for wire in self._wires.routes[pair]))
        if when < self._due[pair]:
            self._due[pair] = when
            heapq.heappush(self._events, (when, self._sent[pair], self._distance[pair], pair))

    def _serve(self, now: float, pair: int) -> None:
        if self._due[pair] != now:
            return  # it was due sooner, and has been served
        self._due[pair] = math.inf
        waiting, coming = self._waiting[pair], self._coming[pair]
        while coming and coming[0][0] <= now:
            ready, number = heapq.heappop(coming)
            heapq.heappush(waiting, (-self._legs[number].left, ready, number))
        if waiting and max(self._free[wire] for wire in self._wires.routes[pair]) <= now:
            self._start(now, pair, heapq.heappop(waiting)[-1])
        if waiting:
            self._look(now, pair)
        elif coming:
            self._look(coming[0][0], pair)

    def _start(self, now: float, pair: int, number: int) -> None:
        self._started.append(number)
        self._sent[pair] += 1
        for wire in self._wires.routes[pair]:
            self._free[wire] = now + self._passing[wire]
        for follower in self._followers[number]:
            self._ready[follower] = max(self._ready[follower], now + self._travel[pair])
            self._lacking[follower] -= 1
            if not self._lacking[follower]:
                self._await(follower)
