"""The figures by their ids: texts from figures.json, rows from this folder's functions."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path

import msgspec

from tuccl.errors import InputError
from tuccl.eval.papers.figure import FigureData, Kind, PaperFigure, Progress


class _Text(msgspec.Struct, forbid_unknown_fields=True):
    """A figure as figures.json has it; ``rows`` names MODULE.FUNCTION of this folder."""

    paper: str
    title: str
    kind: Kind
    on: str
    reported: dict[str, str]
    why: str
    rows: str = ""


def _rebuild(rows: str, progress: Progress) -> FigureData:
    """Import the module when its figure is wanted: some of them take a second."""
    if not rows:
        return FigureData((), ())
    module, _, function = rows.partition(".")
    rebuild = getattr(import_module(f"tuccl.eval.papers.{module}"), function)
    data = rebuild(progress)
    assert isinstance(data, FigureData)
    return data


def _read() -> Mapping[str, PaperFigure]:
    path = Path(__file__).with_name("figures.json")
    texts = msgspec.json.decode(path.read_bytes(), type=dict[str, _Text])
    return {
        name: PaperFigure(
            name,
            each.paper,
            each.title,
            each.kind,
            each.on,
            tuple(each.reported.items()),
            each.why,
            partial(_rebuild, each.rows),
        )
        for name, each in texts.items()
    }


FIGURES = _read()
"""Every figure by its id, in the papers' order."""


def figure_of(name: str) -> PaperFigure:
    """Return the figure ``name``.

    >>> figure_of("tuccl-table2").paper
    'TuCCL'

    Raises:
        InputError: there is none; names the nearest.
    """
    if name not in FIGURES:
        near = get_close_matches(name, FIGURES, n=1, cutoff=0.0)
        raise InputError(
            f"figure {name[:40]!r}: expected list, all or an id; the nearest is {near[0]}"
        )
    return FIGURES[name]
