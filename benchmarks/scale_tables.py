"""Prints the seconds and memory that tables for 64 to 4,096 GPUs take, and what they gain.

    .venv/bin/python benchmarks/scale_tables.py [--gpus 64,512]

Machines are DGX H100s on one switch. A row is `tuccl tune` of 21 sizes, allgather and allreduce, in
a process of its own: CPU seconds, GB and the marks of both, evaluations, and how many times as fast
as NCCL's choice its programs are, as a geometric mean. `loop s` are the seconds that 30 million
additions took before and after the row: machines that share their cores differ by the minute.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path
from statistics import geometric_mean

from report import publish
from scale import machine

from tuccl.tuning import tune

_MOST = {64: (90, 2), 512: (240, 4), 1024: (480, 6), 4096: (1800, 12)}  # seconds, GiB
_ADDITIONS = 30_000_000
_HEAD = (
    f"{'GPUs':<9}{'cpu s':>7}{'mark':>6}{'GB':>7}{'mark':>6}{'evals':>7}{'gain':>7}{'loop s':>14}"
)


def loop_s() -> float:
    """Return the CPU seconds of so many additions."""
    begun, total = time.process_time(), 0
    for number in range(_ADDITIONS):
        total += number
    return time.process_time() - begun


def row(name: str) -> str:
    """Return one line of the table."""
    topology = machine(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table")
        result = tune(topology, ("allgather", "allreduce"), "1K:1G:x2", path=path).result
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds, gigabytes = _MOST.get(topology.ranks, ("", ""))
    gain = geometric_mean(
        each.default_us / (each.best_us or each.default_us) for each in result.tuned
    )
    return (
        f"{name:<9}{used.ru_utime + used.ru_stime:>7.0f}{seconds:>6}{used.ru_maxrss / 1e6:>7.2f}"
        f"{gigabytes:>6}{result.evaluations:>7}{gain:>7.2f}"
    )


def main() -> None:
    """Print the chosen rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", default="64,512,1024,4096")
    args = parser.parse_args()
    print(_HEAD)
    for name in args.gpus.split(","):
        before = loop_s()
        with multiprocessing.get_context("spawn").Pool(1) as process:
            line = process.apply(row, (name,))
        print(f"{line}{f'{before:.1f} to {loop_s():.1f}':>14}", flush=True)


if __name__ == "__main__":
    publish(main, "Times of calls simulated; seconds are measured")
