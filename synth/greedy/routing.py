"""Routes over a sketch for chunks that have one destination each, and times for them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from tuccl.errors import Infeasible
from tuccl.synth.greedy.lanes import Lane, Lanes, Send

__all__ = ["Parcel", "Step", "route", "timed"]

# Routes off the most loaded lane, NIC or port that may fail to relieve it before routing ends.
_TRIES = 32


class Parcel(NamedTuple):
    """A chunk of rank `origin` that rank `target` is to get.

    Off its host it goes by the senders that may carry chunks of rank `place`.
    """

    origin: int
    target: int
    place: int


class Step(NamedTuple):
    """A send to be timed: item `number` over lane `lane`, once the steps in `after` have arrived."""

    number: int
    lane: int
    after: tuple[int, ...]


def route(
    lanes: Lanes, parcels: Sequence[Parcel], carried: Mapping[int, tuple[int, ...]], rng: Random
) -> list[list[int]]:
    """Return the lanes that each parcel takes, in order, with no lane, NIC or port overloaded.

    Args:
        lanes: What may be used.
        parcels: What is to go where.
        carried: For a sender, the ranks whose chunks it may take out of its host; empty: no rule.
        rng: The order in which parcels are routed.

    Raises:
        Infeasible: a parcel has no way; names it and the rule.
    """
    return _Routing(lanes, parcels, carried).run(rng)


class _Routing:
    """Shortest paths under costs that grow with the load already laid on a lane."""

    def __init__(
        self, lanes: Lanes, parcels: Sequence[Parcel], carried: Mapping[int, tuple[int, ...]]
    ) -> None:
        self._lanes, self._parcels, self._carried = lanes, parcels, carried
        self._lane_load = [0.0] * len(lanes.lanes)
        self._shared_load = [0.0] * lanes.resources
        ranks = range(lanes.ranks)
        self._direct = {(lane.src, lane.dst): n for n, lane in enumerate(lanes.lanes)}
        travel = [lane.travel for lane in lanes.lanes]
        self._least_out = [min((travel[n] for n in lanes.out_of[r]), default=0.0) for r in ranks]
        self._least_in = [min((travel[n] for n in lanes.into[r]), default=0.0) for r in ranks]
        self._least_inter = min((lane.travel for lane in lanes.lanes if lane.inter), default=0.0)
        self._least = min(travel, default=0.0)

    def run(self, rng: Random) -> list[list[int]]:
        order = list(range(len(self._parcels)))
        rng.shuffle(order)
        ways: list[list[int]] = [[] for _ in order]
        for number in order:
            ways[number] = self._way(self._parcels[number])
            self._load(ways[number], 1.0)
        self._relieve(ways, order)
        return ways

    def _load(self, way: list[int], sign: float) -> None:
        for number in way:
            lane = self._lanes.lanes[number]
            self._lane_load[number] += sign * lane.flow
            for resource in lane.shared:
                self._shared_load[resource] += sign * lane.flow

    def _relieve(self, ways: list[list[int]], order: list[int]) -> None:
        """Lay routes anew that use the most loaded lane, NIC or port, while that lowers its load."""
        tries = _TRIES
        while tries:
            worst = max(*self._lane_load, *self._shared_load, 0.0)
            crowded = (number for number in order if self._loaded(ways[number]) >= worst)
            for number in crowded:
                old = ways[number]
                self._load(old, -1.0)
                # A move that only shifts the crowd is none.
                ways[number] = self._shortest(self._parcels[number], worst * (1 - 1e-9)) or old
                self._load(ways[number], 1.0)
                if ways[number] is not old:
                    break
                tries -= 1
                if not tries:
                    return
            else:
                return

    def _loaded(self, way: list[int]) -> float:
        """Return the load in us of the most loaded lane, NIC or port on a way."""
        lanes = self._lanes.lanes
        shared = (self._shared_load[r] for number in way for r in lanes[number].shared)
        return max(*(self._lane_load[number] for number in way), *shared, 0.0)

    def _busy(self, lane: Lane, number: int) -> float:
        """Return the us for which what is laid so far keeps the lane and what it shares busy."""
        shared = (self._shared_load[resource] for resource in lane.shared)
        return max(self._lane_load[number], *shared, 0.0)

    def _allowed(self, lane: Lane, place: int) -> bool:
        return not lane.inter or not self._carried or place in self._carried.get(lane.src, ())

    def _way(self, parcel: Parcel) -> list[int]:
        direct = self._direct.get((parcel.origin, parcel.target))
        if direct is not None:
            lane = self._lanes.lanes[direct]
            # Any other way has a first and a last lane, and one between hosts where they differ.
            others = self._least_out[parcel.origin] + self._least_in[parcel.target]
            if lane.inter:
                others = max(others, self._least_inter + self._least)
            if lane.travel <= others and self._allowed(lane, parcel.place):
                return [direct]
        way = self._shortest(parcel, math.inf)
        if way is None:
            raise Infeasible(self._reason(parcel))
        return way

    def _shortest(self, parcel: Parcel, limit: float) -> list[int] | None:
        """Return the quickest way behind the loads so far that loads nothing up to `limit` us."""
        cost = [math.inf] * self._lanes.ranks
        by = [-1] * self._lanes.ranks
        cost[parcel.origin] = 0.0
        waiting = [(0.0, parcel.origin)]
        while waiting:
            spent, rank = heapq.heappop(waiting)
            if rank == parcel.target:
                return self._back(by, parcel.origin, rank)
            if spent > cost[rank]:
                continue
            for number in self._lanes.out_of[rank]:
                lane = self._lanes.lanes[number]
                busy = self._busy(lane, number)
                total = spent + lane.travel + busy
                if busy + lane.flow >= limit or total >= cost[lane.dst]:
                    continue
                if self._allowed(lane, parcel.place):
                    cost[lane.dst], by[lane.dst] = total, number
                    heapq.heappush(waiting, (total, lane.dst))
        return None

    def _back(self, by: list[int], origin: int, target: int) -> list[int]:
        way: list[int] = []
        while target != origin:
            way.append(by[target])
            target = self._lanes.lanes[by[target]].src
        return way[::-1]

    def _reason(self, parcel: Parcel) -> str:
        what = f"the chunk of rank {parcel.origin} cannot reach rank {parcel.target}"
        hosts = self._lanes.hosts
        if self._carried and hosts[parcel.origin] != hosts[parcel.target]:
            senders = [r for r, ranks in sorted(self._carried.items()) if parcel.place in ranks]
            who = f"only ranks {senders[:8]}" if senders else "no sender"
            return f"{what}: relay rule: {who} may carry it off its host"
        return f"{what}: no links of the sketch lead there; add one"


def timed(lanes: Lanes, steps: Sequence[Step], priority: Sequence[float]) -> list[Send]:
    """Return the sends of `steps`, in order of start: list scheduling, lowest priority first.

    Args:
        lanes: What the steps use and share.
        steps: Each names only earlier ones in `after`.
        priority: For each step; among those that could start at the same time the lowest goes.
    """
    waits = [len(step.after) for step in steps]
    followers: list[list[int]] = [[] for _ in steps]
    for index, step in enumerate(steps):
        for before in step.after:
            followers[before].append(index)
    lane_free = [0.0] * len(lanes.lanes)
    free = [0.0] * lanes.resources
    ready = [0.0] * len(steps)
    heap = [(0.0, priority[index], index) for index, count in enumerate(waits) if not count]
    heapq.heapify(heap)
    sends: list[Send] = []
    while heap:
        tried, _, index = heapq.heappop(heap)
        step = steps[index]
        lane = lanes.lanes[step.lane]
        start = max(ready[index], lane_free[step.lane], *(free[r] for r in lane.shared))
        if start > tried:
            heapq.heappush(heap, (start, priority[index], index))
            continue
        end = start + lane.travel
        sends.append(Send(step.number, step.lane, start, end))
        lane_free[step.lane] = end
        for resource in lane.shared:
            free[resource] = start + lane.flow
        for follower in followers[index]:
            ready[follower] = max(ready[follower], end)
            waits[follower] -= 1
            if not waits[follower]:
                heapq.heappush(heap, (ready[follower], priority[follower], follower))
    return sends
