"""The report as a page: self-contained, no network, light and dark, screen and paper."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tuccl import __version__
from tuccl.eval.comparison import Comparison, call_name
from tuccl.eval.report.calls import call_parts
from tuccl.eval.report.choices import choice_parts
from tuccl.eval.report.elements import Html, facts, paragraph, section, slug
from tuccl.eval.report.machine import assumed_links, machine_parts, sketch_parts
from tuccl.eval.report.search import search_parts
from tuccl.eval.report.speedups import speedups
from tuccl.eval.report.style import STYLE
from tuccl.runtime import Table
from tuccl.topology import signature
from tuccl.tuning import StoredStudy


def html_report(
    comparison: Comparison,
    studies: Sequence[StoredStudy] = (),
    stored: Table | None = None,
    *,
    command: str = "",
    date: str = "",
) -> str:
    """Return the page: speed-ups, each collective, its choices, the search, the machine.

    ``stored`` is the table that was compared: it adds why it chooses so, what each knob gains and
    how links are used, all simulated, and its machine and sketches. ``studies`` add how the search
    went; ``command`` and ``date`` what was run, and when.
    Every chart has its table, and says whether its numbers are simulated or measured, and on what.
    """
    title = f"tuccl: {escape(comparison.topology)}, tuned against default"
    lookup = stored.lookup if stored else None
    sections = [
        section("Speed-up", speedups(comparison)),
        *(
            section(call_name(*call), call_parts(comparison, *call, lookup))
            for call in comparison.calls
        ),
        section("Choices in detail", choice_parts(comparison, stored)),
        section("Sketches", sketch_parts(comparison, stored)),
        section("The search", search_parts(comparison, studies, _tuned_on(stored))),
        section("The machine", machine_parts(stored.topology if stored else None)),
        section("Notes", _notes(comparison)),
        section("Provenance", [_provenance(comparison, stored, command, date)]),
    ]
    body = "\n".join(text for _, text in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the content</a>\n'
        f"<header><h1>{title}</h1>{_label(comparison)}</header>\n{_navigation(sections)}\n"
        f'<main id="main">{body}</main>\n</body></html>\n'
    )


def _tuned_on(stored: Table | None) -> str:
    return stored.lookup.tuned_on if stored else ""


def _label(comparison: Comparison) -> str:
    return paragraph(
        f"Every time here is {comparison.how}: {comparison.label}, but where a section says "
        "otherwise. Speed-up is the baseline's time over the tuned time, out of place; where the "
        "times of one of them spread over 1.5x it is not comparable.",
        "label",
    )


def _navigation(sections: Sequence[tuple[str, str]]) -> str:
    links = "".join(
        f'<li><a href="#{slug(title)}">{escape(title)}</a></li>' for title, text in sections if text
    )
    return f'<nav aria-label="Sections"><ul>{links}</ul></nav>'


def _notes(comparison: Comparison) -> list[str]:
    items = "".join(f"<li>{escape(note)}</li>" for note in comparison.notes)
    return [f"<ul>{items}</ul>"] if items else []


def _provenance(comparison: Comparison, stored: Table | None, command: str, date: str) -> str:
    """Return what was run on what, and where the numbers of every axis are from."""
    here = f"{comparison.how}: {comparison.label}"
    rows = [
        ("tuccl", __version__),
        ("date", date),
        ("command", Html(f"<code>{escape(command)}</code>") if command else ""),
        ("table", comparison.table),
        ("NCCL", comparison.nccl_version or "what nccl-tests is linked with"),
        ("times, bus bandwidths and speed-ups", here),
        ("sizes", "bytes of the whole array, exact"),
        (
            "bound",
            "of the links' rates, over links alone or with what switches reduce and multicast",
        ),
    ]
    if stored is not None:
        rows += [
            ("times of the search and in reasons", _tuned_on(stored) or "of an unknown source"),
            ("link use, knob effects, parts of a time", f"simulated on {stored.topology.name}"),
            ("signature of the machine", signature(stored.topology)),
            ("assumed", assumed_links(stored.topology)),
        ]
    return facts(row for row in rows if row[1])
