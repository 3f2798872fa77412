"""The builder methods write schedules with: it knows where every chunk is on every rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tuccl.synth.model.collective import Collective
from tuccl.synth.model.schedule import Address, LoweringHints, Schedule, Transfer


class Trace:
    """A schedule in the making.

    A chunk starts in the input. What a rank receives goes to its address in the output if the rank
    must end with it, else to scratch. Runs of chunks become one transfer wherever they lie side by
    side at both ends.

    >>> trace = Trace(Collective("allgather", 2), 1, "direct")
    >>> trace.send(0, 0, 1); trace.send(1, 1, 0)
    >>> len(trace.schedule().transfers)  # two messages, and each rank's copy of its own part
    4
    """

    def __init__(
        self, collective: Collective, chunks_per_rank: int = 1, method: str = "", period: int = 0
    ) -> None:
        """Start with the chunks where the collective's precondition has them.

        With a ``period`` (see `Schedule`) what is written is of the chunks of the ranks below it.
        """
        self.collective = collective
        self.chunks_per_rank = chunks_per_rank
        self.method = method
        self._transfers: list[Transfer] = []
        self._period = period
        self._scratch = [0] * (period or collective.ranks)
        self._at: dict[tuple[int, int], Address] = {}
        self._outputs: dict[int, Address] = {}  # by offset: one for all ranks spares memory
        self._spare: dict[tuple[int, int], Address] = {}  # scratch that exchanges may use again
        self._reserved: dict[tuple[int, int], Address] = {}

    def address(self, chunk: int, rank: int) -> Address | None:
        """Return where `rank` has `chunk` (its newest value), None where it has not."""
        if (held := self._at.get((chunk, rank))) is not None:
            return held
        offset = self.collective.input_offset(chunk, rank, self.chunks_per_rank)
        return None if offset is None else Address("i", offset)

    def holds(self, chunk: int, rank: int) -> bool:
        """Return whether `rank` has a value of `chunk`."""
        return self.address(chunk, rank) is not None

    def output_address(self, chunk: int, rank: int) -> Address | None:
        """Return where `chunk` must end up on `rank`, None where the rank need not have it."""
        offset = self.collective.output_offset(chunk, rank, self.chunks_per_rank)
        if offset is None:
            return None
        return self._outputs.get(offset) or self._outputs.setdefault(offset, Address("o", offset))

    def send(self, chunk: int, src: int, dst: int, channel: int = 0, count: int = 1) -> None:
        """Move the value of chunks `chunk`..`chunk + count - 1` from `src` to `dst`.

        For finished values: what `dst` had of the chunk counts no more.

        Raises:
            ValueError: `src` has no such chunk.
        """
        if count > 1:
            self.send_each(range(chunk, chunk + count), src, dst, channel)
            return
        source = self._at.get((chunk, src)) or self._held_at(chunk, src)
        target = self._reserved.get((chunk, dst)) or self.output_address(chunk, dst)
        self._move(chunk, src, dst, source, target or self._new_slot(dst), None, channel)

    def send_each(self, chunks: Sequence[int], src: int, dst: int, channel: int = 0) -> None:
        """Move the values of `chunks`, in that order, as `send` does.

        Raises:
            ValueError: `src` has no such chunk.
        """
        addresses = [self._reserved.get((c, dst)) or self.output_address(c, dst) for c in chunks]
        targets = self._targets(dst, addresses)
        self._emit(chunks, src, dst, targets, channel)
        self._at.update({(c, dst): at for c, at in zip(chunks, targets, strict=True)})

    def reserve(self, chunks: Sequence[int], rank: int) -> None:
        """Have `chunks`, when they come, lie side by side in the scratch of `rank`.

        What comes from several ranks may then leave in one message, whatever comes first.
        """
        targets = self._targets(rank, [None] * len(chunks))
        self._reserved.update({(c, rank): at for c, at in zip(chunks, targets, strict=True)})

    def reduce(self, chunk: int, src: int, dst: int, channel: int = 0, count: int = 1) -> None:
        """Add `src`'s partial sums of the chunks to those of `dst`.

        The sum goes to the output if `dst` owns the chunk, else to scratch.

        Raises:
            ValueError: one of the two has no value of a chunk.
        """
        if count == 1:
            operand = self._held_at(chunk, dst)
            target = self._sum_place(chunk, dst) or self._new_slot(dst)
            self._move(chunk, src, dst, self._held_at(chunk, src), target, operand, channel)
            return
        chunks = range(chunk, chunk + count)
        operands = [self._held_at(c, dst) for c in chunks]
        targets = self._targets(dst, [self._sum_place(c, dst) for c in chunks])
        self._emit(chunks, src, dst, targets, channel, operands=operands)
        self._at.update({(c, dst): at for c, at in zip(chunks, targets, strict=True)})

    def exchange(
        self,
        chunk: int,
        first: int,
        second: int,
        channel: int = 0,
        count: int = 1,
        last: bool = False,
    ) -> None:
        """Give both ranks the sum of their partial sums of the chunks; neither waits for the other.

        Each sum is written next to the partial it was made from, since the other rank still reads
        that. With `last` the sums go to the output where that is free.
        """
        chunks = range(chunk, chunk + count)
        firsts = [self._held_at(c, first) for c in chunks]
        seconds = [self._held_at(c, second) for c in chunks]
        # `first` is written first, while `second` must still read it: not over an input that the
        # output may alias. `second` is written when both were read.
        to_output = last and all(at.buffer == "s" for at in firsts)
        self._exchange_half(chunks, second, first, seconds, firsts, channel, to_output)
        self._exchange_half(chunks, first, second, firsts, seconds, channel, last)

    def _exchange_half(
        self,
        chunks: range,
        src: int,
        dst: int,
        sources: list[Address],
        operands: list[Address],
        channel: int,
        to_output: bool,
    ) -> None:
        addresses = [
            self.output_address(c, dst) if to_output else self._spare.pop((c, dst), None)
            for c in chunks
        ]
        targets = self._targets(dst, addresses)
        self._emit(chunks, src, dst, targets, channel, operands=operands, sources=sources)
        for c, target, old in zip(chunks, targets, operands, strict=True):
            self._at[c, dst] = target
            if old.buffer == "s":
                self._spare[c, dst] = old

    def copy_to_scratch(
        self, chunk: int, src: int, dst: int, channel: int = 0, count: int = 1
    ) -> Address:
        """Return the scratch of `dst` that now has `src`'s values, next to its value."""
        chunks = range(chunk, chunk + count)
        targets = self._targets(dst, [None] * count)
        self._emit(chunks, src, dst, targets, channel)
        return targets[0]

    def add_from(self, chunk: int, rank: int, copied: Address, count: int = 1) -> None:
        """Add the values at `copied` to `rank`'s partial sums of the chunks."""
        chunks = range(chunk, chunk + count)
        operands = [self._held_at(c, rank) for c in chunks]
        targets = self._targets(rank, [self._sum_place(c, rank) for c in chunks])
        sources = [copied.shifted(k) for k in range(count)]
        self._emit(chunks, rank, rank, targets, 0, operands=operands, sources=sources)
        self._at.update({(c, rank): at for c, at in zip(chunks, targets, strict=True)})

    def copy_to_output(self, chunk: int, rank: int, copied: Address, count: int = 1) -> None:
        """Write the values at `copied` to the output of `rank`, as its partial sums of the chunks.

        Raises:
            ValueError: `rank` need not have one of the chunks in the end.
        """
        chunks = range(chunk, chunk + count)
        addresses = [
            address for c in chunks if (address := self.output_address(c, rank)) is not None
        ]
        if len(addresses) < count:
            raise ValueError(f"{self.method}: rank {rank} has no place for chunks {chunk}...")
        self._emit(
            chunks, rank, rank, addresses, 0, sources=[copied.shifted(k) for k in range(count)]
        )
        self._at.update({(c, rank): at for c, at in zip(chunks, addresses, strict=True)})

    def schedule(self, hints: LoweringHints | None = None, *, outcome: str = "") -> Schedule:
        """Return the schedule, with the local copies that the postcondition still lacks."""
        copies = list(self._missing_copies())
        return Schedule(
            collective=self.collective,
            nchunks=self.collective.nchunks(self.chunks_per_rank),
            transfers=(*self._transfers, *copies),
            scratch=tuple(self._scratch),
            method=self.method,
            chunks_per_rank=self.chunks_per_rank,
            outcome=outcome,
            hints=hints or LoweringHints(),
            period=self._period,
        )

    def _held_at(self, chunk: int, rank: int) -> Address:
        at = self.address(chunk, rank)
        if at is None:
            raise ValueError(f"{self.method}: rank {rank} does not have chunk {chunk} yet")
        return at

    def _sum_place(self, chunk: int, rank: int) -> Address | None:
        at = self._held_at(chunk, rank)
        return self.output_address(chunk, rank) or (at if at.buffer == "s" else None)

    def _targets(self, rank: int, addresses: list[Address | None]) -> list[Address]:
        """Return `addresses`, with new scratch slots, side by side, where there is none."""
        return [address or self._new_slot(rank) for address in addresses]

    def _new_slot(self, rank: int) -> Address:
        rank %= len(self._scratch)  # which gets, of other hosts' chunks, what `rank` gets
        self._scratch[rank] += 1
        return Address("s", self._scratch[rank] - 1)

    def _move(
        self,
        chunk: int,
        src: int,
        dst: int,
        source: Address,
        target: Address,
        operand: Address | None,
        channel: int,
    ) -> None:
        """Emit the move of one chunk, as most are: `_emit` without lists."""
        added_to = None if operand == target else operand
        moved = Transfer(src, dst, source, target, 1, operand is not None, added_to, channel)
        self._transfers.append(moved)
        self._at[chunk, dst] = target

    def _emit(
        self,
        chunks: Sequence[int],
        src: int,
        dst: int,
        targets: list[Address],
        channel: int,
        operands: list[Address] | None = None,
        sources: list[Address] | None = None,
    ) -> None:
        sources = sources or [self._at.get((c, src)) or self._held_at(c, src) for c in chunks]
        ends = [sources, targets] + ([operands] if operands else [])
        for start, length in _contiguous_runs(ends):
            operand = operands[start] if operands else None
            self._transfers.append(
                Transfer(
                    src,
                    dst,
                    sources[start],
                    targets[start],
                    length,
                    reduce=operand is not None,
                    operand=None if operand == targets[start] else operand,
                    channel=channel,
                )
            )

    def _missing_copies(self) -> Iterator[Transfer]:
        for rank in range(self.collective.ranks):
            sources, targets = [], []
            for offset, chunk in self.collective.outputs(rank, self.chunks_per_rank):
                if self._period and chunk >= self._period * self.chunks_per_rank:
                    continue
                at = self._at.get((chunk, rank)) or self._held_at(chunk, rank)
                if at[0] != "o" or at[1] != offset:
                    sources.append(at)
                    targets.append(Address("o", offset))
            for start, length in _contiguous_runs([sources, targets]):
                yield Transfer(rank, rank, sources[start], targets[start], length)


def _contiguous_runs(ends: list[list[Address]]) -> Iterator[tuple[int, int]]:
    """Yield (start, length) of the longest runs that are contiguous in every list."""
    start = 0
    total = len(ends[0])
    gaps = {
        k
        for end in ends
        for k, (before, at) in enumerate(pairwise(end), start=1)
        if at[1] != before[1] + 1 or at[0] != before[0]
    }
    for k in (*sorted(gaps), total):
        if k:
            yield start, k - start
            start = k
