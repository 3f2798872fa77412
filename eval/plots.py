"""Plots of a comparison as SVG that sits inside a page and follows its light or dark colours."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuccl.errors import Unavailable
from tuccl.eval.columns import busbw_gbs
from tuccl.eval.comparison import Comparison
from tuccl.tuning import StoredStudy
from tuccl.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Drawn in these, and replaced by the page's own colours in the SVG's text.
_INK, _GRID = "#010203", "#040506"
_SERIES = ("#2f81f7", "#d9822b", "#8e5bd0", "#3fa45b", "#c2485a")
_SMALL_BYTES = 1 << 20
_MOST_LABELS = 16
_MOST_LINES = 5
_MISSING = "plots need matplotlib: pip install matplotlib"


def plots_available() -> bool:
    """Return whether matplotlib, the extra ``plot``, is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def bandwidth_svg(comparison: Comparison, collective: str, root: int = -1) -> str:
    """Return bus bandwidth in GB/s against size, tuned, baselines and bound, as SVG.

    Raises:
        Unavailable: matplotlib is not installed.
    """
    figure, [axes] = _figure(7.2, 3.6)
    n = comparison.ranks
    for number, (name, points) in enumerate(_series(comparison, (collective, root))):
        sizes = [size for size, _ in points]
        rates = [busbw_gbs(collective, n, size, us) for size, us in points]
        axes.plot(sizes, rates, _marker(number), color=_colour(number), label=name, lw=1.6, ms=4)
    limit = _bound(comparison, (collective, root))
    sizes = [size for size, _ in limit]
    rates = [busbw_gbs(collective, n, size, us) for size, us in limit]
    name = f"bound over {_over(comparison, (collective, root))}"
    axes.plot(sizes, rates, ":", color=_INK, label=name, lw=1.2)
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"bus bandwidth, GB/s ({comparison.how})")
    _finish(axes, comparison, sizes)
    _legend(figure, axes)
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
    figure, [axes] = _figure(7.2, 3.6)
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
    _legend(figure, axes)
    return _svg(figure, f"latency-{_file_name(collective, root)}")


def convergence_svg(studies: Sequence[StoredStudy], how: str) -> str:
    """Return the best time so far over the best of all, against evaluations and seconds, as SVG.

    ``studies`` are of one collective; at most five of their sizes are drawn, spread evenly.
    ``how`` says whether times are simulated or measured.

    Raises:
        Unavailable: matplotlib is not installed.
    """
    figure, axes = _figure(7.2, 3.2, columns=2)
    for number, study in enumerate(_spread(studies, _MOST_LINES)):
        steps = study.best_so_far
        if not steps:
            continue
        last = len(study.evaluations), study.evaluations[-1].seconds, steps[-1][2]
        ratios = [us / last[2] for _, _, us in (*steps, last)]
        for column in (0, 1):
            axes[column].step(
                [step[column] for step in (*steps, last)],
                ratios,
                where="post",
                color=_colour(number),
                label=format_bytes(study.nbytes),
                lw=1.6,
            )
    for column, label in enumerate(("evaluation", "seconds since the first")):
        axes[column].set_xlabel(label)
        axes[column].set_yscale("log")
        axes[column].yaxis.set_major_formatter("{x:g}x")
        axes[column].yaxis.set_minor_formatter("{x:g}x")
        axes[column].grid(color=_GRID, lw=0.5, which="both")
    axes[0].set_ylabel(f"best so far over best ({how})")
    _legend(figure, axes[0])
    return _svg(figure, f"convergence-{studies[0].collective if studies else 'none'}")


def _spread(studies: Sequence[StoredStudy], most: int) -> list[StoredStudy]:
    """At most ``most`` of them, the first and the last among them."""
    if len(studies) <= most:
        return list(studies)
    return [studies[round(i * (len(studies) - 1) / (most - 1))] for i in range(most)]


def _file_name(collective: str, root: int) -> str:
    return collective if root < 0 else f"{collective}-{root}"


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
    for name, baseline in comparison.distinct_baselines(call).items():
        points = [
            (r.size, r.baseline_us)
            for r in comparison.rows
            if (r.collective, r.root, r.baseline) == (*call, baseline)
        ]
        if points:
            series.append((name, sorted(points)))
    return series


def _over(comparison: Comparison, call: tuple[str, int]) -> str:
    pairs = zip(comparison.tuned, comparison.bounds, strict=True)
    return " or ".join(sorted({over for row, over in pairs if (row.collective, row.root) == call}))


def _bound(comparison: Comparison, call: tuple[str, int]) -> list[tuple[int, float]]:
    pairs = zip(comparison.tuned, comparison.bound_us, strict=True)
    return sorted((row.size, us) for row, us in pairs if (row.collective, row.root) == call)


def _where(comparison: Comparison) -> str:
    return comparison.label if len(comparison.label) <= 90 else f"{comparison.label[:87]}..."


def _colour(number: int) -> str:
    return _SERIES[number % len(_SERIES)]


def _marker(number: int) -> str:
    return ("o-", "s--", "^--", "d--", "v--")[number % 5]


def _figure(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    if not plots_available():
        raise Unavailable(_MISSING)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    every = [figure.add_subplot(1, columns, column + 1) for column in range(columns)]
    for axes in every:
        axes.tick_params(which="both", colors=_INK, labelsize=8)
        for spine in axes.spines.values():
            spine.set_color(_GRID)
    return figure, every


def _finish(axes: Axes, comparison: Comparison, sizes: Sequence[int]) -> None:
    axes.set_xlabel(f"size of the whole array, bytes ({_where(comparison)})")
    labels = sizes[:: -(-len(sizes) // _MOST_LABELS)] if sizes else []
    axes.set_xticks(labels, [format_bytes(size) for size in labels])
    axes.minorticks_off()
    axes.grid(color=_GRID, lw=0.5)


def _legend(figure: Figure, axes: Axes) -> None:
    """Name the lines under the plot, where none runs."""
    handles, labels = axes.get_legend_handles_labels()
    style = {"fontsize": 8, "frameon": False, "labelcolor": _INK}
    figure.legend(handles, labels, loc="outside lower center", ncols=3, **style)


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
