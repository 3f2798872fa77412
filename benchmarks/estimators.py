"""Prints MRACO with the paper's estimator beside Optuna's, simulated.

    .venv/bin/python benchmarks/estimators.py [--seeds 6] [--write]

For each cell the regret of `mraco` (Optuna's estimator), `mraco-kernels` (Eq. 2 and 3) and
`random`: the time of the point that a search ends with over the best that any search here finds,
less one; median and worst over the seeds, with 100 evaluations each. Seconds are the search's own,
measured, without the timings. With noise, samples are the simulated time times exp(N(0, 0.03)) and
full effort is 9 of them.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Sequence
from statistics import median

from report import publish

from baseline_searches import BASELINE_SEARCHES
from tuccl.cli.output import columns
from tuccl.topology import join, load_profile
from tuccl.tuning import SEARCHES
from tuccl.tuning.policy_training import SimulatedCall, simulated_calls
from tuccl.tuning.searches.search import Search, run_search
from tuccl.tuning.searches.space import Point
from tuccl.units import format_bytes

MACHINES = (("v100x4", 2), ("dgx-1v", 1))
SIZES = (64 << 10, 4 << 20)
NAMES = ("mraco", "mraco-kernels", "random")
BUDGET = 100
NOISE, FULL_EFFORT = 0.03, 9


def regrets(call: SimulatedCall, noise: float, seeds: int) -> list[list[object]]:
    """Return a row for each search."""
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    own_s = dict.fromkeys(NAMES, 0.0)
    for name in NAMES:
        for seed in range(seeds):
            rng, timing_s = random.Random(seed), 0.0

            def evaluate(point: Point, repeats: int, rng: random.Random = rng) -> Sequence[float]:
                nonlocal timing_s
                start = time.perf_counter()
                exact = call.us(point)
                timing_s += time.perf_counter() - start
                if math.isinf(exact):
                    return ()
                return [exact * math.exp(rng.gauss(0.0, noise)) for _ in range(repeats)]

            kind: type[Search] = (SEARCHES | BASELINE_SEARCHES)[name]
            start = time.perf_counter()
            search = kind(call.space, seed=seed, full_effort=FULL_EFFORT if noise else 1)
            run_search(search, evaluate, BUDGET)
            own_s[name] += time.perf_counter() - start - timing_s
            found[name].append(call.us(search.best) if search.best else math.inf)
    best = min(call.samples_us.values())
    return [
        [
            name,
            f"{100 * (median(times) / best - 1):.1f} %",
            f"{100 * (max(times) / best - 1):.1f} %",
            f"{own_s[name] / seeds:.2f}",
        ]
        for name, times in found.items()
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6)
    args = parser.parse_args()
    rows = []
    for name, hosts in MACHINES:
        topology = join(load_profile(name), hosts)
        for collective in ("allgather", "allreduce"):
            for call in simulated_calls(topology, collective, SIZES):
                for noise in (0.0, NOISE):
                    size = format_bytes(call.space.nbytes)
                    cell = [topology.name, collective, size, f"{100 * noise:g} %"]
                    rows += [[*cell, *row] for row in regrets(call, noise, args.seeds)]
    print(
        columns(["machine", "collective", "size", "noise", "search", "median", "worst", "s"], rows)
    )


if __name__ == "__main__":
    publish(main, "Simulated times, the searches' own seconds measured")
