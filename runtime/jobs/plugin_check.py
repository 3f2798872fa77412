"""What the built plugin itself decides, beside what the table says: one must be the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import InputError
from tuccl.runtime.jobs.plugins import SchedulerCall, TunerCall, ask_scheduler, ask_tuner
from tuccl.runtime.table.entry import Candidate
from tuccl.runtime.table.lookup import LookupTable
from tuccl.runtime.table.selection import Explanation, explain, select
from tuccl.synth.model.collective import ROOTED

__all__ = ["PluginAnswer", "check_plugin"]

_NEWEST_TUNER = 6
_FAR = 16  # times the first size: where a range has no end
_COUNTED_PER_RANK = frozenset({"allgather", "reduce-scatter", "alltoall"})
_NEVER_ASKED = frozenset({"gather", "scatter"})
_ELEMENT_BYTES = {"1-byte": 1, "2-byte": 2, "8-byte": 8}


@dataclass(frozen=True)
class PluginAnswer:
    """A row of the table's explanation, and the plugin's answer to it.

    ``plugin`` names the candidate that it chose, at every size in ``sizes``; None where no plugin
    is ever asked (``why``). ``agrees`` says whether Python's selection chooses the same at each.
    """

    row: Explanation
    plugin: str | None
    sizes: tuple[int, ...]
    agrees: bool
    why: str = ""


def check_plugin(folder: Path, table: LookupTable) -> tuple[PluginAnswer, ...]:
    """Return each row of `explain` with the built plugin's answers at its least and largest size.

    A table of NCCL's own choices is asked of the tuner (the newest version of its interface, for
    single calls of the table's ranks and hosts), one of programs of the MSCCL scheduler.

    Raises:
        InputError: the plugin refuses the table, or broke a rule of its interface.
        Unavailable: the plugin or its host is not installed.
    """
    rows = explain(table)
    if table.dialect == "nccl":
        return tuple(_tuned(folder, table, rows))
    if table.dialect != "executor":
        why = f"no plugin runs {table.dialect} programs: they are loaded by MSCCL from files"
        return tuple(PluginAnswer(row, None, (), True, why) for row in rows)
    return tuple(_scheduled(folder, table, rows))


def _tuned(folder: Path, table: LookupTable, rows: Sequence[Explanation]) -> list[PluginAnswer]:
    sizes = [_ends(row, 1) for row in rows]
    calls = [
        TunerCall(row.collective, n) for row, each in zip(rows, sizes, strict=True) for n in each
    ]
    answers = iter(ask_tuner(folder, _NEWEST_TUNER, table.ranks, table.hosts, calls))
    asked = []
    for row, each in zip(rows, sizes, strict=True):
        told = [next(answers) for _ in each]
        agrees = [
            _chosen(table, row, n).nccl == answer for n, answer in zip(each, told, strict=True)
        ]
        names = ["default" if answer is None else answer.name for answer in told]
        asked.append(PluginAnswer(row, _one(names), each, all(agrees)))
    return asked


def _scheduled(folder: Path, table: LookupTable, rows: Sequence[Explanation]) -> list[PluginAnswer]:
    sizes = [_ends(row, _grain(table, row)) for row in rows]
    calls = [
        _call(table, row, n)
        for row, each in zip(rows, sizes, strict=True)
        if row.collective not in _NEVER_ASKED
        for n in each
    ]
    answers = iter(ask_scheduler(folder, table.ranks, calls))
    asked = []
    for row, each in zip(rows, sizes, strict=True):
        if row.collective in _NEVER_ASKED:
            asked.append(PluginAnswer(row, None, (), True, "no runtime asks a scheduler for it"))
            continue
        told = [next(answers) for _ in each]
        expected = [_taken(table, row, n) for n in each]
        programs = [None if c.program is None else folder.resolve() / c.program for c in expected]
        names = [
            taken.name if program == path else _named(table, folder, path)
            for taken, program, path in zip(expected, programs, told, strict=True)
        ]
        why = "" if each else "no size of the range divides by the program's chunks"
        asked.append(PluginAnswer(row, _one(names) if each else None, each, programs == told, why))
    return asked


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


def _chosen(table: LookupTable, row: Explanation, nbytes: int) -> Candidate:
    return select(
        table,
        row.collective,
        nbytes,
        in_place=row.placement == "in-place",
        root=row.root or 0,
        element_bytes=_element_bytes(row),
    ).candidate


def _taken(table: LookupTable, row: Explanation, nbytes: int) -> Candidate:
    """Python's choice as the scheduler may take it.

    Of rooted calls, whose ranks may differ in placement, only what both can run (docs/runtimes.md).
    """
    chosen = _chosen(table, row, nbytes)
    if row.collective not in ROOTED or chosen.is_default:
        return chosen
    entry = next(e for e in table.entries if chosen in e.candidates and e.covers(nbytes))
    fit = (
        c
        for c in entry.candidates
        if all(c.call_refusal(nbytes, p, _element_bytes(row)) is None for p in (False, True))
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


def _named(table: LookupTable, folder: Path, path: Path | None) -> str:
    if path is None:
        return "default"
    held = {folder.resolve() / c.program: c.name for c in table.candidates if c.program is not None}
    if path not in held:
        raise InputError(f"{path}: the plugin chose a program that the table does not name")
    return held[path]


def _one(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))
