"""The joint search: sketch, method, chunking and knobs, size by size, into a table."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tuccl.errors import InputError
from tuccl.runtime import (
    Entry,
    Executor,
    LookupTable,
    ProgramFile,
    save_table,
    select,
)
from tuccl.runtime.backends import Backend, executor_on
from tuccl.runtime.nccl.versions import nccl_release
from tuccl.runtime.table import check_target
from tuccl.runtime.table.entry import ROOTED
from tuccl.runtime.table.store import sketch_path
from tuccl.sketches.candidates import searched_sketches
from tuccl.sketches.files import encode_sketch
from tuccl.synth import Collective
from tuccl.synth.model.collective import collective_on
from tuccl.topology import Topology, signature
from tuccl.topology.machines import as_topology
from tuccl.tuning.existing_table import entries_to_keep
from tuccl.tuning.nccl.nccl_tune import tune_nccl
from tuccl.tuning.options import TuneOptions
from tuccl.tuning.programs import sketches_by_name
from tuccl.tuning.rl.saturation import Saturation, lossless_saturated
from tuccl.tuning.size_boundaries import entries_of_sizes
from tuccl.tuning.stages import Stages, part_of
from tuccl.tuning.studies.storages import storage_failures
from tuccl.tuning.studies.study import Studies
from tuccl.tuning.studies.task_queue import Task
from tuccl.tuning.tuned_table import (
    SizeSummary,
    TunedTable,
    TuneResult,
    check_searched,
    new_table,
    table_path,
)
from tuccl.tuning.tuner import TaskResult
from tuccl.tuning.work import Progress, Work, no_progress
from tuccl.units import Size, format_bytes, sizes_bytes

__all__ = [
    "Progress",
    "aligned_size",
    "no_progress",
    "tune",
    "tune_tasks",
]

_ELEMENT_BYTES = 4
_FEWEST_PARTS, _MOST_PARTS = 4, 64  # of a rank's share: chunks a rank x channels


def tune(
    topology: Topology | str | os.PathLike[str],
    collectives: str | Collective | Sequence[str | Collective],
    sizes: Size | Iterable[Size],
    on: str | Backend = "sim",
    options: TuneOptions | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    progress: Progress = no_progress,
) -> TunedTable:
    """Return a table of the fastest programs and knobs that a search finds for each call.

    A size is tuned at the `aligned_size` near it, and sizes go from small to large, each search
    starting from the best points of the one before. Measurements are kept in a study next to the
    table: an interrupted tune goes on with ``resume`` and ends as it would have without the
    interruption. The table is written once, at the end; on an interrupt, with the sizes that are
    finished, and the KeyboardInterrupt says which are missing.

    Args:
        topology: The machine, or the path of its file.
        collectives: One or several; of those that have a root, all have the same.
        sizes: Whole arrays in bytes: one size, several, or a range like "1K:1G:x4".
        on: What times candidates: "sim" (simulated), "mpi", "cuda", "nccl-tests", "mscclpp", or a
            function that makes an executor of the topology. Where it stands for no GPU, the
            default to beat is msccl-default; an emulated cluster's programs are made for the
            rates that it has.
        options: The search and its limits.
        path: The folder of the table; one that is there keeps what is not tuned now. None: a
            folder that lasts as long as the process (`Table.save` keeps the table).
        progress: Called with the evaluations made, their total, and the task in work.

    >>> import tuccl
    >>> options = tuccl.TuneOptions(budget=16)
    >>> table = tuccl.tune(tuccl.profile("v100x4"), "allgather", "1M", options=options)
    >>> table.result.evaluations <= 16, table.result.tuned[0].collective
    (True, 'allgather')

    Raises:
        InputError: an argument cannot be, ``path`` holds something else than a table of this
            machine and NCCL, no time was left to search, or an unfinished study is there and
            ``resume`` was not given.
        Unavailable: the executor or the storage needs something that is not installed, or fails.
    """
    topology = as_topology(topology)
    names, options = _calls(topology, collectives, options or TuneOptions())
    if on == "mscclpp":
        options = replace(options, dialect="mscclpp")
    with executor_on(topology, on, options.dialect) as executor:
        whole = options.dialect == "nccl"  # no program has to divide a size
        each = sorted({n if whole else aligned_size(n, topology.ranks) for n in sizes_bytes(sizes)})
        tasks = [(name, nbytes, options.budget) for name in names for nbytes in each]
        return tune_tasks(executor, topology, tasks, table_path(path), options, progress=progress)


def _calls(
    topology: Topology,
    collectives: str | Collective | Sequence[str | Collective],
    options: TuneOptions,
) -> tuple[list[str], TuneOptions]:
    """Return the collectives' names, each once, and the options with the root that they have."""
    if isinstance(collectives, str | Collective):
        collectives = [collectives]
    if not collectives:
        raise InputError("collectives: expected at least one")
    calls = [collective_on(topology.ranks, each) for each in collectives]
    roots = {c.root for c in collectives if isinstance(c, Collective) and c.rooted}
    if len(roots) > 1:
        raise InputError(f"roots {sorted(roots)}: expected one root for all collectives of a tune")
    root = next(iter(roots), options.root)
    return list(dict.fromkeys(call.name for call in calls)), replace(options, root=root)


def tune_tasks(
    executor: Executor,
    topology: Topology,
    tasks: Sequence[tuple[str, int, int]],
    out: Path,
    options: TuneOptions,
    *,
    progress: Progress = no_progress,
) -> TunedTable:
    """Do as `tune` for tasks of a collective, a size in bytes and a budget each.

    Sizes rise for each collective, and are tuned as they are.
    """
    if options.dialect == "nccl":
        return tune_nccl(executor, topology, tasks, out, options, progress=progress)
    start = time.monotonic()
    options = replace(options, nccl_version=nccl_release(options.nccl_version))
    options.check()
    check_target(out)
    baseline = executor.default_baseline
    if baseline == "nccl" and executor.simulated:
        baseline = f"nccl {options.nccl_version}"
    kept = partial(entries_to_keep, out, signature(topology), options.dialect, baseline, executor)
    other_entries, other_files = kept(_sizes(tasks, options.root))
    work = Work(executor, executor.topology or topology, options, out)
    part = part_of(work)
    studies = Studies(out, resume=options.resume, url=options.storage)
    try:
        with storage_failures(studies.where):
            stages = Stages(work, part, studies, progress, options.deadline(start))
            interrupted = not stages.search(tasks)
            results = stages.results
    finally:
        studies.close()
    if interrupted:
        finished = [(r.task.collective, r.task.nbytes, 0) for r in results]
        missing = _missing_text(out, tasks, finished)
        if not results:
            raise KeyboardInterrupt(missing)
        other_entries, other_files = kept(_sizes(finished, options.root))
    else:
        counts = [r.evaluations for r in results if r.grid_size]
        check_searched(options.seconds, counts, studies.finish)
    names = dict.fromkeys(result.task.collective for result in results)
    calls = [Collective(name, topology.ranks, options.root) for name in names]
    entries, files = _entries(results, calls, work)
    table = new_table(topology, [*entries, *other_entries], options.dialect, executor, baseline)
    files += other_files
    table = save_table(
        table, out, topology, files, sketches=_sketches(entries, results[-1].task, work)
    )
    if interrupted:
        raise KeyboardInterrupt(missing)
    studies.finish()
    tuned = tuple(_summary(r, table, options.root) for r in results)
    result = TuneResult(
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
    programs = {file.path: file.program for file in files}
    held = {path: programs[path] for path in table.programs}
    return TunedTable(out, table, topology, held, result)


def _missing_text(
    out: Path, tasks: Sequence[tuple[str, int, int]], finished: Sequence[tuple[str, int, int]]
) -> str:
    """Return in a line the sizes that an interrupted tune leaves out."""
    missing: dict[str, list[str]] = {}
    for collective, nbytes, _ in tasks:
        if (collective, nbytes, 0) not in finished:
            missing.setdefault(collective, []).append(format_bytes(nbytes))
    many = "1 size is in" if len(finished) == 1 else f"{len(finished)} sizes are in"
    written = f"{out}: {many}" if finished else "no size is finished"
    without = "; ".join(f"{name} {' '.join(each)}" for name, each in missing.items())
    return f"{written}; missing: {without}" if missing else f"{written}, not all searched again"


def _sizes(
    tasks: Sequence[tuple[str, int, int]], root: int
) -> dict[tuple[str, int | None], list[int]]:
    """The sizes of each collective, and of its root where it has one."""
    sizes: dict[tuple[str, int | None], list[int]] = {}
    for collective, nbytes, _ in tasks:
        sizes.setdefault((collective, root if collective in ROOTED else None), []).append(nbytes)
    return sizes


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
    files = {p.path: p for result in results for p in result.programs}
    programs = {path: file.program for path, file in files.items()}
    entries: list[Entry] = []
    for call in calls:
        tuned = {r.task.nbytes: r.entries for r in results if r.task.collective == call.name}
        entries += entries_of_sizes(
            tuned, programs, work.executor, work.topology, call, work.options
        )
    return entries, list(files.values())


def _sketches(entries: Sequence[Entry], task: Task, work: Work) -> dict[str, bytes]:
    """The files of the sketches that the entries name, as they are at the last task's size."""
    given = work.options.sketches
    found = searched_sketches(work.topology, task.collective, task.nbytes, given)
    sketch_of = sketches_by_name(*found)
    names = {c.sketch for entry in entries for c in entry.candidates if c.sketch}
    return {sketch_path(name): encode_sketch(sketch_of(name)) for name in sorted(names)}


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
