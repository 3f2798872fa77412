"""Prints how many step-events a second the simulator walks, on one core, for ring allreduces.

    .venv/bin/python benchmarks/sim_speed.py

A step-event is one step on one slice in one thread block, actually simulated. The last two
columns compare the extrapolated time with that of the full run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tuccl._native import (
    Gpu,
    Knobs,
    Network,
    Program,
    Resource,
    Route,
    SimResult,
    Step,
    ThreadBlock,
    simulate,
)
from tuccl.topology.machine import load_machine
from tuccl.units import format_bytes


@dataclass(frozen=True)
class Case:
    """A ring allreduce of `nbytes` over `hosts` of 8 GPUs."""

    hosts: int
    channels: int
    knobs: Knobs
    nbytes: int


CASES = (
    Case(1, 1, Knobs("Simple", 1, 512), 1 << 30),
    Case(1, 24, Knobs("Simple", 1, 512), 1 << 30),
    Case(1, 24, Knobs("LL128", 1, 640), 1 << 30),
    Case(2, 8, Knobs("Simple", 1, 512), 1 << 30),
    Case(2, 8, Knobs("Simple", 1, 512, 1 << 18), 1 << 30),
    Case(2, 8, Knobs("LL", 1, 512), 1 << 28),
    Case(8, 4, Knobs("Simple", 1, 512), 1 << 30),
)


def hosts_on_a_fabric(hosts: int) -> Network:
    """Return hosts of 8 GPUs on a switch, four 25 GB/s adapters each."""
    resources: list[Resource] = []
    places: dict[str, int] = {}

    def at(name: str, kind: str, gbs: float) -> int:
        if name not in places:
            places[name] = len(resources)
            resources.append(Resource(name, kind, gbs))
        return places[name]

    routes = []
    for a in range(8 * hosts):
        for b in range(8 * hosts):
            ends = (at(f"{a}>s", "nvlink", 300.0), at(f"s>{b}", "nvlink", 300.0))
            if a // 8 == b // 8:
                if a != b:
                    routes.append(Route(a, b, list(ends), 0.35))
                continue
            way = [
                at(f"{a}>p", "pcie", 31.5),
                at(f"n{a // 2}>w", "network", 25.0),
                at(f"w>n{b // 2}", "network", 25.0),
                at(f"p>{b}", "pcie", 31.5),
            ]
            routes.append(Route(a, b, way, 2.6, "net"))
    return Network(8 * hosts, resources, routes)


def ring(ranks: int, channels: int) -> Program:
    """Return a ring allreduce with one thread block a channel."""
    ops = ["s", *["rrs"] * (ranks - 2), "rrcs", *["rcs"] * (ranks - 2), "r"]
    gpus = []
    for rank in range(ranks):
        blocks = []
        for c in range(channels):
            at = [c * ranks + (rank - k) % ranks for k in range(len(ops))]
            steps = [Step(op, "i", a, "i", a, 1) for op, a in zip(ops, at, strict=True)]
            blocks.append(ThreadBlock(c, (rank + 1) % ranks, (rank - 1) % ranks, c, steps))
        gpus.append(Gpu(rank, ranks * channels, ranks * channels, 0, blocks))
    return Program("ring", "allreduce", "Simple", channels, ranks * channels, gpus)


def timed(case: Case, program: Program, network: Network, exact: bool) -> tuple[SimResult, float]:
    """Return the result and the least wall time in seconds of three runs."""
    machine = load_machine("a100")
    nbytes = -(-case.nbytes // program.nchunks) * program.nchunks
    walls = []
    for _ in range(3):
        start = time.perf_counter()
        result = simulate(program, case.knobs, network, machine, nbytes, exact=exact)
        walls.append(time.perf_counter() - start)
    return result, min(walls)


def main() -> None:
    """Print one line a case."""
    print(
        f"{'case':<44}{'events':>10}{'ms':>9}{'Mevents/s':>11}{'full: Mevents/s':>17}{'error':>10}"
    )
    for case in CASES:
        network, program = hosts_on_a_fabric(case.hosts), ring(8 * case.hosts, case.channels)
        short, wall = timed(case, program, network, exact=False)
        full, full_wall = timed(case, program, network, exact=True)
        k = case.knobs
        name = (
            f"{8 * case.hosts} ranks {case.channels} ch {k.protocol} "
            f"B={format_bytes(k.buffer_bytes)} {format_bytes(case.nbytes)}"
        )
        print(
            f"{name:<44}{short.events:>10}{wall * 1e3:>9.2f}{short.events / wall / 1e6:>11.2f}"
            f"{full.events / full_wall / 1e6:>17.2f}{short.time_us / full.time_us - 1:>10.4%}"
        )


if __name__ == "__main__":
    main()
