"""Tables under cross traffic: what they choose, the best of all their candidates, the ceiling."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from tuccl.errors import InputError
from tuccl.runtime import Candidate, Executor, Table, TimedProgram, select
from tuccl.runtime import time_baseline as time_default
from tuccl.runtime.baseline.candidate import candidate_program
from tuccl.runtime.executors import Scenario
from tuccl.runtime.nccl.versions import nccl_release
from tuccl.synth import Collective, bound
from tuccl.tuning import tuned_sizes
from tuccl.units import format_bytes


class ScenarioRow(msgspec.Struct, frozen=True, kw_only=True):
    """One collective and size under one scenario; times in us, simulated.

    Attributes:
        scenario: its name.
        collective: the collective.
        size: of the whole array, in bytes.
        default_us: of the runtime without a table.
        idle_us: of the first choice of a table that was tuned without cross traffic, if given.
        robust_us: of the table's first choice.
        selected_us: of the candidate that the table's own times name for this scenario.
        oracle_us: the least of the default and all candidates of the tables.
        ceiling_us: the least that any program can take on the rates that the scenario leaves.
    """

    scenario: str
    collective: str
    size: int
    default_us: float
    idle_us: float | None
    robust_us: float
    selected_us: float
    oracle_us: float
    ceiling_us: float


def compare_scenarios(
    table: Table,
    scenarios: Sequence[Scenario],
    idle: Table | None = None,
    sizes: Iterable[int] | None = None,
) -> tuple[ScenarioRow, ...]:
    """Return a row for each scenario, collective and size that ``table`` was tuned for.

    Args:
        table: the table.
        scenarios: what to time it under, on its machine; those of its own names choose by its
            times.
        idle: a table of the same machine that was tuned without cross traffic.
        sizes: whole arrays in bytes; None: those that each collective was tuned at.

    Raises:
        InputError: a table holds choices of NCCL's own, or is for another number of ranks.
    """
    for each in (table, idle or table):
        if each.lookup.dialect == "nccl" or each.lookup.ranks != table.lookup.ranks:
            raise InputError(
                f"{each.folder}: expected a table of programs for {table.lookup.ranks} ranks"
            )
    lookup = table.lookup
    calls = [
        (Collective(name, lookup.ranks, root or 0), nbytes)
        for name, root in dict.fromkeys((e.collective, e.root) for e in lookup.entries)
        for nbytes in (sizes if sizes is not None else tuned_sizes(lookup, name, root))
    ]
    return tuple(
        _row(table, idle, scenario, call, nbytes)
        for scenario in scenarios
        for call, nbytes in calls
    )


def _row(
    table: Table, idle: Table | None, scenario: Scenario, call: Collective, nbytes: int
) -> ScenarioRow:
    executor = scenario.executor
    default = time_default(
        executor, table.topology, executor.default_baseline, call.name, nbytes, root=call.root
    ).timing.us
    times = {
        id(each): _times(each, executor, call, nbytes, default) for each in (table, idle) if each
    }
    ours = times[id(table)]
    first, candidates = ours[0][1], [us for each in times.values() for _, us in each]
    selected = [
        (candidate.stats.scenarios_us[scenario.name], us)
        for candidate, us in ours
        if candidate.stats and scenario.name in candidate.stats.scenarios_us
    ]
    return ScenarioRow(
        scenario=scenario.name,
        collective=call.name,
        size=nbytes,
        default_us=default,
        idle_us=times[id(idle)][0][1] if idle else None,
        robust_us=first,
        selected_us=min(selected, default=(0.0, first))[1],
        oracle_us=min(default, *candidates),
        ceiling_us=bound(executor.planned_topology or table.topology, call).time_us(nbytes),
    )


def _times(
    table: Table, executor: Executor, call: Collective, nbytes: int, default_us: float
) -> list[tuple[Candidate, float]]:
    """Return the candidates for a call and their times in us, the table's first choice first."""
    entry = select(table.lookup, call.name, nbytes, root=call.root).entry
    times = []
    version = nccl_release(table.lookup.nccl_version)
    for candidate in entry.candidates if entry else ():
        own = candidate_program(
            executor, table.topology, call, nbytes, candidate, table.programs, version=version
        )
        if own is None:
            us = default_us
        elif isinstance(own, TimedProgram):
            us = own.timing.us
        else:
            us = own.on(executor, nbytes, root=call.root).us
        times.append((candidate, us))
    return times


def scenarios_text(rows: Sequence[ScenarioRow], label: str) -> str:
    """Return ``rows`` as text: the ceiling first, then each choice's gain over the idle-tuned one.

    Without an idle-tuned table gains are over the default.
    """
    lines = [f"# {label}; us, simulated; in brackets: gain over idle-tuned, or else over default"]
    head = ("scenario", "collective", "size", "ceiling", "default", "idle", "robust", "selected")
    lines.append("".join(f"{name:>16}" for name in (*head, "oracle")))
    for row in rows:
        base = row.idle_us or row.default_us

        def cell(us: float | None, base: float = base) -> str:
            return f"{'-' if us is None else f'{us:.1f} ({base / us:.2f}x)':>16}"

        times = (row.ceiling_us, row.default_us, row.idle_us, row.robust_us, row.selected_us)
        name = f"{row.scenario[:15]:>16}{row.collective:>16}{format_bytes(row.size):>16}"
        lines.append(name + "".join(map(cell, (*times, row.oracle_us))))
    for scenario in dict.fromkeys(row.scenario for row in rows):
        lines.append(_summary(scenario, [row for row in rows if row.scenario == scenario]))
    return "\n".join(lines)


def _summary(scenario: str, rows: Sequence[ScenarioRow]) -> str:
    def mean_gain(name: str) -> float:
        logs = [math.log((r.idle_us or r.default_us) / getattr(r, name)) for r in rows]
        return math.exp(sum(logs) / len(logs))

    parts = (
        f"{name} {mean_gain(f'{name}_us'):.2f}x"
        for name in ("ceiling", "robust", "selected", "oracle")
    )
    return f"{scenario}: {', '.join(parts)} (geometric means of simulated gains)"
