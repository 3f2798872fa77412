"""Figures in prose stand on a page of results/, and pages are as old as the code they measure."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import figures
import pages

ROOT = Path(__file__).resolve().parents[1]
READMES = ("README.md", "ARCHITECTURE.md", "training/README.md")
DOCS = (path for path in sorted(ROOT.glob("docs/**/*.md")) if path.name != "cli.md")
PROSE = [*(ROOT / name for name in READMES), *DOCS]
# Outputs, commands, code and targets of links.
NOT_PROSE = re.compile(r"^```.*?^```|^ {4}[^\n]*|`[^`]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
NUMBER = r"(?<![\w.,/^-])\d[\d,]*(?:\.\d+)?(?: \(\w+\))?"
UNIT = r" ?(?:%|x(?!\w| [A-Z])|(?:times|us|ms|s|seconds?|minutes?|hours?|[GM][Bb]/s)\b)"
# One number or two before a factor, or a unit of time, rate or share.
FIGURE = re.compile(rf"{NUMBER}(?:(?: to | or | and |, | ?[\u2013-] ?){NUMBER})?{UNIT}")
# Figures that are no results, with their words. First what code does at that number: limits,
# defaults, thresholds, rules of an algorithm.
RULES = """
    (600 s) | Pairs below 1 % | between 50 and 100 ms | below 80 % of the one-directional
    robust fit's 95 % interval | half the 95 % interval | differ by more than 10 %
    one 100 Gb/s NIC | the fastest NIC gets 1 Gb/s
    A NIC runs at 1 to 4000 Mb/s | slows by over 5 % | one in 10 s
    Steps within 3 % are a tie | in cycles of 1 ms | at most 20 % slower | reaches 95 %
    Shi et al. 2021) by 10 % | prints a line every 12 s | k <= 8 within 1 % | exceeds 15 % over
    one 15 % shorter (the table's choice: 7 %) | (gain under 1 %
    bisection to 3 % (25 % if times have noise)
"""
# Then what a specification says, or arithmetic of one, and what says itself that it is an estimate.
SPECIFICATIONS = """
    50 GB/s for 4xNDR | as of TPUs, 50 GB/s per link | up to 21 ms of queue at 200 Mb/s
    (*estimate* 0.5\N{EN DASH}1 us)
"""
NO_RESULTS = [" ".join(each.split()) for each in re.split(r"[|\n]", RULES + SPECIFICATIONS)]


def prose(text: str) -> str:
    """Return a text without code and outputs, on one line."""
    return " ".join(NOT_PROSE.sub(" ` ", text).split())


def unfounded(text: str) -> list[str]:
    """Return the figures of a text that stand on no page of results/ linked in their section."""
    found = []
    for section in re.split(r"^(?=#+ )", text, flags=re.MULTILINE):
        names = set(re.findall(r"\bresults/(\w+)\.md", section))
        linked = " ".join((ROOT / f"results/{name}.md").read_text() for name in names)
        known = [float(each) for each in re.findall(r"(?<![\w.-])\d+(?:\.\d+)?(?=x?\b)", linked)]
        words = prose(section)
        for phrase in filter(None, NO_RESULTS):
            words = words.replace(phrase, "")
        for figure in FIGURE.finditer(words):
            for number in re.findall(r"\d[\d,]*(?:\.\d+)?", figure[0]):
                places = len(number.partition(".")[2])
                value = float(number.replace(",", ""))
                if not any(abs(each - value) <= 0.501 * 10**-places for each in known):
                    found.append(words[max(0, figure.start() - 30) : figure.end()])
    return found


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_in_prose_stand_on_a_page_of_results(page: Path) -> None:
    assert unfounded(page.read_text()) == []


def test_what_is_no_result_is_there() -> None:
    words = " ".join(prose(page.read_text()) for page in PROSE)
    assert [phrase for phrase in NO_RESULTS if phrase not in words] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("It is 2.5x as fast.", 1),
        ("Errors are 4 to 12 %.", 2),
        ("```\n12 us\n```\nA size of 4M, 8x V100, `12 us`.\n\n    12 us\n", 0),
        ("# One\n[page](results/emulated_rates.md): 99.3 %.", 0),
        ("# One\n[page](results/emulated_rates.md)\n\n# Two\n99.3 %.", 1),
    ],
)
def test_figures_without_a_page_are_found(text: str, count: int) -> None:
    assert len(unfounded(text)) == count


def test_each_page_has_a_benchmark_and_a_time() -> None:
    assert set(pages.all_pages()) == {path.stem for path in (ROOT / "results").glob("*.md")}
    assert pages.listed() <= set(pages.all_pages())


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pages.Page:
    """A page of a repository of its own, whose benchmark has not changed."""
    for folder in ("benchmarks", "results", "units"):
        (tmp_path / folder).mkdir()
    packages = '[tool.scikit-build.wheel.packages]\n"tuccl/units" = "units"\n'
    (tmp_path / "pyproject.toml").write_text(packages)
    (tmp_path / "units/bytes.py").write_text("MEGA = 10**6\n")
    script = tmp_path / "benchmarks/one.py"
    option = 'parser.add_argument("--seeds", default=3)'
    script.write_text(f"from tuccl.units.bytes import MEGA\n{option}\n")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "HERE", tmp_path / "benchmarks")
    pages.git("init", "-q")
    pages.git("add", ".")
    pages.git("-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "one")
    commit = pages.git("rev-parse", "--short", "HEAD").strip()
    (tmp_path / "results/one.md").write_text(
        f"# one\n\nSimulated. Commit {commit}, 2026-01-01, 2 cores.\n\n"
        "    .venv/bin/python benchmarks/one.py --seeds 3\n\n```text\n1.0\n```\n"
    )
    return pages.Page("one", script, "Simulated", "", (), 1)


def test_a_failing_benchmark_stops_no_other(page: pages.Page) -> None:
    two = dataclasses.replace(page, name="two", script=pages.HERE / "two.py")
    page.script.write_text("raise SystemExit(1)\n")
    assert figures.rebuild([page, two], 9) == 2  # there are changes without a commit
    two.script.write_text("import pathlib, sys\npathlib.Path('two').write_text(sys.argv[1])\n")
    pages.git("add", ".")
    pages.git("-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "two")
    assert figures.rebuild([page, two], 9) == 1
    assert (pages.ROOT / "two").read_text() == "--write"
    (pages.ROOT / "two").unlink()
    assert figures.rebuild([two], 0) == 0  # skipped: it takes a minute
    assert not (pages.ROOT / "two").exists()


def test_a_page_is_as_old_as_what_its_code_computes(page: pages.Page) -> None:
    assert (page.defect(), page.changed(page.own | page.modules)) == ("", [])
    page.script.write_text('"""Prose."""\n' + page.script.read_text() + "# More.\n")
    (pages.ROOT / "units/bytes.py").write_text("MEGA = 1 << 20\n")
    pages._touched.cache_clear()
    assert page.changed(page.own) == []
    assert page.changed(page.modules) == ["units/bytes.py"]


@pytest.mark.parametrize(
    ("old", "new", "defect"),
    [
        ("--seeds 3", "--seeds 2", "options --seeds 2"),
        ("2 cores", "2 cores, the last table: Commit 1234567", "joined by hand"),
        ("Commit ", "Commit 0", "of no commit of this branch"),
    ],
)
def test_options_and_hands_are_found(page: pages.Page, old: str, new: str, defect: str) -> None:
    path = pages.ROOT / "results/one.md"
    path.write_text(path.read_text().replace(old, new))
    assert page.defect() == defect
