"""Prints the gain of whole jobs, their effort shared evenly and by time, on the simulator.

    .venv/bin/python benchmarks/workload.py [--budgets 24,96] [--seeds 1] [--write]

The jobs are AICB's: training steps of language models, one collective after another, from the
public workloads beside the checkout (shared/data/workloads). A job's tasks are tuned twice with
the same evaluations together: the same for each task, and shared as `tuccl tune --workload`
does. A gain is the default's time of all calls over the table's; it leaves out computation and
overlap.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from unittest import mock

import report

from tuccl.cli.output import columns
from tuccl.errors import InputError
from tuccl.runtime.workload import Workload, read_workload
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import TuneOptions, TuneResult, tune_workload, workload_tasks

WORKLOADS = report.ROOT.parent / "shared" / "data" / "workloads"
HISTOGRAM = "aicb_histogram.tsv"


def machines() -> list[Topology]:
    """Return the machines that jobs are tuned for."""
    a100 = load_profile("dgx-a100")
    return [join(load_profile("v100x4"), 2), a100, join(a100, 2)]


def workloads(ranks: int) -> Iterator[Workload]:
    """Yield the jobs whose groups have ``ranks`` ranks and whose sizes programs can divide."""
    for path in sorted(WORKLOADS.glob("*.txt")):
        try:
            workload = read_workload(path, ranks)
        except InputError as error:
            print(error, file=sys.stderr)
            continue
        yield replace(workload, name=path.stem.partition("_")[0])
    with (WORKLOADS / HISTOGRAM).open(newline="") as file:
        lines = [line for line in csv.reader(file, delimiter="\t") if line[4].isdecimal()]
    for name, group in sorted({(line[0], line[2]) for line in lines if line[3] == str(ranks)}):
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "calls.csv"
            rows = [f"{w[1]},{w[4]},{w[5]}" for w in lines if (w[0], w[2]) == (name, group)]
            path.write_text("\n".join(rows))
            workload = read_workload(path, ranks)
        yield replace(workload, name=f"{name.partition('_')[0]} {group}")


def tuned(
    topology: Topology, workload: Workload, budget: int, seed: int, *, evenly: bool
) -> TuneResult:
    """Return the result of a tune whose effort goes by time, or evenly."""
    with (
        tempfile.TemporaryDirectory() as place,
        mock.patch.object(
            workload_tasks,
            "_shared",
            (lambda weights, each: [each] * len(weights)) if evenly else workload_tasks._shared,
        ),
    ):
        return tune_workload(
            topology,
            workload,
            "sim",
            TuneOptions(budget=budget, seed=seed),
            path=Path(place) / "table",
        ).result


def row(topology: Topology, workload: Workload, budget: int, seeds: Sequence[int]) -> list[object]:
    """Return the cells of one job on one machine with one effort."""
    arms = [
        [tuned(topology, workload, budget, seed, evenly=evenly) for seed in seeds]
        for evenly in (True, False)
    ]
    gains = [[r.workload for r in results if r.workload] for results in arms]
    evenly, by_time = (median(g.gain for g in each) for each in gains)
    [first, *_] = gains[0]
    spent = [sum(r.evaluations for r in results) // len(seeds) for results in arms]
    return [
        workload.name,
        topology.name,
        first.calls,
        len(arms[0][0].tuned),
        budget,
        f"{first.default_us / 1e3:.1f}",
        f"{evenly:.3f}x",
        f"{by_time:.3f}x",
        f"{100 * (by_time / evenly - 1):+.1f} %",
        f"{spent[0]}, {spent[1]}",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budgets", default="24,96", help="evaluations for each task on average")
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    if not WORKLOADS.is_dir():
        sys.exit(f"{WORKLOADS}: not here; these jobs are public data beside the checkout")
    header = ["job", "machine", "calls", "tasks", "budget", "default ms"]
    header += ["evenly", "by time", "more", "evaluations"]
    rows = []
    for topology in machines():
        for workload in workloads(topology.ranks):
            for budget in map(int, args.budgets.split(",")):
                try:
                    rows.append(row(topology, workload, budget, range(args.seeds)))
                except InputError as error:
                    print(f"{workload.name} on {topology.name}: {error}", file=sys.stderr)
                    break
                print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    print("Simulated: the gain over NCCL's choice of all calls of a job, one after another.\n")
    print(columns(header, rows))


if __name__ == "__main__":
    report.publish(main, "Simulated")
