"""Printed results of ``tuccl tune``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tuccl.cli.output import columns, print_json, warn
from tuccl.units import format_bytes

if TYPE_CHECKING:
    from tuccl.tuning import Saturation, SizeSummary, TuneResult
    from tuccl.tuning.workload_tasks import WorkloadGain


def print_result(args: argparse.Namespace, result: TuneResult, *, limited: bool) -> int:
    """Print what a tune wrote, in a line or as JSON, and what a time limit left out."""
    if limited:
        warn(unsearched(result.tuned))
    if args.json:
        print_json(result)
        return 0
    print(tuned_columns(result))
    if result.workload is not None:
        print(gain_text(result.workload, len(result.tuned), result.label))
    print(
        f"{args.output}: {result.entries} entries, {result.label}; {result.evaluations} "
        f"evaluations of a grid of {result.grid_size:,} points in {result.seconds:.1f} s, "
        f"against {result.baseline}"
    )
    for call in result.lossless_saturated:
        print(saturated_line(call))
    return 0


def saturated_line(call: Saturation) -> str:
    """Return that nothing lossless is left for a call, in a line."""
    return (
        f"{call.collective} {format_bytes(call.size)}: lossless_saturated: {call.best_us:.1f} us "
        f"is {call.of_the_bound:.0%} of the bound and {call.best_us / call.predicted_us:.1f} "
        f"times what C2C {call.c2c:.2g} predicts; only sending less makes it faster: "
        "compression, or a larger batch"
    )


def tuned_columns(result: TuneResult) -> str:
    """Return what stands first for each size, beside the default, with the SMs of both."""
    header = ["collective", "size", "default us", "SMs", "nccl-best us", "us", "SMs"]
    header += ["vs default", "vs nccl-best", "choice"]
    rows = [
        [
            row.collective,
            format_bytes(row.size),
            row.default_us,
            row.default_sms or None,
            row.nccl_best_us,
            row.best_us,
            row.sms or None,
            speedup(row.default_us, row.best_us),
            speedup(row.nccl_best_us, row.best_us or row.default_us),
            row.best or "default",
        ]
        for row in result.tuned
    ]
    return columns(header, rows)


def speedup(base_us: float | None, us: float | None) -> str:
    """Return how many times longer the baseline takes, as text."""
    return "-" if base_us is None or us is None else f"{base_us / us:.2f}x"


def gain_text(gain: WorkloadGain, tasks: int, label: str) -> str:
    """Return the gain of a whole job in a line; near sizes are one task."""
    indivisible = f", {gain.indivisible:.0%} of it in sizes that no program divides"
    indivisible = indivisible if gain.indivisible > 0.005 else ""
    return (
        f"the job: {gain.calls:,} calls of {gain.kinds} kinds, tuned as {tasks} tasks, take "
        f"{gain.default_us / 1e3:.4g} ms by default{indivisible}, "
        f"{gain.tuned_us / 1e3:.4g} ms with the table: {gain.gain:.3f}x, {label}"
    )


def unsearched(tuned: Sequence[SizeSummary]) -> Iterator[str]:
    """Yield a warning if the time limit left sizes without a search."""
    sizes = [f"{t.collective} {format_bytes(t.size)}" for t in tuned if t.evaluations == 0]
    if sizes:
        more = f" and {len(sizes) - 3} more" if len(sizes) > 3 else ""
        yield (
            f"not searched, so the runtime keeps its default: {', '.join(sizes[:3])}{more}; "
            "give --time-limit more seconds"
        )
