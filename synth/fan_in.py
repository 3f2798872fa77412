"""Many partial sums into one: added as they arrive, or kept aside and added as a tree."""

from __future__ import annotations

from math import log2

from tuccl.synth.schedule import Address
from tuccl.synth.trace import Trace

__all__ = ["FanIn", "prefers_tree"]

# Waiting for another thread block, and adding up in one (estimates; docs/simulator.md 8 and 11).
_DEPENDENCE_US = 0.7
_ADDITION_GBS = 40.0


def prefers_tree(senders: int, nbytes: float) -> bool:
    """Return whether `senders` sums of `nbytes` are better added as a tree than one by one.

    Notes:
        Added on arrival, each sender's thread block waits for the one before: senders - 1 waits in
        a row, but each byte is touched once. As a tree there are log2 of them, but each byte is
        stored aside and read again.
    """
    return (senders - 1 - log2(senders)) * _DEPENDENCE_US > nbytes / (_ADDITION_GBS * 1e3)


class FanIn:
    """Partial sums of chunks `chunk`..`chunk + count - 1` that come together on `rank`.

    `receive` each sender's, then `finish`. The first is added at once, so that with a tree the
    rank's own sum is one of the leaves.
    """

    def __init__(self, trace: Trace, rank: int, chunk: int, count: int, *, tree: bool) -> None:
        """Open it; `tree` keeps all but the first aside."""
        self.trace = trace
        self.rank = rank
        self.chunk = chunk
        self.count = count
        self.tree = tree
        self.parked: list[Address] = []
        self.begun = False

    def receive(self, src: int, channel: int = 0, *, aside: bool = False) -> None:
        """Take `src`'s sums; `aside` keeps them from the rank's own, which others still read."""
        if aside or (self.tree and self.begun):
            self.parked.append(self.trace.park(self.chunk, src, self.rank, channel, self.count))
        else:
            self.trace.reduce(self.chunk, src, self.rank, channel, self.count)
            self.begun = True

    def finish(self) -> None:
        """Add up what was kept aside, in ceil(log2) rounds."""
        parked = self.parked
        while len(parked) > 1:
            for into, source in zip(parked[::2], parked[1::2], strict=False):
                self.trace.add(self.rank, into, source, self.count)
            parked = parked[::2]
        if parked:
            self.trace.fold(self.chunk, self.rank, parked[0], self.count)
