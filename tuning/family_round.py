"""The last round of a kind's tables: which candidate each group runs while all call at once.

A group's table is timed with its own program on all groups of the kind. Where groups that are not
alike run programs of their own, other combinations may end earlier. Beside calls of other kinds
more channels take more of the links that they share, and all calls together take longer: what a
kind wins no other may lose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import msgspec

from tuccl.errors import Infeasible, InputError
from tuccl.groups.concurrent import group_call, set_times_us, table_run
from tuccl.groups.layout import Groups
from tuccl.runtime import Candidate, Entry, LookupTable, SimExecutor, Table
from tuccl.runtime.executors.sim import GroupCall
from tuccl.topology import Topology
from tuccl.tuning.final_round import tuned_size

_MOST_ROUNDS = 4
_MOST_LOST = 1.01  # times as long as by the defaults

Numbers = tuple[int, ...]
"""Of a candidate for each set of groups that are alike."""

Options = Sequence[Sequence[list[GroupCall] | None]]
"""For each set of alike groups and each candidate their calls, None where it cannot run."""

Company = Sequence[Sequence[GroupCall] | None]
"""Calls of other kinds at the same time, None for what cannot run."""


class Family(NamedTuple):
    """The groups of a kind with their tables, one for each orbit."""

    groups: Groups
    orbits: Sequence[Sequence[int]]
    tables: Sequence[Table]


def family_round(
    topology: Topology,
    family: Family,
    nccl_version: str,
    company: Company = (),
    default_company: Company = (),
    stays: Callable[[Entry], bool] = lambda _: False,
) -> list[LookupTable]:
    """Return the tables of the orbits with the candidates first that are fastest together.

    For each collective and tuned size that is the best of `best_numbers`, by the times of the
    family's call and of each call of the company.

    Args:
        topology: The whole machine.
        family: Of one kind.
        nccl_version: Of NCCL's own algorithms.
        company: Calls of other kinds that begin at the same time (`company_calls`).
        default_company: The same by NCCL's choice.
        stays: Whether an entry keeps its order.
    """
    executor = SimExecutor(topology)
    changed = [list(table.entries) for table in family.tables]
    places = [{key: place for place, e in enumerate(each) for key in _keys(e)} for each in changed]
    for key in sorted(set.intersection(*(set(each) for each in places)), key=str):
        entries = [each[place[key]] for each, place in zip(changed, places, strict=True)]
        if stays(entries[0]):
            continue
        options = candidate_calls(family, entries, tuned_size(entries[0]), nccl_version)
        defaults = default_numbers(entries)
        default_us = times_us(executor, [chosen_calls(options, defaults), *default_company])
        if math.inf in default_us:
            continue  # no measure

        def ratios(
            chosen: Numbers, options: Options = options, default_us: list[float] = default_us
        ) -> list[float]:
            us = times_us(executor, [chosen_calls(options, chosen), *company])
            return [each / default for each, default in zip(us, default_us, strict=True)]

        best = best_numbers([len(each) for each in options], defaults, ratios)
        for number, first in enumerate(best):
            changed[number][places[number][key]] = with_first(entries[number], first)
    return [
        msgspec.structs.replace(table.lookup, entries=tuple(entries))
        for table, entries in zip(family.tables, changed, strict=True)
    ]


def best_numbers(
    counts: Sequence[int], defaults: Numbers, ratios: Callable[[Numbers], Sequence[float]]
) -> Numbers:
    """Return which candidates run, by the product of all calls' times.

    No call may take over 1 % longer than with all defaults; where that cannot be, the call that
    loses most loses least. It begins with the first candidates or with the defaults, whichever is
    better, and changes one at a time for as long as that helps.

    Args:
        counts: Candidates of each set of groups that are alike.
        defaults: The numbers of the default ones.
        ratios: Gives the times of all calls over those with the defaults, infinite for what cannot
            run.
    """

    @cache
    def cost(chosen: Numbers) -> tuple[float, float]:
        found = ratios(chosen)
        return max(*found, _MOST_LOST), math.prod(found)

    best = min((0,) * len(counts), defaults, key=cost)
    for _ in range(_MOST_ROUNDS):
        before = best
        for place, count in enumerate(counts):
            tries = ((*best[:place], number, *best[place + 1 :]) for number in range(count))
            best = min([best, *tries], key=cost)
        if best == before:
            break
    return best


def candidate_calls(
    family: Family, entries: Sequence[Entry], nbytes: int, nccl_version: str
) -> Options:
    """Return the calls of each orbit by each candidate of its entry."""
    return [
        [
            _calls(family.groups, orbit, table, entry.collective, candidate, nbytes, nccl_version)
            for candidate in entry.candidates
        ]
        for orbit, table, entry in zip(family.orbits, family.tables, entries, strict=True)
    ]


def chosen_calls(options: Options, chosen: Numbers) -> list[GroupCall] | None:
    """Return the calls of all orbits by the candidates ``chosen``, None where one cannot run."""
    of = [each[number] for each, number in zip(options, chosen, strict=True)]
    return None if None in of else [call for each in of for call in each or ()]


def default_numbers(entries: Sequence[Entry]) -> Numbers:
    """Return the number of each entry's default."""
    return tuple(entry.candidates.index(entry.default) for entry in entries)


def times_us(executor: SimExecutor, sets: Company) -> list[float]:
    """Return the simulated us of the slowest call of each of ``sets``, which run at once.

    Infinite where one is None, or where GPUs cannot hold the thread blocks of all.
    """
    never = [math.inf] * len(sets)
    known = [each for each in sets if each is not None]
    if len(known) < len(sets):
        return never
    try:
        return set_times_us(executor, known)
    except (Infeasible, InputError):
        return never


def with_first(entry: Entry, number: int) -> Entry:
    """Return an entry with another candidate first."""
    candidates = [*entry.candidates]
    candidates.insert(0, candidates.pop(number))
    return msgspec.structs.replace(entry, candidates=tuple(candidates))


def _keys(entry: Entry) -> Iterator[tuple[str, int | None, int, bool]]:
    """Yield the calls of the tuned size that an entry answers; ranges beside it answer others."""
    size = tuned_size(entry)
    if entry.covers(size):
        for in_place in (False, True):
            if entry.takes(in_place):
                yield entry.collective, entry.root, size, in_place


def _calls(
    groups: Groups,
    orbit: Sequence[int],
    table: Table,
    collective: str,
    candidate: Candidate,
    nbytes: int,
    nccl_version: str,
) -> list[GroupCall] | None:
    """The calls of an orbit's groups by a candidate, None where it cannot run."""
    try:
        own = table_run(table, candidate, collective, nbytes, nccl_version)
    except (Infeasible, InputError):
        return None
    return [group_call(own, groups[number], nbytes) for number in orbit]
