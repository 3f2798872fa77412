"""Places where the tasks of a program run and their messages land."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tuccl.synth.model.schedule import Address
from tuccl.synth.mscclpp.tasks import Message, Task


class Link(NamedTuple):
    """A connection of its own: its type, and the channel's number on either rank."""

    kind: str
    sending: int
    receiving: int


@dataclass(eq=False)
class Part:
    """Consecutive tasks of a program's thread block, which a plan's thread block runs.

    `acquires` and `releases` hold the semaphores before and after each task.
    """

    rank: int
    tasks: list[Task]
    acquires: list[list[int]] = field(default_factory=list)
    releases: list[list[int]] = field(default_factory=list)


class Layout:
    """Thread blocks, channels, semaphores and landing places of a plan.

    A message has a channel of the two parts that it is between, so that parts of one thread block
    never mix their signals, and a slot in the receiver's scratch.
    """

    def __init__(
        self,
        tasks: Sequence[Sequence[Sequence[Task]]],
        cuts: dict[tuple[int, int], int],
        ranks_per_host: int,
    ) -> None:
        """Cut block b of rank r into `cuts[r, b]` parts (1 where it names none)."""
        self._ranks_per_host = ranks_per_host
        self.parts: list[list[Part]] = []
        self.semaphores: list[int] = []
        self.origin: dict[Part, tuple[int, int]] = {}
        for rank, blocks in enumerate(tasks):
            located: dict[tuple[int, int], tuple[Part, int]] = {}
            parts: list[Part] = []
            for block, of_block in enumerate(blocks):
                for first, some in _cut(of_block, cuts.get((rank, block), 1)):
                    part = Part(rank, some)
                    self.origin[part] = (rank, block)
                    parts.append(part)
                    located |= {(block, first + k): (part, k) for k in range(len(some))}
            self.parts.append(parts)
            self.semaphores.append(self._join(located))
        self.peers: list[dict[str, list[int]]] = [{"memory": [], "port": []} for _ in tasks]
        self.links: dict[Message, Link] = {}
        self._connect()

    def tasks(self) -> Iterator[tuple[Part, Task]]:
        """Yield every task with the part that it is of."""
        for parts in self.parts:
            for part in parts:
                yield from ((part, task) for task in part.tasks)

    def incoming(self, part: Part, *, pulled: bool) -> list[Link]:
        """Return the channels on which `part` receives, or reads what is `pulled`, each once."""
        received = (message for task in part.tasks for message in task.receives)
        return self._links(received, pulled)

    def outgoing(self, part: Part, *, pulled: bool) -> list[Link]:
        """Return the channels on which `part` sends, or has others read, each once."""
        sent = (message for task in part.tasks for message in task.sends)
        return self._links(sent, pulled)

    def _links(self, messages: Iterable[Message], pulled: bool) -> list[Link]:
        some = (m for m in messages if m in self.links and (m.source is not None) == pulled)
        return list(dict.fromkeys(self.links[message] for message in some))

    def _join(self, located: dict[tuple[int, int], tuple[Part, int]]) -> int:
        """Give the parts of one rank their semaphores; return how many."""
        ids: dict[tuple[Part, Part], int] = {}
        for part, _ in located.values():
            part.acquires = part.acquires or [[] for _ in part.tasks]
            part.releases = part.releases or [[] for _ in part.tasks]
        for (block, at), (part, k) in located.items():
            awaited = list(part.tasks[k].waits)
            if k == 0 and at:
                awaited.append((block, at - 1))
            for wait in awaited:
                producer, done = located[wait]
                semaphore = ids.setdefault((producer, part), len(ids))
                producer.releases[done].append(semaphore)
                part.acquires[k].append(semaphore)
        return len(ids)

    def _connect(self) -> None:
        """Number the channels: the same order on both ranks, since the k-th pairs with the k-th."""
        receiver = {message: part for part, task in self.tasks() for message in task.receives}
        links: dict[tuple[Part, Part, bool], Link] = {}
        for parts in self.parts:
            for part in parts:
                sent = (message for task in part.tasks for message in task.sends)
                for message in (message for message in sent if message.src != message.dst):
                    ends = part, receiver[message], message.source is not None
                    if ends not in links:
                        links[ends] = self._link(message.src, message.dst)
                    self.links[message] = links[ends]

    def _link(self, src: int, dst: int) -> Link:
        same_host = src // self._ranks_per_host == dst // self._ranks_per_host
        kind = "memory" if same_host else "port"
        sending, receiving = self.peers[src][kind], self.peers[dst][kind]
        sending.append(dst)
        receiving.append(src)
        return Link(kind, len(sending) - 1, len(receiving) - 1)


def _cut(tasks: Sequence[Task], ways: int) -> Iterator[tuple[int, list[Task]]]:
    """Yield `ways` runs of about as many tasks, each with the number of its first."""
    ways = max(1, min(ways, len(tasks)))
    ends = [len(tasks) * k // ways for k in range(ways + 1)]
    yield from ((a, list(tasks[a:b])) for a, b in pairwise(ends))


@dataclass
class Slots:
    """Places in the scratch of one rank: the program's own chunks first, then those requested."""

    chunks: int

    def take(self, count: int) -> Address:
        """Return a run of `count` chunks that nobody has."""
        at = Address("s", self.chunks)
        self.chunks += count
        return at
