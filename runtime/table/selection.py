"""The candidate that a call gets, and why: a pure function of the table and the call."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from tuccl.errors import InputError
from tuccl.runtime.table.entry import (
    Candidate,
    Entry,
    datatype_class,
    default_candidate,
    reduction_class,
)
from tuccl.runtime.table.lookup import LookupTable
from tuccl.runtime.table.preference import table_preferring
from tuccl.runtime.table.supported_knobs import exclusion_reason, process_buffers, unsupported_knobs
from tuccl.runtime.table.text import table_text
from tuccl.selection import Selector
from tuccl.synth.model.collective import COLLECTIVES
from tuccl.units import format_bytes


@dataclass(frozen=True)
class Choice:
    """The candidate that a call gets, the entry it is from (None: no entry answers), and why."""

    candidate: Candidate
    entry: Entry | None
    reason: str


@dataclass(frozen=True)
class Explanation:
    """The table's choice for the sizes [min_bytes, max_bytes) of one kind of call.

    ``candidate`` is the name of ``chosen``. ``switches`` says whether the candidate differs from
    the one below; ``gain`` is the default's median time over the candidate's, None where one of
    them has no statistics. ``not_honoured`` says what an unmodified runtime of the table's dialect
    does not do as tuned, empty where it does all; the export may have to leave out more.
    """

    collective: str
    root: int | None
    placement: str
    datatype_class: str
    min_bytes: int
    max_bytes: int | None
    candidate: str
    chosen: Candidate
    reason: str
    gain: float | None
    switches: bool
    not_honoured: str = ""


def select(
    table: LookupTable,
    collective: str,
    nbytes: int,
    *,
    in_place: bool = False,
    root: int = 0,
    element_bytes: int = 4,
    reduction: str = "sum",
    pads: bool = False,
    prefer: str | None = None,
) -> Choice:
    """Return the candidate for a call whose whole array has ``nbytes`` bytes.

    The first candidate of the entry that can run the call wins; the default always can. A
    call that no entry answers gets the default. A runtime that ``pads`` fills an array up until
    its elements divide by the chunks, and runs programs alone; MSCCL's do neither. ``prefer``:
    speed or sms, instead of the table's own order (`table_preferring`).

    Raises:
        InputError: there is no such collective, root, datatype or preference.
    """
    if prefer is not None:
        table = _preferring(table, prefer)
    _check_call(table, collective, nbytes, root, element_bytes)
    kind = reduction_class(collective, reduction)
    choice = _selector(table).choose(
        collective,
        nbytes,
        root=root,
        element_bytes=element_bytes,
        in_place=in_place,
        plain_reduction=kind is not None,
    )
    if kind is None:
        why = f"reduction {reduction[:20]!r} is computed by the runtime's own programs only"
        return Choice(_bare_default(table), None, why)
    if choice.entry is None or choice.place is None:
        why = _unanswered(table, collective, nbytes, root, in_place, element_bytes)
        return Choice(_bare_default(table), None, why)
    entry = table.entries[choice.entry]
    if pads:
        return _first_padded(entry, nbytes, in_place, element_bytes)
    candidate = entry.candidates[choice.place]
    preferred = entry.candidates[: choice.place]
    refusals = [f"{c.name} {c.call_refusal(nbytes, in_place, element_bytes)}" for c in preferred]
    return Choice(candidate, entry, _why(entry, candidate, refusals))


def _first_padded(entry: Entry, nbytes: int, in_place: bool, element_bytes: int) -> Choice:
    refusals = []
    for candidate in entry.candidates:
        if candidate.nccl is not None:
            refusals.append(f"{candidate.name} is NCCL's own, which only a tuner plugin sets")
            continue
        why = candidate.refusal(candidate.padded(nbytes, element_bytes), in_place)
        if why is None:
            break
        refusals.append(f"{candidate.name} {why}")
    return Choice(candidate, entry, _why(entry, candidate, refusals))


_reordered: list[tuple[LookupTable, str, LookupTable]] = []


def _preferring(table: LookupTable, preference: str) -> LookupTable:
    """The table in another order; the last one is kept, as its selector is."""
    if not _reordered or _reordered[0][0] is not table or _reordered[0][1] != preference:
        _reordered[:] = [(table, preference, table_preferring(table, preference))]
    return _reordered[0][2]


_prepared: list[tuple[LookupTable, Selector]] = []


def _selector(table: LookupTable) -> Selector:
    """The native selector of ``table``: what the runtime's plugins choose with.

    The last table's is kept: calls about one table come in a row.
    """
    if not _prepared or _prepared[0][0] is not table:
        _prepared[:] = [(table, Selector(table_text(table), f"table {table.name!r}"))]
    return _prepared[0][1]


def _check_call(
    table: LookupTable, collective: str, nbytes: int, root: int, element_bytes: int
) -> None:
    if collective not in COLLECTIVES:
        names = ", ".join(COLLECTIVES)
        raise InputError(f"collective {collective[:40]!r}: expected one of {names}")
    if not 0 <= root < table.ranks:
        raise InputError(f"root {root}: expected 0 to {table.ranks - 1}")
    if not 0 <= nbytes < 1 << 62:
        raise InputError(f"size {nbytes}: expected 0 or more, below 2**62")
    if element_bytes not in (1, 2, 4, 8):
        raise InputError(f"element of {element_bytes} bytes: expected 1, 2, 4 or 8")


def _bare_default(table: LookupTable) -> Candidate:
    """The default, for calls that no entry answers: nothing was measured for them."""
    default = next((c for c in table.candidates if c.is_default), None)
    return default_candidate(default.on if default is not None else "sim")


def _unanswered(
    table: LookupTable,
    collective: str,
    nbytes: int,
    root: int,
    in_place: bool,
    element_bytes: int,
) -> str:
    """Return why no entry answers a call."""
    entries = [e for e in table.entries if e.collective == collective]
    if not entries:
        return f"the table has no entry for {collective}"
    datatypes = ("any", datatype_class(element_bytes))
    spans = sorted(
        (e.min_bytes, e.max_bytes)
        for e in entries
        if e.root in (None, root) and e.takes(in_place) and e.datatype_class in datatypes
    )
    if not spans:
        return "no entry has this root, datatype and placement"
    low, high = spans[0][0], spans[-1][1]
    top = "any size" if high is None else format_bytes(high)
    return f"{nbytes} bytes lie outside what was tuned, {format_bytes(low)} up to {top}"


def _why(entry: Entry, candidate: Candidate, refusals: list[str]) -> str:
    """Return why ``candidate`` runs: the refusals before it, the candidates that it beats."""
    slower = entry.candidates[entry.candidates.index(candidate) + 1 :]
    where = f"[{format_bytes(entry.min_bytes)}, {_end(entry.max_bytes)})"
    if candidate.is_default and refusals:
        verdict = "so the runtime's default"
    elif candidate.is_default:
        faster = any(_us(c) < _us(candidate) for c in slower)
        verdict = "the default needs fewest SMs" if faster else "no candidate beats the default"
    else:
        verdict = f"first of {1 + len(slower)} for {where}"
    losses = [loss for alternative in slower if (loss := _loss(candidate, alternative))]
    return "; ".join([*refusals, f"{verdict}{_time(candidate)}", *losses])


def _end(max_bytes: int | None) -> str:
    return "any size" if max_bytes is None else format_bytes(max_bytes)


def _us(candidate: Candidate) -> float:
    return math.inf if candidate.stats is None else candidate.stats.recent_us


def _time(candidate: Candidate) -> str:
    if candidate.stats is None:
        return ""
    sms = f" on {candidate.sms} SMs" if candidate.sms else ""
    return f", {candidate.stats.recent_us:.1f} us{sms} {_source(candidate)}"


def _source(candidate: Candidate) -> str:
    return "simulated" if candidate.on == "sim" else f"measured by {candidate.on}"


def _loss(candidate: Candidate, alternative: Candidate) -> str:
    if candidate.stats is None or alternative.stats is None or not candidate.stats.recent_us:
        return ""
    sms = f" on {alternative.sms} SMs" if alternative.sms else ""
    factor = alternative.stats.recent_us / candidate.stats.recent_us
    return f"{alternative.name} takes {factor:.2f}x{sms}"


def explain(table: LookupTable) -> tuple[Explanation, ...]:
    """Return what the table says, by collective, root, datatype, placement and size."""
    rows = [
        row
        for entry in table.entries
        for in_place in (False, True)
        if entry.takes(in_place)
        for row in _explained(entry, in_place)
    ]
    rows.sort(key=lambda r: (*_kind(r), r.min_bytes))
    switched = (
        replace(row, switches=_kind(below) == _kind(row) and below.candidate != row.candidate)
        for below, row in pairwise(rows)
    )
    return tuple(_with_losses(table, [*rows[:1], *switched]))


def _with_losses(table: LookupTable, rows: list[Explanation]) -> Iterator[Explanation]:
    """Say of each row what its dialect does not honour; buffers are one for all programs."""
    refused = {e.collective + e.datatype_class: exclusion_reason(e) for e in table.entries}
    why = [refused[row.collective + row.datatype_class] for row in rows]
    knobs = [row.chosen.knobs for row in rows]
    loaded = [k for k, reason in zip(knobs, why, strict=True) if k is not None and not reason]
    buffers = process_buffers(loaded)
    for row, row_knobs, reason in zip(rows, knobs, why, strict=True):
        if row_knobs is not None:
            unsupported = (
                (reason,) if reason else unsupported_knobs(row_knobs, table.dialect, buffers)
            )
            row = replace(row, not_honoured="; ".join(unsupported))
        yield row


def _kind(row: Explanation) -> tuple[str, int, str, str]:
    return row.collective, row.root or 0, row.datatype_class, row.placement


def _explained(entry: Entry, in_place: bool) -> list[Explanation]:
    """One row, or more where a candidate is safe only up to a size within the entry."""
    return [
        Explanation(
            collective=entry.collective,
            root=entry.root,
            placement="in-place" if in_place else "out-of-place",
            datatype_class=entry.datatype_class,
            min_bytes=low,
            max_bytes=high,
            candidate=candidate.name,
            chosen=candidate,
            reason=_why(entry, candidate, _refusals(entry, candidate, low, in_place)),
            gain=_gain(entry, candidate),
            switches=False,
        )
        for low, high, candidate in entry.choices(in_place)
    ]


def _refusals(entry: Entry, candidate: Candidate, nbytes: int, in_place: bool) -> list[str]:
    preferred = entry.candidates[: entry.candidates.index(candidate)]
    return [f"{c.name} {c.refusal(nbytes, in_place)}" for c in preferred]


def _gain(entry: Entry, candidate: Candidate) -> float | None:
    default = entry.default
    if default.stats is None or candidate.stats is None or not candidate.stats.median_us:
        return None
    return default.stats.median_us / candidate.stats.median_us
