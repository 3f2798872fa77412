"""Prints how well the simulator knows an emulated network after a few measured runs.

    python benchmarks/emulated_simulation.py [--keep RUNS.json] [--seconds S] [-o CLASS.json]

Measures programs of several methods between real processes on emulated clusters, fits the class
`emulated` to those of the fit set, and predicts the others: other collectives, other clusters.
Prints the mean error at 1 MB and more (mark: 15 %) and how often the faster of two programs for one
call is named, where they differ by more than 10 % (mark: 95 %); then the same of the runs whose
repeats lie within 15 % (steady). Needs root; run it alone on the machine. `--keep` writes the
measured times, or reads them if the file is there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

import msgspec
from report import publish

from tuccl.emulation import Emulation, emulated_cluster, emulated_network, emulated_topology
from tuccl.emulation.executor import EmulatedExecutor
from tuccl.errors import Infeasible
from tuccl.eval import Trial, fit
from tuccl.eval.calibrate import Case, predict
from tuccl.eval.calibration_runs import emulated_case
from tuccl.program import Knobs, parse_xml, to_xml
from tuccl.runtime import ConfiguredProgram, Effort, Timing, find_mpi
from tuccl.runtime.executors.paired_timing import paired_timings
from tuccl.sketches import candidate_sketches
from tuccl.synth import Collective, ScheduleChoice
from tuccl.topology import (
    Topology,
    encode_machine,
    join,
    keep_gpus,
    load_profile,
    machine_class,
    read_machine,
)
from tuccl.tuning.programs import ProgramCache

COLLECTIVES = ("allreduce", "allgather", "reduce-scatter", "alltoall", "broadcast")
SIZES = (1 << 20, 4 << 20)
KNOBS = (Knobs("Simple", 1), Knobs("Simple", 4), Knobs("LL", 2))
PROGRAMS = 4  # of a call
FIT = (("2x4 200", "allreduce"), ("2x4 1000", "allreduce"), ("4x2 1000", "allgather"))
ROUNDS = 5
STEADY = 0.15  # most spread of the repeats of a run that no other work disturbed much


class Run(msgspec.Struct, frozen=True):
    """A program on an emulated cluster and its measured time in us."""

    cluster: str
    collective: str
    method: str
    nbytes: int
    protocol: str
    program: str
    us: float
    spread: float


def hosts(count: int, ranks: int) -> Topology:
    """Return ``count`` hosts of ``ranks`` ranks and a NIC of 12.5 GB/s each."""
    return join(keep_gpus(load_profile("ndv2"), list(range(ranks))), count)


def lopsided() -> Topology:
    """Return 4 hosts of 2 ranks, the last two with NICs of a fifth of the rate."""
    even = hosts(4, 2)
    slow = ("n2/", "n3/")

    def narrowed(link: msgspec.Struct) -> msgspec.Struct:
        ends = (link.src, link.dst)  # type: ignore[attr-defined]
        if link.kind != "network" or not any(e.startswith(slow) for e in ends):  # type: ignore[attr-defined]
            return link
        return msgspec.structs.replace(link, bandwidth=link.bandwidth / 5)  # type: ignore[attr-defined]

    links = tuple(narrowed(link) for link in even.links)
    nodes = tuple(
        msgspec.structs.replace(n, port_gbs=n.port_gbs / 5)
        if n.port_gbs is not None and n.id.startswith(slow)
        else n
        for n in even.nodes
    )
    return msgspec.structs.replace(even, name="lopsided 4x2", nodes=nodes, links=links)


CLUSTERS = {
    "2x4 200": (hosts(2, 4), 0.002),
    "2x4 1000": (hosts(2, 4), 0.01),
    "4x2 200": (hosts(4, 2), 0.002),
    "4x2 1000": (hosts(4, 2), 0.01),
    "lopsided": (lopsided(), 0.01),
}


def candidates(
    topology: Topology, name: str, nbytes: int
) -> Iterator[tuple[str, ConfiguredProgram]]:
    """Yield programs of different methods for a call, each with other knobs than the one before."""
    programs = ProgramCache(topology, Collective(name, topology.ranks))
    sketches = candidate_sketches(topology, name, nbytes)
    by_name = {sketch.name: sketch for sketch in sketches}
    seen: set[str] = set()
    methods: set[str] = set()
    for choice in choices_by_method(list(programs.choices(sketches, nbytes))):
        knobs = KNOBS[len(seen) % len(KNOBS)]
        try:
            proven = programs.program(
                by_name[choice.sketch], choice, nbytes, knobs.protocol, knobs.channels
            )
        except Infeasible:
            continue
        if proven.checksum not in seen and choice.method not in methods:
            seen.add(proven.checksum)
            methods.add(choice.method)
            yield choice.method, ConfiguredProgram(proven.program.replace(in_place=False), knobs)


def choices_by_method(choices: list[ScheduleChoice]) -> list[ScheduleChoice]:
    """Return the choices of each method in turn, so that a few of them are of many methods."""
    turns: dict[str, int] = {}
    order = []
    for choice in choices:
        order.append((turns.setdefault(choice.method, 0), choice))
        turns[choice.method] += 1
    return [choice for _, choice in sorted(order, key=lambda pair: pair[0])]


def measured(cluster: str, seconds: float) -> Iterator[Run]:
    """Yield the runs of one cluster: all programs of all calls in turns, round by round."""
    topology, scale = CLUSTERS[cluster]
    with (
        Emulation(topology, scale) as emulation,
        EmulatedExecutor(emulation, find_mpi(), effort=Effort(warmup=1, runs=1)) as executor,
    ):
        calls = [
            (
                collective,
                nbytes,
                list(candidates(emulation.topology, collective, nbytes))[:PROGRAMS],
            )
            for collective in COLLECTIVES
            for nbytes in SIZES
        ]
        rounds: list[list[list[Timing]]] = [[] for _ in calls]
        until = time.monotonic() + seconds
        for at in list(range(len(calls))) * ROUNDS:
            if rounds[at] and time.monotonic() > until:
                break
            _, nbytes, found = calls[at]
            rounds[at].append(paired_timings(executor, [e for _, e in found], nbytes))
    for at, (collective, nbytes, found) in enumerate(calls):
        for which, (method, candidate) in enumerate(found):
            samples = [one[which].us for one in rounds[at]]
            yield Run(
                *(cluster, collective, method, nbytes, candidate.knobs.protocol),
                to_xml(candidate.program, "executor"),
                median(samples),
                (max(samples) - min(samples)) / median(samples),
            )


def trials(runs: list[Run]) -> list[Trial]:
    """Return the runs as the simulator takes them, a trial a cluster."""
    out = []
    for cluster in dict.fromkeys(run.cluster for run in runs):
        topology, scale = CLUSTERS[cluster]
        emulated = emulated_topology(topology, emulated_cluster(topology, scale))
        cases = tuple(
            emulated_case(Case(parse_xml(r.program, r.method), Knobs(r.protocol), r.nbytes, r.us))
            for r in runs
            if r.cluster == cluster
        )
        out.append(Trial(cluster, emulated_network(emulated), cases, launch="mpi", emulated=True))
    return out


def named_right(runs: list[Run], times_us: list[float]) -> tuple[int, int]:
    """Return (right, all) of the pairs of programs of one call that differ by over 10 %."""
    right = every = 0
    for (a, sim_a), (b, sim_b) in combinations(zip(runs, times_us, strict=True), 2):
        same_call = (a.cluster, a.collective, a.nbytes) == (b.cluster, b.collective, b.nbytes)
        if same_call and max(a.us, b.us) > 1.1 * min(a.us, b.us):
            every += 1
            right += (a.us < b.us) == (sim_a < sim_b)
    return right, every


def report(title: str, runs: list[Run], times_us: list[float]) -> None:
    """Print the error and the pairs of each cluster, and of all."""
    print(f"# {title}: {len(runs)} runs, simulated against measured")
    pairs = list(zip(runs, times_us, strict=True))
    clusters = tuple(dict.fromkeys(run.cluster for run in runs))
    for cluster in (*clusters, "all", "steady"):
        mine = [(r, us) for r, us in pairs if cluster in (r.cluster, "all")]
        if cluster == "steady":
            mine = [(r, us) for r, us in pairs if r.spread <= STEADY]
        error = fmean(abs(us / r.us - 1) for r, us in mine)
        bias = fmean(us / r.us - 1 for r, us in mine)
        right, every = named_right([r for r, _ in mine], [us for _, us in mine])
        spread = fmean(r.spread for r, _ in mine)
        print(
            f"{cluster:>9}: mean error {error:5.1%} (bias {bias:+.1%}), faster of two named right "
            f"{right}/{every} = {right / max(every, 1):.1%}, spread of repeats {spread:.0%}"
        )


def main() -> None:
    """Measure or read, fit, predict, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, metavar="RUNS.json")
    parser.add_argument("--seconds", type=float, default=80.0, help="of a cluster (default 80)")
    parser.add_argument("-o", "--output", type=Path, metavar="CLASS.json")
    parser.add_argument("--each", action="store_true", help="print every run")
    args = parser.parse_args()
    begin = time.monotonic()
    if args.keep and args.keep.exists():
        runs = msgspec.json.decode(args.keep.read_bytes(), type=list[Run])
    else:
        runs = []
        for cluster in CLUSTERS:
            runs += measured(cluster, args.seconds)
            print(f"# {cluster}: {len(runs)} runs, {time.monotonic() - begin:.0f} s", flush=True)
        if args.keep:
            args.keep.write_bytes(msgspec.json.encode(runs))
    seen = [run for run in runs if (run.cluster, run.collective) in FIT]
    unseen = [run for run in runs if (run.cluster, run.collective) not in FIT]
    found = fit(trials(seen), read_machine("emulated"))
    if args.output:
        args.output.write_bytes(encode_machine(found.machine))
    machine = machine_class(found.machine)
    for title, part in (("fit set", seen), ("test set", unseen)):
        times_us = [us for trial in trials(part) for us in predict(trial, machine)]
        report(title, part, times_us)
        if args.each:
            for r, us in zip(part, times_us, strict=True):
                print(
                    f"{r.cluster:>9} {r.collective:14} {r.nbytes >> 20:2}M "
                    f"{r.method:22} {r.protocol:6} "
                    f"{r.us / 1e3:9.1f} ms measured {us / 1e3:9.1f} simulated {us / r.us - 1:+.0%} "
                    f"(spread {r.spread:.0%})"
                )
    print("# marks: mean error at most 15 %, at least 95 % of pairs named right")


if __name__ == "__main__":
    publish(main, "Simulated against measured, on network namespaces")
