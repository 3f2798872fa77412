"""A spanning tree that some chunks take from, or to, their root."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tuccl.synth.model.network import Pair

__all__ = ["Growth"]


class Growth(NamedTuple):
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

        >>> Growth(1, 1, (1, -1, 0)).arcs
        [(0, 1), (2, 0)]
        """
        return [(rank, parent) for rank, parent in enumerate(self.parent) if parent >= 0]

    def depths(self) -> list[int]:
        """Return how far each rank is from the root.

        >>> Growth(1, 1, (1, -1, 0)).depths()
        [1, 0, 2]
        """
        below: dict[int, list[int]] = {}
        for rank, parent in enumerate(self.parent):
            below.setdefault(parent, []).append(rank)
        depth = [0] * len(self.parent)
        waiting = deque([self.root])
        while waiting:
            rank = waiting.popleft()
            for child in below.get(rank, ()):
                depth[child] = depth[rank] + 1
                waiting.append(child)
        return depth
