"""A comparison as text, in nccl-tests' columns."""

from __future__ import annotations

from tuccl.eval.columns import columns_text
from tuccl.eval.comparison import Comparison, call_name
from tuccl.runtime import BEST_BASELINES


def text_report(comparison: Comparison) -> str:
    """Return the comparison as text: per collective nccl-tests' columns with speed-ups behind."""
    modelled = "nccl" in comparison.baselines and comparison.nccl_version
    nccl = f"; nccl is {comparison.nccl_version}" if modelled else ""
    head = f"# {comparison.label}; speed-ups are the baseline's time over the tuned time{nccl}"
    head += "\n# bounds: over links alone, or with reduction and multicast inside switches"
    parts = [
        f"# {call_name(*call)}, tuned, {comparison.ranks} ranks\n{_table(comparison, call)}"
        for call in comparison.calls
    ]
    notes = [f"note: {note}" for note in comparison.notes]
    summary = "\n".join([*_summary(comparison), *notes])
    return "\n\n".join([head, *parts, summary])


def _table(comparison: Comparison, call: tuple[str, int]) -> str:
    cells: dict[int, dict[str, str]] = {}
    for row in comparison.rows:
        if (row.collective, row.root) == call:
            mark = "!" if row.regression else ""
            name = f"vs {row.baseline}"
            text = f"{mark}{row.speedup:.2f}x" if row.comparable else "not comparable"
            cells.setdefault(row.size, {})[name] = text
            if row.rounds > 1:
                cells[row.size] |= {"runs": str(row.rounds), "spread": f"{row.spread:.0%}"}
    tuned = [
        (row, {"of bound": f"{100 * us / (row.time_us or 1):.0f}% {over}"})
        for row, us, over in zip(
            comparison.tuned, comparison.bound_us, comparison.bounds, strict=True
        )
        if (row.collective, row.root) == call
    ]
    extra = [{**cells.get(row.size, {}), **share} for row, share in tuned]
    return columns_text([row for row, _ in tuned], extra)


def _summary(comparison: Comparison) -> list[str]:
    lines = []
    for baseline in comparison.baselines:
        mine = [row for row in comparison.rows if row.baseline == baseline]
        speedups = [row.speedup for row in mine if row.comparable]
        if len(speedups) < len(mine):
            left_out = len(mine) - len(speedups)
            lines.append(f"vs {baseline}: {left_out} not comparable, times spread over 1.5x")
        if speedups:
            lines.append(
                f"vs {baseline}: {min(speedups):.2f}x to {max(speedups):.2f}x "
                f"({comparison.how}), {sum(s > 1 for s in speedups)} of {len(speedups)} faster"
            )
    defaults = ", ".join(name for name in comparison.baselines if name not in BEST_BASELINES)
    if defaults:
        slower = comparison.regressions
        found = f"{slower} regressions:" if slower else "no regression: never"
        lines.append(f"{found} over 1% slower than a default ({defaults})")
    if comparison.wrong:
        lines.append(f"{comparison.wrong} wrong elements")
    return lines
