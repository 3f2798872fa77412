"""Plots of a comparison as SVG that sits inside a page and follows its light or dark colours."""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuccl.errors import Unavailable
from tuccl.eval.columns import busbw_gbs
from tuccl.eval.comparison import Comparison, ComparisonRow, call_name
from tuccl.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["bandwidth_svg", "heat_map_svg", "latency_svg", "plots_available"]

# Drawn in these, and replaced by the page's own colours in the SVG's text.
_INK, _GRID = "#010203", "#040506"
_SERIES = ("#2f81f7", "#d9822b", "#8e5bd0", "#3fa45b", "#c2485a")
_SMALL_BYTES = 1 << 20
_MOST_LABELS = 16
_MISSING = "plots need matplotlib: pip install 'tuccl[plot]'"


def plots_available() -> bool:
    """Return whether matplotlib, the extra ``plot``, is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def bandwidth_svg(comparison: Comparison, collective: str, root: int = -1) -> str:
    """Return bus bandwidth in GB/s against size, tuned, baselines and bound, as SVG.

    Raises:
        Unavailable: matplotlib is not installed.
    """
    figure, axes = _figure(7.2, 3.6)
    n = comparison.ranks
    for number, (name, points) in enumerate(_series(comparison, (collective, root))):
        sizes = [size for size, _ in points]
        rates = [busbw_gbs(collective, n, size, us) for size, us in points]
        axes.plot(sizes, rates, _marker(number), color=_colour(number), label=name, lw=1.6, ms=4)
    limit = _bound(comparison, (collective, root))
    sizes = [size for size, _ in limit]
    rates = [busbw_gbs(collective, n, size, us) for size, us in limit]
    axes.plot(sizes, rates, ":", color=_INK, label="bound (no algorithm is faster)", lw=1.2)
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"bus bandwidth, GB/s ({comparison.how})")
    _finish(axes, comparison, sizes)
    return _svg(figure, f"bandwidth-{_file_name(collective, root)}")


def latency_svg(comparison: Comparison, collective: str, root: int = -1) -> str | None:
    """Return time in us against size below 1 MB, both logarithmic, as SVG; None: nothing there.

    Raises:
        Unavailable: matplotlib is not installed.
    """
    call = collective, root
    sizes = sorted({r.size for r in comparison.tuned if (r.collective, r.root) == call})
    small = [size for size in sizes if size < _SMALL_BYTES]
    if not small:
        return None
    figure, axes = _figure(7.2, 3.6)
    from matplotlib.ticker import LogLocator

    for number, (name, points) in enumerate(_series(comparison, (collective, root))):
        kept = [(size, us) for size, us in points if size < _SMALL_BYTES]
        xs, ys = [size for size, _ in kept], [us for _, us in kept]
        axes.plot(xs, ys, _marker(number), color=_colour(number), label=name, lw=1.6, ms=4)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=99))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel(f"time, us ({comparison.how})")
    _finish(axes, comparison, small)
    return _svg(figure, f"latency-{_file_name(collective, root)}")


def heat_map_svg(comparison: Comparison) -> str:
    """Return speed-ups by collective, baseline and size; 1.0 is neutral, slower is red, as SVG.

    Raises:
        Unavailable: matplotlib is not installed.
    """
    lines = list(dict.fromkeys((r.collective, r.root, r.baseline) for r in comparison.rows))
    sizes = sorted({r.size for r in comparison.rows})
    by_cell = {(r.collective, r.root, r.baseline, r.size): r for r in comparison.rows}
    grid = [[_log2_speedup(by_cell.get((*line, size))) for size in sizes] for line in lines]
    most = max([1.0, *(abs(v) for row in grid for v in row if math.isfinite(v))])
    figure, axes = _figure(max(7.2, 0.62 * len(sizes) + 2.6), 0.42 * len(lines) + 1.3)
    axes.pcolormesh(grid, cmap="RdBu", vmin=-most, vmax=most, edgecolors=_GRID, linewidth=0.5)
    axes.invert_yaxis()
    for y, line in enumerate(lines):
        for x, size in enumerate(sizes):
            if (row := by_cell.get((*line, size))) is not None:
                light = abs(_log2_speedup(row)) > 0.6 * most
                colour = "#ffffff" if light else "#111111"
                text = f"{row.speedup:.2f}" if row.speedup < 9.995 else f"{row.speedup:.1f}"
                axes.text(
                    x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=8, color=colour
                )
    axes.set_xticks([x + 0.5 for x in range(len(sizes))], [format_bytes(s) for s in sizes])
    axes.set_yticks(
        [y + 0.5 for y in range(len(lines))], [f"{call_name(c, r)} vs {b}" for c, r, b in lines]
    )
    axes.set_xlabel(f"size of the whole array, bytes ({_where(comparison)})")
    axes.tick_params(length=0)
    return _svg(figure, "speedups")


def _file_name(collective: str, root: int) -> str:
    return collective if root < 0 else f"{collective}-{root}"


def _log2_speedup(row: ComparisonRow | None) -> float:
    return math.nan if row is None else math.log2(row.speedup)


def _series(
    comparison: Comparison, call: tuple[str, int]
) -> list[tuple[str, list[tuple[int, float]]]]:
    """(name, [(size, us)]) of the tuned table and of every baseline, sizes rising."""
    tuned = [
        (r.size, r.time_us)
        for r in comparison.tuned
        if (r.collective, r.root) == call and r.time_us is not None
    ]
    series = [("tuned table", sorted(tuned))]
    for baseline in comparison.baselines:
        points = [
            (r.size, r.baseline_us)
            for r in comparison.rows
            if (r.collective, r.root, r.baseline) == (*call, baseline)
        ]
        if points:
            series.append((baseline, sorted(points)))
    return series


def _bound(comparison: Comparison, call: tuple[str, int]) -> list[tuple[int, float]]:
    pairs = zip(comparison.tuned, comparison.bound_us, strict=True)
    return sorted((row.size, us) for row, us in pairs if (row.collective, row.root) == call)


def _where(comparison: Comparison) -> str:
    return comparison.label if len(comparison.label) <= 90 else f"{comparison.label[:87]}..."


def _colour(number: int) -> str:
    return _SERIES[number % len(_SERIES)]


def _marker(number: int) -> str:
    return ("o-", "s--", "^--", "d--", "v--")[number % 5]


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    if not plots_available():
        raise Unavailable(_MISSING)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.tick_params(colors=_INK, labelsize=8)
    for spine in axes.spines.values():
        spine.set_color(_GRID)
    return figure, axes


def _finish(axes: Axes, comparison: Comparison, sizes: Sequence[int]) -> None:
    axes.set_xlabel(f"size of the whole array, bytes ({_where(comparison)})")
    shown = sizes[:: -(-len(sizes) // _MOST_LABELS)] if sizes else []
    axes.set_xticks(shown, [format_bytes(size) for size in shown])
    axes.minorticks_off()
    axes.grid(color=_GRID, lw=0.5)
    axes.legend(fontsize=8, frameon=False, labelcolor=_INK)


def _svg(figure: Figure, name: str) -> str:
    """The figure as an SVG element whose ink and grid take the page's colours."""
    import matplotlib

    for axes in figure.axes:
        axes.patch.set_alpha(0.0)
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set_color(_INK)
            label.set_fontsize(9)
    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    svg = svg.replace(_INK, "currentColor").replace(_GRID, "var(--grid)")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
