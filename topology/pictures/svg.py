"""Plain SVG text: boxes, lines and labels that follow the reader's light or dark colours."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

_COLOURS = {
    "light": "--ink: #1a1f24; --paper: #ffffff; --soft: #eef1f4; --line: #6b7785; --gpu: #d9ecff; "
    "--nic: #ffe7c9; --cpu: #e4e0f7; --switch: #d8f0dd; --nvlink: #1a7f4b; --network: #b45309; "
    "--logical: #1a6fb5; --pruned: #b3261e;",
    "dark": "--ink: #e3e7eb; --paper: #14181c; --soft: #232a31; --line: #94a1ae; --gpu: #1d3a57; "
    "--nic: #573d17; --cpu: #37315c; --switch: #1d4a2b; --nvlink: #57c98a; --network: #f0a24b; "
    "--logical: #79b8ff; --pruned: #ff8a80;",
}
_STYLE = f"""
svg {{ {_COLOURS["light"]} color-scheme: light dark; }}
@media (prefers-color-scheme: dark) {{ svg {{ {_COLOURS["dark"]} }} }}
text {{ font: 12px system-ui, sans-serif; fill: var(--ink); text-anchor: middle;
  dominant-baseline: central; }}
text.left {{ text-anchor: start; }} text.title {{ font-size: 14px; font-weight: 600; }}
text.small {{ font-size: 10px; }}
.paper {{ fill: var(--paper); }}
rect {{ stroke: var(--line); stroke-width: 1; fill: var(--soft); }}
rect.gpu {{ fill: var(--gpu); }} rect.nic {{ fill: var(--nic); }} rect.cpu {{ fill: var(--cpu); }}
rect.nvswitch, rect.switch {{ fill: var(--switch); }} rect.paper {{ stroke: none; }}
path {{ fill: none; stroke: var(--line); }}
path.nvlink, path.xgmi {{ stroke: var(--nvlink); }}
path.network {{ stroke: var(--network); stroke-opacity: .75; }}
path.c2c {{ stroke: var(--nvlink); stroke-dasharray: 5 2; }} path.cpu {{ stroke-dasharray: 2 2; }}
path.logical {{ stroke: var(--logical); stroke-opacity: .8; }}
path.pruned {{ stroke: var(--pruned); stroke-opacity: .5; stroke-dasharray: 4 3; }}
path.faint {{ stroke-opacity: .35; }}
"""


def number(value: float) -> str:
    """Return a coordinate with at most one decimal.

    >>> number(3.0), number(2.25)
    ('3', '2.2')
    """
    return f"{value:.1f}".removesuffix(".0")


def stroke_width(gbs: float) -> float:
    """Return the width of a line for a rate: a quarter of its root, between 0.6 and 9."""
    return min(max(0.25 * math.sqrt(gbs), 0.6), 9.0)


class Drawing:
    """Lines and, over them, boxes and labels; all text is escaped."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lines: list[str] = []
        self._boxes: list[str] = []

    def path(
        self, points: str, kind: str, width: float = 1.0, title: str = "", faint: bool = False
    ) -> None:
        """Add a line along SVG path commands, of a link kind, with a title to hover over."""
        kinds = f"{kind} faint" if faint else kind
        line = f'<path class="{kinds}" stroke-width="{number(width)}" d="{points}">'
        self._lines.append(f"{line}{_title(title)}</path>")

    def box(
        self,
        at: tuple[float, float],
        size: tuple[float, float],
        kind: str,
        lines: Iterable[str] = (),
        title: str = "",
    ) -> None:
        """Add a box around its middle, with lines of text in it, the first larger."""
        (x, y), (w, h) = at, size
        self._boxes.append(
            f'<rect class="{kind}" x="{number(x - w / 2)}" y="{number(y - h / 2)}" '
            f'width="{number(w)}" height="{number(h)}" rx="4">{_title(title)}</rect>'
        )
        texts = list(lines)
        for row, text in enumerate(texts):
            offset = 12 * (row - (len(texts) - 1) / 2)
            self.text(x, y + offset, text, "" if row == 0 else "small")

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        """Add a label at its middle; kind ``left`` begins there, ``title`` and ``small`` size."""
        place = f'x="{number(x)}" y="{number(y)}"'
        self._boxes.append(f'<text class="{kind}" {place}>{escape(text)}</text>')

    def svg(self, width: float, height: float, label: str) -> str:
        """Return the file: as wide as it is, or as its page where that is narrower."""
        w, h = number(width), number(height)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" '
            f'height="{h}" style="max-width: 100%; height: auto" role="img" '
            f'aria-label="{escape(label)}">\n<style>{_STYLE}</style>\n'
            f'<rect class="paper" width="{w}" height="{h}"/>\n'
            + "\n".join([*self._lines, *self._boxes])
            + "\n</svg>\n"
        )


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""
