"""The page of the command line has every verb and every option, as --help has them."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tuccl.cli.parser import VERBS, verb_parsers
from tuccl.cli.reference import reference_page


def test_the_page_has_every_verb_and_option() -> None:
    parts = dict(part.split("\n", 1) for part in reference_page().split("\n## ")[1:])
    assert list(parts) == list(VERBS)
    for verb, parser in verb_parsers().items():
        assert f"\ntuccl {verb} " in parts[verb] or verb == "completion"
        for action in parser._actions:
            for name in action.option_strings:
                shown = action.help != argparse.SUPPRESS and action.dest != "help"
                is_there = any(f"{name}{end}" in parts[verb] for end in (" ", ",", "`"))
                assert is_there or not shown, (verb, name)


def test_the_page_is_written_and_compared(tmp_path: Path) -> None:
    page = tmp_path / "cli.md"
    command = [sys.executable, "-m", "tuccl.cli.reference", str(page)]
    assert subprocess.run([*command, "--check"], check=False).returncode == 1
    subprocess.run(command, check=True)
    assert page.read_text() == reference_page()
    assert subprocess.run([*command, "--check"], check=False).returncode == 0
    page.write_text(page.read_text() + "more\n")
    assert subprocess.run([*command, "--check"], check=False).returncode == 1
