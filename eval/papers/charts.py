"""Charts of figures, as SVG files that stand alone."""

from __future__ import annotations

from typing import Any

from tuccl.eval.papers.figure import Chart, FigureData, PaperFigure, Value
from tuccl.eval.svg import svg_text

# Okabe and Ito's colours, which the colour-blind can separate; markers differ too.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_MARKERS = "os^dvPX"
_COLUMNS = 3


def figure_svg(figure: PaperFigure, data: FigureData) -> str:
    """Return the chart of ``data`` as SVG.

    Raises:
        ValueError: the data have no chart.
    """
    from matplotlib.figure import Figure

    if (chart := data.chart) is None:
        raise ValueError(f"{figure.name} has no chart")
    panels = _panels(chart, data)
    columns = min(len(panels), _COLUMNS)
    lines = -(-len(panels) // columns)
    drawn = Figure(figsize=(max(4.2 * columns, 6.4), 3.0 * lines + 0.6), layout="constrained")
    for place, (name, rows) in enumerate(panels.items(), 1):
        axes = drawn.add_subplot(lines, columns, place)
        axes.set_title(name, fontsize=9)
        _draw(axes, chart, data.columns, rows)
    drawn.suptitle(f"{figure.title} ({figure.kind})", fontsize=10)
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return svg_text(drawn, figure.name)


def _panels(chart: Chart, data: FigureData) -> dict[str, list[tuple[Value, ...]]]:
    """The rows of each panel under its name."""
    places = [data.columns.index(name) for name in chart.panel]
    panels: dict[str, list[tuple[Value, ...]]] = {}
    for row in data.rows:
        panels.setdefault(", ".join(str(row[place]) for place in places), []).append(row)
    return panels


def _draw(axes: Any, chart: Chart, columns: tuple[str, ...], rows: list[tuple[Value, ...]]) -> None:  # noqa: ANN401
    x = columns.index(chart.x)
    names = [str(row[x]) for row in rows]
    numbers = all(isinstance(row[x], int | float) for row in rows)
    for number, column in enumerate(chart.ys):
        values = [_number(row[columns.index(column)]) for row in rows]
        colour = _COLOURS[number % len(_COLOURS)]
        if chart.kind == "bars":
            width = 0.8 / len(chart.ys)
            at = [place - 0.4 + width * (number + 0.5) for place in range(len(rows))]
            axes.bar(at, values, width, color=colour, label=column)
        else:
            along = [row[x] for row in rows] if numbers else list(range(len(rows)))
            marker = _MARKERS[number % len(_MARKERS)]
            axes.plot(along, values, color=colour, marker=marker, ms=3.5, lw=1.4, label=column)
    if chart.kind == "bars" or not numbers:
        long = max(map(len, names)) > 6
        axes.set_xticks(
            range(len(names)), names, rotation=45 if long else 0, ha="right" if long else "center"
        )
    if chart.log:
        axes.set_yscale("log")
    axes.tick_params(labelsize=7)
    axes.set_xlabel(chart.x, fontsize=8)
    axes.set_ylabel(chart.y, fontsize=8)
    axes.grid(lw=0.4, color="#cccccc", axis="y")
    axes.set_axisbelow(True)


def _number(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")
