"""A comparison made up by hand."""

from __future__ import annotations

from tuccl.eval import BandwidthRow, Comparison, ComparisonRow, bandwidth_row
from tuccl.runtime import Timing

__all__ = ["comparison"]

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
        notes=("msccl-default has no <gather>",),
        regressions=sum(row.regression for row in rows),
    )
