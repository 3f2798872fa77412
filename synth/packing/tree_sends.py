"""Sends of chunks over the arcs of trees, in an order in which they may be sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tuccl.planners import MOST_COUNT
from tuccl.synth.model.network import Pair
from tuccl.synth.model.send import Send
from tuccl.synth.packing.tree import Tree


class TreeSend(NamedTuple):
    """Consecutive chunks over one arc of their trees; sorted, from the roots to the leaves.

    Attributes:
        level: Sends of one chunk have rising levels on the path from the root.
        turn: Order among the sends of a level.
        parent: Rank that is nearer to the root.
        child: Rank that is farther.
        chunk: First chunk.
        nchunks: Number of chunks.
    """

    level: int
    turn: tuple[int, ...]
    parent: int
    child: int
    chunk: int
    nchunks: int


def chained_sends(
    reduction: Sequence[Tree],
    broadcast: Sequence[Tree],
    first_chunks: Sequence[int],
    most: int = 1,
) -> list[Send]:
    """Return sends of up to `most` chunks: sums, of each tree the leaves' first, then results.

    Each waits for all that its sender gets of its chunks before. `first_chunks[r]` is the first
    chunk whose root is rank r.

    >>> [(send.dst, send.after) for send in chained_sends((), [Tree(1, 1, (1, -1, 0))], [0, 0, 0])]
    [(0, ()), (2, (0,))]
    """
    ranks = len(first_chunks)
    sends: list[Send] = []
    arrived: dict[tuple[int, int], tuple[int, ...]] = {}
    for trees, reduce in ((reduction, True), (broadcast, False)):
        entries = sorted(_entries(trees, first_chunks, most, ranks, reduce=reduce))
        for _, _, _, _, src, dst, chunks in entries:
            after = {n for chunk in chunks for n in arrived.get((chunk, src), ())}
            for chunk in chunks:
                before = arrived.get((chunk, dst), ()) if reduce else ()
                arrived[chunk, dst] = (*before, len(sends))
            sends.append(Send(chunks[0], src, dst, len(chunks), reduce, tuple(sorted(after))))
    return sends


_Entry = tuple[int, int, tuple[int, int], int, int, int, range]


def _entries(
    trees: Sequence[Tree], first_chunks: Sequence[int], most: int, ranks: int, *, reduce: bool
) -> Iterator[_Entry]:
    """Yield each send behind the key that orders it: its run of the root's, its level, its arc.

    Arcs count ranks from the root on, so trees that are rotated by some ranks have rotated orders.
    """
    runs = Counter[int]()
    for tree, first in _chunks(trees, first_chunks):
        depth, root = tree.depths(), tree.root
        for chunks in _runs(first, tree.weight, most):
            for child, parent in tree.arcs:
                level = -depth[child] if reduce else depth[child]
                arc = (child - root) % ranks, (parent - root) % ranks
                src, dst = (child, parent) if reduce else (parent, child)
                yield runs[root], level, arc, root, src, dst, chunks
            runs[root] += 1


def _runs(first: int, count: int, most: int) -> Iterator[range]:
    """Yield `count` chunks from `first` on, cut at the multiples of `most`.

    >>> list(_runs(3, 5, 4))
    [range(3, 4), range(4, 8)]
    """
    while count:
        length = min(count, most - first % most)
        yield range(first, first + length)
        first, count = first + length, count - length


def merged_sends(
    trees: Sequence[Tree], first_chunks: Sequence[int], relay_group: int
) -> Iterator[TreeSend]:
    """Yield sends of the chunks of up to `relay_group` neighbouring roots that share an arc.

    What the trees of a relay group share, they share to the leaves, so levels count from the
    farthest rank below. Turns count ranks from the root on: an arc and its image in a tree rotated
    by some ranks have the same.
    """
    ranks = len(first_chunks)
    # Level, root, first chunk and number of chunks of what an arc carries last.
    started: dict[Pair, tuple[int, int, int, int]] = {}
    for tree, chunk in sorted(_chunks(trees, first_chunks), key=lambda entry: entry[1]):
        height, root, weight = tree.heights(), tree.root, tree.weight
        for child, parent in tree.arcs:
            level, arc = -height[child], (parent, child)
            if (before := started.get(arc)) is not None:
                if (
                    before[0] == level
                    and before[1] // relay_group == root // relay_group
                    and before[2] + before[3] == chunk
                    and before[3] + weight <= MOST_COUNT
                ):
                    started[arc] = *before[:3], before[3] + weight
                    continue
                yield _relative(arc, before, ranks)
            started[arc] = level, root, chunk, weight
    yield from (_relative(arc, run, ranks) for arc, run in started.items())


def _chunks(trees: Sequence[Tree], first_chunks: Sequence[int]) -> Iterator[tuple[Tree, int]]:
    """Yield each tree with its first chunk."""
    following = list(first_chunks)
    for tree in trees:
        yield tree, following[tree.root]
        following[tree.root] += tree.weight


def _relative(arc: Pair, run: tuple[int, int, int, int], ranks: int) -> TreeSend:
    (parent, child), (level, root, chunk, nchunks) = arc, run
    turn = (parent - root) % ranks, (child - root) % ranks
    return TreeSend(level, turn, parent, child, chunk, nchunks)
