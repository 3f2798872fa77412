"""Precedence on each rank: conflicts over memory, in the order of the schedule.

Every transfer has two events, the send at its source (number 2t) and the receive at its
destination (2t + 1); a local copy or reduction is a receive event alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tuccl.synth.model.schedule import Address, Schedule, Transfer

NONE = -1
_Cell = tuple[int, str, int]


def send_event(transfer: int) -> int:
    """Return the number of the event that reads at the source."""
    return 2 * transfer


def recv_event(transfer: int) -> int:
    """Return the number of the event that writes at the destination."""
    return 2 * transfer + 1


@dataclass
class Order:
    """Precedence among events of one rank.

    Attributes:
        before: For each event, the events of its rank that must be done first.
        after: The same edges reversed.
        readers: For each receive event, the events that read what it wrote.
        results: Receive events whose value is part of the result.
        source: For each transfer, the one receive event that wrote all of what it sends, or NONE.
    """

    before: list[set[int]]
    after: list[set[int]]
    readers: list[set[int]]
    results: set[int] = field(default_factory=set)
    source: list[int] = field(default_factory=list)


def order(schedule: Schedule, placements: Sequence[bool]) -> Order:
    """Return the precedence that keeps `schedule` right when events run in parallel.

    `placements` says whether the buffers are aliased (in place) or not; the edges of all are taken.
    """
    events = 2 * len(schedule.transfers)
    result = Order([set() for _ in range(events)], [], [set() for _ in range(events)])
    for number, in_place in enumerate(placements):
        _Sweep(schedule, in_place, result).run(number == 0)
    result.after = [set() for _ in range(events)]
    for event, earlier in enumerate(result.before):
        for other in earlier:
            result.after[other].add(event)
    return result


class _Sweep:
    """One pass over the transfers under one aliasing of the buffers."""

    def __init__(self, schedule: Schedule, in_place: bool, result: Order) -> None:
        self.schedule = schedule
        self.in_place = in_place
        self.result = result
        self.writer: dict[_Cell, int] = {}
        self.reading: dict[_Cell, list[int]] = {}

    def run(self, first: bool) -> None:
        sources = []
        for number, transfer in enumerate(self.schedule.transfers):
            reads = self.cells(transfer.src, transfer.src_at, transfer.count)
            writes = self.cells(transfer.dst, transfer.dst_at, transfer.count)
            writer = recv_event(number)
            reader = writer if transfer.local else send_event(number)
            sources.append(self.whole_source(transfer, reads))
            if transfer.local and reads == writes and not transfer.reduce:
                continue  # aliased onto itself: no access at all
            self.read(reader, reads)
            if (operand := transfer.operand_at) is not None:
                added = self.cells(transfer.dst, operand, transfer.count)
                self.read(writer, added)
            self.write(writer, writes)
        self.finish(sources, first)

    def cells(self, rank: int, at: Address, count: int) -> list[_Cell]:
        buffer, offset = at
        if not self.in_place or buffer == "s":
            return [(rank, buffer, offset + k) for k in range(count)]
        name = self.schedule.collective.memory_in_place
        share = self.schedule.chunks_per_rank
        return [(rank, *name(rank, buffer, offset + k, share)) for k in range(count)]

    def whole_source(self, transfer: Transfer, reads: list[_Cell]) -> int:
        """Return the receive event that wrote exactly what `transfer` sends, or NONE."""
        writer = self.writer.get(reads[0], NONE)
        if writer == NONE or any(self.writer.get(cell) != writer for cell in reads):
            return NONE
        origin = self.schedule.transfers[writer // 2]
        same = origin.dst_at == transfer.src_at and origin.count == transfer.count
        return writer if same else NONE

    def read(self, event: int, cells: list[_Cell]) -> None:
        for cell in cells:
            writer = self.writer.get(cell, NONE)
            if writer not in (NONE, event):
                self.result.before[event].add(writer)
                self.result.readers[writer].add(event)
            self.reading.setdefault(cell, []).append(event)

    def write(self, event: int, cells: list[_Cell]) -> None:
        before = self.result.before[event]
        for cell in cells:
            before.update(self.reading.pop(cell, ()))
            if (writer := self.writer.get(cell)) is not None:
                before.add(writer)
            self.writer[cell] = event
        before.discard(event)

    def finish(self, sources: list[int], first: bool) -> None:
        result = self.result
        result.results.update(event for cell, event in self.writer.items() if self.is_output(cell))
        if first:
            result.source = sources
            return
        # Where two placements disagree, no fusion.
        pairs = zip(result.source, sources, strict=True)
        result.source = [a if a == b else NONE for a, b in pairs]

    def is_output(self, cell: _Cell) -> bool:
        """Return whether the result may be read from `cell`."""
        return cell[1] != "s" if self.in_place else cell[1] == "o"
