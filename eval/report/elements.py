"""Elements of a report: tables, tables whose cells are coloured, charts, sections."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from tuccl.units import format_bytes

_FITTING = 4  # columns of a heat map on a phone
_PHONE_PIXELS = 340


class Html(str):
    """Text that is HTML already; all other text is escaped."""


@dataclass(frozen=True)
class HeatCell:
    """A cell with a number and its colour: ``fast``, ``slow``, ``regression`` or ``share``.

    ``strength`` from 0 to 1 is how much of the colour it has; ``note`` stands under the number.
    """

    text: str
    kind: str = ""
    strength: float = 0.0
    note: str = ""


def html(text: str) -> str:
    """Return ``text`` as it stands in a page."""
    return text if isinstance(text, Html) else escape(text)


def slug(text: str) -> str:
    """Return what names a section in links.

    >>> slug("reduce to rank 0")
    'reduce-to-rank-0'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def section(title: str, parts: Iterable[str]) -> tuple[str, str]:
    """Return the title and the HTML of a section; empty where it has no parts."""
    body = "\n".join(parts)
    heading = f'<h2 id="{slug(title)}">{html(title)}</h2>'
    return title, f"<section>{heading}\n{body}</section>" if body else ""


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph, of a class of the style sheet."""
    return f'<p class="{kind}">{html(text)}</p>' if kind else f"<p>{html(text)}</p>"


def fold(summary: str, body: str) -> str:
    """Return what is shown on demand, and on paper always."""
    return f"<details><summary>{html(summary)}</summary>{body}</details>"


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    label: str,
    words: Sequence[int] = (),
    *,
    cards: bool = False,
) -> str:
    """Return a table, called ``label`` by screen readers; the columns ``words`` hold text.

    ``cards``: on a phone each row is a list of its own.
    """

    def cell(tag: str, column: int, text: str) -> str:
        kind = ' class="text"' if column in words else ""
        kind += f' data-name="{escape(head[column])}"' if tag == "td" else ' scope="col"'
        return f"<{tag}{kind}>{html(text)}</{tag}>"

    top = "".join(cell("th", i, text) for i, text in enumerate(head))
    lines = ("".join(cell("td", i, text) for i, text in enumerate(row)) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return _scroll(
        f'<table class="{"cards" if cards else "plain"}"><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table>",
        label,
    )


def heat_map(
    corner: str,
    columns: Sequence[str | int],
    lines: Sequence[tuple[str, Sequence[HeatCell | None]]],
    caption: str,
) -> str:
    """Return a table whose cells are coloured; None is a cell without a number, ints are bytes."""
    names = (format_bytes(c) if isinstance(c, int) else html(c) for c in columns)
    heads = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "".join(
        f'<tr><th class="text" scope="row">{html(name)}</th>{"".join(map(_heat_cell, cells))}</tr>'
        for name, cells in lines
    )
    grid = (
        f'<table class="heat"><thead><tr><th scope="col">{html(corner)}</th>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )
    caption = html(caption)
    return (
        f"<figure>{_scroll(grid, caption, wide=len(columns) > _FITTING)}"
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _heat_cell(cell: HeatCell | None) -> str:
    if cell is None:
        return "<td>-</td>"
    note = f"<small>{html(cell.note)}</small>" if cell.note else ""
    kind = f' class="{cell.kind}" style="--strength: {cell.strength:.2f}"' if cell.kind else ""
    return f"<td{kind}>{html(cell.text)}{note}</td>"


def chart(svg: str, caption: str) -> str:
    """Return a chart with its caption."""
    return f'<figure class="chart">{svg}<figcaption>{html(caption)}</figcaption></figure>'


def picture(svg: str, name: str) -> str:
    """Return a drawing with styles of its own, which scrolls where it is wider than the page."""
    data = base64.b64encode(svg.encode()).decode()
    image = f'<img alt="{escape(name)}" src="data:image/svg+xml;base64,{data}"/>'
    width = re.search(r'width="(\d+)', svg)
    wide = width is not None and int(width[1]) > _PHONE_PIXELS
    return f"<figure>{_scroll(image, escape(name), wide=wide)}</figure>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and what they are."""
    items = "".join(f"<dt>{html(name)}</dt><dd>{html(text)}</dd>" for name, text in pairs)
    return f"<dl>{items}</dl>"


def _scroll(content: str, label: str, *, wide: bool = False) -> str:
    """A box that scrolls by itself, also by the keyboard, and says so on a phone if ``wide``."""
    kind = "scroll wide" if wide else "scroll"
    return f'<div class="{kind}" role="region" tabindex="0" aria-label="{label}">{content}</div>'
