"""Fan-in of partial sums: added as they arrive, or kept in scratch and added in one go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from tuccl.synth.model.schedule import Address
from tuccl.synth.model.trace import Trace

# Waiting for another thread block, and adding up in one (estimates; docs/reference/simulator.md).
_DEPENDENCE_US = 0.7
_ADDITION_GBS = 40.0


def prefers_scratch(senders: int, nbytes: float, count: int) -> bool:
    """Return whether `senders` sums of `nbytes`, `count` chunks, are better kept in scratch first.

    Notes:
        Added on arrival, each sender's thread block waits for the one before: senders - 1 waits in
        a row, but each byte is touched once. From scratch there is one wait for all, then each byte
        is read again, by as many thread blocks as there are chunks for.
    """
    again = nbytes * (senders + 1) / 2 / min(count, max(1, 2 * (senders - 1)))
    return (senders - 2) * _DEPENDENCE_US > again / (_ADDITION_GBS * 1e3)


@lru_cache(maxsize=256)
def scratch_preferences(chunk_bytes: float, ranks: int) -> tuple[bool, ...]:
    """Return what `prefers_scratch` says of a chunk, for all numbers of senders below `ranks`."""
    return tuple(prefers_scratch(senders, chunk_bytes, 1) for senders in range(1, ranks))


class FanIn:
    """Partial sums of chunks `chunk`..`chunk + count - 1` that come together on `rank`.

    Call `receive` for each sender, then `finish`. The first is added at once, the rest too unless
    they come `via_scratch`.
    """

    def __init__(
        self, trace: Trace, rank: int, chunk: int, count: int, *, via_scratch: bool
    ) -> None:
        """Start without a sum."""
        self.trace = trace
        self.rank = rank
        self.chunk = chunk
        self.count = count
        self.via_scratch = via_scratch
        self.copied: list[Address] = []
        self.begun = False

    def receive(self, src: int, channel: int = 0) -> None:
        """Take `src`'s sums."""
        if self.via_scratch and self.begun:
            self.copied.append(
                self.trace.copy_to_scratch(self.chunk, src, self.rank, channel, self.count)
            )
        else:
            self.trace.reduce(self.chunk, src, self.rank, channel, self.count)
            self.begun = True

    def finish(self) -> None:
        """Add up what lies in scratch, each part of it in a thread block of its own.

        A local step runs where the last of what it needs was written, so each part begins with
        another sender's. The rest of a part follows in the same thread block: one primitive.
        """
        senders = len(self.copied)
        for shift, (low, high) in enumerate(_parts(self.count, senders)):
            for sender in range(senders):
                source = self.copied[(shift + sender) % senders].shifted(low)
                self.trace.add_from(self.chunk + low, self.rank, source, high - low)


class LocalSum:
    """The sums of a run of chunks over `ranks`, made on one of them from everyone's values.

    They are added in the order of `ranks`: where that is the same on all ranks, their sums are
    equal to the last bit, as NCCL's are. The first rank's values are received where the sums are
    to be; a rank that is itself the first waits for nothing there.
    """

    def __init__(
        self, trace: Trace, rank: int, count: int, ranks: Sequence[int], chunk: int = 0
    ) -> None:
        """Keep the rank's values in scratch, as the others' will be."""
        self.trace = trace
        self.rank = rank
        self.chunk = chunk
        self.count = count
        self.ranks = ranks
        first = rank == ranks[0]
        self.copied = {} if first else {rank: trace.copy_to_scratch(chunk, rank, rank, 0, count)}

    def receive(self, src: int) -> None:
        """Take `src`'s values; the first rank's last, as they replace the rank's values."""
        if src != self.ranks[0]:
            self.copied[src] = self.trace.copy_to_scratch(self.chunk, src, self.rank, 0, self.count)
        else:
            self.trace.send(self.chunk, src, self.rank, count=self.count)

    def finish(self) -> None:
        """Add them up, each part in a thread block of its own and from another rank on."""
        start = self.trace.address(self.chunk, self.rank)
        if start is not None and start.buffer == "i":
            self.trace.copy_to_output(self.chunk, self.rank, start, self.count)
        senders = self.ranks[1:]
        for shift, (low, high) in enumerate(_parts(self.count, len(senders))):
            for k in range(len(senders)):
                source = self.copied[senders[(shift + k) % len(senders)]].shifted(low)
                self.trace.add_from(self.chunk + low, self.rank, source, high - low)


def _parts(count: int, senders: int) -> Iterator[tuple[int, int]]:
    """Yield the edges of the even parts of `count`: at most as many as thread blocks talk to them.

    Those that received from the senders, and those that sent to them, which have done so by then.
    """
    parts = min(count, 2 * senders)
    return pairwise(count * k // parts for k in range(parts + 1)) if parts else iter(())
