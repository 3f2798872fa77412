"""Prints what TACCL's own sketches cost with our exact method, in TACCL's units, on two threads.

    .venv/bin/python benchmarks/taccl_sketches.py [--data ../shared/data/taccl] [--time-limit 20]
        [--only TEXT]

`cost` is the time of the plan by TACCL's accounting of the profile (in its time unit: us for the 1
MB profiles, 0.1 us for 32 KB, 0.01 us for 1 KB): inside a node ``int(alpha + beta)`` a chunk,
between nodes ``alpha + k * beta`` a message of k chunks. `cut` is the same plan where TACCL's
routing counts, ``int(alpha + beta)`` a chunk between nodes too; it is shown for plans whose
messages have one chunk each. Both are computed by `tests.taccl_reference.schedule_time_us`, a
checker that shares no code with the solver's models. `TACCL` is its released code's own result for
the case, run with its encodings unchanged (routing, then heuristic ordering, then contiguity);
`goal` is what we meant to reach. Every plan is lowered to a program, which the verifier proves.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec.structs import replace as with_fields
from report import publish

from tuccl.errors import Infeasible
from tuccl.program import to_xml, verify
from tuccl.sketches import Sketch, load_sketch
from tuccl.sketches.taccl import read_taccl_profile
from tuccl.sketches.taccl_profile import SHIPPED_UNITS
from tuccl.synth import Collective, lower
from tuccl.synth.model.solver import Budget
from tuccl.synth.taccl.costs import LinkCosts
from tuccl.synth.taccl.problem import retime
from tuccl.synth.taccl.taccl import Solution, schedule_of, solve

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.taccl_reference import schedule_time_us, taccl_costs


@dataclass(frozen=True)
class Case:
    """A sketch on a profile; `taccl` and `goal` are times in the profile's unit."""

    sketch: str
    profile: str
    collective: str = "allgather"
    taccl: float | str | None = None
    goal: float | None = None
    variant: str = ""


FREE = "without gpus_to_sender_rev_map"
ONCE = "alpha once a message inside nodes too"

CASES = (
    Case("sk1-ndv2-n1", "ndv2-1MB", taccl=92, goal=69),
    Case("sk1-ndv2-n1", "ndv2-32KB", taccl=47),
    Case("sk1-ndv2-n1", "ndv2-1KB", taccl=100),
    Case("sk-ndv2-n1-cUp6", "ndv2-1MB", taccl=437),
    Case("sk1-ndv2-n2", "ndv2-1MB", taccl=1011.4, goal=930),
    Case("sk2-ndv2-n2", "ndv2-1KB", taccl=916),
    Case("sk3-ndv2-n2", "ndv2-1MB", taccl=980.6, goal=911),
    Case("sk1-ndv2-n4", "ndv2-1MB", taccl=2703.6),
    Case("sk2-ndv2-n4", "ndv2-1KB"),
    Case("sk1-dgx2-n1", "dgx2-1MB", taccl=120),
    Case("sk-dgx2-n1", "dgx2-1MB"),
    Case("sk1-dgx2-n2", "dgx2-1MB", taccl=563.8),
    Case("sk2-dgx2-n2", "dgx2-1KB", taccl=1519, goal=900),
    Case("sk2-dgx2-n2", "dgx2-1KB", taccl=1519, goal=900, variant=FREE),
    Case("sk2-dgx2-n2", "dgx2-1KB", taccl=1519, goal=900, variant=ONCE),
    Case("sk1-ndv2-n2", "ndv2-1MB", "alltoall", taccl=6795.4),
    Case("sk2-ndv2-n2", "ndv2-1KB", "alltoall"),
    Case("sk2-dgx2-n2", "dgx2-1KB", "alltoall", taccl=2697),
    Case("sk1-dgx2-n2", "dgx2-1MB", "alltoall", taccl="infeasible"),
    Case("sk1-ndv2-n1", "ndv2-1MB", "reduce-scatter", taccl=115),
    Case("sk1-ndv2-n2", "ndv2-1MB", "reduce-scatter", taccl=1067.8),
    Case("sk1-dgx2-n2", "dgx2-1MB", "reduce-scatter", taccl=574.4),
    Case("sk1-ndv2-n2", "ndv2-1MB", "allreduce"),
    Case("sk1-dgx2-n2", "dgx2-1MB", "allreduce"),
)


def read(case: Case, data: Path) -> tuple[Sketch, LinkCosts, LinkCosts, float]:
    """Return the sketch, its costs by both of TACCL's accountings, and the unit in us."""
    file = data / "topo" / f"topo-{case.profile}.json"
    nbytes, unit = SHIPPED_UNITS[json.loads(file.read_text())["name"]]
    machine = "NDv2" if case.profile.startswith("ndv2") else "DGX2"
    profile = read_taccl_profile(file, machine, nbytes, unit)
    sketch = load_sketch(data / "sketch" / f"{case.sketch}.json", profile)
    if case.variant == FREE:
        sketch = with_fields(sketch, relays={})
    costs = taccl_costs(sketch, nbytes, unit)
    if case.variant == ONCE:
        alpha = round(profile.alpha_us * 1e3)
        inside = (
            link
            if link.inter
            else replace(link, alpha=alpha, beta=link.beta - alpha, contiguous=True)
            for link in costs.links
        )
        costs = replace(costs, links=tuple(inside))
    return sketch, costs, taccl_costs(sketch, nbytes, unit, rounded=True), unit


def proved(solution: Solution, collective: Collective, sketch: Sketch) -> str:
    """Return the size of the program that runs the plan, after the verifier's proof."""
    schedule = schedule_of(solution, collective, sketch, sketch.chunks_per_rank)
    program = lower(schedule)
    report = verify(program, "executor", collective.root)
    if not report.ok:
        raise SystemExit(report.errors[0].message)
    return f"{len(to_xml(program, 'executor')) / 1024:.0f} KiB, {program.threadblocks} tb"


def line(case: Case, data: Path, seconds: float) -> str:
    """Return one line of the table."""
    name = f"{case.sketch} {case.collective} {case.profile.split('-')[1]}"
    began = time.monotonic()
    try:
        sketch, costs, cut_costs, unit = read(case, data)
        collective = Collective(case.collective, sketch.ranks)
        budget = Budget(seconds=seconds, workers=2)
        solution = solve(collective, sketch, costs, sketch.chunks_per_rank, budget)
    except Infeasible as refusal:
        return f"{name:<34}refused after {time.monotonic() - began:.1f} s: {refusal}"
    wall = time.monotonic() - began
    cost = schedule_time_us(solution.messages, collective, sketch, costs, sketch.chunks_per_rank)
    cut = "-"
    if all(len(message.chunks) == 1 for message in solution.messages) and case.variant != ONCE:
        again = retime(solution.messages, cut_costs)
        cut_us = schedule_time_us(again, collective, sketch, cut_costs, sketch.chunks_per_rank)
        cut = f"{cut_us / unit:.1f}"
    proof = solution.proof
    cells = (
        f"{name:<34}{case.taccl if case.taccl is not None else '-':>11}",
        f"{case.goal if case.goal is not None else '-':>6}",
        f"{cost / unit:>10.1f}{cut:>9}{proof.bound_us / unit:>10.1f}{proof.gap:>7.1%}",
        f"  {proof.status:<9}{'' if proof.reproducible else ' clock':<6}{wall:>6.1f}",
        f"  {proved(solution, collective, sketch)}  {case.variant}",
    )
    return "".join(cells).rstrip()


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/taccl"))
    parser.add_argument("--time-limit", type=float, default=20.0, metavar="S")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has TEXT")
    args = parser.parse_args()
    print(
        f"{'sketch, collective, chunk':<34}{'TACCL':>11}{'goal':>6}{'cost':>10}{'cut':>9}"
        f"{'bound':>10}{'gap':>7}  {'status':<15}{'s':>6}  program"
    )
    for case in CASES:
        if args.only in f"{case.sketch} {case.collective} {case.profile}":
            print(line(case, args.data, args.time_limit), flush=True)


if __name__ == "__main__":
    publish(main, "Costs in TACCL's units; seconds are measured")
