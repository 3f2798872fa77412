"""Charts of a report as SVG that sits inside the page and follows its light or dark colours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from tuccl.eval.choice_analysis import ChoiceAnalysis
from tuccl.eval.columns import busbw_gbs
from tuccl.eval.comparison import Comparison
from tuccl.eval.svg import svg_text
from tuccl.tuning import StoredStudy
from tuccl.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Drawn in these, and replaced by the page's own colours in the SVG's text.
_INK, _GRID = "#010203", "#040506"
_SERIES = ("#010101", "#020202", "#030303", "#040404", "#050505", "#060606")
_COLOURS = {_INK: "currentColor", _GRID: "var(--grid)"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES)
}
_LINES = ("o-", "s--", "^-.", "d:", "v-", "P--")  # they differ without colour too
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_MOST_LABELS = 8
_MOST_LINES = 5
_WIDTH, _HEIGHT = 4.2, 3.7  # in inches, as are the next two
_LABELS, _LINE = 0.55, 0.19  # below the axes: ticks and name; a line of the legend
_LABEL_WIDTH = 24  # of a line in a legend
_Points = list[tuple[int, float]]


def bandwidth_svg(comparison: Comparison, collective: str, root: int = -1) -> str:
    """Return bus bandwidth in GB/s against size, tuned, baselines and bound, as SVG."""
    ranks = comparison.ranks

    def rates(points: _Points) -> _Points:
        return [(size, busbw_gbs(collective, ranks, size, us)) for size, us in points if us > 0]

    figure, axes = _by_size(
        [(name, rates(points)) for name, points in _series(comparison, (collective, root))]
    )
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"bus bandwidth, GB/s ({comparison.how})")
    return _svg(figure, f"bandwidth-{_file_name(collective, root)}")


def latency_svg(comparison: Comparison, collective: str, root: int = -1) -> str:
    """Return time in us against size, both logarithmic, with the bound, as SVG."""
    from matplotlib.ticker import LogLocator

    series = _series(comparison, (collective, root))
    figure, axes = _by_size([(name, [p for p in points if p[1] > 0]) for name, points in series])
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(numticks=99))
    axes.yaxis.set_major_formatter(lambda us, _: f"{us:,.0f}" if us >= 1 else f"{us:g}")
    axes.set_ylabel(f"time, us ({comparison.how})")
    return _svg(figure, f"latency-{_file_name(collective, root)}")


def convergence_svg(studies: Sequence[StoredStudy], how: str, by_seconds: bool = False) -> str:
    """Return the best time so far over the best of all, against evaluations or seconds, as SVG.

    ``studies`` are of one collective; at most five of their sizes are drawn, spread evenly.
    ``how`` says whether times are simulated or measured.
    """
    from matplotlib.ticker import LogLocator

    figure, axes = _figure()
    for number, study in enumerate(spread(studies, _MOST_LINES)):
        steps = study.best_so_far
        if not steps:
            continue
        last = len(study.evaluations), study.evaluations[-1].seconds, steps[-1][2]
        axes.step(
            [step[by_seconds] for step in (*steps, last)],
            [us / last[2] for _, _, us in (*steps, last)],
            where="post",
            color=_SERIES[number],
            ls=_DASHES[number],
            label=format_bytes(study.nbytes),
            lw=1.6,
        )
    axes.set_xlabel("seconds since the first evaluation" if by_seconds else "evaluation")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}x")
    axes.yaxis.set_minor_formatter("")
    axes.set_ylim(bottom=0.98)
    axes.grid(color=_GRID, lw=0.5)
    axes.set_ylabel(f"best so far over best ({how})")
    _legend(figure, axes)
    kind = "seconds" if by_seconds else "convergence"
    return _svg(figure, f"{kind}-{studies[0].collective if studies else 'none'}")


def link_use_svg(analysis: ChoiceAnalysis) -> str:
    """Return the share of their rate that links carry, against the time in us, as SVG."""
    figure, axes = _figure()
    lines = use_over_time(analysis)
    for number, (name, shares) in enumerate(lines):
        edges = [analysis.use.bin_us * i for i in range(len(shares) + 1)]
        axes.stairs(
            [100 * share for share in shares],
            edges,
            baseline=None,
            color=_SERIES[number],
            ls=_DASHES[number],
            label=name,
            lw=1.6,
        )
    axes.set_ylim(0, 105)
    axes.set_xlim(left=0)
    axes.set_xlabel("us since the first thread block's start (simulated)")
    axes.set_ylabel("% of the links' rate (simulated)")
    axes.grid(color=_GRID, lw=0.5)
    _legend(figure, axes)
    name = _file_name(analysis.call.name, analysis.call.root if analysis.call.rooted else -1)
    return _svg(figure, f"links-{name}-{analysis.nbytes}")


def use_over_time(analysis: ChoiceAnalysis) -> list[tuple[str, tuple[float, ...]]]:
    """Return by name the shares in use over time of the busiest link and of the link classes."""
    lines = [(f"all {c.links} {c.kind}", c.over_time) for c in analysis.use.classes]
    lines = lines[: _MOST_LINES - 1]
    if analysis.busiest:
        lines.insert(0, (analysis.use.links[0].link, analysis.busiest))
    return lines


def spread(studies: Sequence[StoredStudy], most: int) -> list[StoredStudy]:
    """Return at most ``most`` of them, the first and the last among them."""
    if len(studies) <= most:
        return list(studies)
    return [studies[round(i * (len(studies) - 1) / (most - 1))] for i in range(most)]


def _file_name(collective: str, root: int) -> str:
    return collective if root < 0 else f"{collective}-{root}"


def _series(comparison: Comparison, call: tuple[str, int]) -> list[tuple[str, _Points]]:
    """(name, [(size, us)]) of the tuned table, of every baseline and of the bound."""
    tuned = [
        (r.size, r.time_us)
        for r in comparison.tuned
        if (r.collective, r.root) == call and r.time_us is not None
    ]
    series = [("tuned table", sorted(tuned))]
    for name, baseline in comparison.distinct_baselines(call).items():
        points = [
            (r.size, r.baseline_us)
            for r in comparison.rows
            if (r.collective, r.root, r.baseline) == (*call, baseline)
        ]
        series.append((name, sorted(points)))
    mine = [
        (row.size, us, over)
        for row, us, over in zip(
            comparison.tuned, comparison.bound_us, comparison.bounds, strict=True
        )
        if (row.collective, row.root) == call
    ]
    over = " or ".join(sorted({over for _, _, over in mine}))
    return [*series, (f"bound over {over}", sorted((size, us) for size, us, _ in mine))]


def _by_size(series: Sequence[tuple[str, _Points]]) -> tuple[Figure, Axes]:
    """Lines against size, the last of them the bound."""
    figure, axes = _figure()
    for number, (name, points) in enumerate(series[:-1]):
        colour = _SERIES[number % len(_SERIES)]
        line = _LINES[number % len(_LINES)]
        axes.plot(*_columns(points), line, color=colour, label=name, lw=1.6, ms=4)
    name, points = series[-1]
    axes.plot(*_columns(points), ":", color=_INK, label=name, lw=1.6)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("size of the whole array, bytes")
    sizes = sorted({size for _, points in series for size, _ in points})
    labels = sizes[:: -(-len(sizes) // _MOST_LABELS)] if sizes else []
    axes.set_xticks(labels, [format_bytes(size) for size in labels])
    axes.minorticks_off()
    axes.grid(color=_GRID, lw=0.5)
    _legend(figure, axes)
    return figure, axes


def _columns(points: _Points) -> tuple[list[int], list[float]]:
    return [size for size, _ in points], [value for _, value in points]


def _figure() -> tuple[Figure, Axes]:
    """A figure so narrow that its text can be read on a phone."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT))
    axes = figure.add_subplot()
    axes.tick_params(which="both", colors=_INK, labelsize=9)
    axes.patch.set_alpha(0.0)
    for spine in axes.spines.values():
        spine.set_color(_GRID)
    return figure, axes


def _legend(figure: Figure, axes: Axes) -> None:
    """Name the lines under the chart, where none runs, and make room for the names."""
    handles, labels = axes.get_legend_handles_labels()
    labels = [fill(label.replace(" = ", " =\n"), _LABEL_WIDTH) for label in labels]
    style = {"fontsize": 9, "frameon": False, "labelcolor": _INK, "handlelength": 3}
    figure.legend(handles, labels, loc="lower center", ncols=2, borderaxespad=0.1, **style)
    half = -(-len(labels) // 2)
    columns = labels[:half], labels[half:]
    lines = max(sum(1 + label.count("\n") for label in column) for column in columns)
    bottom = (_LABELS + _LINE * lines) / _HEIGHT
    figure.subplots_adjust(left=0.2, right=0.97, top=0.97, bottom=bottom)


def _svg(figure: Figure, name: str) -> str:
    """The figure as an SVG element in the page's colours, as wide as its place."""
    for axes in figure.axes:
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set_color(_INK)
            label.set_fontsize(9.5)
    svg = svg_text(figure, name, transparent=True)
    svg = svg[svg.index("<svg") :].strip()
    for drawn, colour in _COLOURS.items():
        svg = svg.replace(drawn, colour)
    # Groups have the same ids in every figure, and none refers to them.
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
