"""Trees of sends, and transfers by round: what hierarchical schedules are composed of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from tuccl.synth.classic.fan_in import FanIn, prefers_scratch
from tuccl.synth.model.trace import Trace


class TreeEdge(NamedTuple):
    """A send from `parent` to `child` of a tree; rounds count up from the root, from 1."""

    round: int
    parent: int
    child: int
    channel: int = 0


Tree = Sequence[TreeEdge]


class Rounds:
    """Transfers by round; those of one round run by their turn, then as they were added."""

    def __init__(self, trace: Trace, nbytes: int) -> None:
        """Start without transfers; `nbytes` is the size of the whole buffer."""
        self.trace = trace
        self.chunk_bytes = nbytes / trace.collective.nchunks(trace.chunks_per_rank)
        self._actions: list[tuple[int, int, int, Callable[[], None]]] = []

    def run(self) -> None:
        """Emit all transfers to the trace."""
        for *_, action in sorted(self._actions, key=lambda entry: entry[:3]):
            action()

    def at(self, when: int, action: Callable[[], None], turn: int = 0) -> None:
        """Run `action`, which emits to the trace, in round `when`."""
        self._actions.append((when, turn, len(self._actions), action))

    def send(
        self, when: int, chunks: range, src: int, dst: int, channel: int = 0, turn: int = 0
    ) -> None:
        """Send `chunks` in round `when`."""
        self.at(when, partial(self.trace.send, chunks.start, src, dst, channel, len(chunks)), turn)

    def walk(self, when: int, chunks: range, path: Sequence[int], turn: int = 0) -> None:
        """Send `chunks` from rank to rank along `path`, all in round `when`."""
        for src, dst in pairwise(path):
            self.send(when, chunks, src, dst, turn=turn)

    def add(
        self,
        when: int,
        chunks: range,
        rank: int,
        senders: Sequence[int],
        channel: int = 0,
        *,
        via_scratch: bool = False,
        turn: int = 0,
    ) -> None:
        """Add the sums of `senders` to those of `rank`."""
        size = self.chunk_bytes * len(chunks)
        via_scratch |= prefers_scratch(len(senders), size, len(chunks))

        def fan_in() -> None:
            fan = FanIn(self.trace, rank, chunks.start, len(chunks), via_scratch=via_scratch)
            for sender in senders:
                fan.receive(sender, channel)
            fan.finish()

        self.at(when, fan_in, turn)

    def spread(self, start: int, chunks: range, tree: Tree, turn: int = 0) -> None:
        """Send `chunks` down `tree`, of trees to equally far ranks by `turn`."""
        for edge in tree:
            at = self._turn(tree, edge.child, turn)
            self.send(start + edge.round, chunks, edge.parent, edge.child, edge.channel, at)

    def collect(
        self,
        start: int,
        chunks: range,
        tree: Tree,
        *,
        via_scratch: bool = False,
        turn: int = 0,
    ) -> int:
        """Sum `chunks` up `tree`, as `spread`; return the round after the last."""
        last = max((edge.round for edge in tree), default=0)
        senders: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for edge in tree:
            senders[start + last - edge.round, edge.parent, edge.channel].append(edge.child)
        for (when, rank, channel), ranks in sorted(senders.items()):
            at = self._turn(tree, rank, turn)
            self.add(when, chunks, rank, ranks, channel, via_scratch=via_scratch, turn=at)
        return start + last

    def _turn(self, tree: Tree, rank: int, turn: int) -> int:
        """Return how far ahead of the root, the first parent, a rank is, and after it `turn`.

        It is equal in rotated trees.
        """
        ranks = self.trace.collective.ranks
        return (rank - tree[0].parent) % ranks * ranks + turn
