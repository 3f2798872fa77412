"""A job's tables against NCCL's own choice, all groups of a kind at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tuccl.groups.concurrent import (
    Choose,
    ConcurrentTime,
    KindCall,
    company_calls,
    nccl_choice,
    table_choice,
    time_groups,
)
from tuccl.groups.job import JobTables
from tuccl.runtime import Table
from tuccl.runtime.nccl.versions import nccl_release
from tuccl.topology import Topology
from tuccl.tuning import tuned_sizes


class BesideTime(msgspec.Struct, frozen=True, kw_only=True):
    """A call of another kind beside a row's: us to its end, or of a turn if it repeats; simulated.

    Attributes:
        call: As "tp:allreduce=20M".
        default_us: As NCCL chooses for all calls.
        tuned_us: As the tables choose for all calls.
    """

    call: str
    default_us: float
    tuned_us: float


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
        beside: The calls that the tables were tuned beside.
    """

    kind: str
    collective: str
    size: int
    default_us: float
    tuned_us: float
    bound_us: float
    default: str
    choice: str
    beside: tuple[BesideTime, ...] = ()


def compare_groups(
    job: JobTables, sizes: Iterable[int] | None = None, nccl_version: str | None = None
) -> tuple[GroupsRow, ...]:
    """Return a row for each kind, collective and size that a job's tables were tuned for.

    Calls that the tables were tuned beside are made too: by NCCL's choice where the row's are, else
    by the job's tables, those of kinds that have none by NCCL's.

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
    tables = _tables(job, kind)
    version = nccl_release(nccl_version or next(iter(tables.values())).lookup.nccl_version)
    company = [KindCall.parse(text) for text in entries[0].beside]
    default, tuned = (
        _Choices(job, company, repeats=entries[0].repeats, by_table=by_table, version=version)
        for by_table in (False, True)
    )
    calls = {
        (entry.collective, size)
        for table in (each.lookup for each in tables.values())
        for entry in table.entries
        for size in sizes or tuned_sizes(table, entry.collective)
    }
    for collective, size in sorted(calls):
        before, after = (each.time(kind, collective, size) for each in (default, tuned))
        yield GroupsRow(
            kind=kind,
            collective=collective,
            size=size,
            default_us=before.together_us,
            tuned_us=after.together_us,
            bound_us=after.bound_us,
            default=before.choice,
            choice=after.choice,
            beside=tuple(
                BesideTime(call=text, default_us=was_us, tuned_us=now_us)
                for text, was_us, now_us in zip(
                    entries[0].beside, before.company_us, after.company_us, strict=True
                )
            ),
        )


class _Choices:
    """All kinds' calls by NCCL's choice, or by a job's tables."""

    def __init__(
        self,
        job: JobTables,
        company: Sequence[KindCall],
        *,
        repeats: bool,
        by_table: bool,
        version: str,
    ) -> None:
        self._job = job
        self._by_table = by_table
        self._version = version
        choices = {call.kind: self._of(call.kind) for call in company}
        self._company = company_calls(job.topology, job.groups, company, choices, repeats=repeats)

    def _of(self, kind: str) -> Choose:
        if self._by_table and any(entry.kind == kind for entry in self._job.entries):
            return table_choice(_tables(self._job, kind), self._version)
        return nccl_choice(self._version)

    def time(self, kind: str, collective: str, nbytes: int) -> ConcurrentTime:
        """Return the time of a call of all groups of a kind, beside the company's."""
        orbits = [entry.groups for entry in self._job.entries if entry.kind == kind]
        groups = self._job.groups.kind(kind).groups
        choose = self._of(kind)
        return time_groups(
            self._job.topology, groups, orbits, collective, nbytes, choose, self._company
        )


def _tables(job: JobTables, kind: str) -> dict[Topology, Table]:
    """Return the tables of a kind, by the part of the machine."""
    return {part: table for part, (_, table) in job.of_kind(kind).items()}
