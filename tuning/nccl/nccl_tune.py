"""Tuning of NCCL's own configurations: algorithm, protocol, channels, into a tuner's table."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Literal, cast

from tuccl.errors import InputError
from tuccl.runtime import (
    Candidate,
    Entry,
    Executor,
    Statistics,
    default_candidate,
    reduction_class,
    save_table,
)
from tuccl.runtime.baseline import nccl_configurations
from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.runtime.nccl.versions import nccl_release
from tuccl.runtime.table import check_target, ranges_from_sizes
from tuccl.synth import Collective
from tuccl.topology import Topology, signature
from tuccl.tuning.existing_table import entries_to_keep
from tuccl.tuning.final_round import beats
from tuccl.tuning.nccl.nccl_runs import MOST_CANDIDATES, NcclRuns, TimesBySize
from tuccl.tuning.nccl.nccl_space import NcclSpace
from tuccl.tuning.nccl.sweep_journal import SweepJournal
from tuccl.tuning.options import SEARCHES, TuneOptions
from tuccl.tuning.rl.search import search_from
from tuccl.tuning.rl.state import State
from tuccl.tuning.searches.search import Request, run_search
from tuccl.tuning.searches.space import Point
from tuccl.tuning.tuned_table import (
    SizeSummary,
    TunedTable,
    TuneResult,
    check_searched,
    new_table,
)
from tuccl.tuning.work import Progress, no_progress
from tuccl.units import format_bytes

_FINAL_ROUNDS = 5
_OF_PROGRAMS = {
    "methods": "--method",
    "sketches": "--sketch",
    "any_order": "--any-order",
    "prefer": "--prefer",
    "workers": "--workers",
    "scheduler": "--dask",
    "storage": "--storage",
    "start": "--warm-start",
}
_Samples = dict[NcclKnobs | None, list[TimesBySize]]


def tune_nccl(
    executor: Executor,
    topology: Topology,
    tasks: Sequence[tuple[str, int, int]],
    out: Path,
    options: TuneOptions,
    *,
    progress: Progress = no_progress,
) -> TunedTable:
    """Search NCCL's own configurations for each task and write those that beat its choice to `out`.

    A task is a collective, a size in bytes and a budget: the configurations that the search may
    look at there. A run of nccl-tests times a configuration at all sizes, so another size that
    looks at it needs no run. In the final rounds the default and the best are timed in turns. A
    candidate enters if it beats the default by more than the noise out of place, is no slower in
    place, and NCCL's log says that it ran. Configurations with more channels than NCCL's
    communicator has, which no tuner can give, are not tried.

    Every run is kept next to the table: an interrupted tune goes on with ``resume``.

    Raises:
        InputError: an argument cannot be, NCCL's own choice fails, no time was left to search, or
            an unfinished study is there and ``resume`` was not given.
        Unavailable: nccl-tests or its launch is not what it should be, or no log comes back.
    """
    start = time.monotonic()
    _check(executor, tasks, options)
    check_target(out)
    version, root = nccl_release(options.nccl_version), options.root
    budgets: dict[str, dict[int, int]] = {}
    for name, nbytes, budget in sorted(tasks):
        budgets.setdefault(name, {})[nbytes] = budget
    for name in budgets:
        nccl_configurations(topology, name, version)  # refuses what no tuner steers
    baseline = f"nccl {version}" if executor.simulated else "nccl"
    sizes_of: dict[tuple[str, int | None], list[int]] = {
        (name, None): list(each) for name, each in budgets.items()
    }
    machine = signature(topology)
    other_entries, _ = entries_to_keep(out, machine, "nccl", baseline, executor, sizes_of)
    journal = SweepJournal(out, resume=options.resume)
    entries: list[Entry] = []
    summaries: list[SizeSummary] = []
    total, done = sum(budget for _, _, budget in tasks), 0
    deadline = options.deadline(start)
    for name, by_size in budgets.items():
        sizes = list(by_size)
        call = Collective(name, topology.ranks, root)
        runs = NcclRuns(executor, topology, call, sizes, version, journal)
        default, chosen = runs.run(None, sizes), runs.chosen()
        counts: dict[int, tuple[int, int]] = {}  # evaluations, points
        for nbytes, budget in by_size.items():
            what, before = f"{name} {format_bytes(nbytes)}", done

            def report(spent: int, what: str = what, before: int = before) -> None:
                progress(before + spent, total, what)

            now = time.monotonic()
            share = now + (deadline - now) * budget / (total - done)
            own = chosen.get(nbytes)
            space = space_of_call(topology, name, nbytes, version, own, runs.channels)
            known = default[nbytes].us if own and nbytes in default else None
            counts[nbytes] = _search(runs, space, nbytes, budget, options, report, share, known)
            done += budget
        samples = _final_rounds(runs, default)
        for nbytes, bounds in zip(sizes, ranges_from_sizes(sizes), strict=True):
            entry = _entry(runs, nbytes, bounds, samples)
            entries.append(entry)
            summaries.append(_summary(name, nbytes, entry, *counts[nbytes]))
    progress(total, total, "done")
    check_searched(options.seconds, [each.evaluations for each in summaries], journal.finish)
    table = new_table(topology, [*entries, *other_entries], "nccl", executor, baseline)
    table = save_table(table, out, topology, [])
    journal.finish()
    result = TuneResult(
        table=str(out),
        study=journal.where,
        label=executor.label,
        on=executor.name,
        search=options.search,
        entries=len(table.entries),
        evaluations=sum(summary.evaluations for summary in summaries),
        grid_size=sum(summary.grid_size for summary in summaries),
        seconds=time.monotonic() - start,
        tuned=tuple(summaries),
        nccl_version=version if executor.simulated else "",
        baseline=baseline,
    )
    return TunedTable(out, table, topology, {}, result)


def space_of_call(
    topology: Topology,
    collective: str,
    nbytes: int,
    version: str,
    own: tuple[str, str] | None = None,
    most_channels: int | None = None,
) -> NcclSpace:
    """Return NCCL's configurations for a call, with its ``own`` algorithm and protocol first.

    Those are its model's where they are not known.

    Raises:
        InputError: NCCL's tuners do not choose for the collective, or the version is not known.
    """
    configurations = nccl_configurations(topology, collective, version)
    if own is None:
        choice = nccl_choice(topology, collective, nbytes, version)
        own = choice.algorithm, choice.protocol
    host = topology.hosts[0]
    nics = len(topology.nics_of(host)) if len(topology.hosts) > 1 else 1
    return NcclSpace(configurations, nbytes, own, max(nics, 1), most_channels)


def _check(executor: Executor, tasks: Sequence[tuple[str, int, int]], options: TuneOptions) -> None:
    options.check()
    if not (executor.runs_nccl or (executor.simulated and executor.default_baseline == "nccl")):
        raise InputError(
            f"--dialect nccl: only NCCL itself, or its model, can time them, not "
            f"{executor.name[:40]}; use --on nccl-tests or sim"
        )
    usual = TuneOptions()
    given = [
        o for name, o in _OF_PROGRAMS.items() if getattr(options, name) != getattr(usual, name)
    ]
    if given:
        raise InputError(f"{', '.join(given)}: --dialect nccl has none; leave it out")
    if not tasks or min(min(nbytes, budget) for _, nbytes, budget in tasks) < 1:
        raise InputError("expected a budget of at least 1 and sizes of at least 1 byte")


def _search(
    runs: NcclRuns,
    space: NcclSpace,
    nbytes: int,
    budget: int,
    options: TuneOptions,
    report: Callable[[int], None],
    deadline: float,
    default_us: float | None,
) -> tuple[int, int]:
    """Search one size; return the evaluations and the points that there are.

    ``default_us`` is the time of the space's default, where it is known to be NCCL's own choice.
    """

    def evaluate(point: Point, _: int) -> Sequence[float]:
        return runs.samples(space.knobs(point), nbytes)

    report(0)
    search = search_from(
        SEARCHES[options.search],
        space,
        State.of(runs.topology, runs.call.name, nbytes, options.job),
        options.policy,
        seed=options.seed,
        full_effort=1,
    )
    if default_us is not None:
        search.tell(Request(space.default, 1), [default_us])
    measurements = run_search(
        search, evaluate, budget, report, lambda: time.monotonic() >= deadline
    )
    return measurements.spent - (default_us is not None), space.grid_size


def _final_rounds(runs: NcclRuns, default: TimesBySize) -> _Samples:
    """The default and the best timed in turns, every other round backwards.

    The search's own times are left out, unless they have no noise. Of a configuration only the
    sizes count at which it was seen to run.
    """
    proven = {knobs: sizes for knobs in runs.best() if (sizes := runs.proven(knobs))}
    if runs.executor.deterministic:
        known: _Samples = {k: [{n: runs.times[k][n] for n in proven[k]}] for k in proven}
        return {None: [default], **known}
    candidates: list[NcclKnobs | None] = [None, *proven]
    samples: _Samples = {knobs: [] for knobs in candidates}
    for index in range(_FINAL_ROUNDS):
        for knobs in candidates if index % 2 == 0 else reversed(candidates):
            sizes = tuple(runs.sizes) if knobs is None else proven[knobs]
            times = runs.run(knobs, sizes)
            samples[knobs].append({n: times[n] for n in sizes if n in times})
    return samples


def _times(rounds: Sequence[TimesBySize], nbytes: int, *, in_place: bool) -> tuple[float, ...]:
    """A size's times in us; none where one of the rounds failed."""
    timings = [times.get(nbytes) for times in rounds]
    us = [None if t is None else t.time_us_ip if in_place else t.time_us for t in timings]
    return tuple(t for t in us if t is not None) if None not in us else ()


def _entry(runs: NcclRuns, nbytes: int, bounds: tuple[int, int], samples: _Samples) -> Entry:
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
    on = cast("Literal['sim', 'nccl-tests']", runs.executor.name)
    collective = runs.call.name
    default = default_candidate(
        on,
        Statistics.of(default_us) if default_us else None,
        (f"tuned at {nbytes} bytes",),
    )
    return Entry(
        collective=cast("Literal['allgather']", collective),
        min_bytes=bounds[0],
        max_bytes=bounds[1],
        candidates=(*(_candidate(on, k, s) for _, k, s in best), default),
        reduction_class="plain" if reduction_class(collective) == "plain" else "none",
    )


def _candidate(on: Literal["sim", "nccl-tests"], knobs: NcclKnobs, stats: Statistics) -> Candidate:
    ran = f"{knobs.algorithm} {knobs.protocol} ran where it was requested"
    return Candidate(
        name=knobs.name,
        on=on,
        stats=stats,
        nccl=knobs,
        sms=knobs.channels,
        notes=(f"NCCL's log: {ran}",) if on == "nccl-tests" else (),
    )


def _summary(
    collective: str, nbytes: int, entry: Entry, evaluations: int, points: int
) -> SizeSummary:
    best, default = entry.candidates[0], entry.default.stats
    stats = None if best.is_default else best.stats
    return SizeSummary(
        collective=collective,
        size=nbytes,
        grid_size=points,
        evaluations=evaluations,
        default_us=math.nan if default is None else default.median_us,
        best_us=None if stats is None else stats.median_us,
        best=None if best.is_default else best.name,
    )
