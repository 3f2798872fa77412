"""Prints what `packing` makes of the fabrics on which published synthesizers are compared.

    .venv/bin/python benchmarks/packing.py

`emitted` is the algbw that the busiest link of the lowered, verified program allows, from the bytes
that the simulator counts on each link, as a part of the cut bound. `at 8 GiB` is the simulated
algbw on a machine without overheads; `class` is that at 1 GiB by the best knobs, with all costs of
the machine's class, over what the class allows (class_allowance.py). Peers' figures are constants,
as measured by others.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from report import publish

from class_allowance import share_of_allowance
from reference_fabrics import REFERENCE_FABRICS, host_line
from tuccl.program import Knobs, Program, verify
from tuccl.simulation import simulate
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, Schedule, bound, lower, make_schedule
from tuccl.synth.bounds.hops import hop_bound, longest_chain
from tuccl.synth.packing.packing import packing_chunks
from tuccl.topology import Topology, join, load_machine, load_profile, network

_NAMES = ("allgather", "reduce-scatter", "allreduce")
# ForestColl 3c13aee: part of the bound and deepest tree of the allgather that its public writer can
# emit, thread blocks of its allgather and allreduce, and seconds on 2 cores. TACOS v1.3.0: best
# allgather of up to 50 restarts and 1 to 32 chunks. SCCL: msccl-tools 030a750.
_PEERS = {
    "dgx1": "ForestColl 0.778, chain 4, 11/21 blocks; TACOS 0.980; SCCL 1.000, chain 3 in 18.7 s",
    "2x-ndv2": "ForestColl 1.000, chain 5, 50/99 blocks; TACOS 0.990",
    "a100": "ForestColl 1.000, chain 7, 12/23 blocks; TACOS 1.000",
    "2x-a100": "ForestColl 0.989, chain 8, 25/49 blocks, 1.5 s; TACOS 0.874",
    "4x-a100": "ForestColl 1.000, chain 18, 47/93 blocks, 19.3 s; TACOS 0.880",
    "torus-4x4": "ForestColl 0.938, chain 7, 25/49 blocks; TACOS 0.999",
    "torus-8x8": "ForestColl 0.984, chain 16, 90 blocks (allreduce fails), 23.3 s; TACOS 0.983",
}


@dataclass(frozen=True)
class Made:
    """A program, its schedule, and what making it took."""

    schedule: Schedule
    program: Program
    seconds: float


def made(topology: Topology, collective: Collective) -> Made:
    """Return the verified program; the sketch and the choice of chunks count as well."""
    begun = time.perf_counter()
    mesh = full_mesh(topology)
    [chunks] = packing_chunks(collective, mesh, topology)
    schedule = make_schedule(Problem(collective, mesh, chunks, 1 << 30, topology), "packing")
    program = lower(schedule)
    report = verify(program, "executor", collective.root)
    if not report.ok:
        sys.exit(f"{topology.name} {collective.name}: {report.errors[0].message}")
    return Made(schedule, program, time.perf_counter() - begun)


def line(fabric: str, topology: Topology, collective: Collective) -> str:
    """Return one line of the table."""
    found = made(topology, collective)
    program = found.program
    nbytes = -(-(8 << 30) // program.nchunks) * program.nchunks
    network_ = network(topology)
    run = simulate(
        program,
        Knobs("Simple", 1, 512),
        network_,
        load_machine("ideal"),
        nbytes,
    )
    passes = zip(run.resource_bytes, network_.resources, strict=True)
    busiest_us = max(carried / resource.bandwidth_gbs / 1e3 for carried, resource in passes)
    limit = bound(topology, collective).algbw_gbs
    blocks = max(len(gpu.threadblocks) for gpu in program.gpus)
    return (
        f"{fabric:<11}{collective.name:<15}{limit:>9.2f}{nbytes / busiest_us / 1e3 / limit:>9.4f}"
        f"{nbytes / run.time_us / 1e3 / limit:>10.3f}"
        f"{share_of_allowance(topology, collective):>7.3f}"
        f"{longest_chain(found.schedule):>6} ({hop_bound(topology, collective)})"
        f"{blocks:>8}{program.max_steps:>7}{found.schedule.chunks_per_rank:>8}{found.seconds:>9.2f}"
    )


_HEAD = (
    f"{'fabric':<11}{'collective':<15}{'bound':>9}{'emitted':>9}{'at 8 GiB':>10}"
    f"{'class':>7}{'chain':>6} (D){'blocks':>8}{'steps':>7}{'chunks':>8}{'seconds':>9}"
)


def fabrics() -> None:
    """Print the reference fabrics, one where choosing roots wins, and two hosts of 16 GPUs."""
    print("bounds in GB/s; at 8 GiB: simulated; chain: messages in a row, D the fewest possible")
    print(_HEAD)
    for name, build in REFERENCE_FABRICS.items():
        topology = build()
        for collective in _NAMES:
            print(line(name, topology, Collective(collective, topology.ranks)), flush=True)
        print(f"{'':<11}peers: {_PEERS[name]}")
    topology = host_line()
    for collective in _NAMES:
        print(line("host line", topology, Collective(collective, topology.ranks)), flush=True)
    halves = bound(topology, Collective("allgather", topology.ranks)).algbw_gbs / 2
    print(f"{'':<11}reduce-scatter and allgather, with equal roots, allow {halves:.2f} GB/s")
    topology = join(load_profile("dgx-2"), 2)
    for collective in _NAMES:
        print(line("2x-dgx-2", topology, Collective(collective, topology.ranks)), flush=True)


def main() -> None:
    """Print the tables."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    fabrics()


if __name__ == "__main__":
    publish(main, "Simulated")
