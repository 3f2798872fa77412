"""CP-SAT models of TACCL's routing, of the ordering of sends, and of both at once.

All three have a Boolean for each (chunk, link) and a time for each (chunk, rank), for one chunk of
each orbit of the symmetry. Routing (TACCL 5.1) bounds what each link and port carries; ordering
(5.2) has the sends of fixed routes exclude each other; the joint model does both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tuccl.synth.model.solver import Outcome, cp_sat
from tuccl.synth.taccl.chunks import distances
from tuccl.synth.taccl.problem import BY_START, Problem, TimedSend

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


class HeadsAndTails:
    """Least ns that a chunk needs before and after a send (heads and tails of scheduling)."""

    def __init__(self, problem: Problem) -> None:
        """Measure the links of every chunk."""
        self.problem = problem
        costs = problem.costs
        self.near = [distances(costs, i.links, [i.source]) for i in problem.chunks]
        self.left = [
            distances(costs, i.links, i.targets, back=True) if len(i.targets) == 1 else {}
            for i in problem.chunks
        ]
        self._tails: dict[tuple[int, int], int] = {}

    def reach(self) -> list[int]:
        """Return for each chunk the time to its farthest target, with nothing on its path."""
        chunks = self.problem.chunks
        return [max(near[t] for t in i.targets) for near, i in zip(self.near, chunks, strict=True)]

    def least(self, sends: Iterable[tuple[int, int]]) -> int:
        """Return the least ns before the first plus the least after the last of some sends."""
        sends = list(sends)
        links = self.problem.links
        heads = (self.near[number].get(links[link].src, 0) for number, link in sends)
        return min(heads, default=0) + min((self._tail(*send) for send in sends), default=0)

    def _tail(self, number: int, link: int) -> int:
        """Return the time from a send's arrival until the chunk has reached all behind it."""
        dst = self.problem.links[link].dst
        if self.left[number]:
            return self.left[number].get(dst, 0)
        if (number, link) not in self._tails:
            self._tails[number, link] = self._spread_ns(number, link)
        return self._tails[number, link]

    def _spread_ns(self, number: int, link: int) -> int:
        """Return the time to reach a host's farthest rank if `link` is the only one into it."""
        costs, chunk = self.problem.costs, self.problem.chunks[number]
        host = costs.hosts[costs.links[link].dst]
        if self.problem.entries(number, host) != [link]:
            return 0
        reach = distances(costs, chunk.links, [costs.links[link].dst])
        return max(reach[t] for t in chunk.targets if costs.hosts[t] == host)


class RoutingModel:
    """A model of a problem; its objective is the makespan in ns."""

    def __init__(
        self,
        problem: Problem,
        most: int,
        routes: Sequence[Iterable[int]] | None = None,
        exclusive: bool = True,
        shortest_messages: bool = False,
    ) -> None:
        """Build it.

        Args:
            problem: What is to be solved.
            most: No schedule longer than that is of interest, in ns.
            routes: The links of each chunk, where they are decided already.
            exclusive: Whether sends exclude each other, or only fill what they share.
            shortest_messages: Whether chunks on contiguous links cost their bytes alone, so that
                the optimum is a bound for messages of several chunks as well.
        """
        self.problem, self.most = problem, most
        self.fixed = routes is not None
        self.optimistic = shortest_messages
        self.model = cp_sat().CpModel()
        self.time = self.model.new_int_var(0, most, "time")
        self.sent: dict[tuple[int, int], cp_model.IntVar] = {}
        self.at: dict[tuple[int, int], cp_model.IntVar] = {}
        for number, chunk in enumerate(problem.chunks):
            self._chunk(number, sorted(routes[number]) if routes is not None else chunk.links)
            self._host_entries(number)
        self._loads()
        if exclusive:
            self._exclude()
        if problem.own_chunks_first and exclusive:
            self._own_chunks_first()
        self.model.minimize(self.time)

    def _chunk(self, number: int, links: Iterable[int]) -> None:
        chunk, model = self.problem.chunks[number], self.model
        into: dict[int, list[int]] = defaultdict(list)
        for link in links:
            into[self.problem.links[link].dst].append(link)
        self.at[number, chunk.source] = model.new_constant(0)
        for rank, arriving in into.items():
            self.at[number, rank] = model.new_int_var(0, self.most, "")
            for link in arriving:
                fixed = self.fixed
                self.sent[number, link] = model.new_constant(1) if fixed else model.new_bool_var("")
        for rank, arriving in into.items():
            self._arrivals(number, rank, arriving, rank in chunk.targets)

    def _arrivals(self, number: int, rank: int, arriving: list[int], needed: bool) -> None:
        model, links = self.model, self.problem.links
        literals = [self.sent[number, link] for link in arriving]
        if not self.fixed:
            (model.add_exactly_one if needed else model.add_at_most_one)(literals)
        if needed:
            model.add(self.time >= self.at[number, rank])
        for link, literal in zip(arriving, literals, strict=True):
            src = links[link].src
            if (number, src) not in self.at:
                model.add(literal == 0)
                continue
            later = self.at[number, rank] >= self.at[number, src] + links[link].message_ns()
            model.add(later).only_enforce_if(literal)
            before = [self.sent[number, w] for w in self._into(number, src)]
            if src != self.problem.chunks[number].source and not self.fixed:
                model.add_bool_or([*before, literal.negated()])

    def _into(self, number: int, rank: int) -> list[int]:
        links = self.problem.links
        chunk = self.problem.chunks[number]
        return [w for w in chunk.links if links[w].dst == rank and (number, w) in self.sent]

    def _by_resource(self) -> dict[tuple[str, object], list[tuple[int, int]]]:
        """Return the sends that meet on each link or port."""
        by_resource: dict[tuple[str, object], list[tuple[int, int]]] = defaultdict(list)
        for number, link in self.sent:
            for key in self.problem.resources[link]:
                by_resource[key].append((number, link))
        return by_resource

    def _host_entries(self, number: int) -> None:
        """Say what follows from the rest, but is hard to see: a chunk enters each host it must."""
        chunk, hosts = self.problem.chunks[number], self.problem.hosts
        for host in {hosts[target] for target in chunk.targets} - {hosts[chunk.source]}:
            entries = ((number, link) for link in self.problem.entries(number, host))
            self.model.add_at_least_one(self.sent[key] for key in entries if key in self.sent)

    def _loads(self) -> None:
        """Give the sends that share a link or a port the time they take together."""
        links = self.problem.links
        slack = HeadsAndTails(self.problem)
        for key, sends in self._by_resource().items():
            if len(sends) < 2:
                continue
            load: list[cp_model.LinearExprT] = []
            alphas: dict[int, list[cp_model.IntVar]] = defaultdict(list)
            for number, link in sends:
                exact = links[link].message_ns() if key[0] == "link" else links[link].port_ns()
                cheap = self.optimistic and links[link].contiguous
                load.append((links[link].beta if cheap else exact) * self.sent[number, link])
                if cheap and exact > links[link].beta:
                    alphas[self.problem.link_orbits[link]].append(self.sent[number, link])
            for link, literals in alphas.items():
                link_used = self.model.new_bool_var("")
                for literal in literals:
                    self.model.add_implication(literal, link_used)
                load.append(links[link].alpha * link_used)
            margin = slack.least(sends) if self._unavoidable(sends) else 0
            self.model.add(self.time >= margin + sum(load))

    def _unavoidable(self, sends: list[tuple[int, int]]) -> bool:
        """Return whether a chunk has no route but over one of these sends."""
        hosts, chunks = self.problem.hosts, self.problem.chunks
        keys = set(sends)
        for number in {number for number, _ in sends}:
            for target in chunks[number].targets:
                cuts = [self._into(number, target)]
                if hosts[target] != hosts[chunks[number].source]:
                    cuts.append(self.problem.entries(number, hosts[target]))
                if any(all((number, link) in keys for link in links) for links in cuts):
                    return True
        return False

    def _exclude(self) -> None:
        links, model = self.problem.links, self.model
        for key, sends in self._by_resource().items():
            spans = []
            for number, link in sends:
                size = links[link].port_ns() if key[0] == "port" else links[link].message_ns()
                end = self.at[number, links[link].dst]
                spans.append(
                    model.new_optional_interval_var(
                        end - size, size, end, self.sent[number, link], ""
                    )
                )
            if len(spans) > 1:
                model.add_no_overlap(spans)

    def _own_chunks_first(self) -> None:
        """Have a relay send its own chunks over a link before those it carries for others."""
        links, chunks = self.problem.links, self.problem.chunks
        by_orbit: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, link in self.sent:
            if links[link].inter:
                by_orbit[self.problem.link_orbits[link]].append((number, link))
        for sends in by_orbit.values():
            own_sends = [(n, w) for n, w in sends if chunks[n].source == links[w].src]
            for n, w in own_sends:
                for other, other_link in sends:
                    if (other, other_link) not in own_sends:
                        first, then = (
                            self.at[n, links[w].dst],
                            self.at[other, links[other_link].dst],
                        )
                        self.model.add(
                            then - links[other_link].message_ns() >= first
                        ).only_enforce_if(self.sent[n, w], self.sent[other, other_link])

    def prefer_connections(self) -> None:
        """Minimize the connections inside hosts that are used, or unused, instead of the time."""
        by_orbit: dict[int, list[cp_model.IntVar]] = defaultdict(list)
        for (_, link), literal in self.sent.items():
            if not self.problem.links[link].inter:
                by_orbit[self.problem.link_orbits[link]].append(literal)
        used = []
        for literals in by_orbit.values():
            used.append(self.model.new_bool_var(""))
            self.model.add_max_equality(used[-1], literals)
        fewest = self.problem.connections == "uc-min"
        self.model.minimize(sum(used) if fewest else sum(1 - each for each in used))

    def hint(self, sends: Sequence[TimedSend]) -> None:
        """Give the solver a schedule to start from."""
        ends = {(send.chunk, send.link): send.end for send in sends}
        links = self.problem.links
        if not self.fixed:
            for key, literal in self.sent.items():
                self.model.add_hint(literal, int(key in ends))
        for (number, link), end in ends.items():
            if (number, links[link].dst) in self.at:
                self.model.add_hint(self.at[number, links[link].dst], end)
        self.model.add_hint(self.time, max(ends.values(), default=0))

    def sends(self, outcome: Outcome) -> list[TimedSend]:
        """Return the sends of a solution, less those that no rank needed."""
        value, links = outcome.value, self.problem.links
        selected = {key for key, literal in self.sent.items() if value(literal)}
        sends = []
        for number, link in _needed(self.problem, selected):
            end = value(self.at[number, links[link].dst])
            sends.append(TimedSend(number, link, end - links[link].message_ns(), end))
        return sorted(sends, key=BY_START)


def _needed(problem: Problem, selected: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the sends on the routes from sources to targets."""
    links = problem.links
    by: Mapping[tuple[int, int], int] = {(n, links[w].dst): w for n, w in selected}
    needed: dict[tuple[int, int], None] = {}
    for number, chunk in enumerate(problem.chunks):
        for target in sorted(chunk.targets):
            rank = target
            while rank != chunk.source and (number, by[number, rank]) not in needed:
                needed[number, by[number, rank]] = None
                rank = links[by[number, rank]].src
    return list(needed)
