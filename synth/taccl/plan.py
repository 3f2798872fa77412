"""Plans of the exact method: messages with times, the like sends they stand for, and both orders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tuccl.synth.model.symmetry import Symmetry
from tuccl.synth.taccl.costs import Costs, Wire
from tuccl.synth.taccl.items import Item

__all__ = ["Hop", "Message", "Question", "makespan", "retimed", "turned"]

_Resource = tuple[str, object]


class Message(NamedTuple):
    """Chunks that travel together over wire number `wire` from `start` to `end`, in ns."""

    chunks: tuple[int, ...]
    wire: int
    start: int
    end: int
    reduce: bool = False


class Hop(NamedTuple):
    """A send of item number `item` (of the leaders) over a wire, and with which others it goes.

    Hops of one wire with the same start and end are one message.
    """

    item: int
    wire: int
    start: int
    end: int


@dataclass(frozen=True)
class Question:
    """What is to be solved: one item of each orbit, and what its sends meet."""

    costs: Costs
    leaders: tuple[Item, ...]
    group: Symmetry
    own_first: bool = False

    @cached_property
    def uses(self) -> list[tuple[_Resource, ...]]:
        """Return, for each wire, what its sends exclude each other on, alike wires being one."""
        ports = self._port_orbits()
        found: list[tuple[_Resource, ...]] = []
        for number, wire in enumerate(self.costs.wires):
            shared = tuple(("port", ports[port]) for port in wire.ports)
            alone = ("wire", self.group.link_representatives[number])
            found.append(shared if shared and wire.whole else (alone, *shared))
        return found

    def _port_orbits(self) -> dict[object, object]:
        leader: dict[object, object] = {}
        for number, wire in enumerate(self.costs.wires):
            for place, port in enumerate(wire.ports):
                images = (self.costs.wires[to[number]].ports[place] for to in self.group.links)
                leader.setdefault(port, min(images, key=repr))
        return leader

    @cached_property
    def batches(self) -> bool:
        """Return whether messages of several chunks could gain anything."""
        return any(wire.batch and wire.alpha for wire in self.costs.wires)

    def messages(self, hops: Iterable[Hop]) -> list[Message]:
        """Return the messages of all ranks that `hops` of the leaders stand for, by start."""
        together: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for hop in hops:
            chunk = self.leaders[hop.item].chunk
            for wires, chunks in zip(self.group.links, self.group.chunks, strict=True):
                together[hop.start, hop.end, wires[hop.wire]].append(chunks[chunk])
        return [
            Message(tuple(sorted(chunks)), wire, start, end)
            for (start, end, wire), chunks in sorted(together.items())
        ]


def makespan(messages: Iterable[Message]) -> int:
    """Return when the last message has arrived, in ns."""
    return max((message.end for message in messages), default=0)


def turned(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with time reversed: what was copied out is summed up instead.

    >>> turned([Message((0,), 3, 0, 5), Message((0,), 1, 5, 9)])[0]
    Message(chunks=(0,), wire=1, start=0, end=4, reduce=True)
    """
    known = list(messages)
    last = makespan(known)
    back = (Message(m.chunks, m.wire, last - m.end, last - m.start, not m.reduce) for m in known)
    return sorted(back, key=lambda m: (m.start, m.end, m.wire))


def window(wire: Wire, message: Message) -> tuple[int, int]:
    """Return from when to when, in ns, a message holds the ports of its wire.

    A copy holds them at its end; a reduction, a copy in reversed time, at its start.
    """
    held = wire.holds(len(message.chunks))
    return (
        (message.start, message.start + held)
        if message.reduce
        else (message.end - held, message.end)
    )


def retimed(messages: Sequence[Message], costs: Costs) -> list[Message]:
    """Return the same messages at the earliest times that keep their order everywhere.

    Args:
        messages: By start; they may have been timed for other costs. Messages of several chunks
            stay whole.
        costs: What they take now.
    """
    arrived: dict[tuple[int, int], int] = {}
    free: dict[object, int] = {}
    found = []
    for message in sorted(messages, key=lambda m: (m.start, m.end)):
        wire = costs.wires[message.wire]
        takes, held = wire.takes(len(message.chunks)), wire.holds(len(message.chunks))
        lead = 0 if message.reduce else takes - held
        start = max(
            free.get(message.wire, 0),
            *(arrived.get((chunk, wire.src), 0) for chunk in message.chunks),
            *(free.get(port, 0) - lead for port in wire.ports),
        )
        moved = Message(message.chunks, message.wire, start, start + takes, message.reduce)
        free[message.wire] = moved.end
        free.update(dict.fromkeys(wire.ports, window(wire, moved)[1]))
        for chunk in message.chunks:
            arrived[chunk, wire.dst] = max(arrived.get((chunk, wire.dst), 0), moved.end)
        found.append(moved)
    return sorted(found, key=lambda m: (m.start, m.end, m.wire))
