"""A schedule: the transfers that compute a collective, in an order in which they may run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec

from tuccl.planners import Transfers, chunk_counts
from tuccl.synth.model.collective import Collective

BufferName = Literal["i", "o", "s"]


class Address(NamedTuple):
    """A chunk of a rank's memory: input (i), output (o) or scratch (s), and an offset in chunks."""

    buffer: BufferName
    offset: int

    def shifted(self, chunks: int) -> Address:
        """Return the address `chunks` further."""
        return Address(self.buffer, self.offset + chunks)


class Transfer(msgspec.Struct, frozen=True):
    """`count` chunks in a row from `src` to `dst`; within one rank it is a local copy or reduction.

    A copy does dst[dst_at..] = src[src_at..], a reduction dst[dst_at..] = dst[operand..] +
    src[src_at..]; the operand is `dst_at` itself unless given.
    """

    src: int
    dst: int
    src_at: Address
    dst_at: Address
    count: int = 1
    reduce: bool = False
    operand: Address | None = None
    channel: int = 0

    @property
    def local(self) -> bool:
        """Return whether nothing leaves the rank."""
        return self.src == self.dst

    @property
    def operand_at(self) -> Address | None:
        """Return what a reduction adds to, None for a copy."""
        return (self.operand or self.dst_at) if self.reduce else None


@dataclass(frozen=True)
class Proof:
    """A solver's proof of a schedule, by the costs of the sketch it was made for.

    Attributes:
        minimized: What was minimized.
        time_us: Its value, in us.
        bound_us: No schedule that keeps the sketch's rules and symmetries takes less, in us.
        status: ``optimal``, ``feasible`` (not proved) or ``interrupted``.
        reproducible: Whether the same call gives the same schedule again: no part of the search
            was ended by the clock or by the user.
    """

    minimized: str
    time_us: float
    bound_us: float
    status: str
    reproducible: bool = True

    @property
    def gap(self) -> float:
        """Return by what part of its time the schedule could be faster at most, 0 to 1.

        >>> Proof("time", 80.0, 60.0, "feasible").gap
        0.25
        """
        return 1 - self.bound_us / self.time_us if self.time_us else 0.0


@dataclass(frozen=True, slots=True)
class LoweringHints:
    """Wishes of a method to lowering.

    Attributes:
        split_send_recv: Receives and sends get thread blocks of their own: one that does both for
            two busy connections has them wait for each other. Else a receive is passed on by the
            same step where that can be.
        shared_threadblocks: With ``split_send_recv``, the (channel, src, rank, dst) for which one
            thread block of the rank all the same receives from ``src`` and sends to ``dst``.
        sends_first: A rank's messages to a peer and from it share a thread block, which sends all
            it can before it receives. That takes half the thread blocks, so there is room for more
            channels, but under Simple such a program is safe up to some size only.
    """

    split_send_recv: bool = False
    shared_threadblocks: frozenset[tuple[int, int, int, int]] = frozenset()
    sends_first: bool = False


_NO_HINTS = LoweringHints()
_CACHED = ("native", "sent")


@dataclass(frozen=True)
class Schedule:
    """Transfers that compute `collective` when run one after another in their order.

    The order is a promise of correctness, not a timetable: lowering runs in parallel whatever does
    not touch the same memory. It still matters for speed, since a thread block walks its steps in
    this order, so methods emit transfers by time.

    Attributes:
        collective: What is computed.
        nchunks: Chunks of the whole buffer.
        transfers: The transfers.
        scratch: Chunks of scratch of each rank.
        method: Name of the method that made it.
        chunks_per_rank: Chunks of each rank's part of the whole buffer.
        proof: What is proved of its time, where a solver made it.
        outcome: What is proved of its steps, in words, where a search counted them.
        hints: Wishes of the method to lowering.
        period: 0, or a number of ranks by which every transfer repeats: ranks, and chunks where a
            buffer has a part of each rank, are as many ranks further on, coming round. Transfers
            are one of each then, and ``scratch`` is of the ranks below the period.
    """

    collective: Collective
    nchunks: int
    transfers: tuple[Transfer, ...]
    scratch: tuple[int, ...]
    method: str
    chunks_per_rank: int
    proof: Proof | None = None
    outcome: str = ""
    hints: LoweringHints = _NO_HINTS
    period: int = 0

    def whole(self) -> Schedule:
        """Return the same with all transfers, those that are alike in a row, and without a period.

        >>> ring = Transfer(0, 1, Address("o", 0), Address("o", 0))
        >>> schedule = Schedule(Collective("allgather", 4), 4, (ring,), (0,), "ring", 1, period=1)
        >>> [(t.src, t.dst, t.dst_at.offset) for t in schedule.whole().transfers]
        [(0, 1, 0), (1, 2, 1), (2, 3, 2), (3, 0, 3)]
        """
        if not self.period:
            return self
        transfers = tuple(
            self._further(t, by)
            for t in self.transfers
            for by in range(0, self.collective.ranks, self.period)
        )
        scratch, ranks = self.scratch * self.repeats, self.collective.ranks
        shared = frozenset(
            (channel, (src + by) % ranks, (rank + by) % ranks, (dst + by) % ranks)
            for channel, src, rank, dst in self.hints.shared_threadblocks
            for by in range(0, ranks, self.period)
        )
        hints = replace(self.hints, shared_threadblocks=shared)
        return replace(self, transfers=transfers, scratch=scratch, hints=hints, period=0)

    def _further(self, t: Transfer, by: int) -> Transfer:
        """Return what is like ``t``, ``by`` ranks further on."""
        ranks = self.collective.ranks
        counts = chunk_counts(self.collective.name, self.nchunks, ranks, 0)
        parted = [buffer for buffer, n in zip("io", counts, strict=True) if n == self.nchunks]

        def at(place: Address) -> Address:
            if place.buffer not in parted:
                return place
            return Address(place.buffer, (place.offset + by * self.nchunks // ranks) % self.nchunks)

        return msgspec.structs.replace(
            t,
            src=(t.src + by) % ranks,
            dst=(t.dst + by) % ranks,
            src_at=at(t.src_at),
            dst_at=at(t.dst_at),
            operand=t.operand and at(t.operand),
        )

    @property
    def repeats(self) -> int:
        """Return how often each transfer is made."""
        return self.collective.ranks // self.period if self.period else 1

    @cached_property
    def sent(self) -> Mapping[tuple[int, int], int]:
        """Return the chunks that ranks send each other, by sender and receiver."""
        ranks = self.collective.ranks
        first = Counter[tuple[int, int]]()
        for t in self.transfers:
            if not t.local:
                first[t.src, t.dst] += t.count
        sent = Counter[tuple[int, int]]()
        for by in range(0, ranks, self.period or ranks):
            for (src, dst), chunks in first.items():
                sent[(src + by) % ranks, (dst + by) % ranks] += chunks
        return sent

    @property
    def channels(self) -> int:
        """Return the number of channels used."""
        return 1 + max((t.channel for t in self.transfers), default=0)

    def __getstate__(self) -> dict[str, object]:
        """Return the fields alone: what is native cannot be copied or pickled."""
        return {name: value for name, value in vars(self).items() if name not in _CACHED}

    @cached_property
    def native(self) -> Transfers:
        """Return the transfers as the native floor takes them."""
        return Transfers(
            [
                (t.src, t.dst, t.src_at, t.dst_at, t.count, t.reduce, t.operand, t.channel)
                for t in self.transfers
            ],
            collective=self.collective.name,
            root=self.collective.root,
            ranks=self.collective.ranks,
            nchunks=self.nchunks,
            chunks_per_rank=self.chunks_per_rank,
            scratch=list(self.scratch),
            split_send_recv=self.hints.split_send_recv,
            sends_first=self.hints.sends_first,
            shared=list(self.hints.shared_threadblocks),
            groups=self.collective.groups or (0, 1),
            period=self.period,
        )
