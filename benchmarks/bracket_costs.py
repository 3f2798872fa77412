"""Compares searches that weigh what starts a timing with the same that do not, simulated.

    .venv/bin/python benchmarks/bracket_costs.py [--seeds 10] [--write]

A timing takes as long as its repeats and `fixed` more: what starts a job, or fills a pipe. Samples
are simulated times times exp(N(0, 0.15)); 27 repeats are full effort. Each search may take as long
as 60 timings of full effort. Regret is the simulated time of its choice over the best that any
search here met, less one.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import median

from report import publish

from tuccl.topology import join, load_profile
from tuccl.tuning import SEARCHES
from tuccl.tuning.policy_training import SimulatedCall, simulated_calls
from tuccl.tuning.searches.initial_points import initial_points
from tuccl.tuning.searches.search import Search

MACHINES = (("v100x4", 2), ("a100x8-roce", 2), ("dgx-1v", 1))
SIZES = (64 << 10, 4 << 20, 256 << 20)
NOISE = 0.15
FULL_EFFORT = 27
BUDGET = 60
FIXED = (0, 3, 9, 27)


def chosen(call: SimulatedCall, make: Callable[..., Search], fixed: int, seed: int) -> float:
    """Return the true time in us of what a search has chosen when its time is over."""
    rng, left = random.Random(seed), BUDGET * (FULL_EFFORT + fixed)
    search = make(call.space, seed=seed, full_effort=FULL_EFFORT)
    while left > 0 and (request := search.ask()) is not None:
        us = call.us(request.point)
        samples = [us * math.exp(rng.gauss(0.0, NOISE)) for _ in range(request.repeats)]
        search.tell(request, [] if math.isinf(us) else samples)
        left -= 0 if math.isinf(us) else fixed + request.repeats
    return call.us(search.best) if search.best else math.inf


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    rows: dict[tuple[str, int, bool], list[float]] = {}
    for name, hosts in MACHINES:
        topology = join(load_profile(name), hosts) if hosts > 1 else load_profile(name)
        for collective in ("allgather", "allreduce"):
            for call in simulated_calls(topology, collective, SIZES):
                suited = initial_points(call.space, BUDGET // 2)
                found: dict[tuple[str, int, bool], list[float]] = {}
                for search, fixed, weighs in product(("mraco", "descent"), FIXED, (False, True)):
                    make = partial(
                        SEARCHES[search],
                        fixed_effort=fixed if weighs else 0,
                        first=suited if search == "mraco" else (),
                    )
                    times = [chosen(call, make, fixed, seed) for seed in range(args.seeds)]
                    found[search, fixed, weighs] = times
                best_us = min(call.samples_us.values())
                for key, times in found.items():
                    rows.setdefault(key, []).extend(100 * (us / best_us - 1) for us in times)
    print("search   fixed  weighs  regret in %: median, mean, 90th percentile")
    for (search, fixed, weighs), row in rows.items():
        row.sort()
        at_90 = row[math.ceil(0.9 * len(row)) - 1]
        mean = sum(row) / len(row)
        print(f"{search:8s} {fixed:5d}  {weighs!s:6s}  {median(row):6.2f} {mean:6.2f} {at_90:6.2f}")


if __name__ == "__main__":
    publish(main, "Simulated")
