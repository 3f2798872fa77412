"""The section on speed-ups: least and most by baseline, and the heat map."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tuccl.eval.comparison import REGRESSION, Comparison, ComparisonRow, call_name
from tuccl.eval.report.elements import HeatCell, heat_map, paragraph, table

REGRESSION_SIGN = "\u25bc"  # a triangle that points down


def speedups(comparison: Comparison) -> Iterator[str]:
    """Yield the parts of the section."""
    slower, cells = comparison.regressions, len(comparison.rows)
    share = f"{REGRESSION:.0%}".replace("%", " %")
    if slower:
        verdict = f"{REGRESSION_SIGN} {slower} of {cells} are slower than a default by over {share}"
    else:
        verdict = f"No regression: none of {cells} is slower than a default by over {share}"
    yield paragraph(f"{verdict} ({comparison.label}).", "regressions" if slower else "")
    yield _overview(comparison)
    if comparison.rows:
        yield _heat(comparison)


def _overview(comparison: Comparison) -> str:
    rows = []
    for name, baseline in comparison.distinct_baselines().items():
        mine = [row for row in comparison.rows if row.baseline == baseline and row.comparable]
        if mine:
            ratios = [row.speedup for row in mine]
            slower = sum(ratio < 1 - REGRESSION for ratio in ratios)
            counts = [str(len(mine)), str(slower)]
            rows.append([name, f"{min(ratios):.2f}", f"{max(ratios):.2f}", *counts])
    head = ["baseline", f"least ({comparison.how})", "most", "cells", "slower by over 1 %"]
    return table(head, rows, "speed-up by baseline", words=(0,))


def _heat(comparison: Comparison) -> str:
    sizes = sorted({row.size for row in comparison.rows})
    rows = {(r.collective, r.root, r.baseline, r.size): r for r in comparison.rows}
    strongest = max([1.0, *(abs(math.log2(r.speedup)) for r in comparison.rows if r.comparable)])
    lines = [
        (
            f"{call_name(*call)} vs {shown}",
            [_cell(rows.get((*call, baseline, size)), strongest) for size in sizes],
        )
        for call in comparison.calls
        for shown, baseline in comparison.distinct_baselines(call).items()
    ]
    caption = (
        "Speed-up by collective, baseline and size of the whole array. Blue is faster, yellow "
        f"slower, orange with {REGRESSION_SIGN} a regression: slower than a default by over "
        f"{100 * REGRESSION:.0f} % and the noise. A best baseline is no default "
        f"({comparison.label})."
    )
    return heat_map(comparison.how, sizes, lines, caption)


def _cell(row: ComparisonRow | None, strongest: float) -> HeatCell | None:
    if row is None or not row.comparable:
        return None
    if row.regression:
        return HeatCell(f"{REGRESSION_SIGN} {row.speedup:.2f}", "regression", 1.0)
    kind = "" if round(row.speedup, 2) == 1 else "fast" if row.speedup > 1 else "slow"
    return HeatCell(f"{row.speedup:.2f}", kind, abs(math.log2(row.speedup)) / strongest)
