"""The files of a rebuilt figure: CSV, JSON, SVG, and a page of text."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec

from tuccl import __version__
from tuccl.eval.papers.charts import figure_svg
from tuccl.eval.papers.figure import FigureData, PaperFigure, Value
from tuccl.files import write_files

_DIGITS = 6
_MOST_ROWS = 60


def write_figure(figure: PaperFigure, data: FigureData, folder: Path) -> list[Path]:
    """Write the files of ``figure`` into ``folder``, all or none, and return their paths.

    Where there is nothing to draw there is no SVG.

    Raises:
        InputError: the folder is not there or cannot be written.
    """
    rounded = _rounded(data)
    texts = {
        "csv": _csv(rounded),
        "json": _json(figure, rounded),
        "md": _page(figure, rounded),
    }
    if data.chart is not None:
        texts["svg"] = figure_svg(figure, rounded)
    paths = {folder / f"{figure.name}.{suffix}": text for suffix, text in texts.items()}
    write_files({path: text.encode() for path, text in paths.items()})
    return list(paths)


def _rounded(data: FigureData) -> FigureData:
    def value(each: Value) -> Value:
        return float(f"{each:.{_DIGITS}g}") if isinstance(each, float) else each

    rows = tuple(tuple(map(value, row)) for row in data.rows)
    return FigureData(data.columns, rows, data.notes, data.chart)


def _csv(data: FigureData) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(data.columns)
    writer.writerows(data.rows)
    return text.getvalue()


def _json(figure: PaperFigure, data: FigureData) -> str:
    content = {
        "id": figure.name,
        "paper": figure.paper,
        "title": figure.title,
        "kind": figure.kind,
        "on": figure.on,
        "version": __version__,
        "reported": figure.reported,
        "rows": [dict(zip(data.columns, row, strict=True)) for row in data.rows],
        "notes": data.notes,
        "why": figure.why,
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=1).decode() + "\n"


def _page(figure: PaperFigure, data: FigureData) -> str:
    name = figure.name
    parts = [
        f"# {name}: {figure.title}",
        f"{figure.paper}. {figure.kind.capitalize()}: {figure.on}",
    ]
    parts += ["## The paper", _table(("", "reported"), tuple(figure.reported.items()))]
    parts += ["## Here"]
    if data.chart is not None:
        parts += [f"![{figure.title}]({name}.svg)"]
    if data.rows:
        parts += [_table(data.columns, data.rows[:_MOST_ROWS])]
        parts += [f"{len(data.rows)} rows: [{name}.csv]({name}.csv), [{name}.json]({name}.json)."]
    parts += [
        *data.notes,
        "## Why they differ",
        figure.why,
        f"tuccl {__version__}: `tuccl paper {name}`",
    ]
    return "\n\n".join(parts) + "\n"


def _table(columns: tuple[str, ...], rows: tuple[tuple[Value, ...], ...]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join(
        "|" + "|".join("" if cell is None else str(cell) for cell in row) + "|" for row in lines
    )
