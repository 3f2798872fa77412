"""A tune for the process groups of a job: a table for each set of groups that are alike."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, TypeVar, get_args

import msgspec

from tuccl.errors import InputError
from tuccl.files import printable_path
from tuccl.groups.concurrent import KindCall, company_calls, nccl_choice
from tuccl.groups.equivalence import group_key, group_orbits
from tuccl.groups.executor import GroupExecutor, GroupPlanExecutor
from tuccl.groups.job import (
    MEMBERS_NAME,
    TABLES_NAME,
    TOPOLOGY_NAME,
    JobEntry,
    JobTables,
    is_job,
    load_job,
    save_job,
)
from tuccl.groups.layout import Groups, Kind, ProcessGroups
from tuccl.runtime import Executor, LookupTable, Table, load_table, save_table
from tuccl.runtime.baseline.nccl_best import check_nccl_collective
from tuccl.runtime.executors.sim import GroupCall
from tuccl.runtime.nccl.versions import nccl_release
from tuccl.topology import Topology, keep_gpus
from tuccl.topology.machines import as_topology
from tuccl.tuning.family_round import Family, family_round
from tuccl.tuning.joint_search import Progress, no_progress, tune
from tuccl.tuning.mix_round import mix_round
from tuccl.tuning.options import TuneOptions
from tuccl.tuning.tuned_table import TunedTable
from tuccl.units import Size, size_bytes

# Of a job whose first tune did not end.
_OWN_NAMES = MEMBERS_NAME, TABLES_NAME, TOPOLOGY_NAME

_T = TypeVar("_T", bound=Table)

Concurrent = Literal["none", "kind", "all"]
"""Which groups call at once while a group's table is tuned: it alone, all of its kind, or these and
those of other kinds over and over."""


def tune_job(
    topology: Topology | str | os.PathLike[str],
    groups: ProcessGroups,
    calls: Sequence[tuple[str, str]],
    sizes: Size | Iterable[Size],
    options: TuneOptions | None = None,
    *,
    path: str | os.PathLike[str],
    concurrent: Concurrent = "kind",
    beside: Sequence[tuple[str, str, Size]] = (),
    progress: Progress = no_progress,
) -> tuple[JobTables, list[TunedTable]]:
    """Return a job's tables, and those of them that this call tuned.

    Groups that are alike get one table, whose programs are timed while all groups of the kind make
    the call, in simulation on the whole machine. It is an ordinary table of a group's part. A job
    that is in ``path`` keeps the tables and sizes that are not tuned now.

    Args:
        topology: The whole machine, or the path of its file.
        groups: The job's groups.
        calls: Kinds and collectives, as ("dp", "allreduce").
        sizes: As in `tune`.
        options: As in `tune`, for each table.
        path: The folder of the job's tables.
        concurrent: Which groups call at once. "all": candidates are found as for "kind", and then
            ordered while the calls of ``beside`` begin again whenever they end, by the tables.
        beside: Calls that other kinds begin at the same time, by NCCL's choice, as ("tp",
            "allreduce", "20M"). While a kind is tuned its own are left out.
        progress: As in `tune`; its task names the kind.

    Raises:
        InputError: a kind or a collective is not known, ``path`` holds another job or something
            else, and what `tune` raises.
    """
    topology, options, folder = as_topology(topology), options or TuneOptions(), Path(path)
    _check_arguments(options, calls, concurrent, beside)
    entries = _entries_to_keep(folder, topology, groups)
    company = [KindCall(kind, name, size_bytes(n)) for kind, name, n in beside]
    tuned: dict[str, list[TunedTable]] = {}
    for name in dict.fromkeys(kind for kind, _ in calls):
        circumstances = _Circumstances(
            topology=topology,
            folder=folder,
            options=options,
            groups=groups,
            concurrent=concurrent,
            beside=tuple(call for call in company if call.kind != name),
        )
        collectives = list(dict.fromkeys(each for of, each in calls if of == name))
        report = partial(_of_kind, progress, name)
        try:
            made, tuned[name] = circumstances.tune_kind(
                groups.kind(name), collectives, sizes, entries, report
            )
        except BaseException:
            _save_resealed(folder, topology, groups, entries)
            raise
        names = {entry.table for entry in made}
        entries = [entry for entry in entries if entry.table not in names] + made
        job = JobTables(folder, groups, topology, tuple(entries))
        save_job(job)  # an interrupt keeps the kinds that are finished
    tables = [table for each in tuned.values() for table in each]
    if concurrent == "all":
        try:
            job, lookups = _mixed(job, company, nccl_release(options.nccl_version))
        except BaseException:
            _save_resealed(folder, topology, groups, entries)
            raise
        tables = [replace(table, lookup=lookups[table.folder]) for table in tables]
    return job, tables


def _check_arguments(
    options: TuneOptions,
    calls: Sequence[tuple[str, str]],
    concurrent: Concurrent,
    beside: Sequence[tuple[str, str, Size]],
) -> None:
    """Refuse what cannot be tuned before anything is."""
    if not calls:
        raise InputError('calls: expected at least one, as ("dp", "allreduce")')
    if concurrent not in get_args(Concurrent):
        raise InputError(f"concurrent {concurrent[:20]!r}: expected none, kind or all")
    if options.storage or options.scheduler:
        raise InputError(
            "groups: one process tunes them, or its workers; leave out storage and dask"
        )
    for _, collective in calls:
        if options.dialect == "nccl":
            check_nccl_collective(collective)
    if beside and concurrent == "none":
        raise InputError("calls beside a group's: expected concurrent groups, not none")
    if concurrent == "all" and not beside:
        raise InputError("concurrent all: expected the calls of the kinds that are beside")


def _mixed(
    job: JobTables, company: Sequence[KindCall], nccl_version: str
) -> tuple[JobTables, dict[Path, LookupTable]]:
    """Order the candidates of a job's tables, all kinds being at once; save them by folder."""
    of_kind: dict[str, list[JobEntry]] = {}
    for entry in job.entries:
        of_kind.setdefault(entry.kind, []).append(entry)
    families = {
        kind: Family(
            job.groups.kind(kind).groups, [e.groups for e in own], [job.table(e) for e in own]
        )
        for kind, own in of_kind.items()
    }
    found = mix_round(job.topology, job.groups, families, company, nccl_version)
    entries: list[JobEntry] = []
    lookups: dict[Path, LookupTable] = {}
    for kind, own in of_kind.items():
        tables = [_saved(table, table.lookup) for table in found[kind].tables]
        lookups |= {table.folder: table.lookup for table in tables}
        beside = tuple(str(call) for call in company if call.kind != kind)
        entries += [
            msgspec.structs.replace(entry, beside=beside, repeats=bool(beside))
            for entry in _sealed(own, tables)
        ]
    job = replace(job, entries=tuple(entries))
    save_job(job)
    return job, lookups


@dataclass(frozen=True, kw_only=True)
class _Circumstances:
    """Circumstances in which the groups of a kind are tuned.

    Attributes:
        groups: The job's.
        concurrent: As in `tune_job`.
        beside: Calls of other kinds that begin at the same time.
    """

    topology: Topology
    folder: Path
    options: TuneOptions
    groups: ProcessGroups
    concurrent: Concurrent
    beside: tuple[KindCall, ...]

    @property
    def repeats(self) -> bool:
        """True where calls of other kinds begin again whenever they end."""
        return bool(self.beside) and self.concurrent == "all"

    @cached_property
    def company(self) -> list[list[GroupCall]]:
        """The calls beside those that are timed, as NCCL chooses."""
        if self.repeats:
            return []
        choose = nccl_choice(nccl_release(self.options.nccl_version))
        choices = {call.kind: choose for call in self.beside}
        return company_calls(self.topology, self.groups, self.beside, choices, repeats=False)

    def tune_kind(
        self,
        kind: Kind,
        collectives: Sequence[str],
        sizes: Size | Iterable[Size],
        entries: Sequence[JobEntry],
        progress: Progress,
    ) -> tuple[list[JobEntry], list[TunedTable]]:
        """Return a table, with its entry, for each set of alike groups of a kind."""
        orbits = group_orbits(self.topology, kind.groups)
        made, tables = [], []
        for orbit in orbits:
            executor = self.executor(kind.groups, orbit)
            entry = JobEntry(
                kind=kind.name,
                groups=tuple(orbit),
                key=group_key(self.topology, kind.groups, orbit[0]),
                table=f"{kind.name}-{orbit[0]}",
                checksum="",
                concurrent=executor.concurrent,
                beside=tuple(map(str, self.beside)),
                repeats=self.repeats,
            )
            _check_company(self.folder, entries, entry)
            part = keep_gpus(self.topology, kind.groups[orbit[0]])
            place, on = self.folder / TABLES_NAME / entry.table, partial(_executor_of, executor)
            with _folder_of_tables(place.parent):
                tables.append(
                    tune(part, collectives, sizes, on, self.options, path=place, progress=progress)
                )
            # What is beside a mix has no part in these times; `_mixed` adds it.
            made.append(
                msgspec.structs.replace(entry, beside=(), repeats=False) if self.repeats else entry
            )
        if self.company or (len(orbits) > 1 and self.concurrent != "none"):
            version = nccl_release(self.options.nccl_version)
            family = Family(kind.groups, orbits, tables)
            company = self.company
            lookups = family_round(self.topology, family, version, company, company)
            tables = [_saved(*each) for each in zip(tables, lookups, strict=True)]
        return _sealed(made, tables), tables

    def executor(self, groups: Groups, orbit: Sequence[int]) -> GroupExecutor | GroupPlanExecutor:
        """Return what times the programs of an orbit's groups."""
        kind = GroupPlanExecutor if self.options.dialect == "mscclpp" else GroupExecutor
        if self.concurrent == "none":
            return kind(self.topology, (groups[orbit[0]],), [0])
        company = [call for each in self.company for call in each]
        return kind(self.topology, groups, orbit, company)


@contextmanager
def _folder_of_tables(folder: Path) -> Iterator[None]:
    """Make the folder of a job's tables, and remove it again if what follows is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except InputError:
        with suppress(OSError):  # it has tables
            folder.rmdir()
            folder.parent.rmdir()
        raise


def _executor_of(executor: Executor, _: Topology) -> Executor:
    return executor


def _save_resealed(
    folder: Path, topology: Topology, groups: ProcessGroups, entries: Sequence[JobEntry]
) -> None:
    """Save the index again with what an interrupted tune has left in the tables of ``entries``."""
    if not entries:
        return
    job = JobTables(folder, groups, topology, tuple(entries))
    found = []
    for entry in entries:
        with suppress(InputError):
            checksum = load_table(job.place(entry)).lookup.checksum
            found.append(msgspec.structs.replace(entry, checksum=checksum))
    save_job(replace(job, entries=tuple(found)))


def _sealed(entries: Sequence[JobEntry], tables: Sequence[Table]) -> list[JobEntry]:
    """Return the entries with their tables' checksums."""
    return [
        msgspec.structs.replace(entry, checksum=table.lookup.checksum)
        for entry, table in zip(entries, tables, strict=True)
    ]


def _saved(table: _T, lookup: LookupTable) -> _T:
    """Save a table with its candidates in another order."""
    sealed = save_table(lookup, table.folder, table.topology, table.files)
    return replace(table, lookup=sealed)


def _of_kind(progress: Progress, kind: str, done: int, total: int, task: str) -> None:
    progress(done, total, f"{kind}: {task}")


def _entries_to_keep(folder: Path, topology: Topology, groups: ProcessGroups) -> list[JobEntry]:
    """Return the entries of the job in ``folder``, none where there is nothing.

    Raises:
        InputError: it is another job's, or no job's.
    """
    if is_job(folder):
        job = load_job(folder)
        if (job.topology, job.groups) != (topology, groups):
            raise InputError(
                f"{printable_path(folder)}: the tables of another machine or of other groups; name "
                "another folder or move that away"
            )
        return list(job.entries)
    if folder.exists() and any(p.name not in _OWN_NAMES for p in _children(folder)):
        raise InputError(
            f"{printable_path(folder)}: expected the folder of a job's tables, or none; name "
            "another or move that away"
        )
    return []


def _check_company(folder: Path, entries: Sequence[JobEntry], mine: JobEntry) -> None:
    """Refuse to add to a table that was tuned in other company: its times would not compare."""
    for entry in entries:
        company = entry.concurrent, entry.beside, entry.repeats
        same = company == (mine.concurrent, mine.beside, mine.repeats)
        # Candidates of a mix are found as without; an interrupted tune leaves them so.
        mixes = mine.repeats and (entry.concurrent, entry.beside) == (mine.concurrent, ())
        if entry.table == mine.table and not (same or mixes):
            again = " over and over" if entry.repeats else ""
            raise InputError(
                f"{printable_path(folder / TABLES_NAME / entry.table)}: was tuned with "
                f"{entry.concurrent} groups of the kind at once beside "
                f"{', '.join(entry.beside) or 'no others'}{again}; do the same, or name another "
                "folder for the job"
            )


def _children(folder: Path) -> Iterator[Path]:
    try:
        yield from folder.iterdir()
    except OSError as error:
        raise InputError(f"{printable_path(folder)}: {error.strerror}") from None
