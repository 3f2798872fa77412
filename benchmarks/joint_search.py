"""Prints what each search of `tuccl tune` is worth beside the exhaustive grid, simulated.

    .venv/bin/python benchmarks/joint_search.py [--cache FOLDER] [--only "2x v100x4"] [--seeds 20]
        [--processes 2] [--write]

Cells: allgather and allreduce of 64 KB, 4 MB and 256 MB on four machines. Where --exhaustive names
a cell of up to 4 MB the whole grid is answered for once: a point is simulated, or its lower bound
(`least_us`) is above a time that another point has. Elsewhere the best is that of a search of 1,000
evaluations and of all others here. Every search gets the same space, budget and seeds (6 for those
by Optuna's estimator), from the default alone (cold); `+` marks those that begin with 30 points
whose knobs suit the size, as `tune` begins them.
Regret is the time of the point that a search ends with over the best, less one.

With noise, samples are the simulated time times exp(N(0, s)), a point's full effort is 27 of
them, and the budget counts full efforts; the regret is that of the true time. `slower` counts
final rounds that prefer a program truly slower than the default by over 1 %.

The ablation: the best with the default's knobs (sketch, method and chunks only), the best knobs of
the default's program, and the best of both, over the default of MSCCL.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import geometric_mean, median

import msgspec
from report import publish

from baseline_searches import BASELINE_SEARCHES
from tuccl.errors import Infeasible
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import SEARCHES, beats
from tuccl.tuning.policy_training import SimulatedCall, simulated_calls
from tuccl.tuning.searches.initial_points import initial_points
from tuccl.tuning.searches.search import run_search
from tuccl.tuning.searches.space import Point, Space
from tuccl.units import format_bytes

MACHINES = (("v100x4", 2), ("v100x4", 3), ("a100x8-roce", 2), ("dgx-1v", 1))
COLLECTIVES = ("allgather", "allreduce")
SIZES = (64 << 10, 4 << 20, 256 << 20)
BUDGETS = (60, 100)
LONG_BUDGET = 400  # of the default search: under a half of a percent of the grid
ROWS = (
    "descent",
    "mraco",
    "mraco+",
    "tpe",
    "tpe+",
    "coordinate",
    "coordinate+",
    "random",
    "random+",
    "grid",
    "rl",
    "rl+",
)
ALL_SEARCHES = SEARCHES | BASELINE_SEARCHES
NOISES = (0.03, 0.15)
FULL_EFFORT = 27
NOISY_BUDGET = 100
NOISY = ("descent", "mraco+", "mraco-literal+", "tpe-halving+")
SEEDS_OF_ESTIMATORS = 6  # Optuna's estimator takes longer than the simulator
BATCH = 64
_LARGEST_GRID = 4 << 20  # at 256 MB a grid takes hours
_GUESS = 400  # evaluations of the search whose best prunes the grid
_LONG = 1000  # where the grid is not answered for


class Cell(msgspec.Struct):
    """The results of one cell; times in us."""

    grid: int
    simulated: int
    best_us: float
    best: str
    default_us: float
    seconds: float
    sketch_us: float
    knobs_us: float
    regrets: dict[str, list[float]]  # by "search budget"
    noisy: dict[str, list[float]]  # by "search noise"
    slower: dict[str, int]


def main() -> None:
    """Answer for every cell, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=Path("build/joint_search"))
    parser.add_argument("--only", default="")
    parser.add_argument("--exhaustive", default="2x v100x4")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cached", action="store_true", help="print the cells that are there")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    names = [
        (machine, collective, size)
        for size in SIZES
        for machine in MACHINES
        for collective in COLLECTIVES
        if args.only in f"{machine[1]}x {machine[0]} {collective} {format_bytes(size)}"
    ]
    args.cache.mkdir(parents=True, exist_ok=True)
    if args.cached:
        names = [name for name in names if cache_of(args.cache, *name, args.seeds).exists()]
    with ProcessPoolExecutor(args.processes) as pool:
        jobs = [pool.submit(cell, *name, args.seeds, args.cache, args.exhaustive) for name in names]
        cells = {name: job.result() for name, job in zip(names, jobs, strict=True)}
    print_grids(cells)
    print_regrets(cells)
    print_noise(cells)
    print_ablation(cells)


def cell(
    machine: tuple[str, int], collective: str, nbytes: int, seeds: int, cache: Path, whole: str
) -> Cell:
    """The results of a cell, from ``cache`` where they are there."""
    path = cache_of(cache, machine, collective, nbytes, seeds)
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Cell)
    topology = topology_of(*machine)
    [call] = simulated_calls(topology, collective, [nbytes])
    name = f"{machine[1]}x {machine[0]} {collective} {format_bytes(nbytes)}"
    result = best_of(call, exhaustive=whole in name and nbytes <= _LARGEST_GRID)
    regrets(call, result, seeds)
    noise(call, result, seeds)
    path.write_bytes(msgspec.json.encode(result))
    print(f"{path.stem}: {result.seconds:.0f} s", flush=True)
    return result


def cache_of(
    cache: Path, machine: tuple[str, int], collective: str, nbytes: int, seeds: int
) -> Path:
    """The file of a cell."""
    return cache / f"{machine[1]}x-{machine[0]}-{collective}-{nbytes}-{seeds}.json"


def topology_of(profile: str, hosts: int) -> Topology:
    """``hosts`` of a profile."""
    node = load_profile(profile)
    return join(node, hosts) if hosts > 1 else node


def best_of(call: SimulatedCall, *, exhaustive: bool) -> Cell:
    """The best point of the grid, and what it took to know."""
    start = time.monotonic()
    space = call.space
    known = run_search(SEARCHES["descent"](space), call.samples, _GUESS if exhaustive else _LONG)
    best = known.us(known.ranked()[0]), known.ranked()[0]
    sketch_us, knobs_us = subsets(call)
    simulated = grid = 0
    for points in by_program(space):
        grid += len(points)
        if exhaustive:
            best, count = fastest(call, points, best)
            simulated += count
    best_us, point = best
    choice = point.choice
    name = f"{choice.method} on {choice.sketch}, {point.protocol} x {point.channels}"
    seconds = time.monotonic() - start
    return Cell(
        grid=grid,
        simulated=simulated,
        best_us=best_us,
        best=name,
        default_us=call.us(space.default),
        seconds=seconds,
        sketch_us=sketch_us,
        knobs_us=knobs_us,
        regrets={},
        noisy={},
        slower={},
    )


def by_program(space: Space) -> Iterator[list[Point]]:
    """The legal points of each choice, protocol and channel count."""
    for choice in space.choices:
        for protocol, counts in space.channels(choice).items():
            for count in counts:
                if points := space.points(choice, protocol, count):
                    yield points


def subsets(call: SimulatedCall) -> tuple[float, float]:
    """The best time with the default's knobs, and the best with the default's program."""
    space, default = call.space, call.space.default
    choices = [p for p in space.choices if space.channels(p)]
    knobs = (default.protocol, default.channels, default.threads, default.buffer_bytes)
    sketch = [Point(choice, *knobs) for choice in choices]
    with_default_knobs = [call.us(p) for p in sketch if p in space]
    own = (points for points in by_program(space) if points[0].choice == default.choice)
    best = (call.us(default), default)
    for points in own:
        best = fastest(call, points, best)[0]
    return min(with_default_knobs), best[0]


def fastest(
    call: SimulatedCall, points: Sequence[Point], best: tuple[float, Point]
) -> tuple[tuple[float, Point], int]:
    """``best`` or a faster one of the points of a program, and how many had to be simulated."""
    executor, nbytes = call.evaluate.executor, call.evaluate.nbytes
    try:
        program = call.evaluate.program(points[0]).program
    except Infeasible:
        return best, 0
    program = program.replace(in_place=False) if program.out_of_place else program
    calls = [(p.knobs, nbytes) for p in points]
    least = executor.least_us(program, calls)
    order = sorted(range(len(points)), key=lambda i: least[i])
    simulated = 0
    for first in range(0, len(order), BATCH):
        batch = [i for i in order[first : first + BATCH] if least[i] < best[0]]
        simulated += len(batch)
        times = executor.time_all(program, [calls[i] for i in batch]) if batch else []
        for i, us in zip(batch, times, strict=True):
            if us < best[0] and call.samples(points[i]):
                best = us, points[i]
    return best, simulated


def regrets(call: SimulatedCall, result: Cell, seeds: int) -> None:
    """Fill in what every search ends with, budget by budget."""
    suited = initial_points(call.space, 30)
    times: dict[str, list[float]] = {}
    for name in ROWS:
        slow = name.startswith(("mraco", "tpe"))
        budgets = (*BUDGETS, LONG_BUDGET) if name == "descent" else BUDGETS
        for seed in range(min(seeds, SEEDS_OF_ESTIMATORS) if slow else seeds):
            kind = ALL_SEARCHES[name.removesuffix("+")]
            search = kind(call.space, seed=seed, first=suited if name.endswith("+") else ())
            spent, best_us, at = 0, math.inf, dict.fromkeys(budgets, math.inf)
            while spent < budgets[-1] and (request := search.ask()) is not None:
                samples = call.samples(request.point, request.repeats)
                search.tell(request, samples)
                spent += len(samples)
                best_us = min([best_us, *samples])
                at.update({b: best_us for b in budgets if spent <= b})
            for budget in budgets:
                us = best_us if spent < budget else at[budget]
                times.setdefault(f"{name} {budget}", []).append(us)
    result.best_us = min(result.best_us, *(us for row in times.values() for us in row))
    result.regrets = {key: [us / result.best_us - 1 for us in row] for key, row in times.items()}


def noise(call: SimulatedCall, result: Cell, seeds: int) -> None:
    """Fill in what searches end with where times are noisy."""
    for name in NOISY:
        for sigma in NOISES:
            key = f"{name} {sigma}"
            result.slower[key] = 0
            for seed in range(seeds if name == "descent" else SEEDS_OF_ESTIMATORS // 2):
                us, taken = noisy_choice(call, name, Noise(call, seed, sigma))
                result.noisy.setdefault(key, []).append(us / result.best_us - 1)
                result.slower[key] += taken and us > 1.01 * call.default_us


class Noise:
    """Samples of simulated times, log-normal."""

    def __init__(self, call: SimulatedCall, seed: int, sigma: float) -> None:
        """Draw samples of ``call`` with a deviation ``sigma`` of log time."""
        self._call, self._rng, self._sigma = call, random.Random(seed), sigma

    def of(self, us: float, repeats: int) -> list[float]:
        """Samples of a time."""
        if math.isinf(us):
            return []
        return [us * math.exp(self._rng.gauss(0.0, self._sigma)) for _ in range(repeats)]

    def samples(self, point: Point, repeats: int) -> list[float]:
        """Samples of a point."""
        return self.of(self._call.us(point), repeats)


def noisy_choice(call: SimulatedCall, name: str, noise: Noise) -> tuple[float, bool]:
    """The true time of what a search and its final round take, and whether it beats the default."""
    first = initial_points(call.space, NOISY_BUDGET // 4) if name.endswith("+") else ()
    seed = noise._rng.randrange(1 << 30)
    kind = ALL_SEARCHES[name.removesuffix("+")]
    search = kind(call.space, seed=seed, full_effort=FULL_EFFORT, first=first)
    measurements = run_search(search, noise.samples, NOISY_BUDGET)
    final = [(noise.samples(p, FULL_EFFORT), p) for p in measurements.ranked(FULL_EFFORT)[:3]]
    samples, best = min(final, key=lambda each: median(each[0]))
    return call.us(best), beats(samples, noise.of(call.default_us, FULL_EFFORT))


Cells = dict[tuple[tuple[str, int], str, int], Cell]


def print_grids(cells: Cells) -> None:
    """The exhaustive grid of every cell."""
    print(f"{'cell':34s} {'grid':>8s} {'simulated':>9s} {'best us':>9s}  best")
    print("simulated 0: not exhaustive")
    for (machine, collective, nbytes), c in cells.items():
        name = f"{machine[1]}x {machine[0]} {collective} {format_bytes(nbytes)}"
        print(f"{name:34s} {c.grid:8d} {c.simulated:9d} {c.best_us:9.2f}  {c.best}")


def print_regrets(cells: Cells) -> None:
    """Regret of every search by its budget."""
    print(
        "\nregret without noise, % (median, 90th percentile, worst), evaluations as % of the grid"
    )
    for name in ROWS:
        row = []
        for budget in (*BUDGETS, LONG_BUDGET):
            if f"{name} {budget}" in next(iter(cells.values())).regrets:
                regret = [r for c in cells.values() for r in c.regrets[f"{name} {budget}"]]
                row.append(f"{budget:4d}: {percentiles(regret)}")
        print(f"{name:14s} " + "   ".join(row))
    share = [100 * BUDGETS[-1] / c.grid for c in cells.values()]
    print(f"{BUDGETS[-1]} evaluations are {min(share):.3f} to {max(share):.3f} % of the grid")


def print_noise(cells: Cells) -> None:
    """Regret under noise."""
    print(f"\nregret with noise, %, budget {NOISY_BUDGET} x {FULL_EFFORT} (median, 90th, worst)")
    for name in NOISY:
        for sigma in NOISES:
            key = f"{name} {sigma}"
            regret = [r for c in cells.values() for r in c.noisy[key]]
            slower = sum(c.slower[key] for c in cells.values())
            row = f"{name:14s} {100 * sigma:3.0f} %: {percentiles(regret)}"
            print(f"{row}   slower {slower} of {len(regret)}")


def print_ablation(cells: Cells) -> None:
    """Gains over MSCCL's default, beside those that the paper measured."""
    print(
        "\nablation: gain over the default of MSCCL, simulated (geometric mean, most); beside it "
        "the paper's\nmost on V100 hosts (IV.C, measured: allgather, allreduce), where sketches "
        "are TACCL's alone, and the\ndefault is MSCCL's shipped program rather than ours"
    )
    for what, time_of, paper in (
        ("sketch, method, chunks only", lambda c: c.sketch_us, "3.2x 2.3x"),
        ("knobs only", lambda c: c.knobs_us, "3.5x 2.5x"),
        ("both", lambda c: c.best_us, "4x 5x"),
    ):
        gains = [c.default_us / time_of(c) for c in cells.values()]
        print(f"{what:28s} {geometric_mean(gains):5.2f}x {max(gains):6.2f}x   paper {paper}")


def percentiles(values: Sequence[float]) -> str:
    """Median, 90th percentile and worst, in percent."""
    ranked = sorted(100 * v for v in values)
    ninetieth = ranked[min(math.ceil(0.9 * len(ranked)) - 1, len(ranked) - 1)]
    return f"{median(ranked):5.2f} {ninetieth:6.2f} {ranked[-1]:6.2f}"


if __name__ == "__main__":
    publish(main, "Simulated")
