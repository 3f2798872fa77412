"""The joint search: sketch, method, chunking and knobs, size by size, into a table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import msgspec

from tuccl.errors import InputError
from tuccl.runtime import (
    Entry,
    Executor,
    LookupTable,
    ProgramFile,
    save_table,
    select,
)
from tuccl.runtime.nccl.versions import nccl_release
from tuccl.runtime.table import check_target
from tuccl.runtime.table.entry import ROOTED
from tuccl.synth import Collective
from tuccl.topology import Topology, signature
from tuccl.tuning.dask_workers import search_on_dask
from tuccl.tuning.existing_table import entries_to_keep
from tuccl.tuning.options import TuneOptions
from tuccl.tuning.rl.saturation import Saturation, lossless_saturated
from tuccl.tuning.size_boundaries import entries_of_sizes
from tuccl.tuning.studies.storages import storage_failures
from tuccl.tuning.studies.study import Studies
from tuccl.tuning.tuner import TaskResult
from tuccl.tuning.work import Progress, Work, no_progress, report_states
from tuccl.tuning.workers import search_in_processes
from tuccl.tuning.workload_tasks import WorkloadGain

__all__ = [
    "Progress",
    "SizeSummary",
    "TuneResult",
    "aligned_size",
    "check_searched",
    "new_table",
    "no_progress",
    "tune",
    "tune_tasks",
]

_ELEMENT_BYTES = 4
_FEWEST_PARTS, _MOST_PARTS = 4, 64  # of a rank's share: chunks a rank x channels


@dataclass(frozen=True)
class SizeSummary:
    """The result for one collective and size; times in us as timed on the tune's executor.

    ``grid_size`` counts the distinct points that are legal by the knobs' rules and the size,
    without those that synthesis has ruled out; choices that were never tried count in full.
    ``evaluations`` are at full effort, rounded up, with the final round's; ``best`` is None where
    the runtime's own default stands first. ``sms`` are those of what stands first, 0: not known.
    ``nccl_best_us`` is the least that a user could set in NCCL, None where no tuner steers it.
    """

    collective: str
    size: int
    grid_size: int
    evaluations: int
    default_us: float
    best_us: float | None
    best: str | None
    default_sms: int = 0
    sms: int = 0
    nccl_best_us: float | None = None


@dataclass(frozen=True)
class TuneResult:
    """The table that a tune wrote and its cost: evaluations at full effort, wall time in s.

    ``workload`` is the gain of the job that it was for, where it was for one.
    """

    table: str
    study: str
    label: str
    on: str
    search: str
    entries: int
    evaluations: int
    grid_size: int
    seconds: float
    tuned: tuple[SizeSummary, ...]
    nccl_version: str
    baseline: str
    lossless_saturated: tuple[Saturation, ...] = ()
    workload: WorkloadGain | None = None


def tune(
    executor: Executor,
    topology: Topology,
    collectives: Sequence[str],
    sizes: Sequence[int],
    out: Path,
    options: TuneOptions | None = None,
    *,
    progress: Progress = no_progress,
) -> TuneResult:
    """Search every collective at every size, write the table to ``out``, and return a summary.

    A size is tuned at the `aligned_size` near it, and sizes go from small to large, each search
    starting from the best points of the one before. Measurements are kept in a study next to the
    table: an interrupted tune goes on with ``resume`` and ends as it would have without the
    interruption. The table is written once, at the end. A table of the same machine at ``out``
    keeps its entries for other collectives and roots.

    On an executor that stands for no GPU the default to beat is msccl-default; on an emulated
    cluster programs are made for the rates that it has.

    Raises:
        InputError: an argument cannot be, ``out`` holds something else than a table of this
            machine and NCCL, no time was left to search, or an unfinished study is there and
            ``resume`` was not given.
        Unavailable: the storage needs a driver that is not installed, or fails.
    """
    options = options or TuneOptions()
    sizes = _even_sizes(topology, executor, sizes)
    tasks = [(c, n, options.budget) for c in dict.fromkeys(collectives) for n in sizes]
    return tune_tasks(executor, topology, tasks, out, options, progress=progress)


def tune_tasks(
    executor: Executor,
    topology: Topology,
    tasks: Sequence[tuple[str, int, int]],
    out: Path,
    options: TuneOptions,
    *,
    progress: Progress = no_progress,
) -> TuneResult:
    """Do as `tune` for tasks of a collective, a size in bytes and a budget each.

    Sizes rise for each collective, and are tuned as they are.
    """
    start = time.monotonic()
    options = replace(options, nccl_version=nccl_release(options.nccl_version))
    options.check()
    names = dict.fromkeys(collective for collective, _, _ in tasks)
    calls = [Collective(c, topology.ranks, options.root) for c in names]
    check_target(out)
    baseline = executor.default_baseline
    if baseline == "nccl" and executor.simulated:
        baseline = f"nccl {options.nccl_version}"
    other_entries, other_files = entries_to_keep(
        out,
        signature(topology),
        options.dialect,
        baseline,
        executor,
        _sizes(tasks, options.root),
    )
    studies = Studies(out, resume=options.resume, url=options.storage)
    work = Work(executor, executor.topology or topology, options, out)
    try:
        work.add_tasks(tasks)
        with storage_failures(studies.where):
            results = _results(work, studies, progress, options.deadline(start))
    finally:
        studies.close()
    check_searched(options.seconds, [r.evaluations for r in results if r.grid_size])
    entries, files = _entries(results, calls, work)
    table = new_table(
        topology, [*entries, *other_entries], options.dialect, executor.label, baseline
    )
    save_table(table, out, topology, [*files, *other_files])
    studies.finish()
    tuned = tuple(_summary(r, table, options.root) for r in results)
    return TuneResult(
        table=str(out),
        study=studies.where,
        label=executor.label,
        on=executor.name,
        search=options.search,
        entries=len(table.entries),
        evaluations=sum(r.evaluations for r in results),
        grid_size=sum(r.grid_size for r in results),
        seconds=time.monotonic() - start,
        tuned=tuned,
        nccl_version=options.nccl_version,
        baseline=baseline,
        lossless_saturated=_saturated(work, calls, tuned),
    )


def _sizes(
    tasks: Sequence[tuple[str, int, int]], root: int
) -> dict[tuple[str, int | None], list[int]]:
    """The sizes of each collective, and of its root where it has one."""
    sizes: dict[tuple[str, int | None], list[int]] = {}
    for collective, nbytes, _ in tasks:
        sizes.setdefault((collective, root if collective in ROOTED else None), []).append(nbytes)
    return sizes


def _results(work: Work, studies: Studies, progress: Progress, deadline: float) -> list[TaskResult]:
    """The result of every task, searched here, by workers, or by others before."""
    queue = work.queue(studies)
    if work.options.scheduler is not None:
        search_on_dask(work, queue, studies, progress, deadline)
    elif work.options.workers > 1:
        search_in_processes(work, queue, studies, progress, deadline)
    else:
        work.search(queue, studies, progress, deadline)
    states = queue.states()
    report_states(states, progress)
    try:
        return [
            msgspec.json.decode(states[task].result or b"", type=TaskResult) for task in work.tasks
        ]
    except msgspec.DecodeError as error:
        raise InputError(
            f"{studies.where}: holds a result of another release ({str(error)[:80]}); "
            "remove the study, or name another table"
        ) from None


def check_searched(seconds: float | None, evaluations: Sequence[int]) -> None:
    """Refuse a tune whose time limit left no size an evaluation.

    Raises:
        InputError: there are sizes to search, and none was searched.
    """
    if seconds is not None and evaluations and not any(evaluations):
        raise InputError(
            f"time limit {seconds:g} s: it was over before the first evaluation, so nothing was "
            "searched and no table is written; allow more time, and go on with --resume"
        )


def new_table(
    topology: Topology, entries: Sequence[Entry], dialect: str, label: str, baseline: str
) -> LookupTable:
    """Return the table of ``entries`` for ``topology``, timed as ``label`` says."""
    return LookupTable(
        name=topology.name[:120] or "table",
        signature=signature(topology),
        ranks=topology.ranks,
        hosts=len(topology.hosts),
        entries=tuple(entries),
        dialect=cast("Literal['executor', 'rccl', 'fork', 'nccl', 'mscclpp']", dialect),
        tuned_on=label,
        baseline=baseline,
    )


def _even_sizes(topology: Topology, executor: Executor, sizes: Sequence[int]) -> list[int]:
    """The sizes that are tuned, rising."""
    if not sizes or min(sizes) < 1:
        raise InputError("sizes: expected at least one, each of at least 1 byte")
    if executor.ranks != topology.ranks:
        raise InputError(
            f"the executor has {executor.ranks} ranks, the topology {topology.ranks}; "
            "expected the same machine"
        )
    return sorted({aligned_size(nbytes, topology.ranks) for nbytes in sizes})


def aligned_size(nbytes: int, ranks: int) -> int:
    """Return the size near ``nbytes`` that is tuned: one whose chunks ``ranks`` ranks can share.

    The runtimes run a program only where its chunks divide the call; nccl-tests rounds sizes down
    for the same reason. At most 1/64 is rounded off, except below that many elements.

    >>> aligned_size(64 << 20, 16) == 64 << 20, aligned_size(64 << 20, 9)
    (True, 67108608)
    """
    unit = ranks * _ELEMENT_BYTES * _FEWEST_PARTS
    while unit < ranks * _ELEMENT_BYTES * _MOST_PARTS and 2 * unit * 64 <= nbytes:
        unit *= 2
    return max(unit, nbytes // unit * unit)


def _entries(
    results: Sequence[TaskResult], calls: Sequence[Collective], work: Work
) -> tuple[list[Entry], list[ProgramFile]]:
    """The entries with their ranges, and the files of their programs."""
    files = {p.path: p.file for result in results for p in result.programs}
    programs = {path: file.program for path, file in files.items()}
    entries: list[Entry] = []
    for call in calls:
        tuned = {r.task.nbytes: r.entries for r in results if r.task.collective == call.name}
        entries += entries_of_sizes(
            tuned, programs, work.executor, work.topology, call, work.options
        )
    return entries, list(files.values())


def _saturated(
    work: Work, calls: Sequence[Collective], tuned: Sequence[SizeSummary]
) -> tuple[Saturation, ...]:
    """Calls that nothing lossless makes faster; none where the job is not known."""
    if work.options.job is None:
        return ()
    by_name = {call.name: call for call in calls}
    times_us = [
        (by_name[row.collective], row.size, min(row.default_us, row.best_us or row.default_us))
        for row in tuned
    ]
    return lossless_saturated(work.topology, times_us, work.options.job)


def _summary(result: TaskResult, table: LookupTable, root: int) -> SizeSummary:
    """The choice of ``select`` for a call of the tuned size, out of place where that was timed."""
    task = result.task
    candidate = select(
        table, task.collective, task.nbytes, in_place=result.in_place, root=root
    ).candidate
    stats = None if candidate.is_default else candidate.stats
    return SizeSummary(
        collective=task.collective,
        size=task.nbytes,
        grid_size=result.grid_size,
        evaluations=result.evaluations,
        default_us=result.default_us,
        best_us=None if stats is None else stats.median_us,
        best=None if candidate.is_default else candidate.name,
        default_sms=result.default_sms,
        nccl_best_us=result.nccl_best_us,
        sms=candidate.sms,
    )
