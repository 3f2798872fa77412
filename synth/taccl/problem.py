"""The routing problem, the sends that solve it, and the timed messages that they stand for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from tuccl.synth.taccl.chunks import Chunk
from tuccl.synth.taccl.costs import Link, LinkCosts
from tuccl.topology.symmetry import Symmetry

_Resource = tuple[str, object]
BY_START = attrgetter("start", "end", "link")
"""Order of sends, and of messages, in time."""


class TimedMessage(NamedTuple):
    """Chunks that travel together over link number `link` from `start` to `end`, in ns."""

    chunks: tuple[int, ...]
    link: int
    start: int
    end: int
    reduce: bool = False


class TimedSend(NamedTuple):
    """A send of chunk number `chunk` (of the problem's) over a link, in ns.

    Sends over one link with the same start and end are one message.
    """

    chunk: int
    link: int
    start: int
    end: int


@dataclass(frozen=True)
class Problem:
    """Chunks to route over links: one of each orbit of the symmetry, standing for all of it.

    Of schedules that take equally long, one with few connections inside hosts is preferred
    (``uc-min``), or with many (``uc-max``), if `connections` says so.
    """

    costs: LinkCosts
    chunks: tuple[Chunk, ...]
    symmetry: Symmetry
    own_chunks_first: bool = False
    connections: str = ""

    @property
    def links(self) -> tuple[Link, ...]:
        """Return the links."""
        return self.costs.links

    @property
    def hosts(self) -> tuple[int, ...]:
        """Return the host of each rank."""
        return self.costs.hosts

    @property
    def link_orbits(self) -> tuple[int, ...]:
        """Return the least link of each link's orbit."""
        return self.symmetry.link_representatives

    @cached_property
    def resources(self) -> list[tuple[_Resource, ...]]:
        """Return, for each link, what its sends exclude each other on, one for all of an orbit."""
        orbits = self.symmetry.resource_orbits
        ports = {port: min(orbit, key=repr) for orbit in orbits for port in orbit}
        resources: list[tuple[_Resource, ...]] = []
        for number, link in enumerate(self.links):
            shared = tuple(("port", ports[port]) for port in link.ports)
            own_link = ("link", self.link_orbits[number])
            resources.append(shared if shared and link.holds_ports else (own_link, *shared))
        return resources

    def entries(self, chunk: int, host: int) -> list[int]:
        """Return the links by which a chunk may enter a host."""
        links, hosts = self.links, self.hosts
        return [
            n for n in self.chunks[chunk].links if links[n].inter and hosts[links[n].dst] == host
        ]

    @cached_property
    def merges(self) -> bool:
        """Return whether messages of several chunks could gain anything."""
        return any(link.contiguous and link.alpha for link in self.links)

    def messages(self, sends: Iterable[TimedSend]) -> list[TimedMessage]:
        """Return the messages of all ranks that `sends` stand for, by start."""
        together: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for send in sends:
            chunk = self.chunks[send.chunk].id
            for image in self.symmetry.elements:
                together[send.start, send.end, image.links[send.link]].append(image.sets[chunk])
        return [
            TimedMessage(tuple(sorted(chunks)), link, start, end)
            for (start, end, link), chunks in sorted(together.items())
        ]


def makespan(messages: Iterable[TimedMessage]) -> int:
    """Return when the last message has arrived, in ns."""
    return max((message.end for message in messages), default=0)


def reverse_time(messages: Iterable[TimedMessage]) -> list[TimedMessage]:
    """Return the messages with time reversed: what was copied out is summed up instead.

    >>> reverse_time([TimedMessage((0,), 3, 0, 5), TimedMessage((0,), 1, 5, 9)])[0]
    TimedMessage(chunks=(0,), link=1, start=0, end=4, reduce=True)
    """
    messages = list(messages)
    last = makespan(messages)
    back = (
        TimedMessage(m.chunks, m.link, last - m.end, last - m.start, not m.reduce) for m in messages
    )
    return sorted(back, key=BY_START)


def window(link: Link, message: TimedMessage) -> tuple[int, int]:
    """Return from when to when, in ns, a message holds the ports of its link.

    A copy holds them at its end; a reduction, a copy in reversed time, at its start.
    """
    port_ns = link.port_ns(len(message.chunks))
    return (
        (message.start, message.start + port_ns)
        if message.reduce
        else (message.end - port_ns, message.end)
    )


def retime(messages: Sequence[TimedMessage], costs: LinkCosts) -> list[TimedMessage]:
    """Return the same messages at the earliest times that keep their order everywhere.

    Args:
        messages: By start; they may have been timed for other costs. Messages of several chunks
            stay whole.
        costs: What they take now.
    """
    arrived: dict[tuple[int, int], int] = {}
    free: dict[object, int] = {}
    timed = []
    for message in sorted(messages, key=lambda m: (m.start, m.end)):
        link = costs.links[message.link]
        takes, port_ns = link.message_ns(len(message.chunks)), link.port_ns(len(message.chunks))
        lead = 0 if message.reduce else takes - port_ns
        start = max(
            free.get(message.link, 0),
            *(arrived.get((chunk, link.src), 0) for chunk in message.chunks),
            *(free.get(port, 0) - lead for port in link.ports),
        )
        moved = TimedMessage(message.chunks, message.link, start, start + takes, message.reduce)
        free[message.link] = moved.end
        free.update(dict.fromkeys(link.ports, window(link, moved)[1]))
        for chunk in message.chunks:
            arrived[chunk, link.dst] = max(arrived.get((chunk, link.dst), 0), moved.end)
        timed.append(moved)
    return sorted(timed, key=BY_START)
