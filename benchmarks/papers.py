"""Rebuilds every figure of the papers twice: the seconds of a run, and what differs between two.

    .venv/bin/python benchmarks/papers.py [ID ...] [--write]

Runs `tuccl paper` on the ids, all of them without any, each run in a process of its own, and
compares the data cell by cell. Simulated and calculated figures have to be equal to 1 %; of
measured ones the page has the difference beside the spread of the seeds of one run.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import publish

from tuccl.cli.output import columns
from tuccl.eval.papers.registry import FIGURES

MARK_MINUTES, MARK = 30, 0.01


def rebuilt(names: list[str], folder: Path) -> float:
    """Rebuild figures into a folder; return the seconds."""
    start = time.perf_counter()
    words = [sys.executable, "-m", "tuccl.cli", "paper", *names, "-o", str(folder)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def cells(path: Path) -> list[list[str]]:
    """Return the rows of a figure's data, none where it has none."""
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.reader(file))


def difference(one: str, other: str) -> float:
    """Return by what part of the greater two cells differ; words differ wholly."""
    if one == other:
        return 0.0
    try:
        a, b = float(one), float(other)
    except ValueError:
        return 1.0
    return abs(a - b) / max(abs(a), abs(b))


def compared(name: str, runs: list[Path]) -> list[object]:
    """Return a row: the figure, the cells, those that differ, and by how much at most."""
    first, second = (cells(run / f"{name}.csv") for run in runs)
    if [len(row) for row in first] != [len(row) for row in second]:
        return [name, FIGURES[name].kind, sum(map(len, first)), "other rows", 1.0]
    found = [
        difference(a, b)
        for one, other in zip(first, second, strict=True)
        for a, b in zip(one, other, strict=True)
    ]
    worst = max(found, default=0.0)
    return [name, FIGURES[name].kind, len(found), sum(each > 0 for each in found), worst]


def main() -> None:
    """Rebuild twice and print."""
    names = sys.argv[1:] or ["all"]
    with tempfile.TemporaryDirectory(prefix="tuccl-papers-") as place:
        runs = [Path(place, number) for number in ("first", "second")]
        seconds = [rebuilt(names, run) for run in runs]
        rows = [compared(each, runs) for each in (FIGURES if names == ["all"] else names)]
    head = ["figure", "rows are", "cells", "differ", "at most"]
    print(columns(head, [[*row[:4], f"{row[4]:.2%}"] for row in rows]))
    print(
        "seconds measured: " + ", ".join(f"{each:.0f}" for each in seconds) + " "
        f"(mark {MARK_MINUTES * 60} a run)"
    )
    exact = [row for row in rows if row[1] != "measured"]
    equal = sum(row[4] <= MARK for row in exact)  # type: ignore[operator]
    print(f"equal to {MARK:.0%}: {equal} of {len(exact)} figures that are not measured")
    others = len(rows) - len(exact)
    print(f"of {others} measured ones the data has the least and the most of two seeds")


if __name__ == "__main__":
    publish(main, "Seconds are measured; figures are what their rows say")
