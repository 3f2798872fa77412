"""The guide's and the README's commands and examples run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    return [body for tag, body in BLOCK.findall((ROOT / page).read_text()) if tag == language]


def test_the_guide_runs(tmp_path: Path) -> None:
    tuccl = Path(sys.executable).with_name("tuccl")
    script = "\n".join(["set -eux", *blocks("docs/guide.md", "sh")])
    script = re.sub(r"^tuccl ", f"{tuccl} ", script, flags=re.MULTILINE)
    ran = subprocess.run(
        ["sh", "-c", script], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    written = {"cluster.json", "allgather.xml", "table", "report.html", "algorithms"}
    assert written <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    "page", ["README.md", "docs/guide.md", "docs/probing.md", "training/README.md"]
)
def test_python_examples_run(page: str, tmp_path: Path) -> None:
    for example in blocks(page, "python"):
        ran = subprocess.run(
            [sys.executable, "-c", example], check=False, cwd=tmp_path, capture_output=True
        )
        assert ran.returncode == 0, ran.stderr.decode()[-2000:]


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))),
    ],
)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
        assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"
