"""The simulator of MSCCL++ against the figures that its authors published.

    python benchmarks/mscclpp_anchors.py [--plans FOLDER] [--write]

Each row is a call with its published time and the simulated time of a plan that does what ran: the
plans of mscclpp_kernels.py for native kernels of large arrays, ours of the same algorithm for the
rest, and for figures of plans written in MSCCL++'s language these plans, where FOLDER has them
(python -m mscclpp writes default/allreduce_2nodes_*.json). Rows marked "fit" were looked at when
constants were set; the error of all others is a check.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from mscclpp_kernels import allreduce_kernel
from report import publish

from tuccl.errors import InputError
from tuccl.mscclpp import ExecutionPlan
from tuccl.runtime.executors.plan_sim import PlanSimulator
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, lower, make_schedule
from tuccl.synth.mscclpp.knobs import PlanKnobs
from tuccl.synth.mscclpp.lower import lower_to_plan
from tuccl.synth.mscclpp.switch import Multicast, switch_plan
from tuccl.topology import Topology, join, load_profile
from tuccl.units import format_bytes

LARGE = 64 << 10
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
TOP = (1 << 32) - 1

PERF_A100 = "test/deploy/perf_ndmv4.jsonl"
PERF_H100 = "test/deploy/perf_ndmv5.jsonl"
CHART = "chart of the DSL"
SGLANG = "SGLang #22734, CUDA graph"


@dataclass(frozen=True)
class Anchor:
    """A published time of a call, and how it ran."""

    profile: str
    hosts: int
    collective: str
    nbytes: int
    us: float
    kind: str
    source: str
    fit: bool = False


ANCHORS = (
    Anchor("ndv4", 1, "allreduce", 8 * KIB, 6.51, "packets", PERF_A100, fit=True),
    Anchor("ndv4", 1, "allreduce", 24 * KIB, 7.24, "packets", PERF_A100),
    Anchor("ndv4", 1, "allreduce", 48 * KIB, 7.91, "packets", PERF_A100, fit=True),
    Anchor("ndv4", 1, "allreduce", 72 * KIB, 8.28, "packets", PERF_A100),
    Anchor("ndv4", 1, "allreduce", 16 * MIB, 156.81, "kernel", PERF_A100),
    Anchor("ndv4", 1, "allreduce", 32 * MIB, 288.65, "kernel", PERF_A100),
    Anchor("ndv4", 1, "allreduce", 48 * MIB, 397.79, "kernel", PERF_A100),
    Anchor("ndv4", 1, "allreduce", GIB, 7701.98, "kernel", PERF_A100, fit=True),
    Anchor("ndv4", 1, "allgather", GIB, 3683.13, "puts", PERF_A100),
    Anchor("ndv4", 1, "alltoall", GIB, 3887.87, "puts", PERF_A100),
    Anchor("ndv4", 2, "allreduce", 8 * KIB, 18.42, "DSL", PERF_A100, fit=True),
    Anchor("ndv4", 2, "allreduce", 24 * MIB, 311.28, "kernel", PERF_A100),
    Anchor("ndv4", 2, "allreduce", 48 * MIB, 517.43, "kernel", PERF_A100),
    Anchor("ndv4", 2, "allreduce", 3 * GIB, 25565.46, "kernel", PERF_A100),
    Anchor("ndv4", 2, "allgather", 3 * GIB, 13168.31, "hierarchy", PERF_A100),
    Anchor("ndv4", 2, "alltoall", GIB, 23071.5, "puts", PERF_A100),
    Anchor("ndv5", 1, "allreduce", 24 * KIB, 6.18, "packets", PERF_H100),
    Anchor("ndv5", 1, "allreduce", 48 * KIB, 6.62, "packets", PERF_H100, fit=True),
    Anchor("ndv5", 1, "allreduce", 72 * KIB, 6.91, "packets", PERF_H100),
    Anchor("ndv5", 1, "allreduce", 2 * KIB, 5.9, "packets", SGLANG),
    Anchor("ndv5", 1, "allreduce", 64 * KIB, 8.2, "packets", SGLANG),
    Anchor("ndv5", 1, "allreduce", MIB, 14.0, "switch, copied", SGLANG),
    Anchor("ndv5", 1, "allreduce", KIB, 6.5, "switch", CHART),
    Anchor("ndv5", 1, "allreduce", MIB, 10.3, "switch", CHART),
    Anchor("ndv5", 1, "allreduce", 16 * MIB, 68.2, "switch", CHART),
    Anchor("ndv5", 1, "allreduce", GIB, 3904.5, "switch", CHART),
    Anchor("ndv5", 2, "allreduce", 4 * KIB, 16.5, "DSL", CHART, fit=True),
    Anchor("ndv5", 2, "allreduce", 128 * KIB, 20.0, "DSL", CHART),
    Anchor("ndv5", 2, "allreduce", MIB, 34.5, "DSL", CHART),
    Anchor("ndv5", 2, "allreduce", 8 * KIB, 15.1, "DSL", PERF_H100),
    Anchor("ndv5", 2, "allreduce", 24 * MIB, 212.39, "kernel", PERF_H100),
    Anchor("ndv5", 2, "allreduce", 48 * MIB, 363.4, "kernel", PERF_H100),
    Anchor("ndv5", 2, "allreduce", 3 * GIB, 15989.38, "kernel", PERF_H100),
    Anchor("ndv5", 2, "allgather", 3 * GIB, 7480.4, "hierarchy", PERF_H100),
    Anchor("ndv5", 2, "alltoall", GIB, 11076.24, "puts", PERF_H100),
)


def topology(profile: str, hosts: int) -> Topology:
    """Return so many hosts of a known machine, on one switch."""
    one = load_profile(profile)
    return one if hosts == 1 else join(one, hosts, "single")


def ours(
    anchor: Anchor, machine: Topology, method: str, knobs: PlanKnobs, instances: int = 1
) -> ExecutionPlan:
    """Return our plan of a method, in the form that it has for large arrays."""
    collective = Collective(anchor.collective, machine.ranks)
    problem = Problem(collective, full_mesh(machine), 1, MIB, machine)
    program = lower(make_schedule(problem, method), instances=instances)
    return lower_to_plan(
        program, knobs, hosts=anchor.hosts, in_place=program.in_place, max_bytes=TOP
    )


def plan_of(anchor: Anchor, machine: Topology, folder: Path | None) -> ExecutionPlan | None:
    """Return what ran, as far as we know; None: the folder lacks it."""
    ranks, hosts = machine.ranks, anchor.hosts
    pieces = PlanKnobs(unit_bytes=MIB)
    group = PlanKnobs(group_size=4)
    kinds: dict[str, Callable[[], ExecutionPlan]] = {
        "packets": lambda: ours(
            anchor, machine, "allpairs", PlanKnobs("LL", threads=512, group_size=4)
        ),
        "kernel": lambda: allreduce_kernel(ranks, hosts, lanes=24, unit_bytes=LARGE),
        "puts": lambda: ours(anchor, machine, "allpairs", group if hosts == 1 else pieces),
        "hierarchy": lambda: ours(
            anchor, machine, "hierarchical2", PlanKnobs(unit_bytes=256 * KIB), instances=4
        ),
        "switch": lambda: switch_plan(
            Multicast("allreduce", ranks, through_scratch=False), max_bytes=TOP
        ),
        "switch, copied": lambda: switch_plan(
            Multicast("allreduce", ranks, blocks=32), max_bytes=GIB
        ),
    }
    if anchor.kind != "DSL":
        return kinds[anchor.kind]()
    name = f"allreduce_{hosts}nodes_{'1K_64K' if anchor.nbytes <= LARGE else '128K_2M'}.json"
    path = folder / name if folder else None
    if path is None or not path.is_file():
        return None
    return ExecutionPlan.parse(path.read_bytes(), name)


def main() -> None:
    """Print a row an anchor and the mean errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=Path, help="folder of MSCCL++'s own default plans")
    args = parser.parse_args()
    errors: dict[tuple[str, int], list[float]] = defaultdict(list)
    print(
        f"{'machine':9} {'collective':10} {'size':>7} {'what ran':15} {'us':>9} {'sim us':>9} error"
    )
    for anchor in ANCHORS:
        machine = topology(anchor.profile, anchor.hosts)
        plan = plan_of(anchor, machine, args.plans)
        gpus = "A100" if anchor.profile == "ndv4" else "H100"
        row = f"{machine.ranks:2}x {gpus:5} {anchor.collective:10} {format_bytes(anchor.nbytes):>7}"
        row += f" {anchor.kind:15} {anchor.us:9.1f}"
        if plan is None:
            print(f"{row}         - no plan: give --plans   {anchor.source}")
            continue
        simulator = PlanSimulator(machine)
        step = plan.buffer_alignment * max(plan.gpus[0].input_chunks, plan.gpus[0].output_chunks)
        try:
            us = simulator.run(plan, -(-anchor.nbytes // step) * step).time_us
        except InputError as error:
            print(f"{row}         - {error}")
            continue
        error = us / anchor.us - 1
        print(f"{row} {us:9.1f} {error:+6.1%} {'fit  ' if anchor.fit else 'check'} {anchor.source}")
        if anchor.nbytes >= LARGE:
            errors[gpus, machine.ranks].append(abs(error))
    print("\nmean error from 64 KiB on:")
    for (gpus, ranks), some in errors.items():
        print(f"  {ranks:2}x {gpus}: {mean(some):.1%} of {len(some)} rows, worst {max(some):.1%}")


if __name__ == "__main__":
    publish(main, "Simulated, against published times")
