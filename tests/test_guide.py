"""Pages are true: their commands and examples run as they stand, and their links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tuccl.cli.parser import VERBS, build_parser

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "training/README.md"]
)
HAND_WRITTEN = [page for page in PAGES if page != "docs/reference/cli.md"]
MOST_WORDS = 22_000
MOST_COLUMNS = 130


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str, language: str) -> list[str]:
    return [body for tag, body in BLOCK.findall(text_of(page)) if tag == language]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")])
def test_commands_run(page: str, tmp_path: Path) -> None:
    tuccl = Path(sys.executable).with_name("tuccl")
    script = re.sub(r"\btuccl(?= [a-z])", str(tuccl), "\n".join(blocks(page, "sh")))
    ran = subprocess.run(
        ["sh", "-euxc", script], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-2000:]


# Their examples are parts of a job: a model, a process group or a GPU is not at hand.
PARTS = {"docs/howto/sparse-gradients.md", "docs/howto/gpus-in-c.md"}


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python") and p not in PARTS])
def test_python_examples_run(page: str, tmp_path: Path) -> None:
    for example in blocks(page, "python"):
        ran = subprocess.run(
            [sys.executable, "-c", example], check=False, cwd=tmp_path, capture_output=True
        )
        assert ran.returncode == 0, ran.stderr.decode()[-2000:]


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text_of(page)):
        other = (ROOT / page).parent / target if target else ROOT / page
        assert other.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors_of(other), f"{page}: {target}#{anchor}"


def test_every_page_is_on_the_site() -> None:
    index = text_of("docs/index.md")
    pages = [page.removeprefix("docs/").removesuffix(".md") for page in PAGES if "docs/" in page]
    assert [page for page in pages if page != "index" and f"\n{page}\n" not in index] == []


def test_references_in_code_lead_to_pages() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], check=False, cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip("not a checkout")
    missing = set()
    for name in listed.stdout.splitlines():
        if Path(name).suffix in {".py", ".cpp", ".h", ".cu", ".json", ".toml"}:
            for page in re.findall(r"\bdocs/[\w/-]+\.md", text_of(name)):
                missing |= set() if (ROOT / page).exists() else {f"{name}: {page}"}
    assert missing == set()


@pytest.mark.parametrize("page", HAND_WRITTEN)
def test_lines_fit_and_markup_is_whole(page: str) -> None:
    lines = text_of(page).splitlines()
    assert [line for line in lines if len(line) > MOST_COLUMNS and "|" not in line] == []
    assert not re.search(r"`\[[^`\n]*\]\([^)\n]*\)(?!`)", text_of(page))


def test_pages_are_short() -> None:
    kept = [page for page in HAND_WRITTEN if page.startswith("docs/") or page in SHORT]
    assert sum(len(text_of(page).split()) for page in kept) <= MOST_WORDS


# The changelog is a record, which grows.
SHORT = {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "training/README.md"}


def test_ci_runs_the_command_that_contributors_run() -> None:
    assert text_of(".ci/run").splitlines()[-1] == "make ci"
    assert "\n    make ci\n" in text_of("CONTRIBUTING.md")
    assert re.search(r"^ci:", text_of("Makefile"), flags=re.MULTILINE)


def test_the_readme_lists_every_verb() -> None:
    table = text_of("README.md")
    assert [verb for verb in VERBS if f"`{verb}`" not in table] == []


def commands_of(page: str) -> list[list[str]]:
    """The words of each printed command of tuccl, up to a pipe or a placeholder."""
    text = text_of(page).replace("\\\n", " ")
    lines = re.findall(r"^(?:\$ |# |    )(?:sudo )?tuccl ([a-z].*)$", text, flags=re.MULTILINE)
    return [
        shlex.split(line.partition(" | ")[0].replace("...", ""), comments=True) for line in lines
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)])
def test_printed_commands_have_options_that_exist(page: str) -> None:
    for words in commands_of(page):
        try:
            build_parser().parse_args(words)
        except SystemExit as refused:
            pytest.fail(f"{page}: tuccl {shlex.join(words)}: exit {refused.code}")
