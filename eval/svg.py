"""Figures of matplotlib as SVG text, equal for equal figures."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def svg_text(figure: Figure, name: str, *, transparent: bool = False) -> str:
    """Return ``figure`` as SVG whose text stays text; ``name`` keeps its ids apart from others'."""
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=transparent, metadata=nothing)
    return text.getvalue()
