"""Tuning what a stock NCCL can be asked for: algorithm, protocol, channels, into a tuner's table."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal, cast

from tuccl.errors import InputError, Stuck
from tuccl.runtime import (
    NCCL_VERSION,
    Candidate,
    Entry,
    LookupTable,
    NcclTestsExecutor,
    Statistics,
    Timing,
    check_target,
    default_candidate,
    nccl_graph,
    nccl_group,
    ranges_from_sizes,
    reduction_class,
    save_table,
)
from tuccl.runtime.nccl_knobs import ALGORITHMS, NcclKnobs
from tuccl.runtime.nccl_model import ll128_is_safe
from tuccl.runtime.nccl_tables import CONSTANTS
from tuccl.topology import Topology, signature
from tuccl.tuning.finals import beats
from tuccl.tuning.tune import Tuned, TuneResult, kept_entries

__all__ = ["nccl_variables", "tune_nccl", "worth_a_try"]

Progress = Callable[[int, int, str], None]
Sweep = dict[int, Timing]
CHANNELS = (1, 2, 4, 8, 16, 32)
_CLOSE = 1.5  # times as long as the best at some size: its channels are worth a try
_FINAL_ROUNDS = 5
_MOST_FINALISTS = 8
_MOST_CANDIDATES = 3


def nccl_variables(knobs: NcclKnobs) -> dict[str, str]:
    """Return the variables that make NCCL run ``knobs`` for every call.

    >>> nccl_variables(NcclKnobs(algorithm="Ring", protocol="LL", channels=4))["NCCL_MAX_NCHANNELS"]
    '4'
    """
    variables: dict[str, str] = {"NCCL_ALGO": knobs.algorithm, "NCCL_PROTO": knobs.protocol}
    if knobs.channels:
        count = str(knobs.channels)
        variables |= {"NCCL_MIN_NCHANNELS": count, "NCCL_MAX_NCHANNELS": count}
    return variables


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


@dataclass
class _Sweeps:
    """The runs of one collective: each configuration over all sizes, wrong and failed ones left out."""

    executor: NcclTestsExecutor
    collective: str
    sizes: Sequence[int]
    root: int
    left: int
    seen: dict[NcclKnobs, Sweep] = field(default_factory=dict)

    def run(self, knobs: NcclKnobs | None) -> Sweep:
        """Times by size of one run; empty where it failed. The default's failure is everyone's."""
        try:
            timings = self.executor.sweep(
                self.collective,
                self.sizes,
                root=self.root,
                variables=None if knobs is None else nccl_variables(knobs),
            )
        except (InputError, Stuck):
            if knobs is None:
                raise
            return {}
        times = dict(zip(self.sizes, timings, strict=True))
        return {} if any(t.wrong for t in timings) and knobs is not None else times

    def search(self, first: Iterable[NcclKnobs], told: Callable[[], None], until: float) -> None:
        """All of ``first``, then the close ones' channels, as far as the budget goes."""
        self._try(first, told, until)
        most = self.executor.channels or CHANNELS[-1]
        self._try(self._with_channels(most), told, until)

    def _try(self, each: Iterable[NcclKnobs], told: Callable[[], None], until: float) -> None:
        for knobs in each:
            if self.left < 1 or time.monotonic() >= until:
                return
            self.seen[knobs] = self.run(knobs)
            self.left -= 1
            told()

    def _with_channels(self, most: int) -> Iterator[NcclKnobs]:
        """More channels than the communicator has no tuner can give."""
        close = [knobs for knobs in self.seen if self._is_close(knobs)]
        for count in (c for c in CHANNELS if c <= most):
            for knobs in close:
                yield NcclKnobs(algorithm=knobs.algorithm, protocol=knobs.protocol, channels=count)

    def _is_close(self, knobs: NcclKnobs) -> bool:
        return any(t.us <= _CLOSE * self.best_us(n) for n, t in self.seen[knobs].items())

    def best_us(self, nbytes: int) -> float:
        """The least time so far of a size."""
        return min((s[nbytes].us for s in self.seen.values() if nbytes in s), default=math.inf)

    def finalists(self) -> list[NcclKnobs]:
        """The three best of each size, those first that are best at most sizes."""
        wins: dict[NcclKnobs, float] = {}
        for nbytes in self.sizes:
            times = {k: s[nbytes].us for k, s in self.seen.items() if nbytes in s}
            for place, knobs in enumerate(sorted(times, key=lambda k: times[k])[:_MOST_CANDIDATES]):
                wins[knobs] = wins.get(knobs, 0.0) + 2.0**-place
        return sorted(wins, key=lambda k: -wins[k])[:_MOST_FINALISTS]


def tune_nccl(
    executor: NcclTestsExecutor,
    topology: Topology,
    collectives: Sequence[str],
    sizes: Sequence[int],
    *,
    out: Path,
    budget: int = 60,
    root: int = 0,
    seconds: float | None = None,
    progress: Progress = lambda done, total, what: None,
) -> TuneResult:
    """Time NCCL's own configurations, write those that beat its choice to ``out``, and say what it took.

    A run times one configuration at all sizes; ``budget`` counts the runs of a collective before
    the last rounds, in which the default and the best are timed in turns. A candidate enters where
    it beats the default by more than the noise out of place, and is no slower in place. More
    channels than NCCL's communicator has, which no tuner can give, are not tried.

    Raises:
        InputError: an argument cannot be, or NCCL's own choice fails.
        Unavailable: nccl-tests or its launch is not what it should be.
    """
    start = time.monotonic()
    if budget < 1 or not sizes or min(sizes) < 1:
        raise InputError("expected a budget of at least 1 and sizes of at least 1 byte")
    check_target(out)
    names = list(dict.fromkeys(collectives))
    tried = {name: worth_a_try(topology, name) for name in names}
    ordered = sorted(set(sizes))
    kept, _ = kept_entries(out, signature(topology), "nccl", "nccl", executor, names)
    entries: list[Entry] = []
    tuned: list[Tuned] = []
    runs = 0
    for at, name in enumerate(names):
        until = math.inf if seconds is None else start + seconds * (at + 1) / len(names)
        sweeps = _Sweeps(executor, name, ordered, root, budget)

        def told(at: int = at, name: str = name, sweeps: _Sweeps = sweeps) -> None:
            progress(at * budget + budget - sweeps.left, len(names) * budget, name)

        told()
        sweeps.run(None)
        sweeps.search(tried[name], told, until)
        samples = _last_rounds(sweeps)
        made = [_entry(name, n, bounds, samples) for n, bounds in _ranges(ordered)]
        entries += made
        tuned += [_tuned(name, n, e, sweeps) for n, e in zip(ordered, made, strict=True)]
        runs += budget - sweeps.left
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
    return TuneResult(
        table=str(out),
        study="",
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


def _last_rounds(sweeps: _Sweeps) -> _Samples:
    """The default and the finalists in turns, every other round backwards; the search is forgotten."""
    entrants: list[NcclKnobs | None] = [None, *sweeps.finalists()]
    samples: _Samples = {knobs: [] for knobs in entrants}
    for done in range(_FINAL_ROUNDS):
        for knobs in entrants if done % 2 == 0 else reversed(entrants):
            samples[knobs].append(sweeps.run(knobs))
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
    best = sorted(winners, key=lambda w: (w[0], w[1].channels))[:_MOST_CANDIDATES]
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
    return Candidate(name=knobs.name, on="nccl-tests", stats=stats, nccl=knobs)


def _tuned(collective: str, nbytes: int, entry: Entry, sweeps: _Sweeps) -> Tuned:
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
