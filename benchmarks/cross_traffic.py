"""Prints how training iterations slow down as others load one link: measured, and simulated.

    sudo .venv/bin/python benchmarks/cross_traffic.py [--short] [--raw RUNS.json]

Four emulated hosts of a rank each, their NICs at 200 Mb/s, all-reduce by a ring while the switch's
port to the first host also carries long flows, web traffic or bursts. All points are measured in
turns, each with a control run: the same traffic on a link that no rank uses. Where that slows
iterations by over 5 %, the processors are short and the point is refused. `--short` takes about 5
minutes, all 25. `--raw` writes every iteration's time.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, median

import msgspec
from report import publish

import tuccl
from tuccl.cli.iterations import percentile
from tuccl.cli.output import columns
from tuccl.emulation import (
    EmulatedExecutor,
    EmulatedSimExecutor,
    Emulation,
    emulated_cluster,
    emulated_topology,
)
from tuccl.emulation.cross_traffic import EmulatedTraffic
from tuccl.errors import InputError
from tuccl.eval.congestion import (
    EXPONENTS,
    Curve,
    congestion_point,
    fit_exponential,
    fit_residual,
    held_out_error,
)
from tuccl.program import Knobs, Program
from tuccl.runtime import find_mpi
from tuccl.topology import CrossTraffic, Topology, join, keep_gpus, load_profile
from tuccl.topology.cross_traffic import Source
from tuccl.training.iteration import ITERATION_US, Iteration, thesis_iteration

SCALE = 0.002  # of 12.5 GB/s: 200 Mb/s
C_MBPS = 200.0
KNOBS = Knobs("Simple", 1)
PORT = ("leaf0", "n0/nic0")
KINDS = ("long", "web", "burst")
LOADS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
# What the thesis keeps to an iteration (ResNet-50): a burst's period, and the mean flow.
PERIOD_US = ITERATION_US / 16
MEAN_BYTES = 2.37e6 / 500e6 * (C_MBPS / 8 * ITERATION_US)
STREAMS = 4
WARM_S = 1.0
CONTROL_RUNS = 3
MOST_SLOWED = 1.05


class Point(msgspec.Struct, frozen=True):
    """A model beside a kind of traffic at an offered load."""

    model: str
    kind: str
    load: float


class Samples(msgspec.Struct):
    """Samples of a point: times in us, rates in Mb/s."""

    times_us: list[float] = []
    control_us: list[float] = []
    offered: list[float] = []
    carried: list[float] = []
    windows: list[float] = []

    @property
    def mean_ms(self) -> float:
        """Mean time in ms."""
        return fmean(self.times_us) / 1e3

    @property
    def x(self) -> float:
        """Mean carried rate in Mb/s."""
        return fmean(self.carried)


def traffic_of(kind: str, load: float, seed: int = 1) -> CrossTraffic:
    """Return the traffic of a point."""
    options = {
        "long": {"streams": STREAMS},
        "web": {"mean_bytes": MEAN_BYTES},
        "burst": {"mean_bytes": MEAN_BYTES, "period_us": PERIOD_US},
    }
    return CrossTraffic((Source(*PORT, kind, load=load, **options[kind]),), seed)


class Measurement:
    """Points measured in turns on one emulated cluster."""

    def __init__(
        self, emulation: Emulation, executor: EmulatedExecutor, program: Program, runs: int
    ) -> None:
        """Measure nothing yet."""
        self.emulation, self.executor, self.program, self.runs = emulation, executor, program, runs
        self.alone: dict[str, list[float]] = defaultdict(list)
        self.samples: dict[Point, Samples] = defaultdict(Samples)

    def iterate(self, model: str, runs: int) -> tuple[float, ...]:
        """Return the times of so many iterations in us."""
        each = thesis_iteration(model, self.executor.topology)
        return self.executor.iterate(self.program, KNOBS, each.nbytes, each.releases_us, runs=runs)

    def measure(self, point: Point, seed: int) -> None:
        """Add iterations of a point: alone, beside the control traffic, beside the traffic."""
        cross, found = traffic_of(point.kind, point.load, seed), self.samples[point]
        self.alone[point.model] += self.iterate(point.model, CONTROL_RUNS)
        with EmulatedTraffic(self.emulation, cross=cross, on_control=True):
            found.control_us += self.iterate(point.model, CONTROL_RUNS)
        with EmulatedTraffic(self.emulation, cross=cross) as traffic:
            time.sleep(WARM_S)
            traffic.report()
            found.times_us += self.iterate(point.model, self.runs)
            load = traffic.report()
        found.offered.append(8e3 * (load.sources[0].offered_gbs or 0.0))
        found.carried.append(8e3 * load.carried_gbs)
        found.windows += [8e3 * gbs for gbs in load.sources[0].windows_gbs]

    def slowed(self, point: Point) -> float:
        """Return how much slower iterations are beside the control traffic than alone."""
        return median(self.samples[point].control_us) / median(self.alone[point.model])


def points_of(short: bool) -> list[Point]:
    """Return what is measured: a curve of VGG-16, and the others at the thesis's two loads."""
    loads = (0.3, 0.6, 0.8) if short else LOADS
    others = () if short else ("BERT-large", "DenseNet-161", "ResNet-50")
    points = [Point("VGG-16", kind, load) for kind in KINDS for load in loads]
    return points + [
        Point(model, kind, load) for model in others for kind in KINDS for load in (0.3, 0.8)
    ]


def measure(topology: Topology, points: list[Point], rounds: int, runs: int) -> Measurement:
    """Return all points, measured in turns."""
    program = tuccl.synthesize(topology, "allreduce", "8M", method="ring").best.program
    with ExitStack() as stack:
        cross = traffic_of("web", 0.5)
        emulation = stack.enter_context(Emulation(topology, SCALE, cross=cross))
        executor = stack.enter_context(EmulatedExecutor(emulation, find_mpi()))
        print(executor.label + "\n")
        found = Measurement(emulation, executor, program, runs)
        for seed in range(rounds):
            for point in random.Random(seed).sample(points, len(points)):
                found.measure(point, seed)
    return found


def simulated(topology: Topology, program: Program, point: Point, runs: int) -> tuple[float, float]:
    """Return the mean of simulated iterations at a point in ms, and their 99th percentile.

    That is the median of what sets of ``runs`` have for it, as many as were measured.
    """
    cross = traffic_of(point.kind, point.load)
    executor = EmulatedSimExecutor(topology, SCALE, cross=cross)
    each = thesis_iteration(point.model, emulated(topology))
    times = executor.iterate(program, KNOBS, each.nbytes, each.releases_us, runs=30 * runs)
    sets = [times[first : first + runs] for first in range(0, len(times), runs)]
    return fmean(times) / 1e3, median(percentile(part, 99) for part in sets) / 1e3


def prediction_rows(found: Measurement, points: list[Point], topology: Topology) -> list[list[str]]:
    """Return measured and simulated times of the points that were not refused."""
    rows = []
    for point in (p for p in points if found.slowed(p) <= MOST_SLOWED):
        s = found.samples[point]
        mean_ms, p99_ms = simulated(topology, found.program, point, len(s.times_us))
        p99 = percentile(s.times_us, 99) / 1e3
        numbers = (s.mean_ms, mean_ms, p99, p99_ms)
        errors = (f"{mean_ms / s.mean_ms - 1:+.0%}", f"{p99_ms / p99 - 1:+.0%}")
        names = (point.model, point.kind, f"{point.load:g}")
        rows.append([*names, *(f"{n:.4g}" for n in numbers), *errors])
    return rows


def point_rows(found: Measurement, points: list[Point]) -> list[list[object]]:
    """Return a row a point."""
    rows: list[list[object]] = []
    for point in points:
        s, alone = found.samples[point], fmean(found.alone[point.model])
        slowed = found.slowed(point)
        if slowed > MOST_SLOWED:
            rows.append([point.model, point.kind, point.load, "refused: the processors are short"])
            rows[-1] += ["", "", "", "", "", f"{slowed:.3f}"]
            continue
        p99 = percentile(s.times_us, 99) / 1e3
        windows = percentile(s.windows, 99)
        numbers = [fmean(s.offered), s.x, windows, s.mean_ms, p99, s.mean_ms * 1e3 / alone]
        rows.append(
            [point.model, point.kind, point.load, *(f"{n:.4g}" for n in numbers), f"{slowed:.3f}"]
        )
    return rows


HEADER = ["model", "kind", "load", "offered", "x", "x p99", "mean ms", "p99 ms", "t/t0", "control"]


def curve_of(found: Measurement, model: str, kind: str) -> Curve:
    """Return carried rates and mean ms of the points that were not refused, alone first."""
    kept = [
        (s.x, s.mean_ms)
        for p, s in found.samples.items()
        if (p.model, p.kind) == (model, kind) and found.slowed(p) <= MOST_SLOWED
    ]
    return sorted([(0.0, fmean(found.alone[model]) / 1e3), *kept])


def fit_rows(curve: Curve, kind: str) -> list[list[object]]:
    """Return the fits of a curve, one a row, with what they miss of points held out."""
    rows: list[list[object]] = []
    for n in EXPONENTS:
        fit = fit_exponential(curve, C_MBPS, n)
        missed = held_out_error(curve, lambda part, n=n: fit_exponential(part, C_MBPS, n).time)
        text = f"{fit.a:.4g} exp({fit.b:.4g} / (C - x)^{n:g})"
        rows.append([kind, text, f"{fit.r2:.3f}", f"{missed:.1%}"])
    residual = fit_residual(curve, C_MBPS)
    missed = held_out_error(curve, lambda part: fit_residual(part, C_MBPS).time)
    text = f"max({residual.alone:.4g}, {residual.demand:.4g} / (C - x - {residual.unused:.3g}))"
    rows.append([kind, text, f"{residual.r2:.3f}", f"{missed:.1%}"])
    return rows


def print_fits(found: Measurement, iteration: Iteration) -> None:
    """Print fits and congestion points of the model with a curve."""
    ring_mb = 1.5 * iteration.nbytes * len(iteration.releases_us) / 1e6
    rows, knees = [], []
    for kind in KINDS:
        curve = curve_of(found, iteration.name, kind)
        if len(curve) < 5:
            print(f"{kind}: {len(curve)} points, too few for fits")
            continue
        rows += fit_rows(curve, kind)
        if knee := congestion_point(curve, C_MBPS):
            demand = knee.demand / 8e3
            knees.append([kind, knee.carried, knee.time, demand, f"{demand / ring_mb:.2f}"])
    print(
        f"Fits of {iteration.name}, t in ms, x in Mb/s, C = {C_MBPS:g}; held out: mean |log error|"
    )
    print(columns(["kind", "t", "R2", "held out"], rows))
    print(f"\nCongestion points; the ring sends {ring_mb:.3g} MB")
    print(columns(["kind", "x Mb/s", "t ms", "(C - x) t, MB", "of the ring's"], knees))


def print_distributions(found: Measurement, points: list[Point]) -> None:
    """Print percentiles of the iterations' times over the time alone at 30 and 80 %."""
    parts = (10, 25, 50, 75, 90, 99)
    rows = [
        [p.model, p.kind, p.load]
        + [
            f"{percentile(found.samples[p].times_us, part) / fmean(found.alone[p.model]):.3g}"
            for part in parts
        ]
        for p in points
        if p.load in (0.3, 0.8)
    ]
    print("\nt / t0 at percentiles of the iterations")
    print(columns(["model", "kind", "load", *(f"p{part}" for part in parts)], rows))


def main() -> None:
    """Measure, then print all tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true", help="VGG-16 alone, three loads")
    parser.add_argument("--rounds", type=int, help="turns of all points")
    parser.add_argument("--raw", metavar="FILE", help="write every iteration's time")
    args = parser.parse_args()
    topology = join(keep_gpus(load_profile("ndv2"), [0]), 4)
    points = points_of(args.short)
    begin = time.monotonic()
    found = measure(topology, points, args.rounds or (2 if args.short else 3), 10)
    print(f"{time.monotonic() - begin:.0f} s; rates in Mb/s; x is what arrived, p99 of 10 ms")
    print(columns(HEADER, point_rows(found, points)) + "\n")
    header = ["model", "kind", "load", "mean ms", "simulated", "p99 ms", "simulated"]
    print("Measured and simulated (class emulated, efficiencies of the sources' kinds)")
    rows = prediction_rows(found, points, topology)
    print(columns([*header, "mean error", "p99 error"], rows) + "\n")
    if args.raw:
        named = [{"point": p, "samples": s} for p, s in found.samples.items()]
        Path(args.raw).write_bytes(msgspec.json.encode({"alone": found.alone, "points": named}))
    try:
        print_fits(found, thesis_iteration("VGG-16", emulated(topology)))
    except InputError as error:
        print(f"no fits: {error}")
    print_distributions(found, points)


def emulated(topology: Topology) -> Topology:
    """Return the topology with its emulated rates."""
    return emulated_topology(topology, emulated_cluster(topology, SCALE))


if __name__ == "__main__":
    publish(main, "Measured on network namespaces, and simulated")
