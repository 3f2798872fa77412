"""A table of NCCL's own choices, loaded by the tuner plugin, against NCCL without it."""

from __future__ import annotations

from collections.abc import Sequence

from tuccl.errors import InputError
from tuccl.eval.columns import bandwidth_row
from tuccl.eval.comparison import Comparison, comparison_row, provenance
from tuccl.program import Knobs
from tuccl.runtime import (
    SYMMETRIC_BASELINE,
    ConfiguredProgram,
    NcclTestsExecutor,
    Table,
    TimedProgram,
    Timing,
    select,
)
from tuccl.runtime.baseline import collective_stub
from tuccl.runtime.executors import pool_timings
from tuccl.runtime.jobs import plugin_environment
from tuccl.synth import Collective, bound
from tuccl.tuning import tuned_sizes
from tuccl.tuning.work import Progress, no_progress

_ROUNDS = 5
_TUNED = "tuned"


def compare_plugin(
    stored: Table,
    executor: NcclTestsExecutor,
    sizes: Sequence[int] | None = None,
    progress: Progress = no_progress,
    *,
    windows: bool = False,
) -> Comparison:
    """Return nccl-tests with the tuner plugin and the table against nccl-tests without, in turns.

    What is timed is what a job gets: the plugin itself chooses. Without ``sizes`` each collective
    is compared at the sizes it was tuned at. ``windows``: NCCL on symmetric windows, which no
    tuner reaches, is a row of its own, and no regression of the table.

    Raises:
        InputError: the table is not of NCCL's own choices, or the executor is another machine.
        Unavailable: nccl-tests or the plugin is not what it should be.
    """
    if stored.lookup.dialect != "nccl" or executor.ranks != stored.topology.ranks:
        raise InputError(
            f"{stored.folder}: a {stored.lookup.dialect} table for {stored.topology.ranks} ranks; "
            f"expected one of NCCL's own choices for {executor.ranks}"
        )
    rows, tuned, bounds = [], [], []
    names = list(dict.fromkeys(entry.collective for entry in stored.lookup.entries))
    for done, name in enumerate(names):
        progress(done, len(names), name)
        call = Collective(name, executor.ranks)
        each = list(sizes) if sizes is not None else tuned_sizes(stored.lookup, name)
        least = bound(stored.topology, call, "switches")
        for nbytes, defaults, timing in _in_turns(stored, executor, call, each, windows):
            chosen = select(stored.lookup, name, nbytes).candidate.name
            bound_us = least.time_us(nbytes)
            for kind, default in defaults.items():
                row = (call, nbytes, kind, default, timing, chosen, bound_us, least.over)
                rows.append(comparison_row(*row))
            tuned.append(bandwidth_row(name, call.ranks, nbytes, timing, chosen))
            bounds.append(bound_us)
    return Comparison(
        table=str(stored.folder),
        topology=stored.topology.name,
        ranks=executor.ranks,
        label=executor.label,
        on=executor.name,
        baselines=("nccl", SYMMETRIC_BASELINE) if windows else ("nccl",),
        rows=tuple(rows),
        tuned=tuple(tuned),
        bound_us=tuple(bounds),
        bounds=tuple(row.bound for row in rows if row.baseline == "nccl"),
        notes=provenance(stored.lookup, executor),
        regressions=sum(row.regression for row in rows if row.baseline == "nccl"),
        nccl_version="",
    )


def _in_turns(
    stored: Table,
    executor: NcclTestsExecutor,
    call: Collective,
    sizes: Sequence[int],
    windows: bool,
) -> list[tuple[int, dict[str, TimedProgram], Timing]]:
    """Each size with its defaults and its tuned timing, in every other round the other order."""
    kinds = ["nccl", _TUNED] + ([SYMMETRIC_BASELINE] if windows else [])
    plugin = plugin_environment(stored.folder)
    rounds: dict[str, list[list[Timing]]] = {kind: [] for kind in kinds}
    for done in range(_ROUNDS):
        for kind in kinds if done % 2 == 0 else kinds[::-1]:
            variables = plugin if kind == _TUNED else None
            times = executor.sweep(
                call.name, sizes, variables=variables, windows=kind == SYMMETRIC_BASELINE
            )
            rounds[kind].append(times)
    timings: list[tuple[int, dict[str, TimedProgram], Timing]] = []
    stub = collective_stub(call)
    for index, nbytes in enumerate(sizes):
        pooled = {kind: pool_timings([r[index] for r in rounds[kind]]) for kind in kinds}
        timing = pooled.pop(_TUNED)
        names = {"nccl": "NCCL's own", SYMMETRIC_BASELINE: "NCCL's own, symmetric windows"}
        defaults = {
            k: ConfiguredProgram(stub, Knobs(), name=names[k]).timed(t) for k, t in pooled.items()
        }
        timings.append((nbytes, defaults, timing))
    return timings
