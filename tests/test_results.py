"""Figures name the commit that made them, and anyone can check that commit out."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from pages import listed

ROOT = Path(__file__).resolve().parents[1]
STAMPS = {
    path.stem: re.findall(r"\bCommit ([0-9a-f]{7,40})((?:-dirty)?)\b", path.read_text())
    for path in sorted((ROOT / "results").glob("*.md"))
}
# To be run again: of no commit here, of uncommitted files, or older than its benchmark.
STALE = listed()


def git(*words: str, given: str = "") -> str:
    """Return what git prints; empty outside a repository."""
    ran = subprocess.run(
        ["git", *words], cwd=ROOT, input=given, capture_output=True, text=True, check=False
    )
    return ran.stdout


def test_every_result_names_its_commit_and_none_is_of_uncommitted_files() -> None:
    assert {name for name, stamps in STAMPS.items() if not stamps} <= STALE
    assert {name for name, stamps in STAMPS.items() if any(end for _, end in stamps)} <= STALE


def test_the_commits_of_results_are_in_the_repository() -> None:
    if git("rev-parse", "--is-shallow-repository") != "false\n":
        pytest.skip("no checkout with all of its history")
    names = [(name, commit) for name, stamps in STAMPS.items() for commit, _ in stamps]
    found = git("cat-file", "--batch-check", given="".join(f"{c}^{{commit}}\n" for _, c in names))
    lines = zip(names, found.splitlines(), strict=True)
    assert {name for (name, _), line in lines if " commit " not in line} <= STALE


def test_benchmarks_import_names_that_are_there() -> None:
    """Most of them run for minutes, so that no other test does."""
    missing = []
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            # tuccl.torch wants PyTorch.
            if not re.match(r"tuccl(?!\.torch)\b", node.module):
                continue
            module = importlib.import_module(node.module)
            missing += [
                f"{path.name}: {node.module}.{each.name}"
                for each in node.names
                if not hasattr(module, each.name)
                and importlib.util.find_spec(f"{node.module}.{each.name}") is None
            ]
    assert missing == []
