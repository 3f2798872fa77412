"""The figures by their ids, in the papers' order."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

import msgspec

from tuccl.errors import InputError
from tuccl.eval.papers.figure import PaperFigure

_FILE = Path(__file__).with_name("figures.json")
FIGURES = {
    each.name: each for each in msgspec.json.decode(_FILE.read_bytes(), type=list[PaperFigure])
}


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
