"""Sizes at which an entry's choice changes within its range."""

from __future__ import annotations

import math

from tuccl.runtime.table.entry import Candidate, Entry

__all__ = ["SizeRange", "size_ranges"]

SizeRange = tuple[int, int | None, Candidate]


def size_ranges(entry: Entry, in_place: bool) -> list[SizeRange]:
    """Return (min_bytes, max_bytes, candidate) over the entry's range, half open and rising.

    The candidate is the first that has the placement and is safe at every size of the span.
    Divisibility is a call's matter and not looked at.
    """
    safe_ends = {c.max_safe_bytes + 1 for c in entry.candidates if c.max_safe_bytes}
    top = math.inf if entry.max_bytes is None else entry.max_bytes
    inner = sorted(end for end in safe_ends if entry.min_bytes < end < top)
    lows = [entry.min_bytes, *inner]
    highs: list[int | None] = [*inner, entry.max_bytes]
    spans: list[SizeRange] = []
    for low, high in zip(lows, highs, strict=True):
        candidate = next(c for c in entry.candidates if c.refusal(low, in_place) is None)
        if spans and spans[-1][2] == candidate:
            spans[-1] = (spans[-1][0], high, candidate)
        else:
            spans.append((low, high, candidate))
    return spans
