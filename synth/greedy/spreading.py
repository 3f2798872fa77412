"""Greedy spreading over a time-expanded sketch: every rank is to get every chunk.

Whenever a lane is free, it takes the chunk its receiver lacks that is rarest where it is going
(after TACOS, MICRO 2024, with costs, shared NICs and relay rules added).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from random import Random

from tuccl.errors import Infeasible
from tuccl.synth.greedy.lanes import Lane, Lanes, Send

__all__ = ["spread"]


def spread(
    lanes: Lanes,
    holders: Sequence[int],
    carried: Mapping[int, int],
    rng: Random,
    patient: bool,
) -> list[Send]:
    """Return sends, in order of start, by which each rank gets each chunk once.

    Args:
        lanes: What may be used.
        holders: The rank that has each chunk at the start.
        carried: For a sender, the chunks that it may take off its host, one bit each; empty where
            there is no rule.
        rng: Breaks ties.
        patient: Whether a slow lane leaves a chunk to a faster one that will deliver it sooner.

    Raises:
        Infeasible: some chunk cannot reach some rank; names both and the rule.
    """
    return _Spreading(lanes, holders, carried, rng, patient).run()


class _Spreading:
    """One run; sets of chunks are bit masks."""

    def __init__(
        self,
        lanes: Lanes,
        holders: Sequence[int],
        carried: Mapping[int, int],
        rng: Random,
        patient: bool,
    ) -> None:
        self._lanes, self._holders, self._carried = lanes, holders, carried
        self._rng, self._patient = rng, patient
        self._now = 0.0
        self._everything = (1 << len(holders)) - 1
        self._origin = [0] * lanes.ranks
        for chunk, rank in enumerate(holders):
            self._origin[rank] |= 1 << chunk
        self._have = list(self._origin)
        self._coming = list(self._origin)
        self._hosts = sorted(set(lanes.hosts))
        self._from_host = dict.fromkeys(self._hosts, 0)
        for rank, mask in enumerate(self._origin):
            self._from_host[lanes.hosts[rank]] |= mask
        # Chunks by the number of copies that a host has or is about to have.
        self._copies = {host: self._first_copies(host) for host in self._hosts}
        self._crossed = dict(self._from_host)
        self._may_leave = [self._leaving(rank) for rank in range(lanes.ranks)]
        self._lane_free = [0.0] * len(lanes.lanes)
        self._free = [0.0] * lanes.resources
        self._rate_in = [
            sum(1.0 / max(lanes.lanes[number].flow, 1e-9) for number in lanes.into[rank])
            for rank in range(lanes.ranks)
        ]
        self._quickest = lanes.quickest_inside() if patient else {}
        # (time, kind, lane or rank, chunk): a lane to look at again, or an arrival.
        self._events: list[tuple[float, int, int, int]] = []
        self._sends: list[Send] = []

    def _first_copies(self, host: int) -> list[int]:
        size = sum(its_host == host for its_host in self._lanes.hosts)
        there = self._from_host[host]
        return [self._everything & ~there, there, *([0] * size)]

    def _leaving(self, rank: int) -> int:
        """Return the chunks that `rank` may send to another host."""
        if not any(self._lanes.lanes[number].inter for number in self._lanes.out_of[rank]):
            return 0
        return self._carried.get(rank, 0) if self._carried else self._everything

    def run(self) -> list[Send]:
        order = list(range(len(self._lanes.lanes)))
        self._rng.shuffle(order)
        self._place = {number: place for place, number in enumerate(order)}
        awake = set(order)
        while True:
            for number in sorted(awake, key=self._urgency):
                self._serve(number)
            if not self._events:
                break
            awake = self._next_moment()
        if any(mask != self._everything for mask in self._coming):
            raise Infeasible(self._reason())
        return self._sends

    def _urgency(self, number: int) -> tuple[bool, float, int]:
        lane = self._lanes.lanes[number]
        return not lane.inter, lane.travel, self._place[number]

    def _next_moment(self) -> set[int]:
        """Go to the next time at which something changes; return the lanes to look at."""
        self._now = self._events[0][0]
        awake: set[int] = set()
        while self._events and self._events[0][0] <= self._now:
            _, arrival, subject, chunk = heapq.heappop(self._events)
            if arrival:
                self._have[subject] |= 1 << chunk
                awake.update(self._lanes.out_of[subject])
            else:
                awake.add(subject)
        return awake

    def _serve(self, number: int) -> None:
        """Send something over a lane if it is free and has what its receiver lacks."""
        lane = self._lanes.lanes[number]
        wanted = self._wanted(lane)
        if not wanted or self._lane_free[number] > self._now:
            return
        ready = max((self._free[resource] for resource in lane.shared), default=0.0)
        if ready > self._now:
            heapq.heappush(self._events, (ready, 0, number, 0))
            return
        chunk = self._choice(lane, wanted)
        if self._patient and (later := self._better_time(number, lane, chunk)):
            heapq.heappush(self._events, (later, 0, number, 0))
            return
        self._send(number, lane, chunk)

    def _wanted(self, lane: Lane) -> int:
        mask = self._have[lane.src] & ~self._coming[lane.dst]
        if lane.inter:
            mask &= self._may_leave[lane.src] & ~self._crossed[self._lanes.hosts[lane.dst]]
        return mask

    def _choice(self, lane: Lane, wanted: int) -> int:
        host = self._lanes.hosts[lane.dst]
        if lane.inter:
            own = wanted & self._origin[lane.src]
            near = wanted & self._from_host[self._lanes.hosts[lane.src]]
            return self._some(own or near or wanted)
        to_leave = self._may_leave[lane.dst] & ~self._may_leave[lane.src] & self._from_host[host]
        if urgent := wanted & to_leave:
            return self._some(urgent)
        return self._some(next(wanted & mask for mask in self._copies[host] if wanted & mask))

    def _some(self, mask: int) -> int:
        shift = self._rng.randrange(len(self._holders))
        mask = (mask >> shift << shift) or mask
        return (mask & -mask).bit_length() - 1

    def _better_time(self, number: int, lane: Lane, chunk: int) -> float:
        """Return when to look again for a faster way of the chunk, or 0 if this lane should take it.

        A slow lane is worth it when it delivers before all that its receiver lacks could have
        come over all its lanes, or before any other lane or way inside the host could deliver.
        """
        arrival = self._now + lane.travel
        lacking = (self._everything & ~self._coming[lane.dst]).bit_count()
        if arrival <= self._now + lacking / self._rate_in[lane.dst]:
            return 0.0
        if not lane.inter and self._quickest[lane.src, lane.dst] < lane.travel * (1 - 1e-9):
            return self._now + self._quickest[lane.src, lane.dst]
        for other_number in self._lanes.into[lane.dst]:
            other = self._lanes.lanes[other_number]
            if other_number == number or not self._have[other.src] >> chunk & 1:
                continue
            if other.inter and not self._wanted(other) >> chunk & 1:
                continue
            busy_until = (self._free[resource] for resource in other.shared)
            start = max(self._now, self._lane_free[other_number], *busy_until)
            if start + other.travel < arrival and start > self._now:
                return start
        return 0.0

    def _send(self, number: int, lane: Lane, chunk: int) -> None:
        bit, end = 1 << chunk, self._now + lane.travel
        host = self._lanes.hosts[lane.dst]
        self._sends.append(Send(chunk, number, self._now, end))
        self._coming[lane.dst] |= bit
        copies = self._copies[host]
        level = next(level for level, mask in enumerate(copies) if mask & bit)
        copies[level] &= ~bit
        copies[level + 1] |= bit
        if lane.inter:
            self._crossed[host] |= bit
        self._lane_free[number] = end
        for resource in lane.shared:
            self._free[resource] = self._now + lane.flow
        heapq.heappush(self._events, (end, 0, number, 0))
        heapq.heappush(self._events, (end, 1, lane.dst, chunk))

    def _reason(self) -> str:
        """Return which chunk cannot reach which rank, and the rule that stands against it."""
        rank = next(r for r, mask in enumerate(self._coming) if mask != self._everything)
        lacking = self._everything & ~self._coming[rank]
        chunk = (lacking & -lacking).bit_length() - 1
        origin, host = self._holders[chunk], self._lanes.hosts[rank]
        if self._lanes.backwards:
            what = f"rank {rank}'s part of chunk {chunk} cannot reach rank {origin}"
            return f"{what}: the links of the sketch do not lead there; add one out of host {host}"
        what = f"chunk {chunk} of rank {origin} cannot reach rank {rank}"
        if self._crossed[host] >> chunk & 1:
            return f"{what}: no links of the sketch lead there inside host {host}; add one"
        senders = sorted(r for r, chunks in self._carried.items() if chunks >> chunk & 1)[:8]
        if self._carried and not senders:
            return f"{what}: relay rule: no sender may carry chunks of rank {origin} off its host"
        into = (lane for lane in self._lanes.lanes if lane.inter)
        if all(self._lanes.hosts[lane.dst] != host for lane in into):
            return f"{what}: no link of the sketch leads into host {host}; add one"
        if self._carried:
            return f"{what}: relay rule: only ranks {senders} may carry it, and no link leads on"
        return f"{what}: links of the sketch lead from rank {origin} to no sender to host {host}"
