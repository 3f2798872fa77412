"""The last round of groups that are not alike: which candidate each runs while all call at once.

A group's table is timed with its own program on all groups of the kind. Where groups that are not
alike run programs of their own, other combinations may end earlier.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from tuccl.errors import Infeasible, InputError
from tuccl.groups.concurrent import group_call, table_run
from tuccl.groups.layout import Groups
from tuccl.runtime import Candidate, Entry, LookupTable, SimExecutor, Table
from tuccl.runtime.executors.sim import GroupCall
from tuccl.topology import Topology
from tuccl.tuning.final_round import tuned_size

_MOST_ROUNDS = 4


def family_round(
    topology: Topology,
    groups: Groups,
    orbits: Sequence[Sequence[int]],
    tables: Sequence[Table],
    company: Sequence[GroupCall],
    nccl_version: str,
) -> list[LookupTable]:
    """Return the tables of the orbits with the candidates first that end soonest together.

    For each collective and tuned size it begins with the tables' first candidates or with all
    defaults, whichever ends sooner in simulation, and changes one orbit's candidate at a time for
    as long as that helps.

    Args:
        topology: The whole machine.
        groups: Of one kind.
        orbits: Numbers of the groups that a table is for.
        tables: One for each orbit.
        company: Calls that begin at the same time.
        nccl_version: Of NCCL's own algorithms.
    """
    executor = SimExecutor(topology)
    changed = [list(table.entries) for table in tables]
    places = [{key: place for place, e in enumerate(each) for key in _keys(e)} for each in changed]
    for key in sorted(set.intersection(*(set(each) for each in places)), key=str):
        entries = [each[place[key]] for each, place in zip(changed, places, strict=True)]
        calls = [
            [_calls(groups, orbit, table, entry, c, nccl_version) for c in entry.candidates]
            for orbit, table, entry in zip(orbits, tables, entries, strict=True)
        ]
        for number, first in enumerate(_soonest(executor, entries, calls, company)):
            changed[number][places[number][key]] = _with_first(entries[number], first)
    return [
        msgspec.structs.replace(table.lookup, entries=tuple(entries))
        for table, entries in zip(tables, changed, strict=True)
    ]


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
    entry: Entry,
    candidate: Candidate,
    nccl_version: str,
) -> list[GroupCall] | None:
    """The calls of an orbit's groups by a candidate, None where it cannot run."""
    nbytes = tuned_size(entry)
    try:
        own = table_run(table, candidate, entry.collective, nbytes, nccl_version)
    except (Infeasible, InputError):
        return None
    return [group_call(own, groups[number], nbytes) for number in orbit]


def _soonest(
    executor: SimExecutor,
    entries: Sequence[Entry],
    calls: Sequence[Sequence[list[GroupCall] | None]],
    company: Sequence[GroupCall],
) -> list[int]:
    """The number of each orbit's candidate."""

    def end_us(chosen: Sequence[int]) -> float:
        of = [own[number] for own, number in zip(calls, chosen, strict=True)]
        mine = [call for each in of if each is not None for call in each]
        if None in of:
            return math.inf
        try:
            return max(executor.time_groups([*mine, *company])[: len(mine)])
        except InputError:  # thread blocks that no GPU holds at once
            return math.inf

    defaults = [entry.candidates.index(entry.default) for entry in entries]
    best_us, best = min((end_us(each), each) for each in ([0] * len(entries), defaults))
    for _ in range(_MOST_ROUNDS):
        before_us = best_us
        for orbit, own in enumerate(calls):
            tries = ([*best[:orbit], number, *best[orbit + 1 :]] for number in range(len(own)))
            best_us, best = min([(best_us, best), *((end_us(each), each) for each in tries)])
        if best_us >= before_us:
            break
    return best


def _with_first(entry: Entry, number: int) -> Entry:
    candidates = [*entry.candidates]
    candidates.insert(0, candidates.pop(number))
    return msgspec.structs.replace(entry, candidates=tuple(candidates))
