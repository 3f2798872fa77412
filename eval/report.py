"""A comparison as one HTML page: self-contained, no network, light and dark."""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from tuccl import __version__
from tuccl.eval.comparison import Comparison, ComparisonRow, call_name
from tuccl.eval.plots import bandwidth_svg, convergence_svg, latency_svg, plots_available
from tuccl.eval.report_style import STYLE
from tuccl.topology import Topology, machine_svg, signature
from tuccl.tuning import StoredStudy, importances
from tuccl.units import format_bytes

_MOST_METHODS = 4
_HOW_TO_PLOT = "Plots need matplotlib: pip install matplotlib, then compare again."


def html_report(
    comparison: Comparison,
    studies: Sequence[StoredStudy] = (),
    tuned_on: str = "",
    *,
    machine: Topology | None = None,
    command: str = "",
    date: str = "",
) -> str:
    """Return the page: headline, speed-ups, and for each collective plots and tables.

    ``studies`` add how the search went, with times as ``tuned_on`` says (the table's label);
    ``machine`` its picture, its signature and what of it was assumed; ``command`` and ``date``
    what was run, and when.
    Without matplotlib there are tables only, with a line that says how to get the plots.
    Every figure and table says whether its numbers are simulated or measured, and on what.
    """
    title = f"tuccl: {escape(comparison.topology)}, tuned against default"
    body = [
        f"<h1>{title}</h1>",
        _provenance(comparison),
        *_overview(comparison),
        *(part for call in comparison.calls for part in _collective(comparison, *call)),
        *_search(comparison, studies, tuned_on),
        *_machine(machine),
        *_notes(comparison),
        _origin(command, date),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _provenance(comparison: Comparison) -> str:
    nccl = escape(comparison.nccl_version) or "what nccl-tests is linked with"
    return (
        f'<p class="label">Every number here is {comparison.how}: {escape(comparison.label)}. '
        "Speed-up is the baseline's time over the tuned time, out of place; where the times of one "
        "of them spread over 1.5x it is not comparable. Bounds are over links alone, or with "
        "reduction and multicast inside switches. "
        f"NCCL is {nccl}.</p>"
    )


def _machine(machine: Topology | None) -> Iterator[str]:
    """The picture of the machine, and which of its links nobody measured."""
    if machine is None:
        return
    yield "<h2>The machine</h2>"
    assumed = Counter(link.kind for link in machine.links if link.assumed)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(assumed.items())) or "none"
    yield (
        f"<p>{escape(machine.name)}: {machine.ranks} ranks on {len(machine.hosts)} hosts, "
        f"signature {signature(machine)}. Rates or latencies of {sum(assumed.values())} of its "
        f"{len(machine.links)} links are assumed ({kinds}); times depend on them.</p>"
    )
    data = base64.b64encode(machine_svg(machine).encode()).decode()
    yield (
        f'<figure><img alt="picture of {escape(machine.name)}" '
        f'src="data:image/svg+xml;base64,{data}"/></figure>'
    )


def _origin(command: str, date: str) -> str:
    """The last line: version, date and command."""
    when = f", {escape(date)}" if date else ""
    return f"<p><small>tuccl {__version__}{when} <code>{escape(command)}</code></small></p>"


def _overview(comparison: Comparison) -> Iterator[str]:
    yield "<h2>Speed-up</h2>"
    rows = []
    for name, baseline in comparison.distinct_baselines().items():
        mine = [row for row in comparison.rows if row.baseline == baseline and row.comparable]
        if mine:
            speedups = [row.speedup for row in mine]
            slower = sum(row.regression for row in mine)
            marked = _marked(str(slower), "slow" if slower else "")
            least, most = f"{min(speedups):.2f}", f"{max(speedups):.2f}"
            rows.append([name, least, most, str(len(mine)), marked])
    head = ("baseline", "least", "most", "cells", "slower by over 1 %")
    yield _table(head, rows, text_columns=(0,), raw_columns=(4,))
    if not comparison.rows:
        return
    yield _heat_map(comparison)
    if not plots_available():
        yield f"<p>{escape(_HOW_TO_PLOT)}</p>"


def _heat_map(comparison: Comparison) -> str:
    """Return speed-ups by collective, baseline and size as a table whose cells are coloured."""
    sizes = sorted({row.size for row in comparison.rows})
    lines = [
        (*call, baseline, name)
        for call in comparison.calls
        for name, baseline in comparison.distinct_baselines(call).items()
    ]
    speedups = {
        (r.collective, r.root, r.baseline, r.size): r.speedup
        for r in comparison.rows
        if r.comparable
    }
    strongest = max([1.0, *(abs(math.log2(speedup)) for speedup in speedups.values())])

    def cell(speedup: float | None) -> str:
        if speedup is None:
            return "<td>-</td>"
        colour = "26 111 181" if speedup >= 1 else "179 38 30"
        strength = 0.6 * abs(math.log2(speedup)) / strongest
        return f'<td style="background: rgb({colour} / {strength:.2f})">{speedup:.2f}</td>'

    heads = "".join(f"<th>{format_bytes(size)}</th>" for size in sizes)
    body = "".join(
        f'<tr><th class="text">{escape(call_name(name, root))} vs {escape(shown)}</th>'
        + "".join(cell(speedups.get((name, root, baseline, size))) for size in sizes)
        + "</tr>"
        for name, root, baseline, shown in lines
    )
    caption = (
        "Speed-up by collective, baseline and size of the whole array; 1.0 is neutral, red is "
        f"slower ({comparison.label})."
    )
    return (
        f'<figure><div class="scroll wide"><table class="heat"><thead><tr><th>{comparison.how}</th>'
        f"{heads}</tr></thead><tbody>{body}</tbody></table></div>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _collective(comparison: Comparison, name: str, root: int) -> Iterator[str]:
    yield f"<h2>{escape(call_name(name, root))}</h2>"
    if plots_available():
        how = comparison.how
        plots = [
            _figure(bandwidth_svg(comparison, name, root), f"Bus bandwidth against size ({how}).")
        ]
        if (svg := latency_svg(comparison, name, root)) is not None:
            plots.append(_figure(svg, f"Time below 1 MB ({how})."))
        yield f'<div class="plots">{"".join(plots)}</div>'
    baselines = comparison.distinct_baselines((name, root))
    by_baseline = {b: _rows(comparison, (name, root), b) for b in baselines.values()}
    sms = {size: row.sms for rows in by_baseline.values() for size, row in rows.items()}
    head = ["size", f"time us, {comparison.how}", "SMs", "busbw GB/s", "of bound"]
    head += [column for b in baselines for column in (f"{b} us", "speed-up")]
    cells = [
        [format_bytes(row.size), f"{row.time_us or 0:.2f}", str(sms.get(row.size) or "-")]
        + [f"{row.busbw_gbs or 0:.2f}", f"{100 * us / (row.time_us or 1):.0f} % {over}"]
        + [c for b in by_baseline.values() for c in _pair(b.get(row.size))]
        + [escape(row.chosen)]
        for row, us, over in zip(
            comparison.tuned, comparison.bound_us, comparison.bounds, strict=True
        )
        if (row.collective, row.root) == (name, root)
    ]
    last = len(head)
    yield _table(
        [*head, "chosen"], cells, text_columns=(last,), raw_columns=tuple(range(5, last + 1))
    )


def _search(comparison: Comparison, studies: Sequence[StoredStudy], tuned_on: str) -> Iterator[str]:
    """The section on the search: convergence, what it tried, and what mattered."""
    searches = [study for study in studies if study.best_so_far]
    if not searches:
        return
    how = "simulated" if tuned_on.startswith("simulated") else "measured"
    yield "<h2>The search</h2>"
    yield (
        f"<p>Times of the search are {escape(tuned_on) or 'of an unknown source'}. The table's "
        "time differs from the least in the search where the table's first choice is another: the "
        "runtime's own default where it is faster, or, of programs within 0.1 % of the least, one "
        "with NCCL's usual threads and buffer, then one on fewer SMs.</p>"
    )
    table_us = {(row.collective, row.size): row.time_us for row in comparison.tuned}
    for collective in dict.fromkeys(study.collective for study in searches):
        mine = [study for study in searches if study.collective == collective]
        yield f"<h3>{escape(collective)}</h3>"
        if plots_available():
            caption = f"Best so far over the best in the end, by size ({how})."
            yield _figure(convergence_svg(mine, how), caption)
        head = ["size", "evaluations", "could not run", "least us in the search"]
        head += ["at evaluation", "after s", "table's us", "best methods, us"]
        rows = [_search_row(study, table_us.get((collective, study.nbytes))) for study in mine]
        yield _table(head, rows, text_columns=(7,))
        yield _importance_map(mine)


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


def _importance_map(studies: Sequence[StoredStudy]) -> str:
    """Return the importance of each dimension by size as a table whose cells are coloured."""
    shares = [(study.nbytes, importances(study)) for study in studies]
    shares = [(nbytes, share) for nbytes, share in shares if share]
    names = sorted(
        {name for _, share in shares for name in share},
        key=lambda name: -sum(share.get(name, 0.0) for _, share in shares),
    )
    if not names:
        return ""

    def cell(share: float) -> str:
        colour = f"rgb(26 111 181 / {0.8 * share:.2f})"
        return f'<td style="background: {colour}">{100 * share:.0f} %</td>'

    heads = "".join(f"<th>{format_bytes(nbytes)}</th>" for nbytes, _ in shares)
    body = "".join(
        f'<tr><th class="text">{escape(name)}</th>'
        + "".join(cell(share.get(name, 0.0)) for _, share in shares)
        + "</tr>"
        for name in names
    )
    caption = (
        "Importance by size: each dimension's share in what sets the best tenth of the points that "
        "were tried apart from the others (PED-ANOVA). What the search settled early looks small."
    )
    return (
        '<figure><div class="scroll wide"><table class="heat"><thead><tr><th>share</th>'
        f"{heads}</tr></thead><tbody>{body}</tbody></table></div>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _rows(comparison: Comparison, call: tuple[str, int], baseline: str) -> dict[int, ComparisonRow]:
    return {
        row.size: row
        for row in comparison.rows
        if (row.collective, row.root, row.baseline) == (*call, baseline)
    }


def _pair(row: ComparisonRow | None) -> tuple[str, str]:
    """A baseline's time and the speed-up over it, as cells."""
    if row is None:
        return "-", "-"
    ran = f"{row.baseline_us:.2f}<small>{escape(row.baseline_chosen)}</small>"
    if not row.comparable:
        return ran, "not comparable"
    kind = "slow" if row.regression else "fast" if row.speedup > 1.01 else ""
    return ran, _marked(f"{row.speedup:.2f}x", kind)


def _marked(text: str, kind: str) -> str:
    return f'<span class="{kind}">{text}</span>' if kind else text


def _notes(comparison: Comparison) -> Iterator[str]:
    if comparison.notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in comparison.notes)
        yield f"<h2>Notes</h2><ul>{items}</ul>"


def _figure(svg: str, caption: str) -> str:
    return (
        f'<figure><div class="scroll">{svg}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    text_columns: Sequence[int] = (),
    raw_columns: Sequence[int] = (),
) -> str:
    """A table; cells are escaped but for ``raw_columns``, numbers right but ``text_columns``."""

    def cell(tag: str, column: int, text: str, raw: bool) -> str:
        kind = ' class="text"' if column in text_columns else ""
        kind += f' data-name="{escape(head[column])}"' if tag == "td" else ""
        return f"<{tag}{kind}>{text if raw else escape(text)}</{tag}>"

    top = "".join(cell("th", i, text, False) for i, text in enumerate(head))
    body = "".join(
        "<tr>" + "".join(cell("td", i, t, i in raw_columns) for i, t in enumerate(row)) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
