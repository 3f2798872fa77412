"""Prints how many step-events a second the simulator walks on one core, and how long runs fare.

    .venv/bin/python benchmarks/sim_speed.py [--only TEXT] [--repeats 5] [--no-long] [--exact]

A step-event is one slice of one step in one thread block, actually simulated: an LL or LL128
transfer is one slice, a Simple one two (docs/reference/simulator.md). Times are the processor's,
of one thread; each number is the median of repeats in turn, with the least and the most. "x4" is
the speed at four times the length: equal speeds mean that the cost is linear in the events.

Then 1 GiB goes through 16 ranks by every method and protocol, extrapolated: the slowest ones, and
with --exact (minutes) how far the times are from those of the whole walk.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import msgspec
from report import publish

from tuccl.errors import Infeasible
from tuccl.program import Knobs, Program
from tuccl.simulation import MachineClass, Network, SimResult, simulate
from tuccl.sketches import candidate_sketches, full_mesh
from tuccl.synth import METHODS, Collective, Problem, lower, make_schedule
from tuccl.topology import Topology, join, load_profile, machine_of, network

PROTOCOLS = ("Simple", "LL", "LL128")
EVENTS = 40_000
GIB = 1 << 30


@dataclass(frozen=True)
class Class:
    """A class of runs: a machine and a program; ``mesh`` picks the full mesh."""

    links: str
    profile: str
    hosts: int
    method: str
    collective: str
    chunks: int
    instances: int
    mesh: bool = True


HOST = (
    ("ring", "allreduce", 1, 8, False),
    ("allpairs", "allreduce", 1, 2, True),
    ("recursive", "allreduce", 1, 4, True),
    ("greedy", "allgather", 1, 4, False),
    ("allpairs", "alltoall", 1, 1, True),
)
HOSTS = (
    *HOST,
    ("hierarchical2", "allreduce", 1, 2, False),
    ("hierarchical3", "allreduce", 1, 2, False),
    ("hierarchical2", "alltoall", 1, 1, False),
)
CLASSES = (
    *(Class("NVSwitch", "dgx-a100", 1, *program) for program in HOST),
    *(Class("NVLink", "dgx-1v", 1, *program) for program in HOST),
    *(Class("PCIe", "dgx-a100", 1, *program) for program in HOST),
    *(Class("8 NICs", "ndv4", 2, *program) for program in HOSTS),
    *(Class("1 NIC", "ndv2", 2, *program) for program in HOSTS[1:]),
)
LONG = (("ndv4", 2), ("ndv2", 2), ("dgx-2", 1), ("v100x4", 4))


@dataclass(frozen=True)
class Case:
    """A simulated call: a program, its knobs and the machine."""

    name: str
    program: Program
    knobs: Knobs
    network: Network
    machine: MachineClass

    def run(self, passes: int) -> tuple[SimResult, float]:
        """Return a whole walk and its time in s."""
        nbytes = self.program.nchunks * self.knobs.slice_bytes * passes
        start = time.thread_time()
        result = simulate(self.program, self.knobs, self.network, self.machine, nbytes, exact=True)
        return result, time.thread_time() - start


@cache
def machine(profile: str, hosts: int, nvlink: bool) -> tuple[Topology, Network]:
    """Return hosts joined, with or without their NVLinks."""
    node = load_profile(profile)
    if not nvlink:
        links = tuple(link for link in node.links if link.kind != "nvlink")
        nodes = tuple(part for part in node.nodes if part.kind != "nvswitch")
        node = msgspec.structs.replace(node, links=links, nodes=nodes)
    topology = join(node, hosts) if hosts > 1 else node
    return topology, network(topology)


def cases(only: str) -> Iterator[Case]:
    """Make the cases whose name has ``only`` in it."""
    for c in CLASSES:
        topology, network_ = machine(c.profile, c.hosts, c.links != "PCIe")
        sketch = (
            full_mesh(topology) if c.mesh else candidate_sketches(topology, c.collective, GIB)[0]
        )
        try:
            wanted = Collective(c.collective, topology.ranks)
            schedule = make_schedule(Problem(wanted, sketch, c.chunks, GIB), c.method)
        except Infeasible:
            continue
        for protocol in PROTOCOLS:
            name = f"{c.links}, {c.method} {c.collective}, {protocol}"
            if only in name:
                program = lower(schedule, protocol=protocol, instances=c.instances)
                yield Case(name, program, Knobs(protocol, 1, 512), network_, machine_of(topology))


def print_speeds(only: str, repeats: int) -> None:
    """Print a line a case, and the least."""
    todo = list(cases(only))
    if not todo:
        raise SystemExit(f"--only {only!r}: no case has that in its name")
    passes = [max(2, EVENTS * 2 // case.run(2)[0].events) for case in todo]
    speeds: list[tuple[list[float], list[float]]] = [([], []) for _ in todo]
    for _ in range(repeats):
        for case, n, found in zip(todo, passes, speeds, strict=True):
            for length, to in zip((n, 4 * n), found, strict=True):
                result, seconds = case.run(length)
                to.append(result.events / seconds / 1e6)
    print(
        f"{'case, millions of step-events a second':<44}{'median':>8}"
        f"{'least':>8}{'most':>8}{'x4':>8}"
    )
    medians = []
    for case, (short, long) in zip(todo, speeds, strict=True):
        medians.append((statistics.median(long), case.name))
        print(
            f"{case.name:<44}{statistics.median(short):>8.2f}{min(short):>8.2f}{max(short):>8.2f}"
            f"{statistics.median(long):>8.2f}"
        )
    reached = sum(speed >= 5 for speed, _ in medians)
    print(
        f"least of all: {min(medians)[0]:.2f} M/s ({min(medians)[1]}); "
        f"{reached} of {len(medians)} reach 5 M/s\n"
    )


def long_runs() -> Iterator[tuple[str, Case]]:
    """Make a program of 16 ranks by every method and protocol, of each sketch in turn."""
    for profile, hosts in LONG:
        topology, network_ = machine(profile, hosts, True)
        for method in METHODS:
            if method == "taccl" or "allreduce" not in METHODS[method].collectives:
                continue
            best = candidate_sketches(topology, "allreduce", GIB)[0]
            for sketch, chunks, instances in ((best, 2, 4), (full_mesh(topology), 1, 2)):
                for protocol in PROTOCOLS:
                    try:
                        wanted = Collective("allreduce", topology.ranks)
                        schedule = make_schedule(Problem(wanted, sketch, chunks, GIB), method)
                        program = lower(schedule, protocol=protocol, instances=instances)
                    except Infeasible:
                        continue
                    if program.threadblocks > machine_of(topology).sm_count:
                        continue
                    name = f"{hosts}x {profile}, {method}, {sketch.name} x{instances}, {protocol}"
                    yield (
                        name,
                        Case(
                            name, program, Knobs(protocol, 1, 512), network_, machine_of(topology)
                        ),
                    )


def print_long(exact: bool) -> None:
    """Print the slowest runs of 1 GiB, and the worst errors."""
    rows = []
    for name, case in long_runs():
        nbytes = -(-GIB // case.program.nchunks) * case.program.nchunks
        args = (case.program, case.knobs, case.network, case.machine, nbytes)
        start = time.thread_time()
        result = simulate(*args)
        ms = (time.thread_time() - start) * 1e3
        off = simulate(*args, exact=True).gpu_us / result.gpu_us - 1 if exact else 0.0
        rows.append((ms, abs(off), name, result))
    rows.sort(key=lambda row: -row[0])
    print(f"1 GiB allreduce through 16 ranks: {len(rows)} programs")
    for ms, _, name, result in rows[:8]:
        print(f"{ms:>9.1f} ms {result.events:>9} events  {name}")
    slow = sum(ms > 100 for ms, *_ in rows)
    unsteady = sum(not row[3].steady for row in rows)
    print(
        f"slowest {rows[0][0]:.0f} ms, median {statistics.median(r[0] for r in rows):.1f} ms, "
        f"{slow} over 100 ms; {unsteady} had not settled"
    )
    if exact:
        _, off, name, _ = max(rows, key=lambda row: row[1])
        print(f"furthest from the whole walk: {off:.4%} ({name})")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-long", action="store_true")
    parser.add_argument("--exact", action="store_true")
    args = parser.parse_args()
    print_speeds(args.only, args.repeats)
    if not args.no_long:
        print_long(args.exact)


if __name__ == "__main__":
    publish(main, "Measured")
