"""The section on the search: convergence, what it tried, and what mattered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuccl.eval.comparison import Comparison
from tuccl.eval.report.charts import convergence_svg
from tuccl.eval.report.elements import (
    HeatCell,
    chart,
    fold,
    heat_map,
    html,
    paragraph,
    table,
)
from tuccl.tuning import StoredStudy, importances
from tuccl.units import format_bytes

_MOST_METHODS = 4


def search_parts(
    comparison: Comparison, studies: Sequence[StoredStudy], tuned_on: str
) -> Iterator[str]:
    """Yield the parts of the section; ``tuned_on`` says what the times of the search are."""
    searches = [study for study in studies if study.best_so_far]
    if not searches:
        return
    how = "simulated" if tuned_on.startswith("simulated") else "measured"
    yield paragraph(
        f"Times of the search are {tuned_on or 'of an unknown source'}. The table's "
        "time differs from the least in the search where the table's first choice is another: the "
        "runtime's own default where it is faster, or, of programs within 0.1 % of the least, one "
        "with NCCL's usual threads and buffer, then one on fewer SMs."
    )
    table_us = {(row.collective, row.size): row.time_us for row in comparison.tuned}
    for collective in dict.fromkeys(study.collective for study in searches):
        mine = [study for study in searches if study.collective == collective]
        yield f"<h3>{html(collective)}</h3>"
        charts = (
            chart(convergence_svg(mine, how, seconds), f"Best so far by size ({how}).")
            for seconds in (False, True)
        )
        yield f'<div class="charts">{"".join(charts)}</div>'
        head = ["size", "evaluations", "could not run", f"least us in the search, {how}"]
        head += ["at evaluation", "after s", "table's us", "best methods, us"]
        rows = [_search_row(study, table_us.get((collective, study.nbytes))) for study in mine]
        text = f"Table: the search of {collective} ({how})"
        yield fold(text, table(head, rows, text, (7,), cards=True))
        yield _importance_map(mine, how)


def _search_row(study: StoredStudy, table_us: float | None) -> list[str]:
    number, seconds, us = study.best_so_far[-1]
    failed = sum(not evaluation.samples_us for evaluation in study.evaluations)
    best_by_method = list(study.best_by("method").items())[:_MOST_METHODS]
    methods = ", ".join(f"{method} {best_us:.1f}" for method, best_us in best_by_method)
    counts = [str(len(study.evaluations)), str(failed)]
    return [
        format_bytes(study.nbytes),
        *counts,
        f"{us:.2f}",
        str(number),
        f"{seconds:.1f}",
        "-" if table_us is None else f"{table_us:.2f}",
        methods,
    ]


def _importance_map(studies: Sequence[StoredStudy], how: str) -> str:
    """Return the importance of each dimension by size as a table whose cells are coloured."""
    shares = [(study.nbytes, importances(study)) for study in studies]
    shares = [(nbytes, share) for nbytes, share in shares if share]
    names = sorted(
        {name for _, share in shares for name in share},
        key=lambda name: -sum(share.get(name, 0.0) for _, share in shares),
    )
    if not names:
        return ""

    def cell(share: float) -> HeatCell:
        return HeatCell(f"{100 * share:.0f} %", "share", share)

    caption = (
        "Importance by size: each dimension's share in what sets the best tenth of the points that "
        "were tried apart from the others (PED-ANOVA). What the search settled early looks small "
        f"(times {how})."
    )
    lines = [(name, [cell(share.get(name, 0.0)) for _, share in shares]) for name in names]
    return heat_map("share", [nbytes for nbytes, _ in shares], lines, caption)
