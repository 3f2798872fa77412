"""The exact method's models: routes, their order, and both at once.

All three have a Boolean for each (item, wire) and a time for each (item, rank), for one item of
each orbit of the symmetry. Routing (TACCL 5.1) bounds what each wire and port carries; ordering
(5.2) has the sends of fixed routes exclude each other; the joint model does both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tuccl.synth.exact_plan import Hop, Question
from tuccl.synth.exact_solver import Outcome, cp_sat

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["SendModel"]


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
                self.sent[number, wire] = (
                    model.new_constant(1) if fixed else model.new_bool_var("")
                )
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

    def _loads(self) -> None:
        wires = self.question.costs.wires
        for key, sends in self._meeting().items():
            if len(sends) < 2:
                continue
            terms, head = [], self.most
            for number, wire in sends:
                held = wires[wire].holds() if key[0] == "port" else wires[wire].takes()
                cheap = self.optimistic and wires[wire].batch
                terms.append((wires[wire].beta if cheap else held) * self.sent[number, wire])
                head = min(head, wires[wire].alpha if cheap else wires[wire].takes() - held)
            self.model.add(self.time >= head + sum(terms)) if self._sure(sends) else self.model.add(
                self.time >= sum(terms)
            )

    def _sure(self, sends: list[tuple[int, int]]) -> bool:
        """Return whether a send over one of these cannot be avoided."""
        wires, leaders = self.question.costs.wires, self.question.leaders
        used = set(sends)
        for number in {number for number, _ in sends}:
            for target in leaders[number].targets:
                if all((number, wire) in used for wire in self._into(number, target)):
                    return True
        return all(wires[wire].alpha == 0 for _, wire in sends)

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
                alike[self.question.group.wire_orbit(wire)].append((number, wire))
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
        assert value is not None, "only a solution has sends"
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
