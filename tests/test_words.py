"""The product speaks the field's language: words of its own that were retired do not come back."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import test_layers
from tuccl.cli.parser import VERBS, verb_parsers

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = [test_layers.FOLDERS.get(r, r).partition("/")[0] for r in test_layers.ROOMS]
ROOMS = [*FOLDERS, "msccl_ext", "benchmarks"]
SUFFIXES = (".py", ".cpp", ".h", ".c", ".cu")
# Each is a part of an identifier or a word of prose, a message or a --help; the glossary,
# docs/reference/concepts.md, has the words that took their place.
RETIRED = re.findall(
    r"\w+",
    """
    bands carrier circle contender door doors doubt entrant entrants errand errands feed
    finalist finalists freight gate gates grown growth jitter journey journeys leaders leg legs
    lesson lore manner mate mates parcel parcels passage passages road roads scarcity screened
    spreading stamp station stations tank ticket tickets twins unsealed wave waves
    """,
)
# Rooms whose docstrings begin with a verb or a noun, and whose topologies are not called t.
OPENINGS = ("What", "Which", "How", "Whether", "Where", "Who")


def sources(*suffixes: str) -> Iterator[Path]:
    for room in ROOMS:
        yield from (p for p in sorted((ROOT / room).rglob("*")) if p.suffix in suffixes)


def words_of(text: str) -> set[str]:
    """The words of prose and the parts of identifiers, in lower case."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text)
    return {part.lower() for part in parts}


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "training" / "README.md"]


def test_retired_words_do_not_come_back() -> None:
    texts = {str(p.relative_to(ROOT)): p.read_text() for p in [*sources(*SUFFIXES), *pages()]}
    texts |= {f"{verb} --help": p.format_help() for verb, p in verb_parsers().items()}
    found = {}
    for name, text in texts.items():
        if words := words_of(text.replace("line feed", "")) & set(RETIRED):
            found[name] = sorted(words)
    assert not found


@pytest.mark.parametrize("folder", ["tests", "msccl_ext/tests"])
def test_names_of_tests_are_plain_english(folder: str) -> None:
    definition = re.compile(r"^(?:def|void) (\w+)\(", re.MULTILINE)
    names = {
        name
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES
        for name in definition.findall(path.read_text())
    }
    assert names
    assert not [
        name for name in names if {"told", "tell", "tells", "asked", "mend"} & words_of(name)
    ]


def test_docstrings_begin_with_a_verb_or_a_noun_and_topologies_are_called_so() -> None:
    found = []
    for path in sources(".py"):
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                first = (ast.get_docstring(node) or "").partition(" ")[0]
                found += [where] if first in OPENINGS else []
            if isinstance(node, ast.arg) and node.arg == "t" and node.annotation is not None:
                found += [where] if ast.unparse(node.annotation) == "Topology" else []
    assert not found


# "Say" and "print" for a report, "determine", "fix", "request", "link", "form" or "path".
NOT_IN_CODE = re.compile(
    r"\b(told|tell(s|ing)?|mend(s|ed|ing)?|ask(s|ed|ing)|wires?|ways?)\b", re.IGNORECASE
)
NOT_IN_PAGES = re.compile(
    r"\b(told|tells?|mend(s|ed|ing)?|ask(s|ed|ing)?|wires?|ways?)\b", re.IGNORECASE
)
# A sentence has its subject first: "It compares", "A rank that waits".
OPENINGS_OF_CODE = re.compile(
    r"^\W*(?:Who|(?:Counted|Compared|Kept|Refused|Left|Listed|Timed) (?:are|is))\b",
    re.MULTILINE,
)
# Networking counts bytes on the wire, with headers and flags, apart from those of users; links go
# one way or both ways. Names of code stand in backticks.
IDIOMS = re.compile(
    r"\bon (the )?wire\b|\bwire bytes\b|\b(one|both|each)[ -]ways?\b|\b(under|half|gives?) way\b"
    r"|\bon (its|their) way\b|\bway(s)? (out|back)\b|`[^`\n]*`",
    re.IGNORECASE,
)
# Whole literals: a span's kind in the file of a training timeline; a column of results/plans.md; a
# function's name.
LITERALS = {
    "training": {"wire"},
    "benchmarks/plans.py": {"sizes asked"},
    "benchmarks/tune_speed.py": {"tuning.searches.search.Search.tell"},
}
C_PROSE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)


def python_prose(text: str) -> Iterator[str]:
    """The comments, docstrings and other literals of Python code."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    yield from (t.string for t in tokens if t.type == tokenize.COMMENT)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def code_prose(path: Path) -> tuple[str, ...]:
    text = path.read_text()
    return tuple(python_prose(text) if path.suffix == ".py" else C_PROSE.findall(text))


def test_code_is_plain_english_in_comments_docstrings_and_messages() -> None:
    found = []
    for path in sources(*SUFFIXES):
        name = str(path.relative_to(ROOT))
        literals = LITERALS.get(name, set()) | LITERALS.get(name.partition("/")[0], set())
        for prose in code_prose(path):
            if prose not in literals:
                found += [f"{name}: {m[0]}" for m in NOT_IN_CODE.finditer(IDIOMS.sub("", prose))]
    assert not found


def test_sentences_of_code_have_their_subject_first() -> None:
    found = []
    for path in sources(*SUFFIXES):
        openings = OPENINGS_OF_CODE.findall("\n".join(code_prose(path)))
        found += [f"{path.relative_to(ROOT)}: {opening}" for opening in openings]
    assert not found


@pytest.mark.parametrize(
    "code",
    [
        "# Is told so.",
        'def f() -> None:\n    """What it tells."""',
        'raise Refusal(f"{path}: mend it")',
        'x = """a\nwire"""',
    ],
)
def test_the_prose_of_python_is_found(code: str) -> None:
    assert NOT_IN_CODE.search("\n".join(python_prose(code)))


@pytest.mark.parametrize("code", ["f();  // told", "/* a\n wire */", 'fail("it was asked");'])
def test_the_prose_of_c_is_found(code: str) -> None:
    assert NOT_IN_CODE.search("\n".join(C_PROSE.findall(code)))


def test_help_is_plain_english() -> None:
    helps = {verb: parser.format_help() for verb, parser in verb_parsers().items()}
    assert helps.keys() == set(VERBS)
    assert not [verb for verb, text in helps.items() if NOT_IN_CODE.search(text)]


def test_pages_are_plain_english() -> None:
    found = []
    for path in [*pages(), *ROOT.glob(".github/**/*.yml")]:
        without_blocks = re.sub(
            r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL
        )
        prose = re.sub(r"`[^`\n]*`", "", without_blocks)
        found += [f"{path.relative_to(ROOT)}: {m[0]}" for m in NOT_IN_PAGES.finditer(prose)]
    assert not found
