"""The order of an entry's candidates: by time, or by the SMs that they leave to computation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from tuccl.errors import InputError
from tuccl.runtime.table.entry import DEFAULT_NAME, Candidate, Entry
from tuccl.runtime.table.lookup import LookupTable

PREFERENCES = ("speed", "sms")
_MOST_SLOWER = 1.2  # than the fastest candidate
_AS_FAST = 1.001
_T = TypeVar("_T")


def table_preferring(table: LookupTable, preference: str) -> LookupTable:
    """Return ``table`` with the candidates of every entry in another order.

    ``speed``: the fastest first; those within 0.1 % of it stay as they stand. ``sms``: the one with
    fewest SMs first, among those that take at most 20 % longer than the fastest and no longer than
    the runtime's default; the default itself is one of them. The others follow, the fastest first.

    Raises:
        InputError: there is no such preference.
    """
    if preference not in PREFERENCES:
        names = " or ".join(PREFERENCES)
        raise InputError(f"preference {preference[:20]!r}: expected {names}")
    entries = tuple(entry_preferring(entry, preference) for entry in table.entries)
    return msgspec.structs.replace(table, entries=entries)


def table_within(table: LookupTable, sms: int) -> LookupTable:
    """Return ``table`` with those candidates first that occupy at most ``sms`` SMs, as they stand.

    The runtime's default follows: the runtime may be set to take no more.
    """

    def place(candidate: Candidate) -> int:
        return 0 if 0 < candidate.sms <= sms else 1 + (candidate.name != DEFAULT_NAME)

    entries = tuple(
        msgspec.structs.replace(entry, candidates=tuple(sorted(entry.candidates, key=place)))
        for entry in table.entries
    )
    return msgspec.structs.replace(table, entries=entries)


def entry_preferring(entry: Entry, preference: str) -> Entry:
    """Return ``entry`` with its candidates in the order of `table_preferring`."""
    by_sms = preference == "sms"
    factor = _MOST_SLOWER if by_sms else _AS_FAST
    fastest_us = min(_us(candidate) for candidate in entry.candidates)
    limit_us = min(factor * fastest_us, _us(entry.default))

    def order(candidate: Candidate) -> tuple[bool, float, float]:
        us = _us(candidate)
        if us > limit_us:
            return True, 0.0, us
        return (False, candidate.sms or math.inf, us) if by_sms else (False, 0.0, 0.0)

    return msgspec.structs.replace(entry, candidates=tuple(sorted(entry.candidates, key=order)))


def pareto_set(items: Sequence[_T], costs: Callable[[_T], tuple[float, float]]) -> list[_T]:
    """Return the items that no other beats in one of two costs without losing in the other.

    They come by their first cost, rising; of equal ones the first stays.

    >>> pareto_set([(3, 1), (1, 9), (2, 9), (2, 4)], lambda item: item)
    [(1, 9), (2, 4), (3, 1)]
    """
    kept: list[_T] = []
    for item in sorted(items, key=costs):
        if not kept or costs(item)[1] < costs(kept[-1])[1]:
            kept.append(item)
    return kept


def _us(candidate: Candidate) -> float:
    return math.inf if candidate.stats is None else candidate.stats.recent_us
