"""TuCCL's Table II and Fig. 5a: the part of the links' bandwidth that a call uses."""

from __future__ import annotations

from itertools import product

from tuccl.eval.papers.clusters import COLLECTIVES
from tuccl.eval.papers.figure import Chart, FigureData, Progress
from tuccl.eval.papers.taccl_calls import (
    executor_of,
    size_on,
    taccl_program,
    tuned,
)
from tuccl.eval.utilisation import utilisation
from tuccl.program import Knobs, Program
from tuccl.runtime import SimExecutor
from tuccl.synth import MSCCL_DEFAULT_KNOBS
from tuccl.units import format_bytes

_CLUSTERS = ("V100 2 hosts", "A100 Dual-16")
_SIZES = (64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30)
_LARGE = _SIZES[-2]


def used_percent(
    executor: SimExecutor, program: Program, knobs: Knobs, nbytes: int
) -> tuple[float, float]:
    """Return the use in % of the busiest link and of all, idle ones too, over the whole call."""
    run = executor.trace(program.replace(protocol=knobs.protocol), knobs, nbytes)
    used = utilisation(run)
    total = sum(each.rate_gbs for each in used.classes)
    mean = sum(each.used * each.rate_gbs for each in used.classes) / total
    return 100 * used.links[0].on_wire, 100 * mean


def table2(progress: Progress) -> FigureData:
    """Rebuild Table II: the default's use of the links, by the paper's metric and by ours."""
    rows = []
    for cluster, collective, size in product(_CLUSTERS, COLLECTIVES, _SIZES):
        progress(f"{cluster} {collective} {format_bytes(size)}")
        nbytes = size_on(cluster, size)
        program = taccl_program(cluster, collective, "full-mesh", nbytes)
        busiest, mean = used_percent(executor_of(cluster), program, MSCCL_DEFAULT_KNOBS, nbytes)
        rows.append((cluster, collective, format_bytes(size), mean, busiest))
    columns = ("cluster", "collective", "size", "all links %", "busiest link %")
    least = min(rows, key=lambda row: row[3])
    most = max(rows, key=lambda row: row[4])
    notes = (
        (
            f"The paper's metric is `all links`: from {least[3]:.2f} % ({least[0]}, {least[1]}, "
            f"{least[2]}) on, while the busiest link of a call is up to {most[4]:.0f} % in use "
            f"({most[0]}, {most[1]}, {most[2]})."
        ),
    )
    return FigureData(columns, tuple(rows), notes, _chart(columns[3:], "use of bandwidth, %"))


def _chart(ys: tuple[str, ...], y: str) -> Chart:
    return Chart("size", ys, y, ("cluster", "collective"), log=True)


def fig5a(progress: Progress) -> FigureData:
    """Rebuild Fig. 5a: the use of the links by the default and after a search with TACCL."""
    rows = []
    for cluster, collective, size in product(_CLUSTERS, COLLECTIVES, (1 << 20, _LARGE)):
        progress(f"{cluster} {collective} {format_bytes(size)}")
        nbytes = size_on(cluster, size)
        _, found = tuned(cluster, collective, nbytes)
        default = taccl_program(cluster, collective, "full-mesh", nbytes)
        before = used_percent(executor_of(cluster), default, MSCCL_DEFAULT_KNOBS, nbytes)
        after = used_percent(executor_of(cluster), found.program, found.point.knobs, nbytes)
        used = (before[1], after[1], before[0], after[0])
        rows.append((cluster, collective, format_bytes(size), *used, found.point.choice.sketch))
    uses = ("default, all links %", "tuned, all links %", "default, busiest %", "tuned, busiest %")
    columns = ("cluster", "collective", "size", *uses, "sketch")
    gains = ", ".join(
        f"{max(row[4] - row[3] for row in rows if row[0] == cluster):.1f} points ({cluster})"
        for cluster in _CLUSTERS
    )
    notes = (f"By the paper's metric tuning adds at most {gains}.",)
    return FigureData(columns, tuple(rows), notes, _chart(uses, "use of bandwidth, %"))
