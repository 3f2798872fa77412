"""Entries of a table that is already there and stay in it beside those that are tuned now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tuccl.errors import InputError
from tuccl.runtime import (
    Entry,
    Executor,
    LookupTable,
    ProgramFile,
    default_candidate,
    load_table,
    program_file,
)
from tuccl.runtime.table import ranges_from_sizes

_Ranges = Mapping[tuple[str, int | None], tuple[int, int]]


def entries_to_keep(
    out: Path,
    machine: str,
    dialect: str,
    baseline: str,
    executor: Executor,
    sizes: Mapping[tuple[str, int | None], Sequence[int]],
) -> tuple[list[Entry], list[ProgramFile]]:
    """Return the entries of the table at ``out`` that stay, and their programs.

    An entry goes, or is cut, where the new ones of its collective and root (None: it has none)
    answer, by the rising ``sizes`` that they are tuned at. Between what stays and what is new
    stands the runtime's default, as nothing was timed there. ``machine`` is the topology's
    signature.

    Raises:
        InputError: the table is another machine's, another dialect's, or timed on something else.
    """
    if not out.exists() or not any(out.iterdir()):
        return [], []
    stored = load_table(out)
    table, place = stored.lookup, str(out)[-80:]
    if (table.signature, table.dialect) != (machine, dialect):
        raise InputError(
            f"{place}: holds the {table.dialect} table of machine {table.signature}, "
            f"not the {dialect} table of {machine}; name another folder"
        )
    tuned = {key: _range(each) for key, each in sizes.items()}
    entries = [part for entry in table.entries for part in _outside(entry, tuned)]
    _check_comparable(entries, table, place, baseline, executor)
    entries += [gap for key in tuned for gap in _gaps(entries, key, tuned[key])]
    programs = [
        program_file(program, dialect, entry.root or 0)
        for entry in entries
        for candidate in entry.candidates
        if (program := stored.program(candidate)) is not None
    ]
    return entries, programs


def _range(sizes: Sequence[int]) -> tuple[int, int]:
    """The bytes [low, high) that the entries of ``sizes`` answer for."""
    ranges = ranges_from_sizes(sizes)
    return ranges[0][0], ranges[-1][1]


def _outside(entry: Entry, tuned: _Ranges) -> Iterator[Entry]:
    """The parts of ``entry`` below and above the sizes that are tuned now."""
    if (new := tuned.get((entry.collective, entry.root))) is None:
        yield entry
        return
    low, high = new
    if entry.min_bytes < low:
        end = low if entry.max_bytes is None else min(entry.max_bytes, low)
        yield msgspec.structs.replace(entry, max_bytes=end)
    if entry.max_bytes is None or entry.max_bytes > high:
        yield msgspec.structs.replace(entry, min_bytes=max(entry.min_bytes, high))


def _check_comparable(
    entries: list[Entry], table: LookupTable, place: str, baseline: str, executor: Executor
) -> None:
    """Refuse to keep entries that were tuned against or timed on something else."""
    if entries and table.baseline not in ("", baseline):
        raise InputError(
            f"{place}: holds other calls tuned against {table.baseline[:40]}, "
            f"not {baseline}; name another folder or that version"
        )
    timed_by = {candidate.on for entry in entries for candidate in entry.candidates}
    other_label = not executor.deterministic and table.tuned_on != executor.label
    if entries and (other_label or timed_by != {executor.name}):
        raise InputError(
            f"{place}: holds other calls {table.tuned_on[:200]}; a table "
            f"never mixes them with times {executor.label[:200]}: name another folder"
        )


def _gaps(
    entries: list[Entry], key: tuple[str, int | None], new: tuple[int, int]
) -> Iterator[Entry]:
    """Entries of the default alone between the new sizes and the old ones on both sides."""
    low, high = new
    kind = [e for e in entries if (e.collective, e.root) == key]
    below = max((e.max_bytes or 0 for e in kind if e.min_bytes < low), default=low)
    above = min((e.min_bytes for e in kind if e.min_bytes >= high), default=high)
    for start, end in ((below, low), (high, above)):
        if start < end:
            default = default_candidate(kind[0].default.on, notes=("no size was tuned here",))
            yield msgspec.structs.replace(
                kind[0], min_bytes=start, max_bytes=end, placement="any", candidates=(default,)
            )
