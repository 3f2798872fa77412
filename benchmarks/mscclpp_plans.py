"""Our plans beside those that MSCCL++ ships, in the same simulator.

    python benchmarks/mscclpp_plans.py --plans FOLDER [--write]

FOLDER holds plans that MSCCL++'s language wrote (its python/mscclpp/language/tests, with --name and
--max_message_size, and default_algos): each for 8 ranks of one host or 16 of two. A row is a
machine, a collective and a placement, at each size the fastest of the shipped plans that take it,
and the fastest of ours: programs of the methods and knobs below, and plans of the switch. Our plans
are proved; shipped ones only run. What cannot be simulated, or is for a placement that our programs
do not have, is said apart.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from mscclpp_anchors import topology
from report import publish

from tuccl.errors import Infeasible, InputError
from tuccl.mscclpp import ExecutionPlan
from tuccl.runtime.executors.plan_sim import PlanSimulator
from tuccl.sketches import full_mesh
from tuccl.synth import (
    PLAN_COLLECTIVES,
    Collective,
    Problem,
    Schedule,
    find_method,
    lower,
    make_schedule,
)
from tuccl.synth.mscclpp.knobs import PlanKnobs
from tuccl.synth.mscclpp.lower import lower_to_plan
from tuccl.synth.mscclpp.switch import Multicast, switch_plan
from tuccl.topology import Topology
from tuccl.units import format_bytes

SIZES = tuple(1 << bits for bits in range(10, 31, 2))
MADE_FOR = (1 << 20, 1 << 12)  # sizes that methods look at
# By hosts: methods with the sizes and the chunks a rank of each.
METHOD_NAMES = {
    1: (("allpairs", (1,)), ("allpairs+paired", (1,))),
    2: (("hierarchical3", (1,)), ("hierarchical2", (1,))),
}
TOP = (1 << 32) - 1
COLLECTIVES = {word: name for name, word in PLAN_COLLECTIVES.items()}
KNOBS = (
    *((PlanKnobs("LL", group_size=k), 1) for k in (1, 4, 8)),
    *((PlanKnobs("LL"), instances) for instances in (2, 4, 6)),
    *((PlanKnobs(group_size=k), 1) for k in (2, 8)),
    *((PlanKnobs(unit_bytes=unit), 4) for unit in (1 << 16, 1 << 19)),
)
Key = tuple[str, bool]


def shipped(folder: Path) -> tuple[dict[int, dict[Key, list[ExecutionPlan]]], list[str]]:
    """Return the plans in a folder by ranks, collective and placement; and what is left out."""
    plans: dict[int, dict[Key, list[ExecutionPlan]]] = defaultdict(lambda: defaultdict(list))
    out = []
    for path in sorted(folder.glob("*.json")):
        try:
            plan = ExecutionPlan.parse(path.read_bytes(), path.name)
        except InputError as error:
            out.append(f"{path.stem}: {str(error)[:120]}")
            continue
        if len(plan.gpus) not in (8, 16) or plan.collective not in COLLECTIVES:
            out.append(f"{path.stem}: {plan.collective} on {len(plan.gpus)} ranks")
            continue
        plans[len(plan.gpus)][plan.collective, plan.inplace].append(plan)
    return plans, out


def ours(machine: Topology, collective: str, in_place: bool) -> Iterator[ExecutionPlan]:
    """Yield our plans of a collective for one placement."""
    name = COLLECTIVES[collective]
    hosts = len(machine.hosts)
    if hosts == 1:
        for blocks in (8, 32):
            for through in (False, True):
                multicast = Multicast(name, machine.ranks, blocks, through)
                for knobs in (PlanKnobs(), PlanKnobs("LL")):
                    try:
                        yield switch_plan(multicast, knobs, in_place=in_place, max_bytes=TOP)
                    except (Infeasible, InputError):
                        continue
    schedules: dict[tuple[object, ...], Schedule] = {}
    for method, chunk_counts in METHOD_NAMES[hosts]:
        if name not in find_method(method).collectives:
            continue
        for nbytes, chunks in product(MADE_FOR[: 3 - hosts], chunk_counts):
            call = Collective(name, machine.ranks)
            problem = Problem(call, full_mesh(machine), chunks, nbytes, machine)
            try:
                schedule = make_schedule(problem, method)
            except Infeasible:
                continue
            key = schedule.nchunks, schedule.transfers, schedule.hints
            schedules.setdefault(key, schedule)
    for schedule, (knobs, instances) in product(schedules.values(), KNOBS):
        try:
            program = lower(schedule, instances=instances)
            yield lower_to_plan(program, knobs, hosts=hosts, in_place=in_place, max_bytes=TOP)
        except (Infeasible, InputError):
            continue


def fastest(simulator: PlanSimulator, plans: list[ExecutionPlan], nbytes: int) -> float:
    """Return the least time in us of the plans that take the size, infinite where none does."""
    best = math.inf
    for plan in plans:
        gpu = plan.gpus[0]
        whole = gpu.output_chunks if plan.collective == "allgather" else gpu.input_chunks
        step = plan.buffer_alignment * whole
        size = -(-nbytes // step) * step
        if not plan.min_message_size <= size <= plan.max_message_size:
            continue
        try:
            best = min(best, simulator.run(plan, size).time_us)
        except InputError:
            continue
    return best


def main() -> None:
    """Print a row a machine, collective and placement, and how often ours are as fast."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=Path, required=True, help="folder of shipped plans")
    args = parser.parse_args()
    plans, out = shipped(args.plans)
    total = wins = 0
    for profile, gpus in (("ndv4", "A100"), ("ndv5", "H100")):
        for ranks, by_key in sorted(plans.items()):
            machine = topology(profile, ranks // 8)
            simulator = PlanSimulator(machine)
            for (collective, in_place), theirs in sorted(by_key.items()):
                own = list(ours(machine, collective, in_place))
                placement = "in place" if in_place else "out of place"
                if not own:
                    out.append(f"{ranks}x {gpus} {collective} {placement}: no program of ours is")
                    continue
                print(f"{ranks}x {gpus} {collective} {placement}: {len(theirs)} shipped, us")
                cells = []
                for nbytes in SIZES:
                    them, us = (fastest(simulator, some, nbytes) for some in (theirs, own))
                    if math.isinf(them):
                        continue
                    total += 1
                    wins += us <= them * 1.0001
                    cells.append(f"{format_bytes(nbytes)} {them:.4g}/{us:.4g}")
                print("  " + "  ".join(cells), flush=True)
    print(f"\nshipped/ours; ours at least as fast at {wins} of {total} sizes, {wins / total:.0%}")
    print("left out:", *out, sep="\n  ")


if __name__ == "__main__":
    publish(main, "Simulated")
