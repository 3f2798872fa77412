"""Prints what a search on a part of a cluster first costs and loses against one of the whole.

    .venv/bin/python benchmarks/small_part.py [--machines v100x4x16] [--collectives allreduce]

Each machine, a profile and its hosts, is searched twice, as a whole and with four hosts that
nominate candidates (`tuccl tune --part`), each time in a process of its own. `whole` and `part` are
CPU seconds of all sizes of a collective; `regret` is by how much the table's choice is slower, in
percent, at each size (negative: faster).
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from report import publish

from tuccl.topology import join, load_profile
from tuccl.tuning import TuneOptions, tune
from tuccl.units import format_bytes

_SIZES = {"dgx-h100x8": "4K:1G:x64", "v100x4x16": "4K:1G:x64", "dgx-h100x16": "256K:16M:x64"}
_HOSTS = 4


@dataclass(frozen=True)
class _Cost:
    cpu_s: float
    best_us: dict[int, float]


def searched(machine: str, collective: str, sizes: str, hosts: int) -> _Cost:
    """Return what a table of ``machine`` costs with ``hosts`` searched first, and its times."""
    profile, _, count = machine.rpartition("x")
    topology = join(load_profile(profile), int(count))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table")
        table = tune(topology, collective, sizes, options=TuneOptions(part=hosts), path=path)
    best_us = {row.size: row.best_us or row.default_us for row in table.result.tuned}
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return _Cost(sum(each.ru_utime + each.ru_stime for each in used), best_us)


def main() -> None:
    """Print a row for each machine and collective."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", default=",".join(_SIZES))
    parser.add_argument("--collectives", default="allgather,allreduce")
    args = parser.parse_args()
    machines, collectives = args.machines.split(","), args.collectives.split(",")
    cases = [(m, c, _SIZES[m]) for m in machines for c in collectives]
    searches = [(*case, hosts) for case in cases for hosts in (0, _HOSTS)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn, max_tasks_per_child=1) as pool:
        costs = list(pool.map(searched, *zip(*searches, strict=True)))
    print(f"{'machine':<14}{'collective':<12}{'whole':>8}{'part':>8}{'ratio':>7}  regret in %")
    regrets, ratios = [], []
    for (machine, collective, _), whole, part in zip(cases, costs[::2], costs[1::2], strict=True):
        each = {n: 100 * (us / whole.best_us[n] - 1) for n, us in part.best_us.items()}
        regrets += each.values()
        ratios.append(whole.cpu_s / part.cpu_s)
        print(
            f"{machine:<14}{collective:<12}{whole.cpu_s:>8.0f}"
            f"{part.cpu_s:>8.0f}{ratios[-1]:>6.1f}x  "
            + " ".join(f"{format_bytes(n)} {loss:.1f}" for n, loss in sorted(each.items()))
        )
    over = sum(loss > 1 for loss in regrets)
    print(
        f"\nregret: median {median(regrets):.1f} %, most {max(regrets):.1f} %, over 1 % at {over} "
        f"of {len(regrets)} sizes; CPU seconds: {min(ratios):.1f} to {max(ratios):.1f} times fewer"
    )


if __name__ == "__main__":
    publish(main, "Times of calls simulated; CPU seconds measured")
