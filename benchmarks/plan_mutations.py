"""Mutated MSCCL++ plans: those that pass the proof are run, and must compute right and end.

    python benchmarks/plan_mutations.py [--plans N] [--seed S] [--write]

A mutant is a right plan with one to three changes of its JSON: numbers, names, lists, operations.
Plans are written by hand (reference_plans.py), made of programs, or of what a switch does. What the
reader or the proof refuses is counted by its first code, and one in ten of it is run as well, to
see how much of it goes wrong in truth. What passes is run by the interpreter, which knows nothing
of the proof, with several sizes and orders of events.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from plans import programs, topology
from report import publish

from reference_plans import reference_plans
from tuccl.errors import Infeasible, InputError, Stuck
from tuccl.mscclpp import ExecutionPlan
from tuccl.synth import PLAN_COLLECTIVES, Multicast, PlanKnobs, switch_plan
from tuccl.synth.mscclpp.lower import lower_to_plan
from tuccl.synth.mscclpp.switch import SWITCH_COLLECTIVES

Json = Any
NUMBERS = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 64, 65, 255, 256, 1024, 4096, 65536, 2**31 - 1, 2**32)
ORDERS = 4  # seeds of a run
KINDS = (0, 1, 0, 1, 2)  # of a mutant's plan: written by hand, made of a program, of a switch
SHAPES = ((1, 2), (1, 3), (2, 1), (2, 2))  # hosts, ranks a host
KNOBS = (
    *(PlanKnobs(), PlanKnobs(unit_bytes=64), PlanKnobs(slots=2), PlanKnobs(group_size=2)),
    *(PlanKnobs("LL"), PlanKnobs("LL", group_size=2)),
)
MOST_RUN = 1 << 20


def emitted_plans() -> Iterator[ExecutionPlan]:
    """Yield the plans of every method's programs on a few ranks, with each knob."""
    for hosts, ranks in SHAPES:
        machine = topology("dgx-a100", hosts, ranks)
        for collective in PLAN_COLLECTIVES:
            for program in programs(machine, collective):
                for knobs in KNOBS:
                    for in_place in (False, True):
                        try:
                            yield lower_to_plan(
                                program, knobs, hosts=hosts, in_place=in_place, max_bytes=MOST_RUN
                            )
                        except Infeasible:
                            continue


def switch_plans() -> Iterator[ExecutionPlan]:
    """Yield plans in which a switch adds up."""
    for collective in SWITCH_COLLECTIVES:
        for through_scratch in (True, False):
            multicast = Multicast(collective, 3, 2, through_scratch)
            for knobs in (PlanKnobs(), PlanKnobs(unit_bytes=64), PlanKnobs("LL")):
                for in_place in (False, True):
                    try:
                        yield switch_plan(multicast, knobs, in_place=in_place, max_bytes=MOST_RUN)
                    except Infeasible:
                        continue


def places(value: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of everything in a JSON value but itself."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def words(documents: list[Any]) -> dict[str, list[str]]:
    """Return the strings that plans have, by key."""
    found: dict[str, set[str]] = defaultdict(set)
    for document in documents:
        for path in places(document):
            value = at(document, path)
            if isinstance(value, str):
                found[str(path[-1])].add(value)
    return {key: sorted(values) for key, values in found.items()}


def at(document: Json, path: tuple[Any, ...]) -> Json:
    """Return the value at a path."""
    for key in path:
        document = document[key]
    return document


def mutate(document: Json, vocabulary: dict[str, list[str]], rng: random.Random) -> None:
    """Change one thing of a plan's JSON."""
    operations = [p for p in places(document) if len(p) > 1 and p[-2] == "ops"]
    if operations and rng.random() < 0.5:
        mutate_operations(document, operations, vocabulary, rng)
        return
    path = rng.choice(list(places(document)))
    parent, key = at(document, path[:-1]), path[-1]
    value = parent[key]
    if isinstance(value, bool):
        parent[key] = not value
    elif isinstance(value, int):
        parent[key] = rng.choice([value - 1, value + 1, value + 1, rng.choice(NUMBERS)])
    elif isinstance(value, str):
        parent[key] = rng.choice(vocabulary.get(str(key), ["x"]))
    elif isinstance(value, list) and value and rng.random() < 0.8:
        change_list(value, rng)
    else:
        del parent[key]


def change_list(values: list[Any], rng: random.Random) -> None:
    """Drop, repeat or swap entries."""
    first, second = rng.randrange(len(values)), rng.randrange(len(values))
    change = rng.randrange(3)
    if change == 0:
        del values[first]
    elif change == 1:
        values.insert(second, copy.deepcopy(values[first]))
    else:
        values[first], values[second] = values[second], values[first]


def mutate_operations(
    document: Json,
    paths: list[tuple[Any, ...]],
    vocabulary: dict[str, list[str]],
    rng: random.Random,
) -> None:
    """Drop, repeat, move or rename an operation."""
    path = rng.choice(paths)
    ops = at(document, path[:-1])
    if rng.random() < 0.25:
        ops[path[-1]]["name"] = rng.choice(vocabulary["name"])
    elif rng.random() < 0.3:
        ops.insert(path[-1], {"name": "nop"})
    else:
        change_list(ops, rng)


def run_all(plan: ExecutionPlan, seed: int) -> str:
    """Return how runs of the plan go wrong, empty if they do not."""
    step = plan.size_step
    least = max(plan.min_message_size, 1)
    sizes = {-(-least // step) * step}
    sizes |= {m * step for m in (1, 2, 5, 300) if least <= m * step}
    for size in sorted(sizes):
        if size > min(plan.max_message_size, MOST_RUN):
            continue
        for order in range(ORDERS):
            try:
                result = plan.run(size, seed=seed * ORDERS + order)
            except Stuck:
                return "hangs"
            except (InputError, ValueError):
                return "overruns"
            if result.wrong:
                return "wrong"
    return ""


def main() -> int:
    """Print what became of the mutants."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plans", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sources = [
        [json.loads(plan.json()) for plan in plans]
        for plans in (reference_plans(), emitted_plans(), switch_plans())
    ]
    vocabulary = words([document for documents in sources for document in documents])
    hand, made, switch = map(len, sources)
    print(f"{hand} plans written by hand, {made} made of programs, {switch} of a switch\n")
    refused: Counter[str] = Counter()
    sampled: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    for number in range(args.plans):
        rng = random.Random(args.seed * args.plans + number)
        document = copy.deepcopy(rng.choice(sources[KINDS[number % len(KINDS)]]))
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            mutate(document, vocabulary, rng)
        try:
            plan = ExecutionPlan.parse(json.dumps(document))
        except InputError:
            refused["by the reader"] += 1
            continue
        report = plan.verify()
        if report.ok:
            fault = run_all(plan, number)
            ends[fault or "right"] += 1
            if fault:
                print(f"mutant {number} passes the proof and {fault}")
            continue
        code = report.errors[0].code
        refused[code] += 1
        if rng.random() < 0.1 and code in ("race", "deadlock", "wrong-result", "unmatched"):
            sampled[run_all(plan, number) or "right"] += 1
    total, wrong = sum(ends.values()), sum(ends.values()) - ends["right"]
    print(f"{args.plans} mutants; refused {sum(refused.values())}, passed {total}")
    print(f"of those that passed, run {ORDERS} times a size: {wrong} wrong, hanging or overrunning")
    print("refused by first code: " + ", ".join(f"{c} {n}" for c, n in refused.most_common()))
    print(
        "of the refused for race, deadlock or result, a tenth was run: "
        + ", ".join(f"{c} {n}" for c, n in sampled.most_common())
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    publish(main, "Run on a CPU")
