"""Heuristic routing and ordering, in milliseconds: the send that arrives earliest goes next."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from tuccl.synth.taccl.chunks import Chunk
from tuccl.synth.taccl.costs import Link
from tuccl.synth.taccl.problem import BY_START, Problem, TimedSend


def heuristic_sends(problem: Problem) -> list[TimedSend]:
    """Return a first schedule, each chunk a message of its own, that keeps every rule; by start.

    Chunks for many ranks grow by whichever send arrives first; chunks for one rank take routes that
    avoid what is already loaded, then those with most of their route left go first.
    """
    if all(len(chunk.targets) == 1 for chunk in problem.chunks):
        return order_routes(problem, _light_routes(problem))
    return _Multicast(problem).run()


class Reservations:
    """Times at which each orbit of links and ports is free next."""

    def __init__(self, problem: Problem) -> None:
        """Begin with all free."""
        self.problem = problem
        self.free: dict[object, int] = {}

    def start(self, number: int, ready: int, chunks: int = 1) -> int:
        """Return when a message of so many chunks, ready at `ready`, can start on a link."""
        link = self.problem.links[number]
        lead = link.message_ns(chunks) - link.port_ns(chunks)
        for key in self.problem.resources[number]:
            ready = max(ready, self.free.get(key, 0) - (lead if key[0] == "port" else 0))
        return ready

    def book(self, number: int, start: int, chunks: int = 1) -> int:
        """Return when the message ends, its resources being in use until then."""
        end = start + self.problem.links[number].message_ns(chunks)
        self.free.update(dict.fromkeys(self.problem.resources[number], end))
        return end


class _Multicast:
    """Chunks for many ranks; one send is booked at a time."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.reservations = Reservations(problem)
        self.have = [{chunk.source: 0} for chunk in problem.chunks]
        self.blocked = _own_chunks(problem) if problem.own_chunks_first else {}
        self.out: list[dict[int, list[int]]] = [self._out(chunk) for chunk in problem.chunks]
        self.heap: list[tuple[int, int, int]] = []
        self.entered: set[tuple[int, int]] = set()

    def _out(self, chunk: Chunk) -> dict[int, list[int]]:
        out: dict[int, list[int]] = {}
        for number in chunk.links:
            out.setdefault(self.problem.links[number].src, []).append(number)
        return out

    def run(self) -> list[TimedSend]:
        sends: list[TimedSend] = []
        for chunk, routed in enumerate(self.problem.chunks):
            self._offer(chunk, routed.source)
        late: list[tuple[int, int]] = []
        while self.heap or late:
            if not self.heap:
                # What waits may have no other route. Own chunks still to go get theirs first.
                if not self.entered:
                    self.blocked = {}
                self.entered, late = set(), self._push_all(late)
            arrival, chunk, number = heapq.heappop(self.heap)
            link = self.problem.links[number]
            if link.dst in self.have[chunk]:
                continue
            key = self.problem.link_orbits[number]
            if self._reenters(chunk, link) or (
                self.blocked.get(key) and not self._is_own(chunk, number)
            ):
                late.append((chunk, number))
                continue
            start = self.reservations.start(number, self.have[chunk][link.src])
            if start + link.message_ns() > arrival:
                heapq.heappush(self.heap, (start + link.message_ns(), chunk, number))
                continue
            sends.append(TimedSend(chunk, number, start, self.reservations.book(number, start)))
            self.have[chunk][link.dst] = arrival
            if link.inter:
                self.entered.add((chunk, self.problem.hosts[link.dst]))
            if chunk in self.blocked.get(key, ()):
                self.blocked[key].remove(chunk)
                late = self._push_all(late)
            self._offer(chunk, link.dst)
        return sorted(sends, key=BY_START)

    def _reenters(self, chunk: int, link: Link) -> bool:
        """Return whether the chunk has entered the link's host before: inside it is quicker."""
        return link.inter and (chunk, self.problem.hosts[link.dst]) in self.entered

    def _is_own(self, chunk: int, number: int) -> bool:
        return self.problem.chunks[chunk].source == self.problem.links[number].src

    def _push_all(self, sends: list[tuple[int, int]]) -> list[tuple[int, int]]:
        for chunk, number in sends:
            heapq.heappush(self.heap, (0, chunk, number))
        return []

    def _offer(self, chunk: int, rank: int) -> None:
        for number in self.out[chunk].get(rank, ()):
            heapq.heappush(self.heap, (self.have[chunk][rank], chunk, number))


def _own_chunks(problem: Problem) -> dict[int, set[int]]:
    """Return, for each link between hosts, the chunks that are its sender's own."""
    own_chunks: dict[int, set[int]] = {}
    for number, chunk in enumerate(problem.chunks):
        for link in chunk.links:
            if problem.links[link].inter and problem.links[link].src == chunk.source:
                own_chunks.setdefault(problem.link_orbits[link], set()).add(number)
    return own_chunks


def _light_routes(problem: Problem) -> list[list[int]]:
    """Return the links that each chunk takes, in order, avoiding loaded ones."""
    load: dict[object, int] = {}
    routes: list[list[int]] = [[] for _ in problem.chunks]
    for number, chunk in enumerate(problem.chunks):
        routes[number] = _lightest_route(problem, chunk, load)
        for link in routes[number]:
            for key in problem.resources[link]:
                load[key] = load.get(key, 0) + problem.links[link].port_ns()
    return routes


def _lightest_route(problem: Problem, chunk: Chunk, load: dict[object, int]) -> list[int]:
    """Return the route with the least time plus load already on it."""
    out: dict[int, list[int]] = {}
    for number in chunk.links:
        out.setdefault(problem.links[number].src, []).append(number)
    reached_by: dict[int, int] = {}
    waiting = [(0, chunk.source, -1)]
    while waiting:
        spent, rank, by = heapq.heappop(waiting)
        if rank in reached_by:
            continue
        reached_by[rank] = by
        for number in out.get(rank, ()):
            link = problem.links[number]
            waits = max((load.get(key, 0) for key in problem.resources[number]), default=0)
            heapq.heappush(waiting, (spent + link.message_ns() + waits, link.dst, number))
    rank, route = min(chunk.targets), []
    while reached_by[rank] >= 0:
        route.append(reached_by[rank])
        rank = problem.links[reached_by[rank]].src
    return route[::-1]


def order_routes(problem: Problem, routes: Sequence[Sequence[int]]) -> list[TimedSend]:
    """Return sends along the routes, earliest first; of equals those with most before them."""
    links, reservations = problem.links, Reservations(problem)
    left = [sum(links[number].message_ns() for number in route) for route in routes]
    heap = [
        (0, problem.own_chunks_first and not _leaves(problem, i, route), -left[i], i, 0)
        for i, route in enumerate(routes)
        if route
    ]
    heapq.heapify(heap)
    ready = [0] * len(routes)
    sends = []
    while heap:
        earliest, relayed, rest, chunk, hop = heapq.heappop(heap)
        number = routes[chunk][hop]
        start = reservations.start(number, ready[chunk])
        if start > earliest:
            heapq.heappush(heap, (start, relayed, rest, chunk, hop))
            continue
        ready[chunk] = reservations.book(number, start)
        sends.append(TimedSend(chunk, number, start, ready[chunk]))
        if hop + 1 < len(routes[chunk]):
            rest += links[number].message_ns()
            heapq.heappush(heap, (ready[chunk], relayed, rest, chunk, hop + 1))
    return sorted(sends, key=BY_START)


def _leaves(problem: Problem, chunk: int, route: Sequence[int]) -> bool:
    """Return whether the chunk's own rank sends it off its host."""
    return problem.links[route[0]].inter
