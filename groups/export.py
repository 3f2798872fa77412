"""A job's tables for runtimes that know no more of a group than its shape, and for Megatron."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tuccl.errors import InputError
from tuccl.groups.job import JobEntry, JobTables
from tuccl.groups.layout import MEGATRON_KINDS
from tuccl.runtime import Table
from tuccl.runtime.executors.plan_sim import ranks_per_node
from tuccl.runtime.export.files import Export, export_csv, export_plans, export_text
from tuccl.runtime.export.mscclpp import sources_of_table
from tuccl.runtime.export.nccl import CSV_FILES, csv_lines
from tuccl.runtime.export.plan_files import PlanTable
from tuccl.runtime.table.preference import table_within

MSCCLPP = "mscclpp"
MEGATRON, MEGATRON_FILE = "megatron", "nccl_communicators.yaml"
# Where Megatron's name of a kind is not the layout's.
_MEGATRON_NAMES = {"dp-cp": "dp_cp", "etp": "ep_tp", "edp": "ep_dp"}

_UNEVEN = "whose plans need as many ranks on each host, numbered host by host"

_Shape = tuple[int, int]


class _Group(NamedTuple):
    """A group of a job, with its table's entry if it has one."""

    kind: str
    ranks: tuple[int, ...]
    entry: JobEntry | None


def export_job(
    job: JobTables,
    dialect: str,
    path: str | os.PathLike[str],
    *,
    prefer: str | None = None,
    shares: Mapping[str, int] | None = None,
) -> Export:
    """Write a job's choices of NCCL's own as a CSV file or Megatron's YAML, or plans of MSCCL++.

    A shape gets an answer only if all of the job's groups that have it choose the same: the runtime
    cannot say which group it is in. Notes name the shapes that are left to the runtime.

    Args:
        job: Its tables are tuned with dialect ``nccl``, for ``mscclpp`` with any other.
        dialect: ``nccl`` (NVIDIA's example tuner) or ``ncclx``: by the hosts and ranks of groups;
            ``megatron``: the SMs of ``shares``, by kind; ``mscclpp``: plans of all tables.
        path: The folder.
        prefer: speed or sms, instead of the tables' own order.
        shares: By kind the SMs that its choices may occupy; others as many as they want.

    Raises:
        InputError: another dialect or kind, tables of another runtime, or ``path`` holds something
            else.
        Infeasible: MSCCL++ cannot run all plans of a table.
    """
    if dialect not in (*CSV_FILES, MEGATRON, MSCCLPP):
        raise InputError(
            f"dialect {dialect[:20]!r}: a job's tables are exported by shape as "
            f"{', '.join(CSV_FILES)} or {MSCCLPP}, or as {MEGATRON}; export one of "
            f"{job.folder}/tables for other runtimes"
        )
    if dialect == MSCCLPP and shares:
        raise InputError(f"dialect {MSCCLPP}: plans have no --share; leave it")
    tables = _tables(job, dialect, prefer, shares or {})
    if dialect == MSCCLPP:
        exported = _export_plans(job, tables, path)
    elif dialect == MEGATRON:
        exported = _export_megatron(job, path, shares or {})
    else:
        exported = _export_shapes(job, tables, dialect, path)
    return replace(exported, notes=(*exported.notes, *_share_notes(tables, shares or {})))


def _tables(
    job: JobTables, dialect: str, prefer: str | None, shares: Mapping[str, int]
) -> dict[JobEntry, Table]:
    """The tables by entry, candidates in the order that is wanted."""
    for kind, sms in shares.items():
        job.groups.kind(kind)
        if sms < 1:
            raise InputError(f"share of {kind}: {sms} SMs; expected 1 or more")
    tables = {}
    for entry in job.entries:
        table = job.table(entry).preferring(prefer)
        if (table.lookup.dialect == "nccl") == (dialect == MSCCLPP):
            raise InputError(
                f"{job.place(entry)}: of dialect {table.lookup.dialect}; to export {dialect} "
                f"tune the job with --dialect {MSCCLPP if dialect == MSCCLPP else 'nccl'}"
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
    shapes: dict[_Shape, list[_Group]] = {}
    for group in _groups(job):
        hosts = len({job.topology.host_of(rank) for rank in group.ranks})
        shapes.setdefault((len(group.ranks), hosts), []).append(group)

    def refusal(shape: _Shape, _: Sequence[_Group]) -> str | None:
        uneven = dialect == "ncclx" and shape[0] % shape[1]
        return "whose tuner wants as many ranks on each host" if uneven else None

    shared, notes = _by_shape(
        shapes,
        lambda entry: csv_lines(tables[entry].lookup),
        refusal,
        "groups of {} ranks on {} hosts ({}): left to NCCL, {}",
    )
    exported = export_csv([tables[entry] for entry in shared], dialect, path)
    return replace(exported, notes=(*exported.notes, *notes))


def _export_plans(
    job: JobTables, tables: Mapping[JobEntry, Table], path: str | os.PathLike[str]
) -> Export:
    """Write the plans of all tables; communicators get them by members, or by a shape that agrees.

    Notes:
        Requests of MSCCL++ have a shape as a rank sees it: the size, and the ranks on its host.
    """
    shapes: dict[_Shape, list[_Group]] = {}
    for group in _groups(job):
        for count in set(Counter(map(job.topology.host_of, group.ranks)).values()):
            shapes.setdefault((len(group.ranks), count), []).append(group)

    def refusal(_: _Shape, groups: Sequence[_Group]) -> str | None:
        if any(ranks_per_node(job.topology, group.ranks) is None for group in groups):
            return _UNEVEN
        places = {(rank, place) for each in groups for place, rank in enumerate(each.ranks)}
        if len(places) > len({rank for rank, _ in places}):
            return "since a rank has other places in some of them"
        return None

    shared, notes = _by_shape(
        shapes,
        lambda entry: entry.checksum,
        refusal,
        "groups of {} ranks, {} on a host ({}), without members: left to MSCCL++, {}",
    )
    by_shape = {entry.checksum for entry in shared}
    made: dict[str, PlanTable] = {}
    for entry, table in tables.items():
        lookup = table.lookup
        each = ranks_per_node(table.topology, range(lookup.ranks))
        if each is None:
            notes.append(f"{entry.table}: left to MSCCL++, {_UNEVEN}")
        elif entry.checksum not in made:
            left_out: list[str] = []
            made[entry.checksum] = PlanTable(
                sources_of_table(table, left_out),
                ranks=lookup.ranks,
                hosts=lookup.ranks // each,
                prefix=entry.checksum[:8],
                name=entry.table,
                by_shape=entry.checksum in by_shape,
                groups=[
                    group.ranks
                    for group in _groups(job)
                    if group.entry is not None
                    and group.entry.checksum == entry.checksum
                    and ranks_per_node(job.topology, group.ranks) == each
                ],
            )
            notes += [f"{entry.table}: {note}" for note in left_out]
            if entry.checksum in by_shape and lookup.ranks < job.groups.ranks:
                notes.append(
                    f"{entry.kind}: plans run on every communicator of {lookup.ranks} ranks, "
                    f"{each} on a host: the job must make no others, as Megatron's embedding "
                    "groups of 2"
                )
    notes += _adapter_notes(job)
    return export_plans(list(made.values()), path, job.groups.ranks, notes)


def _adapter_notes(job: JobTables) -> Iterator[str]:
    """Yield the kinds whose ranks would not use the network adapter of their GPU.

    Notes:
        mscclpp/src/core/executor/executor.cc takes a process's adapter of the rank's place on its
        host, and ib.cc the name at that place of the variable.
    """
    own = {
        rank: place
        for host in job.topology.hosts
        for place, rank in enumerate(job.topology.gpus_of(host))
    }
    for kind in dict.fromkeys(entry.kind for entry in job.entries):
        for group in job.groups.kind(kind).groups:
            each = ranks_per_node(job.topology, group)
            if (
                each
                and each < len(group)
                and any(own[rank] != place % each for place, rank in enumerate(group))
            ):
                yield (
                    f"{kind}: MSCCL++ takes a rank's adapter by its place in its group on the "
                    "host; name the GPU's own at all places of MSCCLPP_HCA_DEVICES in each process"
                )
                break


def _by_shape(
    shapes: Mapping[_Shape, Sequence[_Group]],
    choice: Callable[[JobEntry], object],
    refusal: Callable[[_Shape, Sequence[_Group]], str | None],
    text: str,
) -> tuple[list[JobEntry], list[str]]:
    """Return an entry of each shape whose groups all choose the same, and notes on the others.

    Args:
        shapes: The groups of each.
        choice: What an entry chooses.
        refusal: Why a shape is left out although its groups agree, or None.
        text: Of a note, for the shape, the kinds and the reason.
    """
    shared, notes = [], []
    for shape, groups in sorted(shapes.items()):
        entries = list(dict.fromkeys(group.entry for group in groups))
        known = [entry for entry in entries if entry is not None]
        if not known:
            continue
        if len(known) < len(entries):
            why: str | None = "since some of them have no table"
        elif any(choice(entry) != choice(known[0]) for entry in known):
            why = "since their tables differ"
        else:
            why = refusal(shape, groups)
        if why is None:
            shared.append(known[0])
        else:
            kinds = ", ".join(dict.fromkeys(group.kind for group in groups))
            notes.append(text.format(*shape, kinds, why))
    return shared, notes


def _groups(job: JobTables) -> Iterator[_Group]:
    """Yield all groups of a job."""
    for kind in job.groups.kinds:
        own = {number: e for e in job.entries if e.kind == kind.name for number in e.groups}
        for number, ranks in enumerate(kind.groups):
            yield _Group(kind.name, ranks, own.get(number))
