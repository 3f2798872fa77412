"""A check of the built plugin: its own decisions must be what the table says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import InputError
from tuccl.runtime.jobs.plugins import SchedulerCall, TunerCall, ask_scheduler, ask_tuner
from tuccl.runtime.table.entry import Candidate
from tuccl.runtime.table.lookup import LookupTable
from tuccl.runtime.table.selection import Explanation, explain, select
from tuccl.runtime.table.supported_knobs import hangs_between_hosts
from tuccl.synth.model.collective import ROOTED

_NEWEST_TUNER = 6
_FAR = 16  # times the first size: where a range has no end
_COUNTED_PER_RANK = frozenset({"allgather", "reduce-scatter", "alltoall"})
_NEVER_ASKED = frozenset({"gather", "scatter"})
_ELEMENT_BYTES = {"1-byte": 1, "2-byte": 2, "8-byte": 8}


@dataclass(frozen=True)
class PluginAnswer:
    """A row of the table's explanation, and the plugin's answer to it.

    ``plugin`` names the candidate that it chose, at every size in ``sizes``; None where no plugin
    is ever called (``why``). ``agrees`` says whether Python's selection chooses the same at each.
    """

    row: Explanation
    plugin: str | None
    sizes: tuple[int, ...]
    agrees: bool
    why: str = ""


def check_plugin(folder: Path, table: LookupTable) -> tuple[PluginAnswer, ...]:
    """Return each row of `explain` with the built plugin's answers at its least and largest size.

    A table of NCCL's own choices is put to the tuner (the newest version of its interface, for
    single calls of the table's ranks and hosts), one of programs to the MSCCL scheduler.

    Raises:
        InputError: the plugin refuses the table, or broke a rule of its interface.
        Unavailable: the plugin or its host is not installed.
    """
    rows = explain(table)
    if table.dialect not in ("nccl", "executor"):
        why = f"no plugin runs {table.dialect} programs: they are loaded by MSCCL from files"
        return tuple(PluginAnswer(row, None, (), True, why) for row in rows)
    tuner = table.dialect == "nccl"
    sizes = [
        _ends(row, 1 if tuner else _grain(table, row)) if _has_plugin(table, row) else ()
        for row in rows
    ]
    calls = [(row, n) for row, ends in zip(rows, sizes, strict=True) for n in ends]
    answers = iter((_tuner_answers if tuner else _scheduler_answers)(folder, table, calls))
    checked = []
    for row, ends in zip(rows, sizes, strict=True):
        row_answers = [next(answers) for _ in ends]
        name = ", ".join(dict.fromkeys(name for name, _ in row_answers)) if row_answers else None
        why = "" if row_answers else "no size of the range divides by the program's chunks"
        if not _has_plugin(table, row):
            why = "no runtime calls a scheduler for it"
        agrees = all(same for _, same in row_answers)
        checked.append(PluginAnswer(row, name, ends, agrees, why))
    return tuple(checked)


def _has_plugin(table: LookupTable, row: Explanation) -> bool:
    return table.dialect == "nccl" or row.collective not in _NEVER_ASKED


def _tuner_answers(
    folder: Path, table: LookupTable, calls: Sequence[tuple[Explanation, int]]
) -> list[tuple[str, bool]]:
    """Return the tuner's candidate for each call, and whether Python chooses the same."""
    tuner_calls = [TunerCall(row.collective, nbytes) for row, nbytes in calls]
    choices = ask_tuner(folder, _NEWEST_TUNER, table.ranks, table.hosts, tuner_calls)
    return [
        ("default" if knobs is None else knobs.name, _selection(table, row, nbytes).nccl == knobs)
        for (row, nbytes), knobs in zip(calls, choices, strict=True)
    ]


def _scheduler_answers(
    folder: Path, table: LookupTable, calls: Sequence[tuple[Explanation, int]]
) -> list[tuple[str, bool]]:
    """Return the scheduler's candidate for each call, and whether Python chooses the same."""
    paths = ask_scheduler(folder, table.ranks, [_call(table, row, n) for row, n in calls])
    answers = []
    for (row, nbytes), path in zip(calls, paths, strict=True):
        expected = _scheduler_selection(table, row, nbytes)
        program = None if expected.program is None else folder.resolve() / expected.program
        name = expected.name if program == path else _candidate_name(table, folder, path)
        answers.append((name, program == path))
    return answers


def _ends(row: Explanation, grain: int) -> tuple[int, ...]:
    """The smallest and the largest size of a row that are multiples of ``grain``."""
    low = max(-(-row.min_bytes // grain), 1) * grain
    top = row.max_bytes if row.max_bytes is not None else _FAR * max(low, 1)
    high = (top - 1) // grain * grain
    return tuple(dict.fromkeys((low, high))) if high >= low else ()


def _grain(table: LookupTable, row: Explanation) -> int:
    """Bytes in which whole elements and chunks of every program and rank divide."""
    chunks = max(row.chosen.nchunks, 1)
    shares = table.ranks if row.collective in _COUNTED_PER_RANK and chunks == 1 else 1
    return _element_bytes(row) * chunks * shares


def _element_bytes(row: Explanation) -> int:
    return _ELEMENT_BYTES.get(row.datatype_class, 4)


def _selection(table: LookupTable, row: Explanation, nbytes: int) -> Candidate:
    return select(
        table,
        row.collective,
        nbytes,
        in_place=row.placement == "in-place",
        root=row.root or 0,
        element_bytes=_element_bytes(row),
    ).candidate


def _scheduler_selection(table: LookupTable, row: Explanation, nbytes: int) -> Candidate:
    """Python's choice as the scheduler may take it.

    Of rooted calls, whose ranks may differ in placement, only what both can run, and between hosts
    nothing under Simple (docs/reference/plugins.md).
    """
    candidate = _selection(table, row, nbytes)
    if row.collective not in ROOTED or candidate.is_default:
        return candidate
    entry = next(e for e in table.entries if candidate in e.candidates and e.covers(nbytes))
    fit = (
        c
        for c in entry.candidates
        if not (c.knobs and hangs_between_hosts(row.collective, c.knobs.protocol, table.hosts))
        and all(c.call_refusal(nbytes, p, _element_bytes(row)) is None for p in (False, True))
    )
    return next(fit, entry.default)


def _call(table: LookupTable, row: Explanation, nbytes: int) -> SchedulerCall:
    elements = nbytes // _element_bytes(row)
    per_rank = row.collective in _COUNTED_PER_RANK
    return SchedulerCall(
        row.collective,
        elements // table.ranks if per_rank else elements,
        element_bytes=_element_bytes(row),
        root=row.root or 0,
        in_place=row.placement == "in-place",
    )


def _candidate_name(table: LookupTable, folder: Path, path: Path | None) -> str:
    if path is None:
        return "default"
    held = {folder.resolve() / c.program: c.name for c in table.candidates if c.program is not None}
    if path not in held:
        raise InputError(f"{path}: the plugin chose a program that the table does not name")
    return held[path]
