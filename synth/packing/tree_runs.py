"""Runs of chunks over the arcs of trees, in an order in which they may be sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tuccl.synth.lowering.rewrites import MOST_COUNT
from tuccl.synth.packing.tree import Growth

__all__ = ["Run", "merged_runs", "single_runs"]


class Run(NamedTuple):
    """Chunks side by side over one arc of their trees.

    Attributes:
        level: Runs of one chunk have rising levels on the way from the root.
        turn: Place among the runs of a level.
        parent: Rank that is nearer to the root.
        child: Rank that is farther.
        first: First chunk.
        weight: Number of chunks.
    """

    level: int
    turn: tuple[int, ...]
    parent: int
    child: int
    first: int
    weight: int


def single_runs(trees: Sequence[Growth], firsts: Sequence[int]) -> Iterator[Run]:
    """Yield the arcs of all trees; `firsts[r]` is the first chunk whose root is rank r.

    >>> [run.child for run in single_runs([Growth(1, 1, (1, -1, 0))], [0, 0, 0])]
    [0, 2]
    """
    for number, (tree, first) in enumerate(_chunks(trees, firsts)):
        depth = tree.depths()
        for child, parent in tree.arcs:
            yield Run(depth[child], (number,), parent, child, first, tree.weight)


def merged_runs(trees: Sequence[Growth], firsts: Sequence[int], band: int) -> Iterator[Run]:
    """Yield runs of the chunks of up to `band` roots side by side that share an arc.

    What the trees of a band share, they share to the leaves, so a run's level is told by how far
    the farthest rank behind it is. Turns count ranks from the root on: an arc and its like of
    trees turned round the circle of ranks have the same.
    """
    ranks = len(firsts)
    started: dict[tuple[int, int], Run] = {}
    for tree, first in sorted(_chunks(trees, firsts), key=lambda entry: entry[1]):
        height = _heights(tree)
        for child, parent in tree.arcs:
            run = Run(-height[child], (tree.root,), parent, child, first, tree.weight)
            before = started.get((parent, child))
            joined = None if before is None else _joined(before, run, band)
            if before is not None and joined is None:
                yield _turned(before, ranks)
            started[parent, child] = joined or run
    yield from (_turned(run, ranks) for run in started.values())


def _chunks(trees: Sequence[Growth], firsts: Sequence[int]) -> Iterator[tuple[Growth, int]]:
    """Yield each tree with its first chunk."""
    following = list(firsts)
    for tree in trees:
        yield tree, following[tree.root]
        following[tree.root] += tree.weight


def _joined(before: Run, run: Run, band: int) -> Run | None:
    """Return the two runs as one, None where they do not belong together."""
    weight = before.weight + run.weight
    together = (
        before.level == run.level
        and before.turn[0] // band == run.turn[0] // band
        and before.first + before.weight == run.first
        and weight <= MOST_COUNT
    )
    return before._replace(weight=weight) if together else None


def _turned(run: Run, ranks: int) -> Run:
    [root] = run.turn
    return run._replace(turn=((run.parent - root) % ranks, (run.child - root) % ranks))


def _heights(tree: Growth) -> list[int]:
    """Return for each rank how far the farthest rank behind it is."""
    height = [0] * len(tree.parent)
    depth = tree.depths()
    for rank in sorted(range(len(height)), key=lambda rank: -depth[rank]):
        if (parent := tree.parent[rank]) >= 0:
            height[parent] = max(height[parent], height[rank] + 1)
    return height
