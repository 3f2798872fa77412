"""The result of a tune: the table, what it cost, and what each size gained."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from tuccl.errors import InputError
from tuccl.runtime import Entry, Executor, LookupTable, Table
from tuccl.topology import Topology, signature
from tuccl.tuning.rl.saturation import Saturation
from tuccl.tuning.workload_tasks import WorkloadGain


@dataclass(frozen=True)
class SizeSummary:
    """The result for one collective and size; times in us as timed on the tune's executor.

    ``grid_size`` counts the distinct points that are legal by the knobs' rules and the size,
    without those that synthesis has ruled out; plans that were never tried count in full.
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


@dataclass(frozen=True, repr=False)
class TunedTable(Table):
    """The table that a tune wrote; ``result`` says what it cost and what each size gained."""

    result: TuneResult


def table_path(path: str | os.PathLike[str] | None) -> Path:
    """Return ``path``, or where it is None a place that is cleared when the process ends."""
    if path is not None:
        return Path(path)
    folder = tempfile.mkdtemp(prefix="tuccl-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder, "table")


def check_searched(
    seconds: float | None, evaluations: Sequence[int], finish: Callable[[], None]
) -> None:
    """Refuse a tune whose time limit left no size an evaluation; ``finish`` its study first.

    Raises:
        InputError: there are sizes to search, and none was searched.
    """
    if seconds is not None and evaluations and not any(evaluations):
        finish()  # it has nothing that a new one would lose
        raise InputError(
            f"time limit {seconds:g} s: it was over before the first evaluation, so nothing was "
            "searched and no table is written; allow more time"
        )


def new_table(
    topology: Topology, entries: Sequence[Entry], dialect: str, executor: Executor, baseline: str
) -> LookupTable:
    """Return the table of ``entries`` for ``topology``, timed by ``executor``."""
    return LookupTable(
        name=topology.name[:120] or "table",
        signature=signature(topology),
        ranks=topology.ranks,
        hosts=len(topology.hosts),
        entries=tuple(entries),
        dialect=cast("Literal['executor', 'rccl', 'fork', 'nccl', 'mscclpp']", dialect),
        tuned_on=executor.label,
        baseline=baseline,
        context=executor.context,
    )
