"""Prints what each search of `tuccl tune` is worth, and the sketches' parameters, simulated.

    .venv/bin/python benchmarks/joint_search.py [--cache FOLDER] [--only "2x v100x4"] [--seeds 20]
        [--other-seeds 6] [--without-estimators] [--exhaustive "2x v100x4"] [--processes 2]
        [--write]

Cells: allgather and allreduce of 64 KB, 4 MB and 256 MB on four machines. The best of a cell is
that of every search here, of those with 1,000 evaluations too (descent, coordinate, rl). Where
--exhaustive names a cell of up to 4 MB the whole grid of the candidates is answered for as well: a
point is simulated, or its lower bound (`least_us`) is above a time that another point has. Every
search gets the same space and budget, and seeds: --seeds the default search, --other-seeds others,
half as many where times are noisy; 0 leaves both out. It begins from the default alone (cold); `+`
marks those that begin with 30 points whose knobs suit the size, as `tune` begins them. Regret is
the time of what a table would hold over the best, less one: of the point that a search ends with,
or of the default of `tune --on sim`, NCCL's own choice, where that is faster. --without-estimators
leaves out the searches by Optuna's estimator, which take hours.

The list: the default search with 100 evaluations over the candidates by name, as tables were made
before sketches had parameters for dimensions; its time over that of the space with parameters.

With noise, samples are the simulated time times exp(N(0, s)), a point's full effort is 27 of
them, and the budget counts full efforts; the regret is that of the true time. `slower` counts
final rounds that prefer a program truly slower than the default by over 1 %.

A cell is kept in --cache by the commit that last changed what it depends on, and its options.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import msgspec
from report import ROOT, publish

from baseline_searches import BASELINE_SEARCHES
from tuccl.errors import Infeasible
from tuccl.sketches.candidates import candidate_sketches
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import SEARCHES, beats
from tuccl.tuning.evaluate import Evaluator
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
BATCH = 64
LONG, LONG_SEARCHES = 1000, ("descent", "coordinate", "rl")
_LARGEST_GRID = 4 << 20  # at 256 MB a grid takes hours
_SLOWER = 1e-3  # of a table's time: less is a tie
_SOURCES = (
    "msccl_ext",
    "runtime",
    "sketches",
    "synth",
    "topology",
    "tuning",
    "benchmarks/joint_search.py",
    "benchmarks/baseline_searches.py",
)


class Job(msgspec.Struct, frozen=True):
    """A cell to answer for, and how."""

    profile: str
    hosts: int
    collective: str
    nbytes: int
    seeds: int
    other_seeds: int
    exhaustive: bool
    estimators: bool

    @property
    def name(self) -> str:
        """The name in the tables."""
        return f"{self.hosts}x {self.profile} {self.collective} {format_bytes(self.nbytes)}"

    @property
    def rows(self) -> list[str]:
        """The searches without noise."""
        return [name for name in ROWS if self.estimators or not by_estimator(name)]

    @property
    def noisy(self) -> list[str]:
        """The searches with noise."""
        return [name for name in NOISY if self.estimators or not by_estimator(name)]

    def path(self, cache: Path, commit: str) -> Path:
        """The file that keeps the cell."""
        options = f"{self.seeds}-{self.other_seeds}"
        options += "-exhaustive" * self.exhaustive + "-estimators" * self.estimators
        call = f"{self.hosts}x-{self.profile}-{self.collective}-{self.nbytes}"
        return cache / f"{commit}-{call}-{options}.json"

    def topology(self) -> Topology:
        """The machine."""
        node = load_profile(self.profile)
        return join(node, self.hosts) if self.hosts > 1 else node


class Cell(msgspec.Struct):
    """The results of one cell; times in us."""

    grid: int
    simulated: int
    best_us: float
    best: str
    default_us: float
    seconds: float = 0.0
    listed: dict[str, list[float]] = {}  # regrets over the candidates alone, by budget
    regrets: dict[str, list[float]] = {}  # by "search budget"
    noisy: dict[str, list[float]] = {}  # by "search noise"
    slower: dict[str, int] = {}


def main() -> None:
    """Answer for every cell, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=Path("build/joint_search"))
    parser.add_argument("--only", default="")
    parser.add_argument("--exhaustive", default="none")
    parser.add_argument("--without-estimators", action="store_true")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--other-seeds", type=int, default=6)
    parser.add_argument("--cached", action="store_true", help="print the cells that are there")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    estimators = not args.without_estimators
    jobs = [
        Job(*machine, collective, size, args.seeds, args.other_seeds, False, estimators)
        for size in SIZES
        for machine in MACHINES
        for collective in COLLECTIVES
    ]
    jobs = [
        msgspec.structs.replace(
            job, exhaustive=args.exhaustive in job.name and job.nbytes <= _LARGEST_GRID
        )
        for job in jobs
        if args.only in job.name
    ]
    args.cache.mkdir(parents=True, exist_ok=True)
    commit = commit_of_sources()
    paths = {job: job.path(args.cache, commit) for job in jobs}
    jobs = [job for job in jobs if not args.cached or paths[job].exists()]
    with ProcessPoolExecutor(args.processes) as pool:
        results = [pool.submit(cell, job, paths[job]) for job in jobs]
        cells = {job: result.result() for job, result in zip(jobs, results, strict=True)}
    print_default(cells)
    print_grids(cells)
    print_regrets(cells)
    print_noise(cells)


def commit_of_sources() -> str:
    """The commit that last changed what a cell depends on; marked where files differ from it."""

    def git(*words: str) -> str:
        command = ["git", *words, "--", *_SOURCES]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("log", "-1", "--format=%h").strip() + "-dirty" * bool(changed)


def by_estimator(search: str) -> bool:
    """Return whether Optuna's estimator proposes the points of a search."""
    return search.startswith(("mraco", "tpe"))


def cell(job: Job, path: Path) -> Cell:
    """The results of a cell, from ``path`` where they are there."""
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Cell)
    start = time.monotonic()
    [call] = simulated_calls(job.topology(), job.collective, [job.nbytes])
    result = best_of(call, exhaustive=job.exhaustive)
    regrets(call, result, job)
    noise(call, result, job)
    result.seconds = time.monotonic() - start
    path.write_bytes(msgspec.json.encode(result))
    print(f"{job.name}: {result.seconds:.0f} s", file=sys.stderr, flush=True)
    return result


def best_of(call: SimulatedCall, *, exhaustive: bool) -> Cell:
    """The best point that long searches find, or the grid has."""
    best = math.inf, call.space.default
    for name in LONG_SEARCHES:
        search = ALL_SEARCHES[name](call.space)
        run_search(search, call.samples, LONG)
        if search.best is not None:
            best = min(best, (search.best_us, search.best))
    simulated = grid = 0
    for points in by_program(call.space):
        grid += len(points)
        if exhaustive:
            best, count = fastest(call, points, best)
            simulated += count
    us, point = best
    choice = point.choice
    name = f"{choice.method} on {choice.sketch}, {point.protocol} x {point.channels}"
    if call.default_us < us:
        us, name = call.default_us, "NCCL's own choice"
    return Cell(grid, simulated, us, name, call.default_us)


def by_program(space: Space) -> Iterator[list[Point]]:
    """The legal points of each choice, protocol and channel count."""
    for choice in space.choices:
        for protocol, counts in space.channels(choice).items():
            for count in counts:
                if points := space.points(choice, protocol, count):
                    yield points


def fastest(
    call: SimulatedCall, points: Sequence[Point], best: tuple[float, Point]
) -> tuple[tuple[float, Point], int]:
    """``best`` or a faster one of the points of a program, and how many had to be simulated."""
    assert isinstance(call.evaluate, Evaluator)
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


def over_candidates(call: SimulatedCall) -> SimulatedCall:
    """The call with candidate sketches by name for the only sketches; its times are shared."""
    assert isinstance(call.evaluate, Evaluator)
    programs, nbytes = call.evaluate.programs, call.evaluate.nbytes
    sketches = candidate_sketches(programs.topology, programs.collective, nbytes)
    space = programs.space(sketches, nbytes)
    assert space is not None
    return replace(call, space=space)


def regrets(call: SimulatedCall, result: Cell, job: Job) -> None:
    """Fill in what every search ends with, budget by budget."""
    suited = initial_points(call.space, 30)
    listed = over_candidates(call)
    times: dict[str, list[float]] = {}
    of_list: dict[str, list[float]] = {}
    for name in job.rows:
        budgets = (*BUDGETS, LONG_BUDGET) if name == "descent" else BUDGETS
        for seed in range(job.seeds if name == "descent" else job.other_seeds):
            first = suited if name.endswith("+") else ()
            for budget, us in zip(budgets, bests(call, name, seed, first, budgets), strict=True):
                times.setdefault(f"{name} {budget}", []).append(us)
            if name == "descent":
                for budget, us in zip(budgets, bests(listed, name, seed, (), budgets), strict=True):
                    of_list.setdefault(str(budget), []).append(us)
    every = [us for row in (*times.values(), *of_list.values()) for us in row]
    best_us = result.best_us = min(result.best_us, *every)
    result.regrets = {key: [us / best_us - 1 for us in row] for key, row in times.items()}
    result.listed = {key: [us / best_us - 1 for us in row] for key, row in of_list.items()}


def bests(
    call: SimulatedCall, name: str, seed: int, first: Sequence[Point], budgets: Sequence[int]
) -> list[float]:
    """The time in us of what a table would hold when each of the rising budgets was spent."""
    search = ALL_SEARCHES[name.removesuffix("+")](call.space, seed=seed, first=first)
    found = list[float]()
    for spent, budget in pairwise((0, *budgets)):
        run_search(search, call.samples, budget - spent)
        found.append(min(search.best_us, call.default_us))
    return found


def noise(call: SimulatedCall, result: Cell, job: Job) -> None:
    """Fill in what searches end with where times are noisy."""
    for name in job.noisy:
        for sigma in NOISES:
            key = f"{name} {sigma}"
            result.slower[key] = 0
            for seed in range((job.other_seeds + 1) // 2):
                us, taken = noisy_choice(call, name, Noise(call, seed, sigma))
                held_us = us if taken else call.default_us
                result.noisy.setdefault(key, []).append(held_us / result.best_us - 1)
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


Cells = dict[Job, Cell]


def print_default(cells: Cells) -> None:
    """The default search in the space with parameters beside the list of candidates."""
    budget = str(BUDGETS[-1])
    print(
        f"the default search, {budget} evaluations: regret over the best of any search here with "
        f"up to {LONG},\nover the list of candidates and with sketch parameters (median, 90th "
        "percentile, worst of the seeds, %);\ngain: time over the list / time with parameters "
        f"(median, least of the seeds; median at {LONG_BUDGET})\n"
    )
    print(f"{'cell':34s} {'list':^22s}  {'parameters':^22s}  {'gain':^13s}  at {LONG_BUDGET}")
    slower = 0
    for job, c in cells.items():
        gains = gains_of(c, budget)
        slower += sum(gain < 1 - _SLOWER for gain in gains)
        of_space = c.regrets[f"descent {budget}"]
        print(
            f"{job.name:34s} {percentiles(c.listed[budget])}  {percentiles(of_space)}  "
            f"{median(gains):6.3f} {min(gains):6.3f}  {median(gains_of(c, str(LONG_BUDGET))):6.3f}"
        )
    every = [r for c in cells.values() for r in c.regrets[f"descent {budget}"]]
    print(f"{'all, goal 0, 3 and 6':34s} {'':22s}  {percentiles(every)}")
    print(f"slower than the list by over {100 * _SLOWER:g} %: {slower} of {len(every)}")


def gains_of(cell: Cell, budget: str) -> list[float]:
    """The time over the list of candidates over that with parameters, seed by seed."""
    rows = zip(cell.listed[budget], cell.regrets[f"descent {budget}"], strict=True)
    return [(1 + listed) / (1 + wider) for listed, wider in rows]


def print_grids(cells: Cells) -> None:
    """The best of every cell, as far as it is known."""
    print(
        f"\n{'cell':34s} {'grid':>8s} {'simulated':>9s} {'best us':>9s}  best of the long searches"
    )
    print("simulated 0: the grid of the candidates was not answered for")
    for job, c in cells.items():
        print(f"{job.name:34s} {c.grid:8d} {c.simulated:9d} {c.best_us:9.2f}  {c.best}")


def print_regrets(cells: Cells) -> None:
    """Regret of every search by its budget."""
    print(
        "\nregret without noise, % (median, 90th percentile, worst), evaluations as % of the grid"
    )
    for name in ROWS:
        row = []
        for budget in (*BUDGETS, LONG_BUDGET):
            if all(f"{name} {budget}" in c.regrets for c in cells.values()):
                regret = [r for c in cells.values() for r in c.regrets[f"{name} {budget}"]]
                row.append(f"{budget:4d}: {percentiles(regret)}")
        if row:
            print(f"{name:14s} " + "   ".join(row))
    share = [100 * BUDGETS[-1] / c.grid for c in cells.values()]
    print(f"{BUDGETS[-1]} evaluations are {min(share):.3f} to {max(share):.3f} % of the grid")


def print_noise(cells: Cells) -> None:
    """Regret under noise, where searches met some."""
    if not any(c.noisy for c in cells.values()):
        return
    print(f"\nregret with noise, %, budget {NOISY_BUDGET} x {FULL_EFFORT} (median, 90th, worst)")
    for name in NOISY:
        for sigma in NOISES:
            key = f"{name} {sigma}"
            if not all(key in c.noisy for c in cells.values()):
                continue
            regret = [r for c in cells.values() for r in c.noisy[key]]
            slower = sum(c.slower[key] for c in cells.values())
            row = f"{name:14s} {100 * sigma:3.0f} %: {percentiles(regret)}"
            print(f"{row}   slower {slower} of {len(regret)}")


def percentiles(values: Sequence[float]) -> str:
    """Median, 90th percentile and worst, in percent."""
    ranked = sorted(100 * v for v in values)
    ninetieth = ranked[min(math.ceil(0.9 * len(ranked)) - 1, len(ranked) - 1)]
    return f"{median(ranked):5.2f} {ninetieth:6.2f} {ranked[-1]:6.2f}"


if __name__ == "__main__":
    publish(main, "Simulated")
