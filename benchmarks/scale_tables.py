"""Prints the seconds and memory that tables for 64 to 4,096 GPUs take: `scale.py --tables`.

    .venv/bin/python benchmarks/scale_tables.py [--gpus 64,512]

A row is that of `scale.py` and, after it, the seconds and GiB that it is to take at most. The last
line is a measure of the machine: the CPU seconds of a loop in Python, before the first row and
after the last.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time

from scale import _TABLE_HEAD, table_row

_MOST = {64: (90, 2), 512: (240, 4), 1024: (480, 6), 4096: (1800, 12)}
_LOOP = 30_000_000


def loop_s() -> float:
    """Return the CPU seconds of so many additions."""
    begun, total = time.process_time(), 0
    for number in range(_LOOP):
        total += number
    return time.process_time() - begun


def main() -> None:
    """Print the chosen rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", default="64,512,1024,4096")
    args = parser.parse_args()
    before = loop_s()
    print(f"{_TABLE_HEAD}{'most s':>8}{'most GB':>9}")
    for name in args.gpus.split(","):
        with multiprocessing.get_context("spawn").Pool(1) as process:
            line = process.apply(table_row, (name,))
        seconds, gigabytes = _MOST.get(int(name), ("", ""))
        print(f"{line}{seconds:>8}{gigabytes:>9}", flush=True)
    print(f"{_LOOP:,} additions: {before:.1f} and {loop_s():.1f} s")


if __name__ == "__main__":
    main()
