"""TACCL's third step: which chunks travel as one message between hosts, with routes fixed."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tuccl.synth.model.solver import Outcome, cp_sat
from tuccl.synth.taccl.plan import Hop, Question

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["BatchModel", "grouped_hops"]

_Send = tuple[int, int]


def grouped_hops(question: Question, hops: Sequence[Hop], size: int) -> list[Hop] | None:
    """Return the hops with up to `size` neighbours on a batch wire as one message, retimed.

    None where two messages would wait for each other.
    """
    units: list[list[Hop]] = [[hop] for hop in hops if not question.costs.wires[hop.wire].batch]
    waits: list[set[int]] = [set() for _ in units]
    for row in _rows(question, hops):
        for start in range(0, len(row), size):
            waits.append({len(units) - 1} if start else set())
            units.append(row[start : start + size])
    return _listed(question, units, waits)


def _rows(question: Question, hops: Sequence[Hop]) -> list[list[Hop]]:
    """Return, for each set of like batch wires, the hops on it in order."""
    rows: dict[int, list[Hop]] = defaultdict(list)
    for hop in sorted(hops, key=lambda hop: (hop.start, hop.end)):
        if question.costs.wires[hop.wire].batch:
            rows[question.group.link_representatives[hop.wire]].append(hop)
    return list(rows.values())


def _listed(question: Question, units: list[list[Hop]], waits: list[set[int]]) -> list[Hop] | None:
    """Return the units at the earliest times, by their planned starts and after what they wait for.

    None where they wait for each other.
    """
    wires = question.costs.wires
    brings = {
        (hop.item, wires[hop.wire].dst): number for number, u in enumerate(units) for hop in u
    }
    for unit, before in zip(units, waits, strict=True):
        needs = ((hop.item, wires[hop.wire].src) for hop in unit)
        before.update(brings[need] for need in needs if need in brings)
    followers: dict[int, list[int]] = defaultdict(list)
    for number, before in enumerate(waits):
        for other in before:
            followers[other].append(number)
    ready = [0] * len(units)
    free: dict[object, int] = {}
    heap = [(0, u[0].start, n) for n, u in enumerate(units) if not waits[n]]
    heapq.heapify(heap)
    found: list[Hop] = []
    while heap:
        tried, planned, number = heapq.heappop(heap)
        unit = units[number]
        wire = wires[unit[0].wire]
        takes, lead = wire.takes(len(unit)), wire.takes(len(unit)) - wire.holds(len(unit))
        uses = question.uses[unit[0].wire]
        start = max(
            ready[number], *(free.get(k, 0) - (lead if k[0] == "port" else 0) for k in uses)
        )
        if start > tried:
            heapq.heappush(heap, (start, planned, number))
            continue
        free.update(dict.fromkeys(uses, start + takes))
        found += [Hop(hop.item, hop.wire, start, start + takes) for hop in unit]
        for other in followers[number]:
            ready[other] = max(ready[other], start + takes)
            waits[other].discard(number)
            if not waits[other]:
                heapq.heappush(heap, (ready[other], units[other][0].start, other))
    if len(found) < sum(map(len, units)):
        return None
    return sorted(found, key=lambda hop: (hop.start, hop.end, hop.wire))


class BatchModel:
    """Routes and the order on every batch wire are those of `hops`; times and messages are free.

    Notes:
        TACCL 5.3 and scheduler.py. A message is a run of neighbours: each chunk is a piece of it
        that takes beta, the first alpha as well; all arrive when the last piece has. Unlike there,
        a run may have any length, and the order on other wires stays free.
    """

    def __init__(self, question: Question, hops: Sequence[Hop], most: int) -> None:
        """Build it; no plan longer than `most` ns is of interest."""
        self.question, self.hops_given, self.most = question, hops, most
        self.model = cp_sat().CpModel()
        self.time = self.model.new_int_var(0, most, "time")
        wires = question.costs.wires
        self.at: dict[_Send, cp_model.IntVar] = {
            (hop.item, wires[hop.wire].dst): self._moment() for hop in hops
        }
        for number, item in enumerate(question.leaders):
            self.at[number, item.origin] = self.model.new_constant(0)
            for target in item.targets:
                self.model.add(self.time >= self.at[number, target])
        self.begin: dict[_Send, cp_model.IntVar] = {}
        self.joined: dict[_Send, cp_model.IntVar] = {}
        self.spans: dict[object, list[cp_model.IntervalVar]] = defaultdict(list)
        for hop in hops:
            if not wires[hop.wire].batch:
                self._single(hop)
        for row in _rows(question, hops):
            self._row(row)
        for spans in self.spans.values():
            if len(spans) > 1:
                self.model.add_no_overlap(spans)
        self.model.minimize(self.time)

    def _moment(self) -> cp_model.IntVar:
        moment: cp_model.IntVar = self.model.new_int_var(0, self.most, "")
        return moment

    def _arrival(self, hop: Hop) -> cp_model.IntVar:
        return self.at[hop.item, self.question.costs.wires[hop.wire].dst]

    def _source(self, hop: Hop) -> cp_model.IntVar:
        return self.at[hop.item, self.question.costs.wires[hop.wire].src]

    def _single(self, hop: Hop) -> None:
        wire, end = self.question.costs.wires[hop.wire], self._arrival(hop)
        self.model.add(end - wire.takes() >= self._source(hop))
        for key in self.question.uses[hop.wire]:
            size = wire.holds() if key[0] == "port" else wire.takes()
            self.spans[key].append(self.model.new_fixed_size_interval_var(end - size, size, ""))

    def _row(self, row: Sequence[Hop]) -> None:
        """Lay out the pieces on one wire: each after the one before, or joined to its message."""
        model = self.model
        ends = [self._moment() for _ in row]
        for place, hop in enumerate(row):
            wire = self.question.costs.wires[hop.wire]
            key = (hop.item, hop.wire)
            joined = model.new_bool_var("") if place else model.new_constant(0)
            self.joined[key], self.begin[key] = joined, self._moment()
            size = wire.takes() - wire.alpha * joined
            if not wire.alpha:
                model.add(joined == 0)
            model.add(self.begin[key] >= self._source(hop))
            model.add(self.begin[key] == ends[place] - size).only_enforce_if(joined.negated())
            self._ports(hop, ends[place], size)
            if place:
                model.add(ends[place] - size >= ends[place - 1])
        for (before, hop), (end_before, end) in zip(pairwise(row), pairwise(ends), strict=True):
            self._tie(before, hop, end_before, end)
        model.add(self._arrival(row[-1]) == ends[-1])

    def _tie(
        self, before: Hop, hop: Hop, end_before: cp_model.IntVar, end: cp_model.IntVar
    ) -> None:
        model, joined = self.model, self.joined[hop.item, hop.wire]
        wire = self.question.costs.wires[hop.wire]
        begins = self.begin[before.item, before.wire], self.begin[hop.item, hop.wire]
        model.add(begins[0] == begins[1]).only_enforce_if(joined)
        model.add(end == end_before + wire.beta).only_enforce_if(joined)
        model.add(self._arrival(before) == self._arrival(hop)).only_enforce_if(joined)
        model.add(self._arrival(before) == end_before).only_enforce_if(joined.negated())

    def _ports(self, hop: Hop, end: cp_model.IntVar, size: cp_model.LinearExprT) -> None:
        """Keep other wires' messages off the piece's ports."""
        wire = self.question.costs.wires[hop.wire]
        for key in self.question.uses[hop.wire]:
            if key[0] == "port":
                held = size if wire.whole else wire.beta
                start = self.model.new_int_var(0, self.most, "")
                self.spans[key].append(self.model.new_interval_var(start, held, end, ""))

    def hint(self, hops: Sequence[Hop]) -> None:
        """Give the solver a plan to start from, with the same routes and orders."""
        self.model.add_hint(self.time, max((hop.end for hop in hops), default=0))
        known = {(hop.item, hop.wire): hop for hop in hops}
        for hop in hops:
            self.model.add_hint(self._arrival(hop), hop.end)
        for row in _rows(self.question, self.hops_given):
            last = None
            for hop in row:
                key = (hop.item, hop.wire)
                times = known[key].start, known[key].end
                self.model.add_hint(self.begin[key], times[0])
                if last is not None:
                    self.model.add_hint(self.joined[key], times == last)
                last = times

    def hops(self, outcome: Outcome) -> list[Hop]:
        """Return the hops of a solution; those of one message share start and end."""
        value, wires = outcome.value, self.question.costs.wires
        found = []
        for hop in self.hops_given:
            end = value(self._arrival(hop))
            key = (hop.item, hop.wire)
            start = value(self.begin[key]) if key in self.begin else end - wires[hop.wire].takes()
            found.append(Hop(hop.item, hop.wire, start, end))
        return sorted(found, key=lambda hop: (hop.start, hop.end, hop.wire))
