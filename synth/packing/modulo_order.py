"""The order of sends where passes follow each other: modulo scheduling.

The executor walks a program once for each slice of the data, and a thread block begins the next
pass as soon as its own steps are done. So no thread block waits in the long run
if the steps of each fit a window as long as a pass, wherever in time that window lies.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence

from tuccl.synth.model.send import Send

# Sends that are scheduled, over all rounds, and rounds without gain before the last.
_MOST_SCHEDULED = 50_000
_PATIENCE = 4
_SLACK = 1e-6


def modulo_order(
    sends: Sequence[Send], blocks: Sequence[Hashable], durations: Sequence[float]
) -> list[int]:
    """Return the numbers of `sends` in an order by which thread blocks wait little for each other.

    Args:
        sends: Each waits for earlier ones.
        blocks: Those with the same one go through one thread block, in turn.
        durations: Part of a pass that each takes.

    Notes:
        List scheduling by the longest chain of sends behind. A thread block whose steps span more
        than a pass, as some come late, begins later in the next round. As in Rau 1994, but with a
        window for each thread block, since it keeps its steps in one order.
    """
    scheduler = _Scheduler(sends, blocks, durations)
    release = [0.0] * len(scheduler.members)
    best: tuple[float, list[float]] = (float("inf"), [])
    patience = _PATIENCE
    for _ in range(1 + _MOST_SCHEDULED // (1 + len(sends))):
        starts = scheduler.starts(release)
        ends = [max(starts[n] + durations[n] for n in some) for some in scheduler.members]
        spans = [
            end - min(starts[n] for n in some)
            for end, some in zip(ends, scheduler.members, strict=True)
        ]
        longest = max(spans, default=0.0)
        patience = _PATIENCE if longest < best[0] - _SLACK else patience - 1
        best = min(best, (longest, starts), key=lambda found: found[0])
        if longest <= 1 + _SLACK or not patience:
            break
        release = [max(begin, end - 1) for begin, end in zip(release, ends, strict=True)]
    return sorted(range(len(sends)), key=lambda n: (best[1][n], n))


class _Scheduler:
    """A list scheduler; `members` are the sends of each thread block."""

    def __init__(
        self, sends: Sequence[Send], blocks: Sequence[Hashable], durations: Sequence[float]
    ) -> None:
        self._sends = sends
        self._durations = durations
        members: dict[Hashable, list[int]] = {}
        for number, block in enumerate(blocks):
            members.setdefault(block, []).append(number)
        self.members = list(members.values())
        self._block = {n: block for block, some in enumerate(self.members) for n in some}
        self._successors: list[list[int]] = [[] for _ in sends]
        self._behind = list(durations)
        for number in reversed(range(len(sends))):
            for earlier in sends[number].after:
                self._successors[earlier].append(number)
                chain = durations[earlier] + self._behind[number]
                self._behind[earlier] = max(self._behind[earlier], chain)

    def starts(self, release: Sequence[float]) -> list[float]:
        """Return the start of each send, where no block begins before its `release`.

        A block sends one thing at a time, and what is added to one sum is so one after another.
        """
        unmet = [len(send.after) for send in self._sends]
        ready = [release[self._block[n]] for n in range(len(unmet))]
        starts, free = [0.0] * len(unmet), list(release)
        sums: dict[tuple[int, int], float] = {}
        waiting = [self._entry(at, n) for n, at in enumerate(ready) if not unmet[n]]
        heapq.heapify(waiting)
        while waiting:
            now, *_, n = heapq.heappop(waiting)
            block, send = self._block[n], self._sends[n]
            free_at = max(free[block], sums.get((send.chunk, send.dst), 0.0) if send.reduce else 0)
            if free_at > now:
                heapq.heappush(waiting, self._entry(free_at, n))
                continue
            starts[n] = now
            free[block] = end = now + self._durations[n]
            if send.reduce:
                sums[send.chunk, send.dst] = end
            for successor in self._successors[n]:
                unmet[successor] -= 1
                ready[successor] = max(ready[successor], end)
                if not unmet[successor]:
                    heapq.heappush(waiting, self._entry(ready[successor], successor))
        return starts

    def _entry(self, at: float, n: int) -> tuple[float, int, float, int]:
        return at, self._block[n], -self._behind[n], n
