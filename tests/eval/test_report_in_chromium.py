"""A real report: what it explains, and how a browser shows it on screens, in print, by keyboard."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from xml.etree import ElementTree

import msgspec
import pytest

import tuccl
from tests.eval.chromium import CHROMIUM, Page, chromium
from tuccl.eval import html_report
from tuccl.topology import join, load_profile
from tuccl.tuning import read_studies, study_folder

WIDTHS = (390, 1400)
PAPER_PIXELS = 960  # between the margins of the narrower of Letter and A4, turned
LEAST_CONTRAST = 4.5  # WCAG 2.2, 1.4.3
LEAST_TEXT_PIXELS = 8.5

# Elements that reach over the window's right edge outside a box that scrolls.
CUT = """
[...document.querySelectorAll('body *')].filter(e =>
  !e.closest('.scroll > *') && !e.closest('.skip') && e.getBoundingClientRect().width &&
  e.getBoundingClientRect().right > document.documentElement.clientWidth + 1
).map(e => e.outerHTML.slice(0, 120))
"""
# Boxes that would have to scroll to show all.
SCROLLED = """
[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1
).map(e => e.getAttribute('aria-label'))
"""
SCROLLED_SILENTLY = SCROLLED.replace("'.scroll'", "'.scroll:not(.wide)'")
# Texts with their contrast to what is behind them, where that is too little.
FAINT = """
(() => {
  const numbers = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const over = ([r, g, b, a = 1], below) => [r, g, b].map((x, i) => a * x + (1 - a) * below[i]);
  const paper = numbers(getComputedStyle(document.body).backgroundColor);
  const behind = e => e === document.documentElement ? paper :
    over(numbers(getComputedStyle(e).backgroundColor), behind(e.parentElement));
  const light = c => { const [r, g, b] = c.map(x => (x /= 255) <= .04045 ? x / 12.92 :
    ((x + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  return [...document.querySelectorAll('body *')].filter(e => e.getClientRects().length &&
    [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim())).map(e => {
      const style = getComputedStyle(e), svg = e.namespaceURI.endsWith('svg');
      const ground = behind(svg ? e.closest('figure') : e);
      const ink = numbers(svg ? style.fill : style.color);
      ink[3] = (ink[3] ?? 1) * style.opacity;
      const [low, high] = [light(ground), light(over(ink, ground))].sort((a, b) => a - b);
      return [(high + .05) / (low + .05), e.textContent.trim().slice(0, 40)];
    }).filter(([contrast]) => contrast < %s);
})()
"""
SMALLEST_TEXT = """
Math.min(...[...document.querySelectorAll('.chart text')].map(e =>
  parseFloat(getComputedStyle(e).fontSize) * Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b)))
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of a table that was tuned with few evaluations; one row is made a regression."""
    folder = tmp_path_factory.mktemp("report")
    machine = join(load_profile("v100x4"), 2)
    options = tuccl.TuneOptions(budget=16, resume=True)
    calls, sizes = ["allgather", "allreduce"], ["4K", "256K", "4M"]
    table = tuccl.tune(machine, calls, sizes, options=options, path=folder / "table")
    comparison = table.compare()
    first, second, *rest = comparison.rows
    slower = [
        msgspec.structs.replace(row, speedup=0.9, regression=regression)
        for row, regression in ((first, True), (second, False))
    ]
    comparison = msgspec.structs.replace(comparison, rows=(*slower, *rest), regressions=1)
    studies = read_studies(study_folder(folder / "table"))
    return html_report(comparison, studies, table, command="tuccl compare table", date="today")


@pytest.fixture(scope="module")
def page(report: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Return Chromium with the report open, or skip."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (make browser)")
    folder = tmp_path_factory.mktemp("chromium")
    (folder / "report.html").write_text(report)
    with chromium(folder / "profile") as page:
        page.open(folder / "report.html")
        yield page


def headings(report: str) -> list[str]:
    root = ElementTree.fromstring(report.removeprefix("<!DOCTYPE html>\n"))
    return [h.text or "" for h in root.iter("h2")]


def test_it_has_every_section(report: str) -> None:
    assert headings(report) == [
        *("Speed-up", "allgather", "allreduce", "Choices in detail", "Sketches"),
        *("The search", "The machine", "Provenance"),
    ]


def test_it_says_why_and_what_knobs_gain(report: str) -> None:
    root = ElementTree.fromstring(report.removeprefix("<!DOCTYPE html>\n"))
    whys = ["".join(td.itertext()) for td in root.iter("td") if td.get("data-name") == "why"]
    assert len(whys) == 6 and all(" us on " in why or "default" in why for why in whys)
    text = " ".join(root.itertext())
    assert "start of the kernel" in text and "Knob effects" in text and "Link use" in text
    assert "-> msccl-default-robust" in text.replace("\u2192", "->")
    assert "before and after pruning" in report or "Nothing is pruned" in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_or_faint(page: Page, width: int, scheme: str) -> None:
    page.show(width, scheme)
    for is_open in ("false", "true"):
        page.value(f"document.querySelectorAll('details').forEach(d => d.open = {is_open})")
        assert page.value(CUT) == []
        assert page.value(SCROLLED_SILENTLY) == []
        assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value(FAINT % LEAST_CONTRAST) == []
    assert page.value(SMALLEST_TEXT) >= LEAST_TEXT_PIXELS
    paper = page.value("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


def test_only_wide_things_scroll_on_a_desk(page: Page) -> None:
    page.show(1400)
    assert page.value(SCROLLED) == []


def test_nothing_is_cut_in_print(page: Page, report: str, tmp_path: Path) -> None:
    page.value("document.querySelectorAll('details').forEach(d => d.open = false)")
    page.show(PAPER_PIXELS, "dark", "print")
    assert page.value(CUT) == [] and page.value(SCROLLED) == []
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    if which("pdftotext") is None:
        pytest.skip("pdftotext is not installed (make browser)")
    (tmp_path / "report.pdf").write_bytes(page.pdf())
    command = ["pdftotext", "-raw", "report.pdf", "-"]
    printed = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    text = "".join(printed.stdout.split())
    root = ElementTree.fromstring(report.removeprefix("<!DOCTYPE html>\n"))
    cells = ["".join("".join(td.itertext()).split()) for td in root.iter("td")]
    assert len(cells) > 200
    assert [cell for cell in cells if cell not in text] == []


def test_it_is_read_by_keyboard(page: Page) -> None:
    page.show(1400)
    page.value("document.querySelectorAll('details').forEach(d => d.open = false)")
    page.value("document.activeElement.blur()")
    page.key("Tab")
    assert page.value("document.activeElement.textContent") == "Skip to the content"
    assert page.value("document.activeElement.getBoundingClientRect().left") >= 0
    assert page.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    seen = set()
    for _ in range(page.value("document.querySelectorAll('a, summary, .scroll').length") - 1):
        page.key("Tab")
        seen.add(page.value("document.activeElement.localName"))
        if page.value("document.activeElement.localName") == "summary":
            break
    assert seen == {"a", "div", "summary"}
    page.key("Enter")
    assert page.value("document.activeElement.parentElement.open")
    assert page.value("document.querySelectorAll('[title], svg title').length") == 0  # on hover
