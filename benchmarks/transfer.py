"""Prints what a similar machine's table is worth to a tune (`tune --warm-start TABLE`), simulated.

    .venv/bin/python benchmarks/transfer.py [--budgets 8,20,40,100] [--write]

A table is tuned on one machine; another is tuned with little effort, from nothing and from that
table. Cells are the time over the best that is known there: from the table, with 150 evaluations
a size; mean and worst of two collectives at three sizes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import report

from tuccl.cli.output import columns
from tuccl.runtime import LookupTable, load_table
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import TuneOptions, tune

COLLECTIVES = ("allgather", "allreduce")
SIZES = (64 << 10, 4 << 20, 256 << 20)
SOURCE_BUDGET, MOST_BUDGET = 60, 150


def pairs() -> list[tuple[Topology, Topology]]:
    """Return machines whose table is there, each with a similar one."""
    v100, a100 = load_profile("v100x4"), load_profile("dgx-a100")
    return [(join(v100, 2), join(v100, 3)), (load_profile("dgx-h100"), a100)]


def tuned(
    topology: Topology, budget: int, start: LookupTable | None = None
) -> tuple[list[float], LookupTable]:
    """Return the times in us at every size, and the table."""
    options = TuneOptions(budget=budget, start=start)
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "table"
        result = tune(topology, COLLECTIVES, SIZES, "sim", options, path=out).result
        table = load_table(out).lookup
    return [row.best_us or row.default_us for row in result.tuned], table


def rows(source: Topology, topology: Topology, budgets: Sequence[int]) -> list[list[object]]:
    """Return the cells of one pair of machines."""
    _, table = tuned(source, SOURCE_BUDGET)
    best, _ = tuned(topology, MOST_BUDGET, table)
    cells: list[list[object]] = []
    for budget in budgets:
        cell: list[object] = [source.name, topology.name, budget]
        for start in (None, table):
            times, _ = tuned(topology, budget, start)
            best = [min(pair) for pair in zip(times, best, strict=True)]
            ratios = [us / least for us, least in zip(times, best, strict=True)]
            cell += [f"{fmean(ratios):.3f}", f"{max(ratios):.3f}"]
        cells.append(cell)
    return cells


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budgets", default="8,20,40,100", help="evaluations for each size")
    args = parser.parse_args()
    budgets = [int(word) for word in args.budgets.split(",")]
    header = ["table of", "machine", "budget", "cold mean", "worst", "from mean", "worst"]
    cells = [row for source, topology in pairs() for row in rows(source, topology, budgets)]
    print("Simulated: time over the best known, from nothing and from a similar machine's table.\n")
    print(columns(header, cells))


if __name__ == "__main__":
    report.publish(main, "Simulated")
