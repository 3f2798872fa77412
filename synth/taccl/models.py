"""The exact method's models: routes, their order, and both at once.

All three have a Boolean for each (item, wire) and a time for each (item, rank), for one item of
each orbit of the symmetry. Routing (TACCL 5.1) bounds what each wire and port carries; ordering
(5.2) has the sends of fixed routes exclude each other; the joint model does both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tuccl.synth.model.solver import Outcome, cp_sat
from tuccl.synth.taccl.items import distances
from tuccl.synth.taccl.plan import Hop, Question

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["Margins", "SendModel"]


class Margins:
    """How long before and after a send an item needs at least, in ns."""

    def __init__(self, question: Question) -> None:
        """Measure the wires of every leader."""
        self.question = question
        costs = question.costs
        self.near = [distances(costs, i.wires, [i.origin]) for i in question.leaders]
        self.left = [
            distances(costs, i.wires, i.targets, back=True) if len(i.targets) == 1 else {}
            for i in question.leaders
        ]
        self._tails: dict[tuple[int, int], int] = {}

    def reach(self) -> list[int]:
        """Return for each leader the time to its farthest target, with nothing in its way."""
        leaders = self.question.leaders
        return [max(near[t] for t in i.targets) for near, i in zip(self.near, leaders, strict=True)]

    def least(self, sends: Iterable[tuple[int, int]]) -> int:
        """Return the least ns before the first plus the least after the last of some sends."""
        known = list(sends)
        wires = self.question.costs.wires
        heads = (self.near[number].get(wires[wire].src, 0) for number, wire in known)
        return min(heads, default=0) + min((self._tail(*send) for send in known), default=0)

    def _tail(self, number: int, wire: int) -> int:
        """Return the time from a send's arrival until the item has reached all behind it."""
        dst = self.question.costs.wires[wire].dst
        if self.left[number]:
            return self.left[number].get(dst, 0)
        if (number, wire) not in self._tails:
            self._tails[number, wire] = self._spreads(number, wire)
        return self._tails[number, wire]

    def _spreads(self, number: int, wire: int) -> int:
        """Return the time to reach a host's farthest rank, where `wire` is the one way into it."""
        costs, item = self.question.costs, self.question.leaders[number]
        host = costs.hosts[costs.wires[wire].dst]
        ways = [
            n
            for n in item.wires
            if costs.wires[n].inter and costs.hosts[costs.wires[n].dst] == host
        ]
        if ways != [wire]:
            return 0
        reach = distances(costs, item.wires, [costs.wires[wire].dst])
        return max(reach[t] for t in item.targets if costs.hosts[t] == host)


class SendModel:
    """A model of a question; its objective is the makespan in ns."""

    def __init__(
        self,
        question: Question,
        most: int,
        routes: Sequence[Iterable[int]] | None = None,
        exclusive: bool = True,
        shortest_messages: bool = False,
    ) -> None:
        """Build it.

        Args:
            question: What is to be solved.
            most: No plan longer than that is of interest, in ns.
            routes: The wires of each leader, where they are decided already.
            exclusive: Whether sends exclude each other, or only fill what they share.
            shortest_messages: Whether chunks on batch wires cost their bytes alone, so that the
                optimum is a bound for messages of several chunks as well.
        """
        self.question, self.most = question, most
        self.fixed = routes is not None
        self.optimistic = shortest_messages
        self.model = cp_sat().CpModel()
        self.time = self.model.new_int_var(0, most, "time")
        self.sent: dict[tuple[int, int], cp_model.IntVar] = {}
        self.at: dict[tuple[int, int], cp_model.IntVar] = {}
        for number, item in enumerate(question.leaders):
            self._item(number, sorted(routes[number]) if routes is not None else item.wires)
            self._crossings(number)
        self._loads()
        if exclusive:
            self._exclude()
        if question.own_first and exclusive:
            self._own_first()
        self.model.minimize(self.time)

    def _item(self, number: int, wires: Iterable[int]) -> None:
        item, model = self.question.leaders[number], self.model
        into: dict[int, list[int]] = defaultdict(list)
        for wire in wires:
            into[self.question.costs.wires[wire].dst].append(wire)
        self.at[number, item.origin] = model.new_constant(0)
        for rank, arriving in into.items():
            self.at[number, rank] = model.new_int_var(0, self.most, "")
            for wire in arriving:
                fixed = self.fixed
                self.sent[number, wire] = model.new_constant(1) if fixed else model.new_bool_var("")
        for rank, arriving in into.items():
            self._arrivals(number, rank, arriving, rank in item.targets)

    def _arrivals(self, number: int, rank: int, arriving: list[int], needed: bool) -> None:
        model, wires = self.model, self.question.costs.wires
        literals = [self.sent[number, wire] for wire in arriving]
        if not self.fixed:
            (model.add_exactly_one if needed else model.add_at_most_one)(literals)
        if needed:
            model.add(self.time >= self.at[number, rank])
        for wire, literal in zip(arriving, literals, strict=True):
            src = wires[wire].src
            if (number, src) not in self.at:
                model.add(literal == 0)
                continue
            later = self.at[number, rank] >= self.at[number, src] + wires[wire].takes()
            model.add(later).only_enforce_if(literal)
            before = [self.sent[number, w] for w in self._into(number, src)]
            if src != self.question.leaders[number].origin and not self.fixed:
                model.add_bool_or([*before, literal.negated()])

    def _into(self, number: int, rank: int) -> list[int]:
        wires = self.question.costs.wires
        item = self.question.leaders[number]
        return [w for w in item.wires if wires[w].dst == rank and (number, w) in self.sent]

    def _meeting(self) -> dict[tuple[str, object], list[tuple[int, int]]]:
        """Return the sends that meet on each wire or port."""
        meeting: dict[tuple[str, object], list[tuple[int, int]]] = defaultdict(list)
        for number, wire in self.sent:
            for key in self.question.uses[wire]:
                meeting[key].append((number, wire))
        return meeting

    def _crossings(self, number: int) -> None:
        """Say what follows from the rest, but is hard to see: an item enters each host it must."""
        item, wires = self.question.leaders[number], self.question.costs.wires
        hosts = self.question.costs.hosts
        entries: dict[int, list[cp_model.IntVar]] = defaultdict(list)
        for wire in item.wires:
            if wires[wire].inter and (number, wire) in self.sent:
                entries[hosts[wires[wire].dst]].append(self.sent[number, wire])
        for host in {hosts[target] for target in item.targets} - {hosts[item.origin]}:
            self.model.add_at_least_one(entries[host])

    def _loads(self) -> None:
        """Give the sends that share a wire or a port the time they take together."""
        wires = self.question.costs.wires
        margins = Margins(self.question)
        for key, sends in self._meeting().items():
            if len(sends) < 2:
                continue
            load: list[cp_model.LinearExprT] = []
            alphas: dict[int, list[cp_model.IntVar]] = defaultdict(list)
            for number, wire in sends:
                whole = wires[wire].takes() if key[0] == "wire" else wires[wire].holds()
                cheap = self.optimistic and wires[wire].batch
                load.append((wires[wire].beta if cheap else whole) * self.sent[number, wire])
                if cheap and whole > wires[wire].beta:
                    alphas[self.question.group.link_representatives[wire]].append(
                        self.sent[number, wire]
                    )
            for wire, literals in alphas.items():
                used = self.model.new_bool_var("")
                for literal in literals:
                    self.model.add_implication(literal, used)
                load.append(wires[wire].alpha * used)
            margin = margins.least(sends) if self._sure(sends) else 0
            self.model.add(self.time >= margin + sum(load))

    def _sure(self, sends: list[tuple[int, int]]) -> bool:
        """Return whether an item has no way but over one of these sends."""
        hosts = self.question.costs.hosts
        wires, leaders = self.question.costs.wires, self.question.leaders
        used = set(sends)
        for number in {number for number, _ in sends}:
            for target in leaders[number].targets:
                into = self._into(number, target)
                if all((number, wire) in used for wire in into):
                    return True
                if hosts[target] == hosts[leaders[number].origin]:
                    continue
                entries = [
                    wire
                    for wire in leaders[number].wires
                    if wires[wire].inter and hosts[wires[wire].dst] == hosts[target]
                ]
                if all((number, wire) in used for wire in entries):
                    return True
        return False

    def _exclude(self) -> None:
        wires, model = self.question.costs.wires, self.model
        for key, sends in self._meeting().items():
            spans = []
            for number, wire in sends:
                size = wires[wire].holds() if key[0] == "port" else wires[wire].takes()
                end = self.at[number, wires[wire].dst]
                spans.append(
                    model.new_optional_interval_var(
                        end - size, size, end, self.sent[number, wire], ""
                    )
                )
            if len(spans) > 1:
                model.add_no_overlap(spans)

    def _own_first(self) -> None:
        """A relay sends its own chunks over a wire before those it carries for others."""
        wires, leaders = self.question.costs.wires, self.question.leaders
        alike: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, wire in self.sent:
            if wires[wire].inter:
                alike[self.question.group.link_representatives[wire]].append((number, wire))
        for sends in alike.values():
            own = [(n, w) for n, w in sends if leaders[n].origin == wires[w].src]
            for n, w in own:
                for other, way in sends:
                    if (other, way) not in own:
                        first, then = self.at[n, wires[w].dst], self.at[other, wires[way].dst]
                        self.model.add(then - wires[way].takes() >= first).only_enforce_if(
                            self.sent[n, w], self.sent[other, way]
                        )

    def hint(self, hops: Sequence[Hop]) -> None:
        """Give the solver a plan to start from."""
        used = {(hop.item, hop.wire): hop.end for hop in hops}
        wires = self.question.costs.wires
        if not self.fixed:
            for key, literal in self.sent.items():
                self.model.add_hint(literal, int(key in used))
        for (number, wire), end in used.items():
            if (number, wires[wire].dst) in self.at:
                self.model.add_hint(self.at[number, wires[wire].dst], end)
        self.model.add_hint(self.time, max(used.values(), default=0))

    def hops(self, outcome: Outcome) -> list[Hop]:
        """Return the sends of a solution, less those that no rank needed."""
        value, wires = outcome.value, self.question.costs.wires
        chosen = {key for key, literal in self.sent.items() if value(literal)}
        found = []
        for number, wire in _needed(self.question, chosen):
            end = value(self.at[number, wires[wire].dst])
            found.append(Hop(number, wire, end - wires[wire].takes(), end))
        return sorted(found, key=lambda hop: (hop.start, hop.end, hop.wire))


def _needed(question: Question, chosen: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the sends on the ways from origins to targets."""
    wires = question.costs.wires
    by: Mapping[tuple[int, int], int] = {(n, wires[w].dst): w for n, w in chosen}
    kept: dict[tuple[int, int], None] = {}
    for number, item in enumerate(question.leaders):
        for target in sorted(item.targets):
            rank = target
            while rank != item.origin and (number, by[number, rank]) not in kept:
                kept[number, by[number, rank]] = None
                rank = wires[by[number, rank]].src
    return list(kept)
