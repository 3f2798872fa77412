"""TuCCL's Fig. 5b: what MRACO's search costs beside the grid at equal quality, by ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

from tuccl.eval.papers.clusters import topology_of
from tuccl.eval.papers.figure import Chart, FigureData, Progress, Row
from tuccl.eval.papers.taccl_calls import C0, executor_of, size_on, taccl_call, taccl_programs
from tuccl.tuning import SEARCHES
from tuccl.tuning.policy_training import SimulatedCall
from tuccl.units import format_bytes

_CLUSTERS = ("V100 1 host", "V100 2 hosts", "V100 3 hosts", "A100 Dual-16")
_SIZES = (64 << 10, 1 << 20)
_REPEATS = 27  # calls of a sure timing; a power of MRACO's ratio
_MOST_EVALUATIONS = 100
_SEEDS = 5
_SEARCHES = ("mraco", "descent")


@dataclass(frozen=True)
class Effort:
    """Timings at full effort, seconds of calls, and the time found over the grid's best."""

    evaluations: float
    seconds: float
    quality: float


def fig5b(progress: Progress) -> FigureData:
    """Rebuild Fig. 5b: effort of searches to their end, and of the whole grid of knobs."""
    rows: list[Row] = []
    for cluster, size in product(_CLUSTERS, _SIZES):
        progress(f"{cluster} {format_bytes(size)}")
        nbytes = size_on(cluster, size)
        programs = taccl_programs(cluster, "allreduce")
        call = taccl_call(executor_of(cluster), programs, nbytes, C0)
        grid = _grid(call)
        ranks = topology_of(cluster).ranks
        row: Row = (cluster, ranks, format_bytes(size), len(grid), _REPEATS * sum(grid) / 1e6)
        for name in _SEARCHES:
            runs = [_effort(call, name, seed, min(grid)) for seed in range(_SEEDS)]
            found = [median(run.evaluations for run in runs), median(run.seconds for run in runs)]
            row = (*row, *found, median(run.quality for run in runs))
        rows.append((*row, 100 * (1 - float(str(row[6])) / float(str(row[4])))))
    of_search = [
        f"{name} {what}" for name in _SEARCHES for what in ("evaluations", "s", "over best")
    ]
    columns = ("cluster", "ranks", "size", "grid points", "grid s", *of_search, "saved %")
    saved = [float(str(row[-1])) for row in rows]
    notes = (
        f"MRACO saves {min(saved):.1f} % to {max(saved):.1f} % of the grid's seconds of calls.",
        (
            f"Seconds are those of {_REPEATS} simulated calls a timing at full effort; starting a "
            "timing, which costs a real search more, is not in them. Medians of five seeds."
        ),
    )
    chart = Chart(
        "ranks", ("grid s", "mraco s", "descent s"), "seconds of calls", ("size",), log=True
    )
    return FigureData(columns, tuple(rows), notes, chart)


def _grid(call: SimulatedCall) -> Sequence[float]:
    """The times in us of every point of the grid that can run."""
    legal = call.space.channels(C0).items()
    blocks = (call.space.points(C0, protocol, n) for protocol, counts in legal for n in counts)
    return [us for points in blocks for us in map(call.us, points) if math.isfinite(us)]


def _effort(call: SimulatedCall, name: str, seed: int, best_us: float) -> Effort:
    """The effort of a search to its end, and what it finds."""
    search = SEARCHES[name](call.space, seed=seed, full_effort=_REPEATS)
    calls, us = 0, 0.0
    while (request := search.ask()) is not None and calls < _MOST_EVALUATIONS * _REPEATS:
        samples = call.samples(request.point, request.repeats)
        search.tell(request, samples)
        calls, us = calls + len(samples), us + sum(samples)
    return Effort(calls / _REPEATS, us / 1e6, search.best_us / best_us)
