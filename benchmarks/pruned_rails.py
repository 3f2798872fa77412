"""Prints what pruned sketches gain beyond 128 ranks, against `rails` alone.

    .venv/bin/python benchmarks/pruned_rails.py [--machines dgx-1vx17]

Each machine, a profile and its hosts, is searched twice for allgathers, with all candidate sketches
and with `rails` alone, each time in a process of its own. `all` and `rails` are the CPU seconds of
all sizes; `gain` is how many times as fast the table's choice is with all, at each size.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest.mock import patch

from report import publish

from tuccl.topology import join, load_profile
from tuccl.tuning import tune
from tuccl.units import format_bytes

_PRUNED = ("tuccl.sketches.candidates.pruned_sketches", "tuccl.tuning.small_part.pruned_sketches")


def searched(machine: str, sizes: str, pruned: bool) -> tuple[float, dict[int, float]]:
    """Return the CPU seconds of a table of ``machine``, and its times in us by size."""
    profile, _, count = machine.rpartition("x")
    topology = join(load_profile(profile), int(count))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table")
        if pruned:
            table = tune(topology, "allgather", sizes, path=path)
        else:
            with patch(_PRUNED[0], lambda *_: ()), patch(_PRUNED[1], lambda *_: ()):
                table = tune(topology, "allgather", sizes, path=path)
    best_us = {row.size: row.best_us or row.default_us for row in table.result.tuned}
    return time.process_time(), best_us


def main() -> None:
    """Print a row for each machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", default="dgx-1vx17,mi250xx17,ndv2x17")
    parser.add_argument("--sizes", default="64K:64M:x32")
    args = parser.parse_args()
    print(f"{'machine':<14}{'all':>6}{'rails':>7}  gain")
    spawn = multiprocessing.get_context("spawn")
    for machine in args.machines.split(","):
        with ProcessPoolExecutor(2, mp_context=spawn) as pool:
            both = [pool.submit(searched, machine, args.sizes, each) for each in (True, False)]
            (all_s, all_us), (rails_s, rails_us) = (each.result() for each in both)
        gains = " ".join(f"{format_bytes(n)} {rails_us[n] / us:.2f}" for n, us in all_us.items())
        print(f"{machine:<14}{all_s:>6.0f}{rails_s:>7.0f}  {gains}", flush=True)


if __name__ == "__main__":
    publish(main, "Times of calls simulated; CPU seconds measured")
