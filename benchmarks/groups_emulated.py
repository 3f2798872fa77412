"""Groups of a mesh on emulated hosts: a job's tables against tables tuned alone, and against Gloo.

    sudo .venv/bin/python benchmarks/groups_emulated.py [2x4] [4x2] [--rounds N] [--write]

Hosts times ranks, with uplinks of 200 Mb/s. All groups of a kind make a call at the same time, from
a barrier on: dp over hosts, tp inside each. A time is from the barrier to the end of the last rank,
the median of the rounds; all arms take turns in each round. Tables are tuned in simulation at the
emulated rates, `at once` by `tuccl tune --mesh`, `alone` with `--concurrent none`, and only their
programs are kept, since NCCL's own algorithms have no place here. `beside`: an allreduce of 4 MB by
Gloo over all ranks starts just before. All ranks share this machine's cores: run it alone.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from statistics import geometric_mean

import msgspec
from report import publish

from tuccl.cli.output import columns
from tuccl.emulation import Emulation
from tuccl.eval.measure_groups import GroupTimes, MeasuredCall, measure_groups
from tuccl.groups.concurrent import KindCall
from tuccl.groups.job import JobTables, save_job
from tuccl.groups.layout import Kind, ProcessGroups, mesh_groups
from tuccl.runtime import save_table
from tuccl.topology import Topology, join, keep_gpus, load_profile
from tuccl.tuning import TuneOptions
from tuccl.tuning.job_search import tune_job
from tuccl.units import format_bytes

CLUSTERS = {"2x4": (2, 4), "4x2": (4, 2)}
MBPS, BESIDE_BYTES = 200.0, 4 << 20
CALLS = (("dp", "allreduce"), ("dp", "reduce-scatter"), ("dp", "allgather"), ("tp", "allreduce"))
SIZES = (256 << 10, 4 << 20)
ARMS = ("at once", "alone", "gloo")


def tuned(folder: Path, topology: Topology, groups: ProcessGroups, arm: str) -> None:
    """Tune a job's tables into a folder, and leave only their programs."""
    job, _ = tune_job(
        topology,
        groups,
        CALLS,
        SIZES,
        TuneOptions(budget=60),
        path=folder,
        concurrent="kind" if arm == "at once" else "none",
    )
    entries = []
    for entry in job.entries:
        table = job.table(entry)
        kept = tuple(
            msgspec.structs.replace(
                each,
                candidates=(*(c for c in each.candidates if c.program), each.default),
            )
            for each in table.entries
        )
        lookup = msgspec.structs.replace(table.lookup, entries=kept)
        sealed = save_table(lookup, job.place(entry), table.topology, table.files)
        entries.append(msgspec.structs.replace(entry, checksum=sealed.checksum))
    save_job(JobTables(folder, groups, topology, tuple(entries)))


def measure(cluster: str, rounds: int) -> None:
    """Tune, measure on the emulated hosts, and print."""
    hosts, each = CLUSTERS[cluster]
    topology = join(keep_gpus(load_profile("ndv2"), range(each)), hosts)
    groups = mesh_groups(f"dp={hosts},tp={each}", topology.ranks)
    world = Kind("world", (tuple(range(topology.ranks)),))
    both = msgspec.structs.replace(groups, kinds=(*groups.kinds, world))
    with tempfile.TemporaryDirectory() as place, Emulation(topology, MBPS / 100e3) as emulation:
        tables = {arm: Path(place, arm) for arm in ARMS[:2]}
        for arm, folder in tables.items():
            tuned(folder, emulation.topology, groups, arm)
        print(f"\n# {cluster}: {topology.ranks} ranks on {emulation.label}, {os.cpu_count()} cores")
        calls = [
            MeasuredCall(kind, collective, nbytes, beside)
            for kind, collective in CALLS
            for nbytes in SIZES
            for beside in ((), (KindCall("world", "allreduce", BESIDE_BYTES),))
        ]
        print_times(measure_groups(both, tables, calls, emulation, rounds))


def print_times(found: list[GroupTimes]) -> None:
    """Print the times of each call, and the means of their ratios."""
    rows = []
    gains: dict[str, list[float]] = {arm: [] for arm in ARMS[1:]}
    for row in found:
        ratios = {arm: row.median_us(arm) / row.median_us("at once") for arm in gains}
        for arm, ratio in ratios.items():
            gains[arm].append(ratio)
        call = row.call
        name = [f"{call.kind}:{call.collective}", format_bytes(call.nbytes)]
        times = [f"{row.median_us(arm) / 1e3:.1f} {row.spread(arm):.0%}" for arm in ARMS]
        programs = " ".join(f"{row.programs[arm]:.0%}" for arm in ARMS[:2])
        shown = [*times, *(f"{ratio:.2f}" for ratio in ratios.values()), programs]
        rows.append([*name, "yes" if call.beside else "no", *shown])
    head = ["call", "size", "beside", *(f"{arm} ms" for arm in ARMS)]
    print(columns([*head, "over alone", "over Gloo", "programs"], rows))
    print(
        "geometric means of the time over that of tables tuned at once: "
        + ", ".join(f"{arm} {geometric_mean(each):.2f}" for arm, each in gains.items())
    )


def main() -> None:
    """Measure on each cluster of the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clusters", nargs="*", help="2x4, 4x2; both by default")
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    for cluster in args.clusters or CLUSTERS:
        measure(cluster, args.rounds)


if __name__ == "__main__":
    publish(main, "Measured")
