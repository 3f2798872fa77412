"""Reachability of ranks over directed links."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["adjacency", "reaches_all", "unreachable_pair"]


def adjacency(ranks: int, pairs: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return, as bit masks, the ranks after each rank and the ranks before each rank."""
    after, before = [0] * ranks, [0] * ranks
    for src, dst in pairs:
        after[src] |= 1 << dst
        before[dst] |= 1 << src
    return after, before


def _reached(start: int, after: list[int]) -> int:
    seen = frontier = 1 << start
    while frontier:
        rank = (frontier & -frontier).bit_length() - 1
        frontier &= frontier - 1
        fresh = after[rank] & ~seen
        seen |= fresh
        frontier |= fresh
    return seen


def reaches_all(after: list[int], before: list[int]) -> bool:
    """Return whether every rank reaches every other; the masks are those of `adjacency`.

    >>> reaches_all(*adjacency(3, [(0, 1), (1, 2), (2, 0)]))
    True
    """
    everyone = (1 << len(after)) - 1
    return _reached(0, after) == everyone == _reached(0, before)


def unreachable_pair(ranks: int, pairs: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """Return a pair (from, to) of ranks without a path over `pairs`, or None.

    >>> unreachable_pair(2, [(0, 1)])
    (1, 0)
    """
    after, before = adjacency(ranks, pairs)
    everyone = (1 << ranks) - 1
    lost = everyone & ~_reached(0, after)
    if lost:
        return 0, (lost & -lost).bit_length() - 1
    lost = everyone & ~_reached(0, before)
    return ((lost & -lost).bit_length() - 1, 0) if lost else None
