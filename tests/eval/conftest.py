"""A comparison made up by hand, and simulated runs that were recorded."""

from __future__ import annotations

from collections.abc import Callable

from tuccl.eval import Comparison, bandwidth_row
from tuccl.eval.columns import BandwidthRow
from tuccl.eval.comparison import ComparisonRow
from tuccl.program import Gpu, Knobs, Program, Step, ThreadBlock
from tuccl.runtime import (
    SimExecutor,
    Timing,
    TracedRun,
)
from tuccl.synth import Collective, lower, msccl_default
from tuccl.topology import Topology, join, load_profile

__all__ = ["RUNS", "comparison", "ring_on"]

MIB = 1 << 20

LABEL = "simulated on <a> & b x2, class v100"


def comparison(on: str = "sim") -> Comparison:
    """Two collectives, three sizes, two baselines; one row regresses."""
    tuned: list[BandwidthRow] = []
    rows: list[ComparisonRow] = []
    for collective in ("allgather", "allreduce"):
        for size, us in ((1 << 10, 10.0), (1 << 18, 40.0), (1 << 24, 900.0)):
            timing = Timing(us, us * 1.1, (us,), on)
            tuned.append(bandwidth_row(collective, 16, size, timing, "ring on one x1 LL 2ch"))
            for baseline, factor in (("nccl", 1.5), ("msccl-default", 0.9)):
                rows.append(
                    ComparisonRow(
                        collective=collective,
                        size=size,
                        baseline=baseline,
                        baseline_us=factor * us,
                        baseline_chosen="Ring/LL/2ch",
                        tuned_us=us,
                        speedup=factor,
                        chosen="ring on one x1 LL 2ch",
                        fraction_of_bound=0.5,
                        on=on,
                        regression=factor < 0.99,
                    )
                )
    return Comparison(
        table="table",
        topology="<a> & b x2",
        ranks=16,
        label=LABEL,
        on=on,
        baselines=("nccl", "msccl-default"),
        rows=tuple(rows),
        tuned=tuple(tuned),
        bound_us=tuple(0.5 * (row.time_us or 0) for row in tuned),
        bounds=tuple("links" for _ in tuned),
        notes=("msccl-default has no <gather>",),
        regressions=sum(row.regression for row in rows),
    )


def ring_on(
    hosts: int, protocol: str, nbytes: int, passes: int = 0, cluster: Topology | None = None
) -> TracedRun:
    """Return an allreduce on a ring in rank order over hosts of four V100, recorded."""
    cluster = cluster if cluster is not None else join(load_profile("v100x4"), hosts)
    ranks = cluster.ranks
    ops = ["s", *["rrs"] * (ranks - 2), "rrcs", *["rcs"] * (ranks - 2), "r"]

    def gpu(rank: int) -> Gpu:
        at = [(rank - k) % ranks for k in range(len(ops))]
        steps = [Step(op, "i", a, "i", a, 1) for op, a in zip(ops, at, strict=True)]
        block = ThreadBlock(0, (rank + 1) % ranks, (rank - 1) % ranks, 0, steps)
        return Gpu(rank, ranks, ranks, 0, [block])

    gpus = [gpu(rank) for rank in range(ranks)]
    program = Program("ring", "allreduce", protocol, 1, ranks, gpus)
    return SimExecutor(cluster).trace(program, Knobs(protocol), nbytes, passes=passes)


def mesh_on_one_host() -> TracedRun:
    host = load_profile("v100x4")
    program = lower(msccl_default(host, Collective("allreduce", 4), "faithful"))
    return SimExecutor(host).trace(program, Knobs(), 4 * MIB)


RUNS: dict[str, Callable[[], TracedRun]] = {
    "over adapters": lambda: ring_on(2, "Simple", 16 * MIB),
    "cut through": lambda: ring_on(1, "LL", 2 * MIB),
    "dependencies": mesh_on_one_host,
    "a part": lambda: ring_on(2, "LL", 16 * MIB, passes=2),
}
