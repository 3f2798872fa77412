"""A job's tables for NCCL's tuners that know no more of a group than its shape."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from tuccl.errors import InputError
from tuccl.groups.job import JobEntry, JobTables
from tuccl.runtime.export.files import Export, export_csv
from tuccl.runtime.export.nccl import CSV_FILES, csv_lines

_Shape = tuple[int, int]


def export_job(job: JobTables, dialect: str, path: str | os.PathLike[str]) -> Export:
    """Write a job's choices of NCCL's own as a CSV file, by the hosts and ranks of groups.

    A shape gets lines only if all of the job's groups that have it choose the same: the tuner
    cannot say which group it is in. Notes name the shapes that are left to NCCL.

    Args:
        job: Its tables are tuned with dialect ``nccl``.
        dialect: ``nccl`` (NVIDIA's example tuner) or ``ncclx``.
        path: The folder.

    Raises:
        InputError: another dialect, a table of programs, or ``path`` holds something else.
    """
    if dialect not in CSV_FILES:
        raise InputError(
            f"dialect {dialect[:20]!r}: a job's tables are exported by shape as "
            f"{' or '.join(CSV_FILES)}; export one of {job.folder}/tables for other runtimes"
        )
    shapes: dict[_Shape, dict[str, list[JobEntry | None]]] = {}
    for kind, group, entry in _groups(job):
        hosts = len({job.topology.host_of(rank) for rank in group})
        shapes.setdefault((hosts, len(group)), {}).setdefault(kind, []).append(entry)
    tables, notes = [], []
    for (hosts, ranks), kinds in sorted(shapes.items()):
        entries = {entry for found in kinds.values() for entry in found}
        chosen = [job.table(entry) for entry in entries if entry is not None]
        if not chosen:
            continue
        choices = [csv_lines(table.lookup) for table in chosen]
        where = f"groups of {ranks} ranks on {hosts} hosts ({', '.join(kinds)})"
        if None in entries:
            notes.append(f"{where}: left to NCCL, since some of them have no table")
        elif any(each != choices[0] for each in choices):
            notes.append(f"{where}: left to NCCL, since their tables differ")
        elif dialect == "ncclx" and ranks % hosts:
            notes.append(f"{where}: left to NCCL, whose tuner wants as many ranks on each host")
        else:
            tables.append(chosen[0])
    exported = export_csv(tables, dialect, path)
    return replace(exported, notes=(*exported.notes, *notes))


def _groups(job: JobTables) -> Iterator[tuple[str, tuple[int, ...], JobEntry | None]]:
    """Yield the kind, the ranks and the entry, if any, of each group."""
    for kind in job.groups.kinds:
        own = [entry for entry in job.entries if entry.kind == kind.name]
        for number, group in enumerate(kind.groups):
            yield kind.name, group, next((e for e in own if number in e.groups), None)
