"""Times of the calls of a training step: all groups of a kind at once, kind after kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tuccl.errors import Infeasible, InputError
from tuccl.groups.concurrent import (
    Choose,
    choices,
    names_of,
    nccl_choice,
    table_choice,
    time_together,
)
from tuccl.groups.equivalence import group_orbits
from tuccl.groups.job import JobTables
from tuccl.groups.layout import Groups, ProcessGroups
from tuccl.runtime import NCCL_VERSION
from tuccl.topology import Topology
from tuccl.training.step_calls import SEND, StepCall

Progress = Callable[[int, int, str], None]
Orbits = Sequence[Sequence[int]]
_Chooser = tuple[Orbits, Choose]


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a step, simulated.

    Attributes:
        kind: Of the groups that make it, all at once.
        collective: Its name, or "send", which is not timed.
        size: Of the whole array, in bytes.
        calls: In a step.
        us: Of one call, as NCCL chooses; None: not timed.
        choice: NCCL's; several where groups are not alike.
        table_us: The same by a job's tables.
        table_choice: The tables'.
        refusal: Why the simulator does not time it.
    """

    kind: str
    collective: str
    size: int
    calls: int
    us: float | None = None
    choice: str = ""
    table_us: float | None = None
    table_choice: str = ""
    refusal: str = ""

    @property
    def step_us(self) -> float:
        """Return what all calls of a step take: by the tables where there are any."""
        return self.calls * ((self.us if self.table_us is None else self.table_us) or 0.0)


def time_step(
    topology: Topology,
    groups: ProcessGroups,
    calls: Mapping[StepCall, int],
    tables: JobTables | None = None,
    version: str = NCCL_VERSION,
    progress: Progress = lambda done, total, what: None,
) -> list[StepRow]:
    """Return a row for each call of a step, those that take most of the step first.

    Args:
        topology: The whole machine.
        groups: The job's groups.
        calls: Of a step, each with how often it is made (`step_calls`).
        tables: Of the same groups; kinds without one are left to NCCL.
        version: The NCCL.
        progress: Receives the number of finished calls, of all calls, and the next one.

    Raises:
        InputError: a table is damaged.
    """
    rows = []
    choosers: dict[str, list[_Chooser]] = {}
    for number, (call, count) in enumerate(calls.items()):
        row = StepRow(kind=call.kind, collective=call.collective, size=call.nbytes, calls=count)
        if call.collective != SEND:
            members = groups.kind(call.kind).groups
            progress(number, len(calls), f"{call.kind}:{call.collective}")
            if call.kind not in choosers:
                choosers[call.kind] = _choosers(topology, members, call.kind, tables, version)
            try:
                row = _timed(topology, members, row, choosers[call.kind])
            except (Infeasible, InputError) as error:
                row = msgspec.structs.replace(row, refusal=str(error))
        rows.append(row)
    progress(len(calls), len(calls), "calls timed")
    return sorted(rows, key=lambda row: -row.step_us)


def _choosers(
    topology: Topology, members: Groups, kind: str, tables: JobTables | None, version: str
) -> list[_Chooser]:
    """NCCL, and the tables of a kind that has any, each with the groups that get one program."""
    found: list[_Chooser] = [(group_orbits(topology, members), nccl_choice(version))]
    if tables is not None and any(entry.kind == kind for entry in tables.entries):
        of_part = tables.of_kind(kind)
        choose = table_choice({part: table for part, (_, table) in of_part.items()}, version)
        found.append(([entry.groups for entry, _ in of_part.values()], choose))
    return found


def _timed(
    topology: Topology, members: Groups, row: StepRow, choosers: Sequence[_Chooser]
) -> StepRow:
    found: list[tuple[float, str]] = []
    for orbits, choose in choosers:
        chosen = choices(topology, members, orbits, row.collective, row.size, choose)
        us = time_together(topology, members, orbits, chosen, row.size)
        found.append((us, names_of(chosen)))
    (us, choice), *by_table = found
    row = msgspec.structs.replace(row, us=us, choice=choice)
    for us, choice in by_table:
        row = msgspec.structs.replace(row, table_us=us, table_choice=choice)
    return row
