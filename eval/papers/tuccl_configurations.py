"""TuCCL's Table III and Fig. 2: six configurations at 4 GB on two hosts of eight A100."""

from __future__ import annotations

from tuccl.eval.columns import busbw_gbs
from tuccl.eval.papers.clusters import COLLECTIVES, topology_of
from tuccl.eval.papers.figure import Chart, FigureData, Progress
from tuccl.eval.papers.taccl_calls import (
    baseline_us,
    bound_us,
    executor_of,
    size_on,
    taccl_program,
)
from tuccl.program import Knobs
from tuccl.synth import replicate

CONFIGURATIONS = {  # Table III: sketch, channels, buffer in MiB
    "C0": ("full-mesh", 1, 4),
    "C1": ("full-mesh", 1, 8),
    "C2": ("full-mesh", 4, 4),
    "C3": ("one", 1, 8),
    "C4": ("one", 4, 4),
    "C5": ("one", 4, 8),
}
_CLUSTER = "A100 Dual-16"
_SIZE = 4 << 30


def table3(progress: Progress) -> FigureData:
    """Rebuild Table III with Fig. 2: the bandwidth of each configuration, and of the baselines."""
    rows: list[tuple[str, str, str, int, int, float, float, float]] = []
    nbytes, ranks = size_on(_CLUSTER, _SIZE), topology_of(_CLUSTER).ranks
    for collective in COLLECTIVES:
        times = {}
        for name, (sketch, channels, mib) in CONFIGURATIONS.items():
            progress(f"{collective} {name}")
            program = replicate(taccl_program(_CLUSTER, collective, sketch, nbytes), channels)
            knobs = Knobs("Simple", channels, 512, mib << 20)
            times[name] = executor_of(_CLUSTER).time(program, knobs, nbytes).us
        times["NCCL"] = baseline_us(_CLUSTER, "nccl", collective, nbytes)
        times["bound"] = bound_us(_CLUSTER, collective, nbytes)
        for name, us in times.items():
            gbs = busbw_gbs(collective, ranks, nbytes, us)
            sketch, channels, mib = CONFIGURATIONS.get(name, ("", 0, 0))
            row = (collective, name, sketch, channels, mib, us, gbs, times["C0"] / us)
            rows.append(row)
    knobs_of = ("sketch", "channels", "buffer MiB")
    columns = ("collective", "configuration", *knobs_of, "time us", "bus GB/s", "over C0")
    best = "; ".join(
        f"{collective}: {row[1]} {row[7]:.2f}x"
        for collective in COLLECTIVES
        for row in [max((r for r in rows if r[0] == collective and r[3]), key=lambda r: r[7])]
    )
    chart = Chart("configuration", ("bus GB/s",), "bus bandwidth, GB/s", ("collective",), "bars")
    return FigureData(columns, tuple(rows), (f"Best over C0: {best}.",), chart)
