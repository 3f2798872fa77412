"""A job's tables against NCCL's own choice, all groups of a kind at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tuccl.errors import InputError
from tuccl.eval.comparer import nccl_tuned_against
from tuccl.groups.concurrent import nccl_choice, table_choice, time_groups
from tuccl.groups.job import JobTables
from tuccl.runtime.nccl.versions import nccl_release
from tuccl.topology import keep_gpus
from tuccl.tuning import tuned_sizes


class GroupsRow(msgspec.Struct, frozen=True, kw_only=True):
    """A call that all groups of a kind make at once; times in us, simulated.

    Attributes:
        kind: Of the groups.
        collective: The collective.
        size: Of a group's whole array, in bytes.
        default_us: From the start of all groups to the end of the last, as NCCL chooses.
        tuned_us: The same as the tables choose.
        bound_us: No programs end earlier.
        default: NCCL's choice; several where groups are not alike.
        choice: The tables'.
    """

    kind: str
    collective: str
    size: int
    default_us: float
    tuned_us: float
    bound_us: float
    default: str
    choice: str


def compare_groups(
    job: JobTables, sizes: Iterable[int] | None = None, nccl_version: str | None = None
) -> tuple[GroupsRow, ...]:
    """Return a row for each kind, collective and size that a job's tables were tuned for.

    Calls that the tables were tuned beside are not made.

    Args:
        job: The job.
        sizes: In bytes; None: those that were tuned.
        nccl_version: The NCCL to compare with; None: that which the tables were tuned against.

    Raises:
        InputError: a table is damaged, groups of a kind have none, or there is no such NCCL.
    """
    chosen = None if sizes is None else sorted(set(sizes))
    return tuple(
        row
        for kind in dict.fromkeys(entry.kind for entry in job.entries)
        for row in _rows(job, kind, chosen, nccl_version)
    )


def _rows(
    job: JobTables, kind: str, sizes: list[int] | None, nccl_version: str | None
) -> Iterator[GroupsRow]:
    entries = [entry for entry in job.entries if entry.kind == kind]
    groups = job.groups.kind(kind).groups
    if sum(len(entry.groups) for entry in entries) < len(groups):
        raise InputError(f"{job.folder}: some groups of kind {kind} have no table; tune it again")
    tables = {keep_gpus(job.topology, job.members(e)): job.table(e) for e in entries}
    version = nccl_version or nccl_tuned_against(next(iter(tables.values())).lookup)
    choosers = nccl_choice(nccl_release(version)), table_choice(tables, nccl_release(version))
    orbits = [entry.groups for entry in entries]
    calls = {
        (entry.collective, size)
        for table in (each.lookup for each in tables.values())
        for entry in table.entries
        for size in sizes or tuned_sizes(table, entry.collective)
    }
    for collective, size in sorted(calls):
        default, tuned = (
            time_groups(job.topology, groups, orbits, collective, size, choose)
            for choose in choosers
        )
        yield GroupsRow(
            kind=kind,
            collective=collective,
            size=size,
            default_us=default.together_us,
            tuned_us=tuned.together_us,
            bound_us=tuned.bound_us,
            default=default.choice,
            choice=tuned.choice,
        )
