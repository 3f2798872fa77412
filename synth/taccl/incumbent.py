"""A first plan for the exact method, in milliseconds: the earliest arrival goes next."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from tuccl.synth.taccl.costs import Wire
from tuccl.synth.taccl.items import Item
from tuccl.synth.taccl.plan import Hop, Question

__all__ = ["first_hops", "timed_ways"]


def first_hops(question: Question) -> list[Hop]:
    """Return hops of the leaders, each chunk alone, that keep every rule; by start.

    Items for many ranks grow by whichever send arrives first; items for one rank go ways that
    avoid what is already loaded, then those with most of their way left go first.
    """
    if all(len(item.targets) == 1 for item in question.leaders):
        return timed_ways(question, _ways(question))
    return _Spreading(question).run()


class _Calendar:
    """When each wire and port is free next, alike ones being one."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.free: dict[object, int] = {}

    def start(self, number: int, ready: int) -> int:
        wire = self.question.costs.wires[number]
        lead = wire.takes() - wire.holds()
        for key in self.question.uses[number]:
            ready = max(ready, self.free.get(key, 0) - (lead if key[0] == "port" else 0))
        return ready

    def book(self, number: int, start: int) -> int:
        end = start + self.question.costs.wires[number].takes()
        self.free.update(dict.fromkeys(self.question.uses[number], end))
        return end


class _Spreading:
    """Items for many ranks; one send is booked at a time."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.calendar = _Calendar(question)
        self.have = [{item.origin: 0} for item in question.leaders]
        self.blocked = _own_chunks(question) if question.own_first else {}
        self.out: list[dict[int, list[int]]] = [self._out(item) for item in question.leaders]
        self.heap: list[tuple[int, int, int]] = []
        self.entered: set[tuple[int, int]] = set()

    def _out(self, item: Item) -> dict[int, list[int]]:
        out: dict[int, list[int]] = {}
        for number in item.wires:
            out.setdefault(self.question.costs.wires[number].src, []).append(number)
        return out

    def run(self) -> list[Hop]:
        hops: list[Hop] = []
        for item, leader in enumerate(self.question.leaders):
            self._offer(item, leader.origin)
        late: list[tuple[int, int]] = []
        while self.heap or late:
            if not self.heap:
                # What waits may have no other way. Own chunks still to go get theirs first.
                if not self.entered:
                    self.blocked = {}
                self.entered, late = set(), self._push_all(late)
            arrival, item, number = heapq.heappop(self.heap)
            wire = self.question.costs.wires[number]
            if wire.dst in self.have[item]:
                continue
            key = self.question.group.link_representatives[number]
            if self._again(item, wire) or (self.blocked.get(key) and not self._own(item, number)):
                late.append((item, number))
                continue
            start = self.calendar.start(number, self.have[item][wire.src])
            if start + wire.takes() > arrival:
                heapq.heappush(self.heap, (start + wire.takes(), item, number))
                continue
            hops.append(Hop(item, number, start, self.calendar.book(number, start)))
            self.have[item][wire.dst] = arrival
            if wire.inter:
                self.entered.add((item, self.question.costs.hosts[wire.dst]))
            if item in self.blocked.get(key, ()):
                self.blocked[key].remove(item)
                late = self._push_all(late)
            self._offer(item, wire.dst)
        return sorted(hops, key=lambda hop: (hop.start, hop.end, hop.wire))

    def _again(self, item: int, wire: Wire) -> bool:
        """Return whether the item has entered the wire's host before: inside it is quicker."""
        return wire.inter and (item, self.question.costs.hosts[wire.dst]) in self.entered

    def _own(self, item: int, number: int) -> bool:
        return self.question.leaders[item].origin == self.question.costs.wires[number].src

    def _push_all(self, sends: list[tuple[int, int]]) -> list[tuple[int, int]]:
        for item, number in sends:
            heapq.heappush(self.heap, (0, item, number))
        return []

    def _offer(self, item: int, rank: int) -> None:
        for number in self.out[item].get(rank, ()):
            heapq.heappush(self.heap, (self.have[item][rank], item, number))


def _own_chunks(question: Question) -> dict[int, set[int]]:
    """Return, for each wire between hosts, the items that are its sender's own."""
    found: dict[int, set[int]] = {}
    for number, item in enumerate(question.leaders):
        for wire in item.wires:
            if question.costs.wires[wire].inter and question.costs.wires[wire].src == item.origin:
                found.setdefault(question.group.link_representatives[wire], set()).add(number)
    return found


def _ways(question: Question) -> list[list[int]]:
    """Return the wires that each item takes, in order, avoiding loaded ones."""
    load: dict[object, int] = {}
    ways: list[list[int]] = [[] for _ in question.leaders]
    for number, item in enumerate(question.leaders):
        ways[number] = _lightest(question, item, load)
        for wire in ways[number]:
            for key in question.uses[wire]:
                load[key] = load.get(key, 0) + question.costs.wires[wire].holds()
    return ways


def _lightest(question: Question, item: Item, load: dict[object, int]) -> list[int]:
    """Return the way with the least time plus load already on it."""
    out: dict[int, list[int]] = {}
    for number in item.wires:
        out.setdefault(question.costs.wires[number].src, []).append(number)
    came: dict[int, int] = {}
    waiting = [(0, item.origin, -1)]
    while waiting:
        spent, rank, by = heapq.heappop(waiting)
        if rank in came:
            continue
        came[rank] = by
        for number in out.get(rank, ()):
            wire = question.costs.wires[number]
            crowd = max((load.get(key, 0) for key in question.uses[number]), default=0)
            heapq.heappush(waiting, (spent + wire.takes() + crowd, wire.dst, number))
    rank, way = min(item.targets), []
    while came[rank] >= 0:
        way.append(came[rank])
        rank = question.costs.wires[came[rank]].src
    return way[::-1]


def timed_ways(question: Question, ways: Sequence[Sequence[int]]) -> list[Hop]:
    """Return hops along the ways, earliest first; of equals those with most before them."""
    wires, calendar = question.costs.wires, _Calendar(question)
    left = [sum(wires[number].takes() for number in way) for way in ways]
    heap = [
        (0, question.own_first and not _leaves(question, i, way), -left[i], i, 0)
        for i, way in enumerate(ways)
        if way
    ]
    heapq.heapify(heap)
    ready = [0] * len(ways)
    hops = []
    while heap:
        tried, own, rest, item, place = heapq.heappop(heap)
        number = ways[item][place]
        start = calendar.start(number, ready[item])
        if start > tried:
            heapq.heappush(heap, (start, own, rest, item, place))
            continue
        ready[item] = calendar.book(number, start)
        hops.append(Hop(item, number, start, ready[item]))
        if place + 1 < len(ways[item]):
            rest += wires[number].takes()
            heapq.heappush(heap, (ready[item], own, rest, item, place + 1))
    return sorted(hops, key=lambda hop: (hop.start, hop.end, hop.wire))


def _leaves(question: Question, item: int, way: Sequence[int]) -> bool:
    """Return whether the item's own rank sends it off its host."""
    return question.costs.wires[way[0]].inter
