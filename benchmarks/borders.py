"""Prints what borders between a table's entries are worth where the winner changes, simulated.

    .venv/bin/python benchmarks/borders.py [--budget 40] [--write]

A table is tuned at a few sizes. Sizes between them are then timed with the candidate that the
table gives them, once with its borders as they were found and once with the same entries that
meet at the geometric mean of the tuned sizes.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import msgspec
import report

from tuccl.cli.output import columns
from tuccl.runtime import Entry, LookupTable, SimExecutor, load_table, select, time_baseline
from tuccl.runtime.table import ranges_from_sizes
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import TuneOptions, tune, tuned_sizes
from tuccl.tuning.final_round import tuned_size

COLLECTIVES = ("allgather", "allreduce")
LOW, HIGH = 1 << 14, 1 << 28
PER_OCTAVE = 4
UNIT = 8 * 16 * 32 * 4  # bytes that the chunks of nearly all programs divide


def in_the_middle(table: LookupTable) -> LookupTable:
    """Return ``table`` with its borders at the geometric means of the tuned sizes."""
    entries: list[Entry] = []
    for collective in COLLECTIVES:
        sizes = tuned_sizes(table, collective)
        of_collective = [e for e in table.entries if e.collective == collective]
        of_collective.sort(key=tuned_size)
        for (size, members), (low, high) in zip(
            groupby(of_collective, tuned_size), ranges_from_sizes(sizes), strict=True
        ):
            # Where the default is fastest between two sizes it has an entry of its own.
            of_size = [e for e in members if e.covers(size)]
            entries += [msgspec.structs.replace(e, min_bytes=low, max_bytes=high) for e in of_size]
    return msgspec.structs.replace(table, entries=tuple(entries))


def sizes_between() -> Sequence[int]:
    """Return sizes over the tuned range, evenly on a log scale."""
    count = round(math.log2(HIGH / LOW)) * PER_OCTAVE
    sizes = (LOW * 2 ** (n / PER_OCTAVE) for n in range(count + 1))
    return sorted({max(round(size / UNIT), 1) * UNIT for size in sizes})


def rows(topology: Topology, step: int, budget: int) -> list[list[object]]:
    """Return the cells for one machine, tuned at sizes ``step`` times apart."""
    executor = SimExecutor(topology)
    tuned = [LOW * step**n for n in range(64) if LOW * step**n <= HIGH]
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "table"
        tune(topology, COLLECTIVES, tuned, lambda _: executor, TuneOptions(budget=budget), path=out)
        stored = load_table(out)

    def us(table: LookupTable, collective: str, nbytes: int) -> float:
        candidate = select(table, collective, nbytes).candidate
        if candidate.knobs is None or (program := stored.program(candidate)) is None:
            return time_baseline(executor, topology, "nccl", collective, nbytes).timing.us
        return executor.time(program, candidate.knobs.knobs, nbytes).us

    middle = in_the_middle(stored.lookup)
    cells = []
    for collective in COLLECTIVES:
        default = {
            n: time_baseline(executor, topology, "nccl", collective, n).timing.us
            for n in sizes_between()
        }
        for name, table in (("middle", middle), ("bisected", stored.lookup)):
            ratios = [us(table, collective, n) / default[n] for n in default]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            slower = sum(ratio > 1.01 for ratio in ratios)
            cells.append(
                [
                    topology.name,
                    collective,
                    f"x{step}",
                    name,
                    len(ratios),
                    f"{1 / mean:.3f}x",
                    f"{max(ratios):.3f}",
                    slower,
                ]
            )
    return cells


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=int, default=40)
    args = parser.parse_args()
    a100 = load_profile("dgx-a100")
    machines = [join(load_profile("v100x4"), 2), join(load_profile("ndv2"), 2), a100]
    header = ["machine", "collective", "tuned at", "borders", "sizes"]
    header += ["mean speed-up", "slowest", "over 1 % slower"]
    cells = [row for t in machines for step in (4, 16) for row in rows(t, step, args.budget)]
    print("Simulated, against NCCL's choice at every size; slowest: time over NCCL's.\n")
    print(columns(header, cells))


if __name__ == "__main__":
    report.publish(main, "Simulated")
