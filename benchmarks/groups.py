"""Process groups that call at once, simulated: against published runs, and NCCL beside programs.

    .venv/bin/python benchmarks/groups.py [PROFILE ...] [--write]

First NVIDIA/nccl issue 820 (8 groups of 2 A100, two of them on one NIC) and a table of MI300X (8
groups of 2, two a NIC), from ../shared/data/groups: times measured by others, beside simulated
ones, whose constants were fitted to none of them. Then groups of layouts on machines: NCCL's own
choice, tables tuned for a group alone, and tables tuned with all groups of the kind at once, as
`tuccl tune --layout` makes them, all timed with all groups at once, and the bound on that.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import geometric_mean, median

import msgspec
from report import ROOT, publish

from tuccl.cli.output import columns
from tuccl.errors import Infeasible
from tuccl.groups.bounds import joint_bound_us
from tuccl.groups.concurrent import (
    Choose,
    ConcurrentTime,
    nccl_choice,
    table_choice,
    time_groups,
)
from tuccl.groups.equivalence import group_orbits
from tuccl.groups.layout import Groups, ProcessGroups, megatron_groups, mesh_groups
from tuccl.runtime import NCCL_VERSION, ConfiguredProgram, Table
from tuccl.runtime.baseline.nccl_call import nccl_call
from tuccl.runtime.nccl.choice import nccl_choice as runtime_choice
from tuccl.synth import Collective
from tuccl.topology import Topology, join, load_profile, machine_of
from tuccl.tuning import TuneOptions
from tuccl.tuning.job_search import Concurrent, tune_job
from tuccl.units import format_bytes

DATA = ROOT.parent / "shared/data/groups"
PAIRS: Groups = tuple((local, local + 8) for local in range(8))
MACHINES = ("dgx-h100", "dgx-a100", "v100x4", "ndv2")
HOSTS = 4
SIZES = (1 << 20, 16 << 20, 256 << 20)
LEAST_SIZE_OF_BOUND = 256 << 20
VERSION = NCCL_VERSION
ARMS: tuple[Concurrent, ...] = ("none", "kind")


def timed(
    topology: Topology, groups: Groups, collective: str, nbytes: int, choose: Choose
) -> ConcurrentTime:
    """Return the times of groups of one kind."""
    return time_groups(topology, groups, group_orbits(topology, groups), collective, nbytes, choose)


def without(topology: Topology, nodes: Sequence[str]) -> Topology:
    """Return the machine without some nodes."""
    return msgspec.structs.replace(
        topology,
        nodes=tuple(node for node in topology.nodes if node.id not in nodes),
        links=tuple(e for e in topology.links if not {e.src, e.dst} & set(nodes)),
        routes=tuple(route for route in topology.routes if not set(route.via) & set(nodes)),
    )


def rows_of(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a table of published times."""
    with (DATA / name).open() as file:
        yield from csv.DictReader((e for e in file if not e.startswith("#")), delimiter="\t")


def print_issue_820() -> None:
    """Print the two classes of groups of issue 820."""
    topology = without(join(load_profile("dgx-a100"), 2), ("n0/nic1", "n1/nic1"))
    times: dict[bool, list[float]] = {True: [], False: []}
    for row in rows_of("nccl820_a100_8groups_2hosts.tsv"):
        times[int(row["local_rank"]) < 2].append(float(row["seconds"]))
        nbytes = int(row["bytes"])
    rows = []
    for what, groups, measured in (
        ("two groups on one NIC", PAIRS[:2], times[True]),
        ("six with a NIC each", PAIRS[2:], times[False]),
    ):
        found = timed(topology, groups, "allreduce", nbytes, nccl_choice("2.17"))
        mean = sum(measured) / len(measured)
        rows.append([what, f"{mean:.3f}", f"{found.together_us / 1e6:.3f}"])
    ratio = [float(rows[0][n]) / float(rows[1][n]) for n in (1, 2)]
    rows.append(["ratio", *(f"{each:.2f}" for each in ratio)])
    print("\nNVIDIA/nccl issue 820: 2 x 8 A100, allreduce of 5.3 GB by 8 groups of 2, seconds")
    print(columns(["groups", "measured there", "simulated"], rows))
    print(f"the ratio is {abs(ratio[1] / ratio[0] - 1):.1%} off (mark 10 %)")


def rccl_choice(part: Topology, collective: str, nbytes: int) -> ConfiguredProgram:
    """Return RCCL's choice with as many channels as the report allows (NCCL_MAX_NCHANNELS)."""
    choice = runtime_choice(part, collective, nbytes, "2.22", channels=16)
    return nccl_call(part, Collective(collective, part.ranks), nbytes, choice)


def print_mi300x() -> None:
    """Print the sizes of the MI300X table from 1 MiB on."""
    host = without(load_profile("mi300x"), ("nic1", "nic3", "nic5", "nic7"))
    topology = join(host, 2)
    rows, close = [], 0
    for row in rows_of("mi300x_split0x7_allreduce.tsv"):
        nbytes, measured = int(row["bytes"]), float(row["uniform_oop_us"])
        if 1 << 20 <= nbytes <= 4 << 30:
            found = timed(topology, PAIRS, "allreduce", nbytes, rccl_choice)
            ratio = found.together_us / measured
            close += 1 / 1.2 <= ratio <= 1.2
            rows.append(
                [format_bytes(nbytes), measured, found.together_us, f"{ratio:.2f}", found.choice]
            )
    print("\nMI300X: 2 x 8, allreduce by 8 groups of 2, two a NIC, us (uniform, out of place)")
    print(columns(["bytes", "measured there", "simulated", "ratio", "choice"], rows))
    print(f"{close} of {len(rows)} sizes within 20 %")


def calls(topology: Topology) -> Iterator[tuple[str, ProcessGroups, str, str]]:
    """Yield (layout, its groups, kind, collective) for a machine."""
    host = topology.ranks // len(topology.hosts)
    layouts = {
        f"tp={host}": ("dp:allreduce", "dp:reduce-scatter", "dp:allgather", "tp:allreduce"),
        f"tp={host // 2},cp=2": ("dp:reduce-scatter", "cp:allgather", "tp:allgather"),
        f"ep={host}": ("ep:alltoall", "edp:reduce-scatter"),
    }
    for layout, names in layouts.items():
        job = megatron_groups(layout, topology.ranks)
        for name in names:
            kind, collective = name.split(":")
            yield layout, job, kind, collective
    mesh = f"replicate={len(topology.hosts)},shard={host}"
    yield mesh, mesh_groups(mesh, topology.ranks), "replicate", "allreduce"


def tables_of(
    topology: Topology, job: ProcessGroups, kind: str, collective: str, concurrent: Concurrent
) -> dict[Topology, Table]:
    """Return a tuned table for each part of the groups of a kind that are alike."""
    with tempfile.TemporaryDirectory() as place:
        options = TuneOptions(nccl_version=VERSION)
        call = [(kind, collective)]
        _, tables = tune_job(
            topology, job, call, SIZES, options, path=Path(place, "job"), concurrent=concurrent
        )
    return {table.topology: table for table in tables}


def at_efficiency(topology: Topology) -> Topology:
    """Return the machine with the rates that the simulator's links carry of their nominal ones."""
    machine = machine_of(topology)
    part = {
        "pcie": machine.pcie_efficiency,
        "cpu": machine.cpu_efficiency,
        "network": machine.network_efficiency,
        **dict.fromkeys(("nvlink", "xgmi", "c2c"), machine.nvlink_efficiency),
    }
    links = (
        msgspec.structs.replace(link, bandwidth=link.bandwidth * part.get(link.kind, 1.0))
        for link in topology.links
    )
    return msgspec.structs.replace(topology, links=tuple(links))


def print_layouts() -> None:
    """Print the times of groups on machines: NCCL's, and of tables tuned alone or at once."""
    rows: list[list[object]] = []
    gains, regrets, near, carried, slower = [], [], [], [], 0
    for profile in sys.argv[1:] or MACHINES:
        topology = join(load_profile(profile), HOSTS)
        for layout, job, kind, collective in calls(topology):
            groups = job.kind(kind).groups
            orbits = group_orbits(topology, groups)
            name = [f"{HOSTS}x {profile}", layout, f"{kind}:{collective}"]
            try:
                arms = [nccl_choice(VERSION)]
                for concurrent in ARMS:
                    tables = tables_of(topology, job, kind, collective, concurrent)
                    arms.append(table_choice(tables, VERSION))
            except Infeasible as error:
                rows.append([*name, "all", *["-"] * 8, str(error)[:40]])
                continue
            for nbytes in SIZES:
                call = topology, groups, orbits, collective, nbytes
                try:
                    own, idle, tuned = (time_groups(*call, choose) for choose in arms)
                except Infeasible as error:
                    rows.append([*name, format_bytes(nbytes), *["-"] * 8, str(error)[:40]])
                    continue
                gain, regret = (each.together_us / tuned.together_us for each in (own, idle))
                gains.append(gain)
                regrets.append(regret)
                slower += min(gain, regret) < 0.99
                less = joint_bound_us(at_efficiency(topology), groups, collective, nbytes)
                if nbytes >= LEAST_SIZE_OF_BOUND:
                    near.append(tuned.bound_us / tuned.together_us)
                    carried.append(less / tuned.together_us)
                rows.append(
                    [
                        *name,
                        format_bytes(nbytes),
                        f"{own.slowdown:.2f}",
                        *(f"{each.together_us:.0f}" for each in (own, idle, tuned)),
                        *(f"{each:.2f}" for each in (gain, regret)),
                        f"{tuned.bound_us / tuned.together_us:.2f}",
                        f"{less / tuned.together_us:.2f}",
                        tuned.choice,
                    ]
                )
    print("\nAll groups of a kind at once, us, simulated; at once/alone: how many times as long as")
    print("one group alone by NCCL's choice; tables tuned for a group alone, and for all at once")
    head = ["machine", "layout", "call", "bytes", "at once/alone", "NCCL", "tuned alone"]
    print(
        columns([*head, "at once", "gain", "over alone", "of bound", "of carried", "choice"], rows)
    )
    print(
        f"tables tuned at once over NCCL's choice: geometric mean {geometric_mean(gains):.2f} of "
        f"{len(gains)}, {min(gains):.2f} to {max(gains):.2f}; over tables tuned alone "
        f"{geometric_mean(regrets):.3f}, {min(regrets):.2f} to {max(regrets):.2f}; slower than "
        f"either by over 1 % in {slower} (mark 0); 0.95 of the joint bound from 256M on in "
        f"{sum(each >= 0.95 for each in near)} of {len(near)} (mark 90 %), median "
        f"{median(near):.2f}; of the bound on what links carry in the simulator (of carried) in "
        f"{sum(each >= 0.95 for each in carried)}, median {median(carried):.2f}"
    )


def main() -> None:
    """Print all tables."""
    if DATA.is_dir():
        print_issue_820()
        print_mi300x()
    else:
        print(f"{DATA.name}: no published times here")
    print_layouts()


if __name__ == "__main__":
    publish(main, "Simulated, beside times that others measured")
