"""Entries of a table that is already there and stay in it when some collectives are tuned anew."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from tuccl.errors import InputError
from tuccl.runtime import Entry, Executor, ProgramFile, load_table, program_file

__all__ = ["entries_to_keep"]


def entries_to_keep(
    out: Path,
    machine: str,
    dialect: str,
    baseline: str,
    executor: Executor,
    replaced: Container[tuple[str, int | None]],
) -> tuple[list[Entry], list[ProgramFile]]:
    """Return the entries of the table at ``out`` that stay, and their programs.

    Those go whose collective and root (None: it has none) are in ``replaced``. ``machine`` is the
    topology's signature.

    Raises:
        InputError: it is another machine's, another dialect's, or timed on something else.
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
    entries = [e for e in table.entries if (e.collective, e.root) not in replaced]
    if entries and table.baseline not in ("", baseline):
        raise InputError(
            f"{place}: holds other collectives tuned against {table.baseline[:40]}, "
            f"not {baseline}; name another folder or that version"
        )
    timed_by = {candidate.on for entry in entries for candidate in entry.candidates}
    other_label = not executor.deterministic and table.tuned_on != executor.label
    if entries and (other_label or timed_by != {executor.name}):
        raise InputError(
            f"{place}: holds other collectives {table.tuned_on[:200]}; a table "
            f"never mixes them with times {executor.label[:200]}: name another folder"
        )
    programs = [
        program_file(program, dialect, entry.root or 0)
        for entry in entries
        for candidate in entry.candidates
        if (program := stored.program(candidate)) is not None
    ]
    return entries, programs
