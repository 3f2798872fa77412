"""A spanning tree that some chunks take from, or to, their root."""

from __future__ import annotations

from typing import NamedTuple

from tuccl.synth.model.network import Pair


class Tree(NamedTuple):
    """`weight` chunks that take the same tree from (or to) `root`.

    Attributes:
        root: Rank.
        weight: Chunks.
        parent: For each rank the next towards the root; -1 at the root.
    """

    root: int
    weight: int
    parent: tuple[int, ...]

    @property
    def arcs(self) -> list[Pair]:
        """Return (rank, its parent) of every rank but the root.

        >>> Tree(1, 1, (1, -1, 0)).arcs
        [(0, 1), (2, 0)]
        """
        return [(rank, parent) for rank, parent in enumerate(self.parent) if parent >= 0]

    @property
    def downwards(self) -> list[Pair]:
        """Return (parent, rank) of every rank but the root, parents first.

        >>> Tree(1, 1, (1, -1, 0)).downwards
        [(1, 0), (0, 2)]
        """
        depth = self.depths()
        return sorted(((p, rank) for rank, p in self.arcs), key=lambda arc: depth[arc[1]])

    def depths(self) -> list[int]:
        """Return the arcs between each rank and the root.

        >>> Tree(1, 1, (1, -1, 0)).depths()
        [1, 0, 2]
        """
        depth = [0] * len(self.parent)
        for rank in self._from_root()[1:]:
            depth[rank] = depth[self.parent[rank]] + 1
        return depth

    def _from_root(self) -> list[int]:
        """Return the ranks, each after its parent."""
        children: dict[int, list[int]] = {}
        for rank, parent in self.arcs:
            children.setdefault(parent, []).append(rank)
        ranks = [self.root]
        for rank in ranks:
            ranks += children.get(rank, ())
        return ranks

    def heights(self) -> list[int]:
        """Return for each rank the arcs between it and the farthest rank below it.

        >>> Tree(1, 1, (1, -1, 0)).heights()
        [1, 2, 0]
        """
        height = [0] * len(self.parent)
        for rank in reversed(self._from_root()[1:]):
            parent = self.parent[rank]
            height[parent] = max(height[parent], height[rank] + 1)
        return height
