"""Tuning what a stock NCCL can be asked for: algorithm, protocol, channels, into a tuner's table."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Literal, cast

from tuccl.errors import InputError
from tuccl.runtime import (
    NCCL_VERSION,
    Candidate,
    Entry,
    LookupTable,
    NcclTestsExecutor,
    Statistics,
    default_candidate,
    reduction_class,
    save_table,
)
from tuccl.runtime.nccl.graph import nccl_graph
from tuccl.runtime.nccl.knobs import ALGORITHMS, NcclKnobs
from tuccl.runtime.nccl.model import ll128_is_safe
from tuccl.runtime.nccl.tables import CONSTANTS
from tuccl.runtime.nccl.versions import nccl_group
from tuccl.runtime.table import check_target, ranges_from_sizes
from tuccl.topology import Topology, signature
from tuccl.tuning.final_round import beats
from tuccl.tuning.sweep_journal import SweepJournal
from tuccl.tuning.sweep_runs import CHANNELS, MOST_CANDIDATES, Sweep, Sweeps
from tuccl.tuning.tune import Tuned, TuneResult, check_searched, kept_entries

__all__ = ["tune_nccl", "worth_a_try"]

Progress = Callable[[int, int, str], None]
_FINAL_ROUNDS = 5


def worth_a_try(topology: Topology, collective: str) -> tuple[NcclKnobs, ...]:
    """Return the algorithms and protocols that NCCL may have here, with channels of its own.

    >>> from tuccl.topology import load_profile
    >>> [k.name for k in worth_a_try(load_profile("dgx-1v"), "broadcast")]
    ['nccl-Ring-LL', 'nccl-Ring-Simple', 'nccl-Ring-LL128']

    Raises:
        InputError: no tuner is asked about the collective.

    Notes:
        NVLS needs GPUs of capability 9.0, NVLSTree several hosts too, PAT one GPU a host;
        CollNet (SHARP) is not tried. LL128 is tried only where NCCL holds it to be safe: asked for
        by name it runs anywhere, and corrupts data.
    """
    if collective not in ALGORITHMS:
        raise InputError(
            f"{collective[:30]}: NCCL's tuners choose for {', '.join(ALGORITHMS)} only"
        )
    graph, hosts = nccl_graph(topology), len(topology.hosts)
    there = {
        "Ring": True,
        "Tree": True,
        "NVLS": graph.capability >= 90,
        "NVLSTree": graph.capability >= 90 and hosts > 1,
        "PAT": topology.ranks == hosts,
    }
    lines = ("LL128",) if ll128_is_safe(CONSTANTS[nccl_group(NCCL_VERSION)], graph) else ()
    return tuple(
        NcclKnobs(algorithm=algorithm, protocol=protocol)
        for algorithm in ALGORITHMS[collective]
        if there.get(algorithm, False)
        for protocol in (("LL", "Simple", *lines) if algorithm in ("Ring", "Tree") else ("Simple",))
    )


def tune_nccl(
    executor: NcclTestsExecutor,
    topology: Topology,
    collectives: Sequence[str],
    sizes: Sequence[int],
    *,
    out: Path,
    budget: int = 60,
    root: int = 0,
    resume: bool = False,
    seconds: float | None = None,
    progress: Progress = lambda done, total, what: None,
) -> TuneResult:
    """Time NCCL's own configurations, write those that beat its choice to ``out``, and say what it took.

    A run times one configuration at all sizes; ``budget`` counts the runs of a collective before
    the last rounds, in which the default and the best are timed in turns. A candidate enters where
    it beats the default by more than the noise out of place, and is no slower in place. More
    channels than NCCL's communicator has, which no tuner can give, are not tried. Nor does one
    enter of which NCCL's log does not say that it ran where it was asked for.

    Every run is kept beside the table: a sweep that was interrupted goes on with ``resume``.

    Raises:
        InputError: an argument cannot be, NCCL's own choice fails, or an unfinished study is there
            and ``resume`` was not asked for.
        Unavailable: nccl-tests or its launch is not what it should be, or no log comes back.
    """
    start = time.monotonic()
    if budget < 1 or not sizes or min(sizes) < 1:
        raise InputError("expected a budget of at least 1 and sizes of at least 1 byte")
    check_target(out)
    names = list(dict.fromkeys(collectives))
    tried = {name: worth_a_try(topology, name) for name in names}
    ordered = sorted(set(sizes))
    kept, _ = kept_entries(out, signature(topology), "nccl", "nccl", executor, names)
    journal = SweepJournal(out, resume=resume)
    entries: list[Entry] = []
    tuned: list[Tuned] = []
    runs = 0
    for at, name in enumerate(names):
        until = math.inf if seconds is None else start + seconds * (at + 1) / len(names)
        sweeps = Sweeps(executor, name, ordered, root, budget, journal, signature(topology))

        def told(at: int = at, name: str = name, sweeps: Sweeps = sweeps) -> None:
            progress(at * budget + budget - sweeps.left, len(names) * budget, name)

        told()
        sweeps.run(None)
        sweeps.search(tried[name], told, until)
        samples = _last_rounds(sweeps)
        made = [_entry(name, n, bounds, samples) for n, bounds in _ranges(ordered)]
        entries += made
        tuned += [_tuned(name, n, e, sweeps) for n, e in zip(ordered, made, strict=True)]
        runs += budget - sweeps.left
    check_searched(seconds, [t.evaluations for t in tuned])
    table = LookupTable(
        name=topology.name[:120] or "table",
        signature=signature(topology),
        ranks=topology.ranks,
        hosts=len(topology.hosts),
        entries=(*entries, *kept),
        dialect="nccl",
        tuned_on=executor.label,
        baseline="nccl",
    )
    save_table(table, out, topology, [])
    journal.finish()
    return TuneResult(
        table=str(out),
        study=journal.where,
        label=executor.label,
        on=executor.name,
        search="sweep",
        entries=len(table.entries),
        evaluations=runs,
        grid_size=sum(len(t) * (1 + len(CHANNELS)) for t in tried.values()) * len(ordered),
        seconds=time.monotonic() - start,
        tuned=tuple(tuned),
        nccl_version="",
        baseline="nccl",
    )


def _ranges(sizes: Sequence[int]) -> Iterator[tuple[int, tuple[int, int | None]]]:
    return zip(sizes, ranges_from_sizes(sizes), strict=True)


_Samples = dict[NcclKnobs | None, list[Sweep]]


def _last_rounds(sweeps: Sweeps) -> _Samples:
    """The default and the finalists in turns, every other round backwards; the search is forgotten.

    Of a finalist only the sizes are kept at which it was seen to run.
    """
    proven = {knobs: sweeps.proven(knobs) for knobs in sweeps.finalists()}
    entrants: list[NcclKnobs | None] = [None, *(k for k, sizes in proven.items() if sizes)]
    samples: _Samples = {knobs: [] for knobs in entrants}
    for done in range(_FINAL_ROUNDS):
        for knobs in entrants if done % 2 == 0 else reversed(entrants):
            sizes = sweeps.sizes if knobs is None else proven[knobs]
            times = sweeps.run(knobs)
            samples[knobs].append({n: times[n] for n in sizes if n in times})
    return samples


def _times(rounds: Sequence[Sweep], nbytes: int, *, in_place: bool) -> tuple[float, ...]:
    """A size's times in us; none where one of the rounds failed."""
    timings = [sweep.get(nbytes) for sweep in rounds]
    us = [None if t is None else t.time_us_ip if in_place else t.time_us for t in timings]
    return tuple(t for t in us if t is not None) if None not in us else ()


def _entry(
    collective: str, nbytes: int, bounds: tuple[int, int | None], samples: _Samples
) -> Entry:
    own, own_inside = (_times(samples[None], nbytes, in_place=p) for p in (False, True))
    winners: list[tuple[float, NcclKnobs, Statistics]] = []
    for knobs, rounds in samples.items():
        us, inside = (_times(rounds, nbytes, in_place=p) for p in (False, True))
        if knobs is None or not us or not own or not beats(us, own):
            continue
        if inside and own_inside and beats(own_inside, inside):
            continue  # slower in place, which a tuner cannot tell apart
        winners.append((median(us), knobs, Statistics.of(us)))
    best = sorted(winners, key=lambda w: (w[0], w[1].channels))[:MOST_CANDIDATES]
    reducing = reduction_class(collective) == "plain"
    notes = (f"tuned at {nbytes} bytes",)
    default = default_candidate("nccl-tests", Statistics.of(own) if own else None, notes)
    return Entry(
        collective=cast("Literal['allgather']", collective),
        min_bytes=bounds[0],
        max_bytes=bounds[1],
        candidates=(*(_candidate(k, s) for _, k, s in best), default),
        reduction_class="plain" if reducing else "none",
    )


def _candidate(knobs: NcclKnobs, stats: Statistics) -> Candidate:
    proof = f"NCCL's log: {knobs.algorithm} {knobs.protocol} ran where it was asked for"
    return Candidate(name=knobs.name, on="nccl-tests", stats=stats, nccl=knobs, notes=(proof,))


def _tuned(collective: str, nbytes: int, entry: Entry, sweeps: Sweeps) -> Tuned:
    best = entry.candidates[0]
    default = entry.default.stats
    stats = None if best.is_default else best.stats
    return Tuned(
        collective=collective,
        size=nbytes,
        grid_size=len(sweeps.seen),
        evaluations=len(sweeps.seen),
        default_us=math.nan if default is None else default.median_us,
        best_us=None if stats is None else stats.median_us,
        best=None if best.is_default else best.name,
    )
