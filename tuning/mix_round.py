"""The last round of kinds that call over and over beside each other: what all of them run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise

import msgspec

from tuccl.groups.concurrent import KindCall, company_calls, nccl_choice
from tuccl.groups.layout import ProcessGroups
from tuccl.runtime import Entry, LookupTable, SimExecutor, Table
from tuccl.runtime.executors.sim import GroupCall
from tuccl.topology import Topology
from tuccl.tuning.family_round import (
    Company,
    Family,
    Numbers,
    Options,
    best_numbers,
    candidate_calls,
    chosen_calls,
    default_numbers,
    family_round,
    times_us,
    with_first,
)


def mix_round(
    topology: Topology,
    job: ProcessGroups,
    families: Mapping[str, Family],
    mix: Sequence[KindCall],
    nccl_version: str,
) -> dict[str, Family]:
    """Return ``families`` with the candidates first that are fastest beside those of other kinds.

    First the calls of ``mix`` choose together (`best_numbers`): each is timed, with those of other
    kinds, while these begin again whenever they end. Then each other entry of a table chooses
    beside them.

    Args:
        topology: The whole machine.
        job: All groups; kinds that have no tables run NCCL's choice.
        families: By kind.
        mix: Calls that kinds make at the same time.
        nccl_version: Of NCCL's choice.
    """
    executor = SimExecutor(topology)
    calls = [_mix_call(topology, job, families, call, nccl_version) for call in mix]
    chosen = _together(executor, calls)
    found = dict(families)
    for call, numbers in zip(calls, chosen, strict=True):
        if call.entries:
            found[call.call.kind] = _reordered(found[call.call.kind], call, numbers)
    defaults = [call.defaults for call in calls]
    for kind, family in found.items():
        lookups = family_round(
            topology,
            family,
            nccl_version,
            _company(calls, chosen, kind),
            _company(calls, defaults, kind),
            partial(_is_of_mix, [call for call in mix if call.kind == kind]),
        )
        found[kind] = _with_lookups(family, lookups)
    return found


@dataclass(frozen=True)
class _MixCall:
    """A call of the mix with what may run it.

    Attributes:
        call: The call.
        entries: Of each orbit's table the entry that answers it; none: it runs NCCL's choice.
        options: Calls of each orbit by each candidate.
        defaults: The numbers of NCCL's choice.
    """

    call: KindCall
    entries: Sequence[Entry]
    options: Options
    defaults: Numbers


def _mix_call(
    topology: Topology,
    job: ProcessGroups,
    families: Mapping[str, Family],
    call: KindCall,
    nccl_version: str,
) -> _MixCall:
    family = families.get(call.kind)
    entries = [
        next((entry for entry in table.entries if _is_of(entry, call)), None)
        for table in (family.tables if family else ())
    ]
    answered = [entry for entry in entries if entry is not None]
    if family is None or len(answered) < len(entries):
        choose = {call.kind: nccl_choice(nccl_version)}
        nccl = company_calls(topology, job, [call], choose, repeats=False)
        return _MixCall(call, (), [nccl], (0,))
    options = candidate_calls(family, answered, call.nbytes, nccl_version)
    return _MixCall(call, answered, options, default_numbers(answered))


def _is_of_mix(mix: Sequence[KindCall], entry: Entry) -> bool:
    return any(_is_of(entry, call) for call in mix)


def _is_of(entry: Entry, call: KindCall) -> bool:
    return entry.collective == call.collective and entry.covers(call.nbytes)


def _together(executor: SimExecutor, calls: Sequence[_MixCall]) -> list[Numbers]:
    """Numbers of the candidates that run each call, its orbits in order."""
    counts = [len(each) for call in calls for each in call.options]
    ends = list(accumulate((len(call.options) for call in calls), initial=0))

    def by_call(numbers: Numbers) -> list[Numbers]:
        return [numbers[first:last] for first, last in pairwise(ends)]

    def each_us(numbers: Numbers) -> list[float]:
        chosen = by_call(numbers)
        return [
            us
            for call, own in zip(calls, chosen, strict=True)
            for us in times_us(
                executor,
                [chosen_calls(call.options, own), *_company(calls, chosen, call.call.kind)],
            )
        ]

    defaults = tuple(number for call in calls for number in call.defaults)
    default_us = each_us(defaults)
    if math.inf in default_us:
        return by_call((0,) * len(defaults))  # no measure

    def ratios(numbers: Numbers) -> list[float]:
        return [us / default for us, default in zip(each_us(numbers), default_us, strict=True)]

    return by_call(best_numbers(counts, defaults, ratios))


def _company(calls: Sequence[_MixCall], chosen: Sequence[Numbers], kind: str) -> Company:
    """The calls of the other kinds, over and over; None for what cannot run."""
    found: list[list[GroupCall] | None] = []
    for call, numbers in zip(calls, chosen, strict=True):
        if call.call.kind != kind:
            mine = chosen_calls(call.options, numbers)
            again = None if mine is None else [each._replace(repeats=True) for each in mine]
            found.append(again)
    return found


def _reordered(family: Family, call: _MixCall, numbers: Numbers) -> Family:
    """The family with the chosen candidates first in the entries that answer a call."""
    lookups = [
        msgspec.structs.replace(
            table.lookup,
            entries=tuple(
                _with_name(entry, mine.candidates[number].name)
                if _is_of(entry, call.call)
                else entry
                for entry in table.entries
            ),
        )
        for table, mine, number in zip(family.tables, call.entries, numbers, strict=True)
    ]
    return _with_lookups(family, lookups)


def _with_name(entry: Entry, name: str) -> Entry:
    """The entry with the candidate of a name first, if it has that: placements differ in some."""
    names = [candidate.name for candidate in entry.candidates]
    return with_first(entry, names.index(name)) if name in names else entry


def _with_lookups(family: Family, lookups: Iterable[LookupTable]) -> Family:
    tables: list[Table] = [
        replace(table, lookup=lookup) for table, lookup in zip(family.tables, lookups, strict=True)
    ]
    return family._replace(tables=tables)
