"""A job's tables for NCCL: for tuners that know no more of a group than its shape, for Megatron."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tuccl.errors import InputError
from tuccl.groups.job import JobEntry, JobTables
from tuccl.groups.layout import MEGATRON_KINDS
from tuccl.runtime import Table
from tuccl.runtime.export.files import Export, export_csv, export_text
from tuccl.runtime.export.nccl import CSV_FILES, csv_lines
from tuccl.runtime.table.preference import table_within

MEGATRON, MEGATRON_FILE = "megatron", "nccl_communicators.yaml"
# Where Megatron's name of a kind is not the layout's.
_MEGATRON_NAMES = {"dp-cp": "dp_cp", "etp": "ep_tp", "edp": "ep_dp"}

_Shape = tuple[int, int]


def export_job(
    job: JobTables,
    dialect: str,
    path: str | os.PathLike[str],
    *,
    prefer: str | None = None,
    shares: Mapping[str, int] | None = None,
) -> Export:
    """Write a job's choices of NCCL's own: a CSV file by shape, or Megatron's YAML by kind.

    A shape gets lines only if all of the job's groups that have it choose the same: the tuner
    cannot say which group it is in. Notes name the shapes that are left to NCCL.

    Args:
        job: Its tables are tuned with dialect ``nccl``.
        dialect: ``nccl`` (NVIDIA's example tuner) or ``ncclx``: by the hosts and ranks of groups;
            ``megatron``: the SMs of ``shares``.
        path: The folder.
        prefer: speed or sms, instead of the tables' own order.
        shares: By kind the SMs that its choices may occupy; others as many as they want.

    Raises:
        InputError: another dialect or kind, a table of programs, or ``path`` holds something else.
    """
    if dialect not in (*CSV_FILES, MEGATRON):
        raise InputError(
            f"dialect {dialect[:20]!r}: a job's tables are exported by shape as "
            f"{' or '.join(CSV_FILES)}, or as {MEGATRON}; export one of {job.folder}/tables for "
            "other runtimes"
        )
    tables = _tables(job, prefer, shares or {})
    if dialect == MEGATRON:
        exported = _export_megatron(job, path, shares or {})
    else:
        exported = _export_shapes(job, tables, dialect, path)
    return replace(exported, notes=(*exported.notes, *_share_notes(tables, shares or {})))


def _tables(job: JobTables, prefer: str | None, shares: Mapping[str, int]) -> dict[JobEntry, Table]:
    """The tables by entry, candidates in the order that is wanted."""
    for kind, sms in shares.items():
        job.groups.kind(kind)
        if sms < 1:
            raise InputError(f"share of {kind}: {sms} SMs; expected 1 or more")
    tables = {}
    for entry in job.entries:
        table = job.table(entry).preferring(prefer)
        if table.lookup.dialect != "nccl":
            raise InputError(
                f"{job.place(entry)}: has programs; a job is exported if it was tuned with "
                "--dialect nccl"
            )
        if entry.kind in shares:
            table = replace(table, lookup=table_within(table.lookup, shares[entry.kind]))
        tables[entry] = table
    return tables


def _export_megatron(
    job: JobTables, path: str | os.PathLike[str], shares: Mapping[str, int]
) -> Export:
    """Write what Megatron-LM reads with --nccl-communicator-config-path.

    Notes:
        megatron/core/parallel_state.py, ``get_nccl_options``: by the name of a kind of groups, the
        fields of ncclConfig_t. A limit holds for all calls of a communicator.
    """
    if not shares:
        raise InputError(f"dialect {MEGATRON}: expected the SMs of each kind; add --share")
    lines = [f"# The most channels of each kind of {job.folder.name}"]
    for kind, sms in shares.items():
        if kind not in MEGATRON_KINDS:
            raise InputError(
                f"kind {kind}: none of Megatron's; expected {', '.join(MEGATRON_KINDS)}"
            )
        lines += [f"{_MEGATRON_NAMES.get(kind, kind)}:", f"  max_ctas: {sms}"]
    return export_text(MEGATRON_FILE, "".join(f"{each}\n" for each in lines), path, (), "")


def _share_notes(tables: Mapping[JobEntry, Table], shares: Mapping[str, int]) -> Iterator[str]:
    """Yield what the shares cost."""
    for kind, sms in shares.items():
        entries = [e for of, table in tables.items() if of.kind == kind for e in table.entries]
        factors = [
            first.stats.median_us / min(c.stats.median_us for c in each.candidates if c.stats)
            for each in entries
            for first in each.candidates[:1]
            if first.nccl is not None and first.stats is not None
        ]
        if not entries:
            yield f"{kind}: has no table; what {sms} SMs cost is not known"
            continue
        most = (
            f"up to {max(factors):.2f} times as long as the fastest"
            if factors
            else "an unknown time"
        )
        left = len(entries) - len(factors)
        yield (
            f"{kind}: choices of at most {sms} SMs take {most} (simulated); {left} of "
            f"{len(entries)} ranges have none and are left to NCCL, whose time with so few is not "
            "known"
        )


def _export_shapes(
    job: JobTables,
    tables: Mapping[JobEntry, Table],
    dialect: str,
    path: str | os.PathLike[str],
) -> Export:
    shapes: dict[_Shape, dict[str, list[JobEntry | None]]] = {}
    for kind, group, entry in _groups(job):
        hosts = len({job.topology.host_of(rank) for rank in group})
        shapes.setdefault((hosts, len(group)), {}).setdefault(kind, []).append(entry)
    written, notes = [], []
    for (hosts, ranks), kinds in sorted(shapes.items()):
        entries = {entry for found in kinds.values() for entry in found}
        chosen = [tables[entry] for entry in entries if entry is not None]
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
            written.append(chosen[0])
    exported = export_csv(written, dialect, path)
    return replace(exported, notes=(*exported.notes, *notes))


def _groups(job: JobTables) -> Iterator[tuple[str, tuple[int, ...], JobEntry | None]]:
    """Yield the kind, the ranks and the entry, if any, of each group."""
    for kind in job.groups.kinds:
        own = [entry for entry in job.entries if entry.kind == kind.name]
        for number, group in enumerate(kind.groups):
            yield kind.name, group, next((e for e in own if number in e.groups), None)
