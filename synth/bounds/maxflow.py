"""Exact maximum flow and minimum cut on directed networks with whole-number capacities."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

__all__ = ["FlowNetwork"]


class FlowNetwork:
    """A directed network whose capacities may be set anew between questions.

    >>> network = FlowNetwork(3, [(0, 1), (1, 2), (0, 2)])
    >>> network.flow(0, 2, [5, 3, 1])
    4
    >>> sorted(network.source_side(0))
    [0, 1]

    Notes:
        Dinic's blocking flows (Dinic 1970) over whole numbers of any size, so that a flow and its
        cut are equal to the unit: the certificate that `tuccl.synth.bounds.bound` prints.
    """

    def __init__(self, vertices: int, arcs: Sequence[tuple[int, int]]) -> None:
        """Make a network of `vertices` vertices; arcs are (tail, head)."""
        self._out: list[list[int]] = [[] for _ in range(vertices)]
        self._head: list[int] = []
        for tail, head in arcs:
            # An arc has an even number and its reverse the odd one after it.
            self._out[tail].append(len(self._head))
            self._out[head].append(len(self._head) + 1)
            self._head += (head, tail)
        self._left: list[int] = [0] * len(self._head)

    def flow(self, source: int, sink: int, capacities: Sequence[int]) -> int:
        """Return the largest flow from `source` to `sink`, one capacity for each arc."""
        self._left[0::2] = capacities
        self._left[1::2] = [0] * len(capacities)
        total = 0
        while (level := self._levels(source, sink))[sink] >= 0:
            total += self._blocking_flow(source, sink, level)
        return total

    def source_side(self, source: int) -> frozenset[int]:
        """Return the source's side of the minimum cut that the last `flow` left."""
        level = self._levels(source, -1)
        return frozenset(vertex for vertex, depth in enumerate(level) if depth >= 0)

    def _levels(self, source: int, sink: int) -> list[int]:
        level = [-1] * len(self._out)
        level[source] = 0
        waiting = deque([source])
        head, left = self._head, self._left
        while waiting:
            vertex = waiting.popleft()
            if vertex == sink:
                break
            for arc in self._out[vertex]:
                if left[arc] and level[head[arc]] < 0:
                    level[head[arc]] = level[vertex] + 1
                    waiting.append(head[arc])
        return level

    def _blocking_flow(self, source: int, sink: int, level: list[int]) -> int:
        """Saturate the shortest paths; every vertex keeps its place among its arcs."""
        head, left, out = self._head, self._left, self._out
        place = [0] * len(out)
        path: list[int] = []
        pushed, vertex = 0, source
        while True:
            if vertex == sink:
                amount = min(left[arc] for arc in path)
                pushed += amount
                first = len(path)
                for depth, arc in enumerate(path):
                    left[arc] -= amount
                    left[arc ^ 1] += amount
                    if not left[arc] and depth < first:
                        first = depth
                vertex = head[path[first] ^ 1]
                del path[first:]
                continue
            arcs = out[vertex]
            while place[vertex] < len(arcs):
                arc = arcs[place[vertex]]
                if left[arc] and level[head[arc]] == level[vertex] + 1:
                    break
                place[vertex] += 1
            if place[vertex] < len(arcs):
                path.append(arcs[place[vertex]])
                vertex = head[path[-1]]
            elif path:
                vertex = head[path.pop() ^ 1]
                place[vertex] += 1
            else:
                return pushed
