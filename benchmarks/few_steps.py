"""Prints the frontier of few-step exact programs on a DGX-1, their hops at 1 KB, and the time.

    .venv/bin/python benchmarks/few_steps.py [--part frontier|hops|profiles] [--only TEXT]

- frontier: for 8 GPUs of a DGX-1, each number of steps with the fewest rounds a chunk, what is
  proved, and the seconds it took: wall clock, and CPU with the solver's; next to SCCL's as run by
  others (allgather 2 steps 3 rounds 2 chunks in 0.5 s, 3 steps 7 rounds 6 chunks in 18.7 s);
- hops: on the fabrics of published synthesizers, messages in a row of the best program of few steps
  at 1 KB, over the fewest that trees need, for every collective;
- profiles: simulated us of the best program of few steps and of the best of all other methods at
  1, 8 and 64 KB; `gain` above 1: few steps are faster.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from frontier import frontier
from report import publish

from reference_fabrics import REFERENCE_FABRICS, torus, with_compared_latencies
from tuccl.errors import TucclError
from tuccl.program import Knobs, verify
from tuccl.sketches import candidate_sketches, full_mesh
from tuccl.synth import (
    Candidates,
    Collective,
    Problem,
    SynthesizedProgram,
    Target,
    lower,
    make_schedule,
    searched_methods,
    synthesize_best,
)
from tuccl.synth.bounds.hops import hop_bound, longest_chain
from tuccl.synth.few_step.few_step import instance_of
from tuccl.synth.few_step.instance import Instance
from tuccl.synth.model.network import sketch_network
from tuccl.synth.model.solver import Budget, cp_sat
from tuccl.topology import Topology, join, load_profile, machine_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.few_step_reference import schedule_fault

COLLECTIVES = (
    *("allgather", "reduce-scatter", "allreduce", "alltoall"),
    *("broadcast", "reduce", "gather", "scatter"),
)
# SCCL (msccl-tools 030a750, Z3), allgather on a DGX-1, as run by others: seconds by
# (steps, rounds, chunks).
_SCCL_SECONDS = {(2, 3, 2): 0.5, (3, 7, 6): 18.7}
_FRONTIERS = {"allgather": 6, "broadcast": 6, "scatter": 1, "alltoall": 2}
_MACHINES: dict[str, Callable[[], Topology]] = {
    "dgx-1v": lambda: load_profile("dgx-1v"),
    "dgx-2": lambda: load_profile("dgx-2"),
    "dgx-a100": lambda: load_profile("dgx-a100"),
    "dgx-h100": lambda: load_profile("dgx-h100"),
    "2x ndv2": lambda: join(load_profile("ndv2"), 2),
    "4x ndv2": lambda: join(load_profile("ndv2"), 4),
    "2x ndv4": lambda: join(load_profile("ndv4"), 2),
    "2x ndv5": lambda: join(load_profile("ndv5"), 2),
    "4x ndv5": lambda: join(load_profile("ndv5"), 4),
    "2x a100x8-roce": lambda: join(load_profile("a100x8-roce"), 2),
    "torus-4x4": lambda: torus(4, 4),
}


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the solvers that it ran."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def print_frontier(only: str) -> None:
    """Print the frontier of each collective on one DGX-1."""
    cp_sat()
    topology = REFERENCE_FABRICS["dgx1"]()
    network = sketch_network(full_mesh(topology), topology)
    print("DGX-1, 8 GPUs; a round is a chunk over one NVLink")
    print(
        f"{'':<11}{'steps':>6}{'rounds':>7}{'chunks':>7}{'proved':>8}"
        f"{'wall s':>8}{'CPU s':>7}{'SCCL s':>8}"
    )
    for name, most in _FRONTIERS.items():
        if only not in name:
            continue

        def instance(chunks: int, name: str = name) -> Instance:
            return instance_of(Collective(name, topology.ranks), chunks, network, chunks)[0]

        begun, cpu = time.perf_counter(), cpu_seconds()
        for point in frontier(instance, most, Budget(seconds=120.0, effort=2.0)):
            assert schedule_fault(instance(point.chunks), point.schedule) is None
            shape = (point.steps, point.rounds, point.chunks)
            peer = _SCCL_SECONDS.get(shape) if name == "allgather" else None
            print(
                f"{name:<11}{shape[0]:>6}{shape[1]:>7}{shape[2]:>7}"
                f"{'yes' if point.schedule.optimal else 'no':>8}"
                f"{time.perf_counter() - begun:>8.2f}{cpu_seconds() - cpu:>7.2f}{peer or '':>8}",
                flush=True,
            )


def print_hops(only: str) -> None:
    """Print messages in a row at 1 KB over the fewest that trees need."""
    print(f"{'hops (D) at 1 KB':<17}" + "".join(f"{name:>16}" for name in COLLECTIVES))
    for name, make in REFERENCE_FABRICS.items():
        if only not in name:
            continue
        topology = with_compared_latencies(make())
        cells = []
        for collective in (Collective(each, topology.ranks) for each in COLLECTIVES):
            try:
                schedule = make_schedule(
                    Problem(collective, full_mesh(topology), 1, 1 << 10, topology), "fewstep"
                )
                assert verify(lower(schedule), "executor", collective.root).ok
                cells.append(f"{longest_chain(schedule)} ({hop_bound(topology, collective)})")
            except TucclError:
                cells.append("-")
        print(f"{name:<17}" + "".join(f"{cell:>16}" for cell in cells), flush=True)


def print_profiles(only: str) -> None:
    """Print few steps next to all other methods on the profiles."""
    print("simulated us, LL, one channel")
    for machine, make in _MACHINES.items():
        topology = make()
        for name in COLLECTIVES[:5]:
            for nbytes in (1 << 10, 1 << 13, 1 << 16):
                if only in f"{machine} {name}":
                    print(profile_line(topology, machine, name, nbytes), flush=True)


def profile_line(topology: Topology, machine: str, name: str, nbytes: int) -> str:
    """Return one comparison in a line."""
    found = synthesize_best(
        Target(topology, Collective(name, topology.ranks), nbytes, machine_of(topology)),
        Candidates(
            candidate_sketches(topology, name, nbytes),
            [Knobs("LL", 1, 512)],
            [m for m in searched_methods(unordered=True) if m != "greedy" or topology.ranks <= 16],
            chunk_counts=(1, 2),
        ),
    ).programs
    few = next((each for each in found if each.method == "fewstep"), None)
    other = next(each for each in found if each.method != "fewstep")
    gain = f"{other.time_us / few.time_us:6.3f}" if few else "     -"
    return f"{machine:<15}{name:<15}{nbytes:>6}  gain {gain}  {summary(few)}  {summary(other)}"


def summary(found: SynthesizedProgram | None) -> str:
    """Return a program's method, sketch, hops and time."""
    if found is None:
        return f"{'none':<44}"
    return f"{found.method + ' on ' + found.sketch:<30}{found.hops:>3} hops{found.time_us:>9.2f}"


def main() -> None:
    """Print the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = {"frontier": print_frontier, "hops": print_hops, "profiles": print_profiles}
    parser.add_argument("--part", choices=parts, help="one of three")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    args = parser.parse_args()
    for name, part in parts.items():
        if args.part in (None, name):
            part(args.only)


if __name__ == "__main__":
    publish(main, "Simulated")
