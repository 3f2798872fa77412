"""The joint search: sketch, method, chunking and knobs, size by size, into a table."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from tuccl.errors import InputError
from tuccl.runtime import (
    NCCL_VERSION,
    Entry,
    Executor,
    LookupTable,
    ProgramFile,
    open_table,
    program_file,
    save_table,
    select,
)
from tuccl.runtime.nccl.versions import nccl_release
from tuccl.runtime.table import check_target, ranges_from_sizes
from tuccl.synth import Collective
from tuccl.synth.lowering.limits import limits_of
from tuccl.topology import Topology, signature
from tuccl.tuning.final_round import entries_of
from tuccl.tuning.measurements import Record
from tuccl.tuning.mraco import MracoSearch
from tuccl.tuning.plain_searches import CoordinateSearch, GridSearch, RandomSearch
from tuccl.tuning.programs import Programs
from tuccl.tuning.search import Search
from tuccl.tuning.study import Studies
from tuccl.tuning.task import Outcome, Task, tuned_size
from tuccl.units import format_bytes

__all__ = [
    "SEARCHES",
    "Progress",
    "TuneResult",
    "Tuned",
    "check_searched",
    "even_size",
    "kept_entries",
    "tune",
]

Progress = Callable[[int, int, str], None]
_ELEMENT_BYTES = 4
_FEWEST_PARTS, _MOST_PARTS = 4, 64  # of a rank's share: chunks a rank x channels
SEARCHES: dict[str, type[Search]] = {
    search.name: search for search in (MracoSearch, RandomSearch, GridSearch, CoordinateSearch)
}


@dataclass(frozen=True)
class Tuned:
    """What came of one collective and size; times in us as timed on the tune's executor.

    ``grid_size`` counts the distinct points that are legal by the knobs' rules and the size,
    without those that synthesis has ruled out; plans that were never asked for count in full.
    ``evaluations`` are at full effort, rounded up, finalists included; ``best`` is None where the
    runtime's own default was not beaten.
    """

    collective: str
    size: int
    grid_size: int
    evaluations: int
    default_us: float
    best_us: float | None
    best: str | None


@dataclass(frozen=True)
class TuneResult:
    """What a tune wrote and what it cost: evaluations at full effort, seconds of wall time."""

    table: str
    study: str
    label: str
    on: str
    search: str
    entries: int
    evaluations: int
    grid_size: int
    seconds: float
    tuned: tuple[Tuned, ...]
    nccl_version: str
    baseline: str


def tune(
    executor: Executor,
    topology: Topology,
    collectives: Sequence[str],
    sizes: Sequence[int],
    *,
    search: str = "mraco",
    budget: int = 100,
    seed: int = 0,
    root: int = 0,
    out: Path,
    resume: bool = False,
    dialect: str = "executor",
    progress: Progress = lambda done, total, what: None,
    storage: str | None = None,
    nccl_version: str = NCCL_VERSION,
    seconds: float | None = None,
    any_order: bool = False,
) -> TuneResult:
    """Search every collective at every size, write the table to ``out``, and say what it took.

    A size is tuned at the `even_size` near it. A table that ``out`` has of the same machine keeps
    its entries for other collectives; another machine's is refused, and one tuned against another
    NCCL than ``nccl_version``.

    Sizes go from small to large, each warm-started from the one before. What is measured is
    kept in a study beside the table (or in ``storage``, an Optuna URL): an interrupted tune
    goes on with ``resume`` and ends as it would have without the interruption. The table is
    written once, whole, at the end. ``budget`` counts evaluations at full effort per collective
    and size; ``progress(done, total, what)`` is called after each. ``root`` matters to the
    collectives that have one. After ``seconds`` no search goes on: what is left of them is
    shared evenly by the sizes that are left, and finals come on top. With ``any_order`` programs
    count too whose ranks add in different orders, so that results may differ in the last bit.

    On an executor that stands for no GPU the default to beat is msccl-default; on an emulated
    cluster programs are made for the rates that it has.

    Raises:
        InputError: an argument cannot be, ``out`` holds something else than a table, or an
            unfinished study is there and ``resume`` was not asked for.
        Unavailable: the storage needs a driver that is not installed.
    """
    start = time.monotonic()
    ordered = _checked(topology, executor, search, budget, sizes, dialect)
    deadline = _deadline(start, seconds)
    calls = [Collective(name, topology.ranks, root) for name in dict.fromkeys(collectives)]
    check_target(out)
    release = nccl_release(nccl_version)
    kind = executor.default_baseline
    baseline = f"nccl {release}" if kind == "nccl" and executor.simulated else kind
    kept, kept_files = kept_entries(
        out, signature(topology), dialect, baseline, executor, [call.name for call in calls], root
    )
    studies = Studies(out, resume=resume, url=storage)
    ground = executor.topology or topology
    tasks = [
        Task(
            executor=executor,
            topology=ground,
            programs=Programs(ground, call, dialect, any_order=any_order),
            studies=studies,
            search=SEARCHES[search],
            budget=budget,
            seed=seed,
            run=f"{search}-{seed}",
            nccl_version=release,
        )
        for call in calls
    ]
    outcomes = _outcomes(tasks, ordered, progress, deadline)
    check_searched(seconds, [o.evaluations for o in outcomes if o.record is not None])
    entries, files = _entries(outcomes, ordered)
    entries, files = (*entries, *kept), [*files, *kept_files]
    table = _table(topology, entries, dialect, executor.label, baseline)
    save_table(table, out, topology, files)
    studies.finish()
    seconds = time.monotonic() - start
    return _result(executor, search, outcomes, table, str(out), studies.where, seconds, release)


def _result(
    executor: Executor,
    search: str,
    outcomes: Sequence[Outcome],
    table: LookupTable,
    out: str,
    study: str,
    seconds: float,
    release: str,
) -> TuneResult:
    return TuneResult(
        table=out,
        study=study,
        label=executor.label,
        on=executor.name,
        search=search,
        entries=len(table.entries),
        evaluations=sum(o.evaluations for o in outcomes),
        grid_size=sum(o.grid_size for o in outcomes),
        seconds=seconds,
        tuned=tuple(_summary(o, table) for o in outcomes),
        nccl_version=release,
        baseline=table.baseline,
    )


def _deadline(start: float, seconds: float | None) -> float:
    """Return when searches end, on the clock that ``start`` is from."""
    if seconds is not None and seconds <= 0:
        raise InputError(f"time limit {seconds:g}: expected more than 0 seconds")
    return math.inf if seconds is None else start + seconds


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


def _table(
    topology: Topology, entries: tuple[Entry, ...], dialect: str, label: str, baseline: str
) -> LookupTable:
    return LookupTable(
        name=topology.name[:120] or "table",
        signature=signature(topology),
        ranks=topology.ranks,
        hosts=len(topology.hosts),
        entries=entries,
        dialect=cast("Literal['executor', 'rccl', 'fork']", dialect),
        tuned_on=label,
        baseline=baseline,
    )


def _checked(
    topology: Topology,
    executor: Executor,
    search: str,
    budget: int,
    sizes: Sequence[int],
    dialect: str,
) -> list[int]:
    """The sizes, rising and each once, after every argument was looked at."""
    if search not in SEARCHES:
        raise InputError(f"search {search[:30]!r}: expected one of {', '.join(SEARCHES)}")
    if budget < 1:
        raise InputError(f"budget {budget}: expected at least 1 evaluation")
    if not sizes or min(sizes) < 1:
        raise InputError("sizes: expected at least one, each of at least 1 byte")
    if executor.ranks != topology.ranks:
        raise InputError(
            f"the executor has {executor.ranks} ranks, the topology {topology.ranks}; "
            "expected the same machine"
        )
    limits_of(dialect)
    return sorted({even_size(nbytes, topology.ranks) for nbytes in sizes})


def even_size(nbytes: int, ranks: int) -> int:
    """Return the size near ``nbytes`` that is tuned: one whose chunks ``ranks`` ranks can share.

    The runtimes run a program only where its chunks divide the call; nccl-tests rounds sizes down
    for the same reason. At most 1/64 is rounded off, except below that many elements.

    >>> even_size(64 << 20, 16) == 64 << 20, even_size(64 << 20, 9)
    (True, 67108608)
    """
    unit = ranks * _ELEMENT_BYTES * _FEWEST_PARTS
    while unit < ranks * _ELEMENT_BYTES * _MOST_PARTS and 2 * unit * 64 <= nbytes:
        unit *= 2
    return max(unit, nbytes // unit * unit)


def kept_entries(
    out: Path,
    machine: str,
    dialect: str,
    baseline: str,
    executor: Executor,
    tuned: Sequence[str],
    root: int = 0,
) -> tuple[list[Entry], list[ProgramFile]]:
    """Return the entries of a table at ``out`` that a tune leaves, and their programs.

    These are the entries of other collectives than ``tuned``, and of other roots than ``root``.

    Raises:
        InputError: it is another machine's, another dialect's, or timed on something else.
    """
    if not out.exists() or not any(out.iterdir()):
        return [], []
    stored = open_table(out)
    if (stored.table.signature, stored.table.dialect) != (machine, dialect):
        raise InputError(
            f"{str(out)[-80:]}: holds the {stored.table.dialect} table of machine "
            f"{stored.table.signature}, not the {dialect} table of {machine}; name another folder"
        )
    entries = [
        e for e in stored.table.entries if e.collective not in tuned or e.root not in (None, root)
    ]
    if entries and stored.table.baseline not in ("", baseline):
        raise InputError(
            f"{str(out)[-80:]}: holds other collectives tuned against "
            f"{stored.table.baseline[:40]}, not {baseline}; name another folder or that version"
        )
    measured = not executor.deterministic and stored.table.tuned_on != executor.label
    timed_by = {candidate.on for entry in entries for candidate in entry.candidates}
    if entries and (measured or timed_by != {executor.name}):
        raise InputError(
            f"{str(out)[-80:]}: holds other collectives {stored.table.tuned_on[:200]}; a table "
            f"never mixes them with times {executor.label[:200]}: name another folder"
        )
    programs = [
        program_file(program, dialect, entry.root or 0)
        for entry in entries
        for candidate in entry.candidates
        if (program := stored.program(candidate)) is not None
    ]
    return entries, programs


def _outcomes(
    tasks: Sequence[Task], sizes: Sequence[int], progress: Progress, deadline: float
) -> list[Outcome]:
    total = len(tasks) * len(sizes) * tasks[0].budget if tasks else 0
    outcomes: list[Outcome] = []
    for task in tasks:
        neighbour: Record | None = None
        for nbytes in sizes:
            done = len(outcomes) * task.budget
            what = f"{task.collective.name} {format_bytes(nbytes)}"
            progress(done, total, what)
            left = (deadline - time.monotonic()) / (len(tasks) * len(sizes) - len(outcomes))
            outcome = tuned_size(
                *(task, nbytes, neighbour, _shifted(progress, done, total, what)),
                deadline=time.monotonic() + left,
            )
            neighbour = outcome.record or neighbour
            outcomes.append(outcome)
    progress(total, total, "done")
    return outcomes


def _shifted(progress: Progress, done: int, total: int, what: str) -> Callable[[int], None]:
    return lambda spent: progress(done + spent, total, what)


def _entries(
    outcomes: Sequence[Outcome], sizes: Sequence[int]
) -> tuple[tuple[Entry, ...], list[ProgramFile]]:
    ranges = dict(zip(sizes, ranges_from_sizes(sizes), strict=True))
    entries: list[Entry] = []
    files: list[ProgramFile] = []
    for outcome in outcomes:
        made, named = entries_of(outcome.final, *ranges[outcome.final.nbytes])
        entries.extend(made)
        files.extend(named)
    return tuple(entries), files


def _summary(outcome: Outcome, table: LookupTable) -> Tuned:
    """What ``select`` gives a call of the tuned size, out of place where that was timed."""
    final = outcome.final
    choice = select(
        table,
        final.collective.name,
        final.nbytes,
        in_place=final.default.timing.time_us is None,
        root=final.collective.root,
    )
    best = None if choice.candidate.is_default else choice.candidate
    return Tuned(
        collective=final.collective.name,
        size=final.nbytes,
        grid_size=outcome.grid_size,
        evaluations=outcome.evaluations,
        default_us=final.default.timing.us,
        best_us=best.stats.median_us if best is not None and best.stats is not None else None,
        best=best.name if best is not None else None,
    )
