"""Prints the cost of one choice, against a mutex and a map, and the load time of a large table.

    .venv/bin/python benchmarks/selection.py [--entries 10000] [--repeats 5]

Builds `selection_bench` (C++, optimised) under build/bench. Calls are drawn at random over all
entries, which is the worst case for caches; a time is the median over blocks of 64 calls.
Allocations are counted by replacing operator new. Loading is processor time: checksum, every line
checked, hash map built.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from made_tables import made_table

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "bench"


def build() -> Path:
    """Return the benchmark's program, built."""
    configure = ["cmake", "-S", ROOT / "msccl_ext", "-B", BUILD]
    for command in (configure, ["cmake", "--build", BUILD, "--target", "selection_bench"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return BUILD / "selection_bench"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    program = build()
    with tempfile.TemporaryDirectory() as place:
        table = Path(place) / "table.txt"
        table.write_text(made_table(args.entries))
        runs = [
            json.loads(subprocess.run([program, table], check=True, capture_output=True).stdout)
            for _ in range(args.repeats)
        ]
    most = max(run["allocations"] for run in runs)
    print(f"{runs[0]['entries']} entries, {runs[0]['text_bytes']} bytes of table.txt")
    print(f"{'median of ' + str(len(runs)) + ' runs':<18}{'':>8}    (least to most)")

    def show(what: str, key: str, unit: str, note: str = "") -> None:
        times = sorted(run[key] for run in runs)
        middle = statistics.median(times)
        print(f"{what:<18}{middle:>8.1f} {unit} ({times[0]:.1f} to {times[-1]:.1f}){note}")

    show("load", "load_ms", "ms", ", mark 50")
    show("choose", "choose_ns", "ns", f", mark 100; {most} allocations")
    show("  two threads", "choose_ns_2_threads", "ns")
    show("mutex and map", "mutex_map_ns", "ns")
    show("  two threads", "mutex_map_ns_2_threads", "ns")


if __name__ == "__main__":
    main()
