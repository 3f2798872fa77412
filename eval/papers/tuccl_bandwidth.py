"""TuCCL's Figs. 3 and 4 (bandwidth against size), and 6 and 7 (sketch, knobs and both)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tuccl.eval.columns import busbw_gbs
from tuccl.eval.papers.clusters import COLLECTIVES, clusters_of, topology_of
from tuccl.eval.papers.figure import Chart, FigureData, Progress, Row
from tuccl.eval.papers.taccl_calls import (
    baseline_us,
    bound_us,
    gains,
    search_all_methods,
    size_on,
    tuned,
)
from tuccl.units import format_bytes, parse_range

_SIZES = tuple(parse_range("1K:1G:x16"))
_SERIES = ("C0", "tuned", "tuned, all methods", "MSCCL all-pairs", "NCCL", "bound")


def bandwidth(progress: Progress, family: str) -> FigureData:
    """Rebuild Fig. 3 or 4: bandwidth by size on the hosts of ``family``, V100 or A100."""
    clusters = clusters_of(family)
    rows: list[Row] = []
    for cluster, collective, size in product(clusters, COLLECTIVES, _SIZES):
        progress(f"{cluster} {collective} {format_bytes(size)}")
        nbytes = size_on(cluster, size)
        default_us, found = tuned(cluster, collective, nbytes)
        every = search_all_methods(cluster, collective, nbytes)
        times = (
            default_us,
            found.us,
            min(every.us, found.us),
            baseline_us(cluster, "msccl-default-robust", collective, nbytes),
            baseline_us(cluster, "nccl", collective, nbytes),
            bound_us(cluster, collective, nbytes),
        )
        ranks = topology_of(cluster).ranks
        rates = tuple(busbw_gbs(collective, ranks, nbytes, us) for us in times)
        sketch, knobs = found.point.choice.sketch, found.point.knobs
        chosen = f"{sketch}, {knobs.protocol} x {knobs.channels}"
        row: Row = (cluster, collective, format_bytes(size), *rates)
        rows.append((*row, times[0] / times[1], times[0] / times[2], chosen))
    columns = ("cluster", "collective", "size", *_SERIES, "over C0", "all over C0", "chosen")
    chart = Chart("size", _SERIES, "bus bandwidth, GB/s", ("cluster", "collective"), log=True)
    notes = tuple(
        f"{collective}: tuned over C0 {_range(rows, collective, 9)} with TACCL's programs, "
        f"{_range(rows, collective, 10)} with all methods, over all clusters and sizes."
        for collective in COLLECTIVES
    )
    return FigureData(columns, tuple(rows), notes, chart)


def _range(rows: Sequence[Row], collective: str, column: int) -> str:
    values = [float(str(row[column])) for row in rows if row[1] == collective]
    return f"{min(values):.2f}x to {max(values):.2f}x"


_ABLATION_SIZE = 1 << 30


def ablation(progress: Progress, family: str) -> FigureData:
    """Rebuild Fig. 6 or 7: gains of sketch, knobs and both on the hosts of ``family``."""
    clusters = clusters_of(family)
    rows: list[Row] = []
    for cluster, collective in product(clusters, COLLECTIVES):
        progress(f"{cluster} {collective}")
        found = gains(cluster, collective, size_on(cluster, _ABLATION_SIZE))
        ratios = tuple(found.default / us for us in (found.sketch, found.knobs, found.both))
        best = f"{found.point.choice.sketch}, {found.point.protocol} x {found.point.channels}"
        synergy = ratios[2] / (ratios[0] * ratios[1])
        rows.append((cluster, collective, found.default, *ratios, synergy, best))
    columns = ("cluster", "collective", "C0 us", "sketch", "knobs", "both", "both/product", "best")
    most = "; ".join(
        f"{collective}: "
        + ", ".join(
            f"{name} {max(float(str(row[place])) for row in rows if row[1] == collective):.2f}x"
            for place, name in ((3, "sketch"), (4, "knobs"), (5, "both"))
        )
        for collective in COLLECTIVES
    )
    chart = Chart("cluster", ("sketch", "knobs", "both"), "over C0", ("collective",), "bars")
    return FigureData(columns, tuple(rows), (f"The most of the clusters. {most}.",), chart)
