"""Many partial sums into one: added as they arrive, or kept aside and then added at one go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tuccl.synth.model.schedule import Address
from tuccl.synth.model.trace import Trace

__all__ = ["FanIn", "Own", "Whole", "prefers_aside"]

# Waiting for another thread block, and adding up in one (estimates; docs/simulator.md).
_DEPENDENCE_US = 0.7
_ADDITION_GBS = 40.0


def prefers_aside(senders: int, nbytes: float, count: int) -> bool:
    """Return whether `senders` sums of `nbytes`, `count` chunks, are better kept aside first.

    Notes:
        Added on arrival, each sender's thread block waits for the one before: senders - 1 waits in
        a row, but each byte is touched once. Kept aside there is one wait for all, then each byte
        is read again, by as many thread blocks as there are chunks for.
    """
    again = nbytes * (senders + 1) / 2 / min(count, max(1, 2 * (senders - 1)))
    return (senders - 2) * _DEPENDENCE_US > again / (_ADDITION_GBS * 1e3)


class FanIn:
    """Partial sums of chunks `chunk`..`chunk + count - 1` that come together on `rank`.

    `receive` each sender's, then `finish`. The first is added at once, the rest too unless they
    are kept `aside`.
    """

    def __init__(self, trace: Trace, rank: int, chunk: int, count: int, *, aside: bool) -> None:
        """Open it."""
        self.trace = trace
        self.rank = rank
        self.chunk = chunk
        self.count = count
        self.aside = aside
        self.parked: list[Address] = []
        self.begun = False

    def receive(self, src: int, channel: int = 0) -> None:
        """Take `src`'s sums."""
        if self.aside and self.begun:
            self.parked.append(self.trace.park(self.chunk, src, self.rank, channel, self.count))
        else:
            self.trace.reduce(self.chunk, src, self.rank, channel, self.count)
            self.begun = True

    def finish(self) -> None:
        """Add up what was kept aside, each part of it in a thread block of its own.

        A local step runs where the last of what it needs was written, so each part begins with
        another sender's. The rest of a part follows in the same thread block: one primitive.
        """
        senders = len(self.parked)
        for way, (low, high) in enumerate(_parts(self.count, senders)):
            for sender in range(senders):
                source = self.parked[(way + sender) % senders].shifted(low)
                self.trace.fold(self.chunk + low, self.rank, source, high - low)


class Whole:
    """The sums of a run of chunks over `ranks`, made on each of them from everyone's own values.

    All add in one order: their sums are equal to the last bit, as NCCL's are. It begins with the
    first rank's values, which are received where the sums are to be.
    """

    def __init__(
        self, trace: Trace, rank: int, count: int, ranks: Sequence[int], chunk: int = 0
    ) -> None:
        """Open it: the rank's own values are kept aside as the others' will be."""
        self.trace = trace
        self.rank = rank
        self.chunk = chunk
        self.count = count
        self.ranks = ranks
        own = rank != ranks[0]
        self.parked = {rank: trace.park(chunk, rank, rank, 0, count)} if own else {}

    def receive(self, src: int) -> None:
        """Take `src`'s values; the first rank's last, as they take the place of the rank's own."""
        if src != self.ranks[0]:
            self.parked[src] = self.trace.park(self.chunk, src, self.rank, 0, self.count)
        else:
            self.trace.send(self.chunk, src, self.rank, count=self.count)

    def finish(self) -> None:
        """Add them up, each part in a thread block of its own and from another rank on."""
        start = self.trace.where(self.chunk, self.rank)
        if start is not None and start.buffer == "i":
            self.trace.settle(self.chunk, self.rank, start, self.count)
        senders = self.ranks[1:]
        for way, (low, high) in enumerate(_parts(self.count, len(senders))):
            for k in range(len(senders)):
                source = self.parked[senders[(way + k) % len(senders)]].shifted(low)
                self.trace.fold(self.chunk + low, self.rank, source, high - low)


class Own:
    """The sums of chunks 0..count - 1 over all ranks, made on a rank from its own values on.

    All else is kept aside and then added to what the rank has, in place where it lies.
    """

    def __init__(self, trace: Trace, rank: int, count: int) -> None:
        """Open it; out of place the rank's own values are copied to where the sums are to be."""
        self.trace = trace
        self.rank = rank
        self.count = count
        self.parked: list[Address] = []

    def receive(self, src: int) -> None:
        """Take `src`'s values."""
        self.parked.append(self.trace.park(0, src, self.rank, 0, self.count))

    def finish(self) -> None:
        """Add them up, each part in a thread block of its own and from another rank on."""
        self.trace.settle(0, self.rank, Address("i", 0), self.count)
        for way, (low, high) in enumerate(_parts(self.count, len(self.parked))):
            for k in range(len(self.parked)):
                source = self.parked[(way + k) % len(self.parked)].shifted(low)
                self.trace.fold(low, self.rank, source, high - low)


def _parts(count: int, senders: int) -> Iterator[tuple[int, int]]:
    """Yield the edges of the even parts of `count`: at most as many as thread blocks talk to them.

    Those that received from the senders, and those that sent to them, which have done so by then.
    """
    ways = min(count, 2 * senders)
    return pairwise(count * k // ways for k in range(ways + 1)) if ways else iter(())
