"""Search of NCCL's own configurations: algorithm, protocol, channels, into a tuner's table."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Literal, cast

from tuccl.errors import InputError
from tuccl.runtime import (
    Candidate,
    Entry,
    NcclTestsExecutor,
    Statistics,
    default_candidate,
    reduction_class,
    save_table,
)
from tuccl.runtime.baseline import nccl_configurations
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.runtime.table import check_target, ranges_from_sizes
from tuccl.topology import Topology, signature
from tuccl.tuning.existing_table import entries_to_keep
from tuccl.tuning.final_round import beats
from tuccl.tuning.joint_search import (
    Progress,
    check_searched,
    new_table,
    no_progress,
)
from tuccl.tuning.nccl.sweep_journal import SweepJournal
from tuccl.tuning.nccl.sweep_runs import CHANNELS, MOST_CANDIDATES, ConfigurationSweep, TimesBySize
from tuccl.tuning.options import TuneOptions
from tuccl.tuning.tuned_table import SizeSummary, TuneResult

__all__ = ["tune_nccl"]

_FINAL_ROUNDS = 5


def tune_nccl(
    executor: NcclTestsExecutor,
    topology: Topology,
    collectives: Sequence[str],
    sizes: Sequence[int],
    out: Path,
    options: TuneOptions | None = None,
    *,
    progress: Progress = no_progress,
) -> TuneResult:
    """Time NCCL's own configurations and write those that beat its choice to ``out``.

    A run times one configuration at all sizes; the budget counts the runs of a collective before
    the final rounds, in which the default and the best are timed in turns. A candidate enters if
    it beats the default by more than the noise out of place, is no slower in place, and NCCL's log
    says that it ran. Configurations with more channels than NCCL's communicator has, which no tuner
    can give, are not tried.

    Every run is kept next to the table: an interrupted sweep goes on with ``resume``.

    Raises:
        InputError: an argument cannot be, NCCL's own choice fails, no time was left to search, or
            an unfinished study is there and ``resume`` was not given.
        Unavailable: nccl-tests or its launch is not what it should be, or no log comes back.
    """
    start = time.monotonic()
    options = options or TuneOptions()
    if options.budget < 1 or not sizes or min(sizes) < 1:
        raise InputError("expected a budget of at least 1 and sizes of at least 1 byte")
    check_target(out)
    machine, sizes = signature(topology), sorted(set(sizes))
    configurations = {name: nccl_configurations(topology, name) for name in collectives}
    tuned: dict[tuple[str, int | None], list[int]] = {
        (name, None): sizes for name in configurations
    }
    other_entries, _ = entries_to_keep(out, machine, "nccl", "nccl", executor, tuned)
    journal = SweepJournal(out, resume=options.resume)
    entries: list[Entry] = []
    summaries: list[SizeSummary] = []
    total = len(configurations) * options.budget
    runs = 0
    for index, (name, first) in enumerate(configurations.items()):
        sweep = ConfigurationSweep(
            executor, name, sizes, options.root, options.budget, journal, machine
        )

        def report(left: int, name: str = name, index: int = index) -> None:
            progress((index + 1) * options.budget - left, total, name)

        share = (index + 1) / len(configurations)
        sweep.run(None)
        sweep.search(first, report, start + (options.deadline(start) - start) * share)
        samples = _final_rounds(sweep)
        for nbytes, bounds in zip(sizes, ranges_from_sizes(sizes), strict=True):
            entry = _entry(name, nbytes, bounds, samples)
            entries.append(entry)
            summaries.append(_summary(name, nbytes, entry, len(sweep.times)))
        runs += options.budget - sweep.left
    check_searched(options.seconds, [summary.evaluations for summary in summaries])
    table = new_table(topology, [*entries, *other_entries], "nccl", executor.label, "nccl")
    save_table(table, out, topology, [])
    journal.finish()
    points = sum(len(each) for each in configurations.values()) * (1 + len(CHANNELS)) * len(sizes)
    return TuneResult(
        table=str(out),
        study=journal.where,
        label=executor.label,
        on=executor.name,
        search="sweep",
        entries=len(table.entries),
        evaluations=runs,
        grid_size=points,
        seconds=time.monotonic() - start,
        tuned=tuple(summaries),
        nccl_version="",
        baseline="nccl",
    )


_Samples = dict[NcclKnobs | None, list[TimesBySize]]


def _final_rounds(sweep: ConfigurationSweep) -> _Samples:
    """The default and the best timed in turns, every other round backwards.

    The search's own times are left out. Of a configuration only the sizes count at which it was
    seen to run.
    """
    proven = {knobs: sweep.proven(knobs) for knobs in sweep.best()}
    candidates: list[NcclKnobs | None] = [None, *(k for k, sizes in proven.items() if sizes)]
    samples: _Samples = {knobs: [] for knobs in candidates}
    for index in range(_FINAL_ROUNDS):
        for knobs in candidates if index % 2 == 0 else reversed(candidates):
            sizes = sweep.sizes if knobs is None else proven[knobs]
            times = sweep.run(knobs)
            samples[knobs].append({n: times[n] for n in sizes if n in times})
    return samples


def _times(rounds: Sequence[TimesBySize], nbytes: int, *, in_place: bool) -> tuple[float, ...]:
    """A size's times in us; none where one of the rounds failed."""
    timings = [sweep.get(nbytes) for sweep in rounds]
    us = [None if t is None else t.time_us_ip if in_place else t.time_us for t in timings]
    return tuple(t for t in us if t is not None) if None not in us else ()


def _entry(collective: str, nbytes: int, bounds: tuple[int, int], samples: _Samples) -> Entry:
    default_us, default_us_ip = (_times(samples[None], nbytes, in_place=p) for p in (False, True))
    winners: list[tuple[float, NcclKnobs, Statistics]] = []
    for knobs, rounds in samples.items():
        us, us_ip = (_times(rounds, nbytes, in_place=p) for p in (False, True))
        if knobs is None or not us or not default_us or not beats(us, default_us):
            continue
        if us_ip and default_us_ip and beats(default_us_ip, us_ip):
            continue  # slower in place, which a tuner cannot distinguish
        winners.append((median(us), knobs, Statistics.of(us)))
    best = sorted(winners, key=lambda w: (w[0], w[1].channels))[:MOST_CANDIDATES]
    default = default_candidate(
        "nccl-tests",
        Statistics.of(default_us) if default_us else None,
        (f"tuned at {nbytes} bytes",),
    )
    return Entry(
        collective=cast("Literal['allgather']", collective),
        min_bytes=bounds[0],
        max_bytes=bounds[1],
        candidates=(*(_candidate(k, s) for _, k, s in best), default),
        reduction_class="plain" if reduction_class(collective) == "plain" else "none",
    )


def _candidate(knobs: NcclKnobs, stats: Statistics) -> Candidate:
    proof = f"NCCL's log: {knobs.algorithm} {knobs.protocol} ran where it was requested"
    return Candidate(
        name=knobs.name,
        on="nccl-tests",
        stats=stats,
        nccl=knobs,
        sms=knobs.channels,
        notes=(proof,),
    )


def _summary(collective: str, nbytes: int, entry: Entry, evaluations: int) -> SizeSummary:
    best, default = entry.candidates[0], entry.default.stats
    stats = None if best.is_default else best.stats
    return SizeSummary(
        collective=collective,
        size=nbytes,
        grid_size=evaluations,
        evaluations=evaluations,
        default_us=math.nan if default is None else default.median_us,
        best_us=None if stats is None else stats.median_us,
        best=None if best.is_default else best.name,
    )
