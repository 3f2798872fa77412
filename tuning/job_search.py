"""A tune for the process groups of a job: a table for each set of groups that are alike."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import msgspec

from tuccl.errors import InputError
from tuccl.files import printable_path
from tuccl.groups.concurrent import group_call, nccl_choice
from tuccl.groups.equivalence import group_key, group_orbits
from tuccl.groups.executor import GroupExecutor
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
from tuccl.runtime import LookupTable, save_table
from tuccl.runtime.executors.sim import GroupCall
from tuccl.runtime.nccl.versions import nccl_release
from tuccl.topology import Topology, keep_gpus
from tuccl.topology.machines import as_topology
from tuccl.tuning.family_round import family_round
from tuccl.tuning.joint_search import Progress, no_progress, tune
from tuccl.tuning.options import TuneOptions
from tuccl.tuning.tuned_table import TunedTable
from tuccl.units import Size, format_bytes, size_bytes

# Of a job whose first tune did not end.
_OWN_NAMES = MEMBERS_NAME, TABLES_NAME, TOPOLOGY_NAME

Concurrent = Literal["none", "kind"]
"""Which groups call at once while a group's table is tuned: it alone, or all of its kind."""


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
        concurrent: Which groups call at once.
        beside: Calls of other kinds that begin at the same time, by NCCL's choice, as ("tp",
            "allreduce", "20M").
        progress: As in `tune`; its task names the kind.

    Raises:
        InputError: a kind or a collective is not known, ``path`` holds another job or something
            else, and what `tune` raises.
    """
    topology, options, folder = as_topology(topology), options or TuneOptions(), Path(path)
    if not calls:
        raise InputError('calls: expected at least one, as ("dp", "allreduce")')
    if concurrent not in get_args(Concurrent):
        raise InputError(f"concurrent {concurrent[:20]!r}: expected none or kind")
    if options.storage or options.scheduler or options.workers > 1:
        raise InputError("groups: one process tunes them; leave out workers, storage and dask")
    if beside and concurrent == "none":
        raise InputError("calls beside a group's: expected concurrent groups, not none")
    entries = _entries_to_keep(folder, topology, groups)
    circumstances = _Circumstances(
        topology=topology,
        folder=folder,
        options=options,
        alone=concurrent == "none",
        company=[c for each in beside for c in _company(topology, groups, *each, options)],
        beside=tuple(f"{kind}:{name}={format_bytes(size_bytes(n))}" for kind, name, n in beside),
    )
    all_tables = []
    for name in dict.fromkeys(kind for kind, _ in calls):
        collectives = list(dict.fromkeys(each for of, each in calls if of == name))
        report = partial(_of_kind, progress, name)
        made, tables = circumstances.tune_kind(
            groups.kind(name), collectives, sizes, entries, report
        )
        names = {entry.table for entry in made}
        entries = [entry for entry in entries if entry.table not in names] + made
        all_tables += tables
        job = JobTables(folder, groups, topology, tuple(entries))
        save_job(job)  # an interrupt keeps the kinds that are finished
    return job, all_tables


@dataclass(frozen=True, kw_only=True)
class _Circumstances:
    """Circumstances in which the groups of a kind are tuned.

    Attributes:
        alone: Each group's calls are timed alone, without others of the kind.
        company: Calls of other kinds that begin at the same time.
        beside: The same in words.
    """

    topology: Topology
    folder: Path
    options: TuneOptions
    alone: bool
    company: Sequence[GroupCall]
    beside: tuple[str, ...]

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
                beside=self.beside,
            )
            _check_company(self.folder, entries, entry)
            part = keep_gpus(self.topology, kind.groups[orbit[0]])
            place, on = self.folder / TABLES_NAME / entry.table, partial(_executor_of, executor)
            tables.append(
                tune(part, collectives, sizes, on, self.options, path=place, progress=progress)
            )
            made.append(entry)
        if len(orbits) > 1 and not self.alone:
            version = nccl_release(self.options.nccl_version)
            lookups = family_round(
                self.topology, kind.groups, orbits, tables, self.company, version
            )
            tables = [_saved(*each) for each in zip(tables, lookups, strict=True)]
        checksums = [table.lookup.checksum for table in tables]
        made = [
            msgspec.structs.replace(entry, checksum=checksum)
            for entry, checksum in zip(made, checksums, strict=True)
        ]
        return made, tables

    def executor(self, groups: Groups, orbit: Sequence[int]) -> GroupExecutor:
        """Return what times the programs of an orbit's groups."""
        if self.alone:
            return GroupExecutor(self.topology, (groups[orbit[0]],), [0])
        return GroupExecutor(self.topology, groups, orbit, self.company)


def _executor_of(executor: GroupExecutor, _: Topology) -> GroupExecutor:
    return executor


def _saved(table: TunedTable, lookup: LookupTable) -> TunedTable:
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
    (folder / TABLES_NAME).mkdir(parents=True, exist_ok=True)
    return []


def _check_company(folder: Path, entries: Sequence[JobEntry], mine: JobEntry) -> None:
    """Refuse to add to a table that was tuned in other company: its times would not compare."""
    for entry in entries:
        company = entry.concurrent, entry.beside
        if entry.table == mine.table and company != (mine.concurrent, mine.beside):
            raise InputError(
                f"{printable_path(folder / TABLES_NAME / entry.table)}: was tuned with "
                f"{entry.concurrent} groups of the kind at once beside "
                f"{', '.join(entry.beside) or 'no others'}; do the same, or name another folder "
                "for the job"
            )


def _children(folder: Path) -> Iterator[Path]:
    try:
        yield from folder.iterdir()
    except OSError as error:
        raise InputError(f"{printable_path(folder)}: {error.strerror}") from None


def _company(
    topology: Topology,
    groups: ProcessGroups,
    kind: str,
    collective: str,
    size: Size,
    options: TuneOptions,
) -> list[GroupCall]:
    """Return the calls of all groups of a kind, each as NCCL chooses for it."""
    family, nbytes = groups.kind(kind).groups, size_bytes(size)
    choose = nccl_choice(options.nccl_version)
    calls = []
    for orbit in group_orbits(topology, family):
        own = choose(keep_gpus(topology, family[orbit[0]]), collective, nbytes)
        calls += [group_call(own, family[number], nbytes) for number in orbit]
    return calls
