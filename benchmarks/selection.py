"""Prints what one choice costs, against a mutex and a map, and how long a large table takes to load.

    .venv/bin/python benchmarks/selection.py [--entries 10000] [--repeats 5]

Builds `selection_bench` (C++, optimised) under build/bench. Calls are drawn at random over all entries,
which is the worst case for caches; a time is the median over blocks of 64 calls. Allocations are counted
by replacing operator new. Loading is processor time: checksum, every line checked, hash map built.
"""

from __future__ import annotations

import argparse
import json
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
    """Print the figures, the best of some repeats: what others do on the machine only adds."""
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
    best = {key: min(run[key] for run in runs) for key in runs[0]}
    most = max(run["allocations"] for run in runs)
    print(f"{best['entries']} entries, {best['text_bytes']} bytes of table.txt")
    print(f"load              {best['load_ms']:8.1f} ms (mark 50)")
    print(f"choose            {best['choose_ns']:8.1f} ns (mark 100), {most} allocations")
    print(f"  two threads     {best['choose_ns_2_threads']:8.1f} ns")
    print(f"mutex and map     {best['mutex_map_ns']:8.1f} ns")
    print(f"  two threads     {best['mutex_map_ns_2_threads']:8.1f} ns")


if __name__ == "__main__":
    main()
