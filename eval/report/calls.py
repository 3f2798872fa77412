"""The section on one collective: charts against size, what was chosen and why, all numbers."""

from __future__ import annotations

from collections.abc import Iterator

from tuccl.eval.comparison import Comparison, ComparisonRow
from tuccl.eval.report.charts import bandwidth_svg, latency_svg
from tuccl.eval.report.elements import Html, chart, fold, html, table
from tuccl.eval.report.speedups import REGRESSION_SIGN
from tuccl.runtime import LookupTable, select
from tuccl.units import format_bytes

Call = tuple[str, int]


def call_parts(
    comparison: Comparison, collective: str, root: int, lookup: LookupTable | None
) -> Iterator[str]:
    """Yield the parts of the section on a collective; ``lookup`` says why it chooses so."""
    how, label = comparison.how, comparison.label
    charts = (
        chart(latency_svg(comparison, collective, root), f"Time against size ({label})."),
        chart(
            bandwidth_svg(comparison, collective, root), f"Bus bandwidth against size ({label})."
        ),
    )
    yield f'<div class="charts">{"".join(charts)}</div>'
    call = collective, root
    yield fold(f"Table: times, speed-ups and bound ({how})", _numbers(comparison, call))
    yield "<h3>Chosen, and why</h3>"
    yield _choices(comparison, call, lookup)


def _numbers(comparison: Comparison, call: Call) -> str:
    baselines = comparison.distinct_baselines(call)
    by_baseline = {b: _rows(comparison, call, b) for b in baselines.values()}
    sms = _sms(comparison, call)
    head = ["size", f"time us, {comparison.how}", "SMs", "busbw GB/s", "bound us", "of bound"]
    head += [column for b in baselines for column in (f"{b} us", "speed-up")]
    tuned = zip(comparison.tuned, comparison.bound_us, comparison.bounds, strict=True)
    rows = [
        [format_bytes(row.size), f"{row.time_us or 0:.2f}", str(sms.get(row.size) or "-")]
        + [
            f"{row.busbw_gbs or 0:.2f}",
            f"{us:.2f}",
            f"{100 * us / (row.time_us or 1):.0f} % {over}",
        ]
        + [cell for b in by_baseline.values() for cell in _pair(b.get(row.size))]
        for row, us, over in tuned
        if (row.collective, row.root) == call
    ]
    return table(head, rows, f"{call[0]}: times and speed-ups", cards=True)


def _choices(comparison: Comparison, call: Call, lookup: LookupTable | None) -> str:
    """Return for each size the choice, the SMs that it occupies and the table's reason."""
    sms = _sms(comparison, call)
    head = ["size", "SMs", f"chosen ({comparison.how})", *(["why"] if lookup else [])]
    rows = []
    for row in comparison.tuned:
        if (row.collective, row.root) != call:
            continue
        cells = [format_bytes(row.size), str(sms.get(row.size) or "-"), row.chosen]
        if lookup is not None:
            cells.append(_reason(lookup, call, row.size))
        rows.append(cells)
    words = (2, 3)[: len(head) - 2]
    return table(head, rows, f"{call[0]}: what was chosen", words, cards=True)


def _reason(lookup: LookupTable, call: Call, nbytes: int) -> Html:
    """Return the verdict of `select`, and in small letters how the others compare."""
    first, _, rest = select(lookup, call[0], nbytes, root=max(call[1], 0)).reason.partition("; ")
    return Html(html(first) + (f"<small>{html(rest)}</small>" if rest else ""))


def _sms(comparison: Comparison, call: Call) -> dict[int, int]:
    return {r.size: r.sms for r in comparison.rows if (r.collective, r.root) == call}


def _rows(comparison: Comparison, call: Call, baseline: str) -> dict[int, ComparisonRow]:
    return {
        row.size: row
        for row in comparison.rows
        if (row.collective, row.root, row.baseline) == (*call, baseline)
    }


def _pair(row: ComparisonRow | None) -> tuple[str, str]:
    """A baseline's time and the speed-up over it, as cells."""
    if row is None:
        return "-", "-"
    ran = Html(f"{row.baseline_us:.2f}<small>{html(row.baseline_chosen)}</small>")
    if not row.comparable:
        return ran, "not comparable"
    if row.regression:
        return ran, Html(f'<span class="regressions">{REGRESSION_SIGN} {row.speedup:.2f}x</span>')
    return ran, f"{row.speedup:.2f}x"
