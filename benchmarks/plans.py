"""Plans of MSCCL++ made of every method's programs: emitted, proved, run, and refused with reasons.

    python benchmarks/plans.py [--ranks N] [--write]

Collectives x hosts (1 to 4) x ranks (2 to 32) x methods x knobs x placements, and what a switch
does on one host; slots and groups on up to 8 ranks. A plan is made for 1 KiB to 1 GiB; for what it
leaves out, one is made size by size. Each is proved from its file, then run on real data by
the interpreter, which knows nothing of the proof; plans of large sizes alone on a few bytes.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from report import publish

from tuccl.errors import Infeasible, InputError, Stuck
from tuccl.mscclpp import ExecutionPlan
from tuccl.program import Program
from tuccl.sketches import full_mesh
from tuccl.synth import (
    METHODS,
    PLAN_COLLECTIVES,
    Collective,
    Multicast,
    PlanKnobs,
    Problem,
    lower,
    make_schedule,
    switch_plan,
)
from tuccl.synth.mscclpp.lower import lower_to_plan
from tuccl.synth.mscclpp.switch import SWITCH_COLLECTIVES
from tuccl.topology import Topology, join, keep_gpus, load_profile

SHAPES = (  # machine, hosts, ranks a host
    *(("dgx-a100", 1, ranks) for ranks in (2, 3, 4, 8)),
    ("v100x4", 1, 4),
    ("dgx-2", 1, 16),
    *(("dgx-a100", 2, ranks) for ranks in (1, 2, 4, 8)),
    *(("dgx-a100", 4, ranks) for ranks in (1, 2, 8)),
    ("v100x4", 4, 4),
)
SWITCHED = (2, 4, 8)  # ranks of a host whose switch adds up
METHOD_NAMES = ("ring", "rings", "recursive", "allpairs", "hierarchical2", "greedy")
SIZES = tuple(1 << bits for bits in (10, 15, 20, 25, 30))
PIECE = 1 << 19
KNOBS = (PlanKnobs(unit_bytes=PIECE), PlanKnobs("LL"))
MORE_KNOBS = (  # up to 8 ranks
    PlanKnobs(unit_bytes=PIECE, slots=2),
    PlanKnobs(group_size=2),
    PlanKnobs("LL", group_size=2),
)
MOST_RUN = 1 << 22  # bytes of a run


@dataclass
class Count:
    """Counts of the plans of one collective, and of those refused."""

    plans: int = 0
    proved: int = 0
    right: int = 0
    sizes: int = 0
    served: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def topology(machine: str, hosts: int, ranks: int) -> Topology:
    """Return hosts of so many GPUs of a known machine."""
    one = keep_gpus(load_profile(machine), range(ranks))
    return one if hosts == 1 else join(one, hosts, "single")


def programs(machine: Topology, collective: str) -> Iterator[Program]:
    """Yield each method's program of one chunk a rank."""
    for name in METHOD_NAMES:
        if collective in METHODS[name].collectives:
            problem = Problem(
                Collective(collective, machine.ranks), full_mesh(machine), 1, 1 << 20, machine
            )
            try:
                yield lower(make_schedule(problem, name))
            except Infeasible:
                continue


def check(plan: ExecutionPlan, count: Count) -> None:
    """Prove a plan from its file and run it."""
    count.plans += 1
    again = ExecutionPlan.parse(plan.json())
    count.proved += again.verify().ok
    step = plan.size_step
    nbytes = -(-max(plan.min_message_size, 1) // step) * step
    nbytes = nbytes if nbytes <= MOST_RUN else 3 * step  # the interpreter takes it all the same
    try:
        count.right += again.run(nbytes, calls=3).wrong == 0
    except (InputError, Stuck):
        pass


def ask(program: Program, hosts: int, count: Count) -> None:
    """Lower a program to plans with all knobs and in both placements."""
    for knobs in (*KNOBS, *(MORE_KNOBS if program.ngpus <= 8 else ())):
        for in_place in (False, True):
            if in_place and program.collective == "reduce-scatter":
                continue  # ranks would choose different plans
            if program.in_place if in_place else program.out_of_place:
                make = partial(lower_to_plan, program, knobs, hosts=hosts, in_place=in_place)
                serve(make, program.nchunks * 16, count)


def ask_switch(collective: str, ranks: int, count: Count) -> None:
    """Count the plans of a switch, through scratch and without."""
    for through_scratch in (True, False):
        multicast = Multicast(collective, ranks, 8, through_scratch)
        for knobs in (PlanKnobs(), PlanKnobs(unit_bytes=PIECE), PlanKnobs("LL")):
            for in_place in (False, True):
                if collective == "reduce-scatter" and (in_place or knobs.packets):
                    continue
                serve(partial(switch_plan, multicast, knobs, in_place=in_place), 128 * ranks, count)


def serve(make: Callable[..., ExecutionPlan], step: int, count: Count) -> None:
    """Make a plan of all sizes, and for one of each size that it leaves out."""
    served: list[tuple[int, int]] = []
    for size in SIZES:
        nbytes = -(-size // step) * step
        count.sizes += 1
        if not any(low <= nbytes <= high for low, high in served):
            low, high = (0, 1 << 30) if size == SIZES[0] else (nbytes, nbytes)
            try:
                plan = make(min_bytes=low, max_bytes=high)
            except Infeasible as error:
                count.refused[reason(str(error))] += 1
                continue
            check(plan, count)
            served.append((plan.min_message_size, plan.max_message_size))
        count.served += any(low <= nbytes <= high for low, high in served)


def reason(message: str) -> str:
    """Return a refusal without its names and numbers."""
    return re.sub(r"\d+", "N", message.partition(": ")[2])[:90]


def report(title: str, count: Count) -> Counter[tuple[str, str]]:
    """Print a row and return what was refused."""
    print(
        f"{title:<24}{count.plans:>7}{count.proved:>8}{count.right:>7}{count.sizes:>13}"
        f"{count.served:>8}",
        flush=True,
    )
    return Counter({(title, why): n for why, n in count.refused.items()})


def main() -> None:
    """Print a line a collective, and why what was refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=32, help="most ranks (32)")
    most = parser.parse_args().ranks
    shapes = [shape for shape in SHAPES if shape[1] * shape[2] <= most]
    print(f"{len(shapes)} machines, methods {', '.join(METHOD_NAMES)}, 1 KiB to 1 GiB\n")
    print(
        f"{'collective':<24}{'plans':>7}{'proved':>8}{'right':>7}{'sizes asked':>13}{'served':>8}"
    )
    refused: Counter[tuple[str, str]] = Counter()
    for collective in PLAN_COLLECTIVES:
        count = Count()
        for machine, hosts, ranks in shapes:
            for program in programs(topology(machine, hosts, ranks), collective):
                ask(program, hosts, count)
        refused += report(collective, count)
    for collective in SWITCH_COLLECTIVES:
        count = Count()
        for ranks in SWITCHED:
            ask_switch(collective, ranks, count)
        refused += report(f"{collective}, switch", count)
    print("\nRefused:")
    for (collective, why), number in refused.most_common():
        print(f"{number:>5}  {collective}: {why}")
    print("    -  gather, scatter, reduce-scatter in place: MSCCL++ has no plans of them")


if __name__ == "__main__":
    publish(main, "Proved and run on CPUs")
