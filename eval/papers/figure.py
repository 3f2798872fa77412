"""A figure of a paper: what the paper reports, and the rows that come out here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Literal

import msgspec

Kind = Literal["simulated", "measured", "calculation", "recorded", "unavailable"]
Value = str | int | float | None
Row = tuple[Value, ...]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Chart:
    """A chart of rows: a panel for each value of ``panel``, a line or bars for each of ``ys``.

    Attributes:
        x: The column along the axis.
        ys: The columns drawn.
        y: The axis' name with its unit.
        panel: The columns whose values name a panel; none: one panel.
        kind: Lines over numbers, or bars over names.
        log: Whether the vertical axis is logarithmic.
    """

    x: str
    ys: tuple[str, ...]
    y: str
    panel: tuple[str, ...] = ()
    kind: Literal["lines", "bars"] = "lines"
    log: bool = False


@dataclass(frozen=True)
class FigureData:
    """Rows under named columns, sentences on what they show, and how to draw them.

    ``notes`` hold numbers of this run; what holds of every run stands with the figure.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    chart: Chart | None = None

    def column(self, name: str) -> list[Value]:
        """Return the values of a column, row by row."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]


class PaperFigure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A figure or table of a paper, as figures.json has it, and what rebuilds it.

    Attributes:
        name: Its id, as the command line takes it.
        paper: The paper's short name.
        title: One line.
        kind: Whether rows are simulated, measured, calculated, or recorded by others or earlier.
        on: The machine and circumstances of the rows.
        reported: What the paper says, each with its value.
        why: Why the paper and the rows differ, or why it cannot be had.
        rows: MODULE.FUNCTION of this folder, and its argument after a space; empty: no rows.
    """

    name: str
    paper: str
    title: str
    kind: Kind
    on: str
    reported: dict[str, str]
    why: str
    rows: str = ""

    def rebuild(self, progress: Progress) -> FigureData:
        """Return the rows; ``progress`` is called with what is under way."""
        if not self.rows:
            return FigureData((), ())
        function, *arguments = self.rows.split(" ")
        module, _, name = function.partition(".")
        data = getattr(import_module(f"tuccl.eval.papers.{module}"), name)(progress, *arguments)
        assert isinstance(data, FigureData)
        return data
