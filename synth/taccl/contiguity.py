"""Contiguity encoding (TACCL 5.3): chunks that go as one message between hosts, routes fixed."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tuccl.synth.model.solver import Outcome, cp_sat
from tuccl.synth.taccl.heuristic_ordering import Reservations
from tuccl.synth.taccl.problem import BY_START, Problem, TimedSend

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_Key = tuple[int, int]


def merge_sends(problem: Problem, sends: Sequence[TimedSend], size: int) -> list[TimedSend] | None:
    """Return the sends, timed anew, with up to `size` neighbours on contiguous links as a message.

    None where two messages would wait for each other.
    """
    units: list[list[TimedSend]] = [
        [send] for send in sends if not problem.links[send.link].contiguous
    ]
    waits: list[set[int]] = [set() for _ in units]
    for row in _link_orders(problem, sends):
        for start in range(0, len(row), size):
            waits.append({len(units) - 1} if start else set())
            units.append(row[start : start + size])
    return _list_schedule(problem, units, waits)


def _link_orders(problem: Problem, sends: Sequence[TimedSend]) -> list[list[TimedSend]]:
    """Return, for each orbit of contiguous links, the sends on it in order."""
    rows: dict[int, list[TimedSend]] = defaultdict(list)
    for send in sorted(sends, key=lambda send: (send.start, send.end)):
        if problem.links[send.link].contiguous:
            rows[problem.link_orbits[send.link]].append(send)
    return list(rows.values())


def _list_schedule(
    problem: Problem, units: list[list[TimedSend]], waits: list[set[int]]
) -> list[TimedSend] | None:
    """Return the units at the earliest times, by their planned starts and after what they wait for.

    None where they wait for each other.
    """
    links = problem.links
    delivers = {
        (send.chunk, links[send.link].dst): number for number, u in enumerate(units) for send in u
    }
    for unit, before in zip(units, waits, strict=True):
        needs = ((send.chunk, links[send.link].src) for send in unit)
        before.update(delivers[need] for need in needs if need in delivers)
    followers: dict[int, list[int]] = defaultdict(list)
    for number, before in enumerate(waits):
        for other in before:
            followers[other].append(number)
    ready = [0] * len(units)
    reservations = Reservations(problem)
    heap = [(0, u[0].start, n) for n, u in enumerate(units) if not waits[n]]
    heapq.heapify(heap)
    scheduled: list[TimedSend] = []
    while heap:
        earliest, planned, number = heapq.heappop(heap)
        unit = units[number]
        link = unit[0].link
        start = reservations.start(link, ready[number], len(unit))
        if start > earliest:
            heapq.heappush(heap, (start, planned, number))
            continue
        end = reservations.book(link, start, len(unit))
        scheduled += [TimedSend(send.chunk, send.link, start, end) for send in unit]
        for other in followers[number]:
            ready[other] = max(ready[other], end)
            waits[other].discard(number)
            if not waits[other]:
                heapq.heappush(heap, (ready[other], units[other][0].start, other))
    if len(scheduled) < sum(map(len, units)):
        return None
    return sorted(scheduled, key=BY_START)


class ContiguityModel:
    """Times and messages are free; routes, and order on contiguous links, are those of `sends`.

    Notes:
        TACCL 5.3 and scheduler.py. A message is a run of neighbours: each chunk is a piece of it
        that takes beta, the first alpha as well; all arrive when the last piece has. Unlike there,
        a run may have any length, and the order on other links stays free.
    """

    def __init__(self, problem: Problem, sends: Sequence[TimedSend], most: int) -> None:
        """Build it; no schedule longer than `most` ns is of interest."""
        self.problem, self.fixed_sends, self.most = problem, sends, most
        self.model = cp_sat().CpModel()
        self.time = self.model.new_int_var(0, most, "time")
        links = problem.links
        self.at: dict[_Key, cp_model.IntVar] = {
            (send.chunk, links[send.link].dst): self._time_var() for send in sends
        }
        for number, chunk in enumerate(problem.chunks):
            self.at[number, chunk.source] = self.model.new_constant(0)
            for target in chunk.targets:
                self.model.add(self.time >= self.at[number, target])
        self.begin: dict[_Key, cp_model.IntVar] = {}
        self.together: dict[_Key, cp_model.IntVar] = {}
        self.spans: dict[object, list[cp_model.IntervalVar]] = defaultdict(list)
        for send in sends:
            if not links[send.link].contiguous:
                self._single(send)
        for row in _link_orders(problem, sends):
            self._link_order(row)
        for spans in self.spans.values():
            if len(spans) > 1:
                self.model.add_no_overlap(spans)
        self.model.minimize(self.time)

    def _time_var(self) -> cp_model.IntVar:
        variable: cp_model.IntVar = self.model.new_int_var(0, self.most, "")
        return variable

    def _arrival(self, send: TimedSend) -> cp_model.IntVar:
        return self.at[send.chunk, self.problem.links[send.link].dst]

    def _source(self, send: TimedSend) -> cp_model.IntVar:
        return self.at[send.chunk, self.problem.links[send.link].src]

    def _single(self, send: TimedSend) -> None:
        link, end = self.problem.links[send.link], self._arrival(send)
        self.model.add(end - link.message_ns() >= self._source(send))
        for key in self.problem.resources[send.link]:
            size = link.port_ns() if key[0] == "port" else link.message_ns()
            self.spans[key].append(self.model.new_fixed_size_interval_var(end - size, size, ""))

    def _link_order(self, row: Sequence[TimedSend]) -> None:
        """Lay out the pieces on one link: each after the one before, or in one message with it."""
        model = self.model
        ends = [self._time_var() for _ in row]
        for place, send in enumerate(row):
            link = self.problem.links[send.link]
            key = (send.chunk, send.link)
            together = model.new_bool_var("") if place else model.new_constant(0)
            self.together[key], self.begin[key] = together, self._time_var()
            size = link.message_ns() - link.alpha * together
            if not link.alpha:
                model.add(together == 0)
            model.add(self.begin[key] >= self._source(send))
            model.add(self.begin[key] == ends[place] - size).only_enforce_if(together.negated())
            self._ports(send, ends[place], size)
            if place:
                model.add(ends[place] - size >= ends[place - 1])
        for (before, send), (end_before, end) in zip(pairwise(row), pairwise(ends), strict=True):
            self._tie(before, send, end_before, end)
        model.add(self._arrival(row[-1]) == ends[-1])

    def _tie(
        self, before: TimedSend, send: TimedSend, end_before: cp_model.IntVar, end: cp_model.IntVar
    ) -> None:
        model, together = self.model, self.together[send.chunk, send.link]
        link = self.problem.links[send.link]
        begins = self.begin[before.chunk, before.link], self.begin[send.chunk, send.link]
        model.add(begins[0] == begins[1]).only_enforce_if(together)
        model.add(end == end_before + link.beta).only_enforce_if(together)
        model.add(self._arrival(before) == self._arrival(send)).only_enforce_if(together)
        model.add(self._arrival(before) == end_before).only_enforce_if(together.negated())

    def _ports(self, send: TimedSend, end: cp_model.IntVar, size: cp_model.LinearExprT) -> None:
        """Keep other links' messages off the piece's ports."""
        link = self.problem.links[send.link]
        for key in self.problem.resources[send.link]:
            if key[0] == "port":
                port_size = size if link.holds_ports else link.beta
                start = self.model.new_int_var(0, self.most, "")
                self.spans[key].append(self.model.new_interval_var(start, port_size, end, ""))

    def hint(self, sends: Sequence[TimedSend]) -> None:
        """Give the solver a schedule to start from, with the same routes and orders."""
        self.model.add_hint(self.time, max((send.end for send in sends), default=0))
        timed = {(send.chunk, send.link): send for send in sends}
        for send in sends:
            self.model.add_hint(self._arrival(send), send.end)
        for row in _link_orders(self.problem, self.fixed_sends):
            last = None
            for send in row:
                key = (send.chunk, send.link)
                times = timed[key].start, timed[key].end
                self.model.add_hint(self.begin[key], times[0])
                if last is not None:
                    self.model.add_hint(self.together[key], times == last)
                last = times

    def sends(self, outcome: Outcome) -> list[TimedSend]:
        """Return the sends of a solution; those of one message share start and end."""
        value, links = outcome.value, self.problem.links
        sends = []
        for send in self.fixed_sends:
            end = value(self._arrival(send))
            key = (send.chunk, send.link)
            start = (
                value(self.begin[key]) if key in self.begin else end - links[send.link].message_ns()
            )
            sends.append(TimedSend(send.chunk, send.link, start, end))
        return sorted(sends, key=BY_START)
