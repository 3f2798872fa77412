"""Prints MRACO with the paper's estimator beside Optuna's, simulated.

    .venv/bin/python benchmarks/estimators.py [--seeds 6] [--write]

For each cell the regret of `mraco` (Optuna's estimator); of `mraco-optuna`, the same densities over
the kernels' candidates, first points and part of good ones; of `mraco-equal`, Eq. 2 and 3 with
kernels of one width; of `mraco-kernels`, with wider ones for LL128; and of `random`. A regret is
the time of the point that a search ends with over the best that any search here finds, less one;
median and worst over the seeds, with 100 evaluations each. Seconds are the search's own, measured,
without the timings. With noise, samples are the simulated time times exp(N(0, 0.03)) and full
effort is 9 of them. So each step from one estimator to the next changes one thing.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, median

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
NAMES = ("mraco", "mraco-optuna", "mraco-equal", "mraco-kernels", "random")
STEPS = (
    ("its candidates", "mraco", "mraco-optuna"),
    ("the densities", "mraco-optuna", "mraco-equal"),
    ("wider kernels for LL128", "mraco-equal", "mraco-kernels"),
)
BUDGET = 100
NOISE, FULL_EFFORT = 0.03, 9


@dataclass(frozen=True)
class Row:
    """The results of a search in a cell: a regret for each seed, and its own seconds."""

    cell: tuple[str, ...]
    noise: float
    search: str
    regrets: list[float]
    seconds: float

    @property
    def text(self) -> list[object]:
        """The row of the table."""
        regrets = (f"{100 * of(self.regrets):.1f} %" for of in (median, max))
        noise = f"{100 * self.noise:g} %"
        return [*self.cell, noise, self.search, *regrets, f"{self.seconds:.2f}"]


def rows_of(call: SimulatedCall, cell: tuple[str, ...], noise: float, seeds: int) -> list[Row]:
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
        Row(cell, noise, name, [us / best - 1 for us in times], own_s[name] / seeds)
        for name, times in found.items()
    ]


def print_steps(rows: list[Row]) -> None:
    """Print where the estimators differ, and by which of the things that they differ in."""
    print("\nregret in % from one estimator to the next, all seeds: mean before -> after; cells")
    print("whose median falls or rises by over 1 %, with the largest change of each kind")
    for noise, (what, before, after) in product((0.0, NOISE), STEPS):
        pairs = [
            (a, b)
            for a in rows
            for b in rows
            if (a.noise, a.search, b.search) == (noise, before, after)
            and (a.cell, a.noise) == (b.cell, b.noise)
        ]
        columns_of = zip(*pairs, strict=True)
        means = [100 * fmean(r for row in column for r in row.regrets) for column in columns_of]
        changes = [(100 * (median(b.regrets) - median(a.regrets)), a.cell) for a, b in pairs]
        falls = [change for change in changes if change[0] < -1]
        rises = [change for change in changes if change[0] > 1]
        line = f"noise {100 * noise:g} %, {what}: {means[0]:.2f} -> {means[1]:.2f}"
        for kind, of, most in (("fall", falls, min), ("rise", rises, max)):
            line += f"; {len(of)} {kind}"
            line += f" ({' '.join(most(of)[1])} {most(of)[0]:+.1f})" if of else ""
        print(line)


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
                    rows += rows_of(call, (topology.name, collective, size), noise, args.seeds)
    head = ["machine", "collective", "size", "noise", "search", "median", "worst", "s"]
    print(columns(head, [row.text for row in rows]))
    print_steps(rows)


if __name__ == "__main__":
    publish(main, "Simulated times, the searches' own seconds measured")
