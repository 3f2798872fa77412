"""Reachability of ranks over directed links."""

from __future__ import annotations

from collections.abc import Iterable


def adjacency(ranks: int, pairs: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return, as bit masks, the ranks after each rank and the ranks before each rank."""
    successors, predecessors = [0] * ranks, [0] * ranks
    for src, dst in pairs:
        successors[src] |= 1 << dst
        predecessors[dst] |= 1 << src
    return successors, predecessors


def _reached(start: int, successors: list[int]) -> int:
    seen = frontier = 1 << start
    while frontier:
        rank = (frontier & -frontier).bit_length() - 1
        frontier &= frontier - 1
        fresh = successors[rank] & ~seen
        seen |= fresh
        frontier |= fresh
    return seen


def reaches_all(successors: list[int], predecessors: list[int]) -> bool:
    """Return whether every rank reaches every other; the masks are those of `adjacency`.

    >>> reaches_all(*adjacency(3, [(0, 1), (1, 2), (2, 0)]))
    True
    """
    everyone = (1 << len(successors)) - 1
    return _reached(0, successors) == everyone == _reached(0, predecessors)


def unreachable_pair(ranks: int, pairs: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """Return a pair (from, to) of ranks without a path over `pairs`, or None.

    >>> unreachable_pair(2, [(0, 1)])
    (1, 0)
    """
    successors, predecessors = adjacency(ranks, pairs)
    everyone = (1 << ranks) - 1
    missing_ranks = everyone & ~_reached(0, successors)
    if missing_ranks:
        return 0, (missing_ranks & -missing_ranks).bit_length() - 1
    missing_ranks = everyone & ~_reached(0, predecessors)
    return ((missing_ranks & -missing_ranks).bit_length() - 1, 0) if missing_ranks else None
