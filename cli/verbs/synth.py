"""``tuccl synth``: one program for one collective and size."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tuccl.cli.arguments import (
    add_any_order,
    add_collective,
    add_json,
    add_knobs,
    add_root,
    collectives_of,
    size_of,
    topology_of,
)
from tuccl.cli.layouts import add_layout, calls_of, groups_of, has_layout
from tuccl.cli.output import check_target, columns, print_json, say, warn
from tuccl.cli.progress import Progress
from tuccl.errors import InputError
from tuccl.program import write_program
from tuccl.runtime.table import hangs_between_hosts
from tuccl.topology import Topology, load_machine

if TYPE_CHECKING:
    from tuccl.groups.joint_flow import Call
    from tuccl.synth import Collective, SearchResult, SynthesizedProgram

_PLANNED = 8  # fastest programs that are tried as plans
EXAMPLE = "tuccl synth ndv2x2.json -c allgather -s 64M -o allgather.xml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("topology", metavar="T", help="topology file, as `tuccl probe` writes it")
    add_collective(parser)
    parser.add_argument(
        "-s", "--size", required=True, metavar="SIZE", help="the size to be fast at, like 64M"
    )
    parser.add_argument(
        "--sketch", metavar="F", help="a sketch of tuccl's or TACCL's format (default: derived)"
    )
    parser.add_argument(
        "--method",
        metavar="NAME",
        default="auto",
        help="auto (default): the fastest of all methods at this size, greedy for groups that call "
        "at once, whose call -c names as KIND:allgather; or one by name, like packing; taccl: a "
        "solver's, for a sketch's own costs (docs/reference/methods.md)",
    )
    parser.add_argument(
        "--chunks",
        type=int,
        metavar="N",
        help="chunks a rank (default: those that the method finds worth a try; for a solver the "
        "sketch's)",
    )
    parser.add_argument(
        "--max-steps",
        type=int,
        metavar="N",
        help="with --method fewstep: programs of at most N messages in a row, with the least load "
        "that so few allow (default: as few as pay at this size)",
    )
    add_any_order(parser)
    parser.add_argument(
        "--dialect",
        default="executor",
        help="executor (default), rccl (legacy), fork, or mscclpp: an execution plan (JSON)",
    )
    parser.add_argument(
        "--time-limit",
        type=float,
        default=60.0,
        metavar="S",
        help="stop the search after S seconds (default 60)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of greedy's random choices (default 0)"
    )
    parser.add_argument(
        "--starts",
        type=int,
        default=0,
        metavar="N",
        help="random starts of greedy for each plan; the best counts (default: about a second)",
    )
    parser.add_argument("--machine", metavar="CLASS", help="machine class of the simulator")
    parser.add_argument("-o", "--output", required=True, metavar="F", help="program to write")
    add_layout(parser, required=False)
    add_knobs(parser)
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Synthesize, write the program and print what it is worth."""
    from tuccl.sketches import load_sketch
    from tuccl.synth import Options, fork_scratch_bytes
    from tuccl.tuning import synthesize

    topology = topology_of(args.topology)
    check_target(Path(args.output))
    collective, calls = call_of(args, topology)
    nbytes = size_of(args.size, topology.ranks)
    if args.chunks is not None and not 1 <= args.chunks <= 256:
        raise InputError(f"--chunks {args.chunks}: expected 1 to 256 chunks a rank")
    if args.max_steps is not None and (args.method != "fewstep" or not 1 <= args.max_steps <= 256):
        raise InputError(f"--max-steps {args.max_steps}: expected 1 to 256, with --method fewstep")
    if not 0 <= args.starts <= 100_000 or args.seed < 0:
        raise InputError(
            f"--starts {args.starts} --seed {args.seed}: expected up to 100000 starts and a seed "
            "of 0 or more"
        )
    planned = args.dialect == "mscclpp"
    machine = load_machine(args.machine) if args.machine else None
    warn_of_hangs(collective.name, args.protocol, len(topology.hosts))
    with Progress() as progress:
        result = synthesize(
            topology,
            collective,
            nbytes,
            method="greedy" if calls and args.method == "auto" else args.method,
            sketch=load_sketch(Path(args.sketch), topology) if args.sketch else None,
            protocol=args.protocol,
            channels=args.channels,
            threads=args.threads,
            buffer=args.buffer,
            chunks=args.chunks,
            dialect="executor" if planned else args.dialect,
            any_order=args.any_order,
            machine=None if planned else machine,
            options=Options(args.seed, args.starts, steps=args.max_steps),
            time_limit_s=args.time_limit,
            progress=progress.update,
        )
    ranked = result.programs
    if result.untried:
        reason = "an interrupt" if result.ended == "interrupt" else "--time-limit"
        say(f"ended by {reason}: {result.untried} pairs of sketch and method were not tried")
    if planned:
        return _write_plan(result, args, topology, collective, nbytes)
    best = result.best.program
    if args.dialect == "fork" and (scratch := fork_scratch_bytes(best)):
        say(
            f"the fork reserves {scratch} bytes of scratch on each GPU, for calls below "
            f"{best.max_bytes} bytes"
        )
    write_program(best, args.output, args.dialect)
    if calls:
        return print_in_groups(result, args, topology, calls)
    facts = facts_of(result, args.output, topology, collective, nbytes)
    if args.json:
        print_json(facts)
        return 0
    print_candidates(ranked, facts)
    if ranked[0].proof is not None:
        print(proof_line(ranked[0]))
    if ranked[0].outcome:
        print(f"{ranked[0].method}: {ranked[0].outcome}")
    knobs = ranked[0].knobs
    print(
        f"{args.output}: {ranked[0].method}, {knobs.protocol}, {knobs.channels} "
        f"channel{'s' * (knobs.channels != 1)}, {facts['algbw_gbs']:.2f} GB/s simulated; the bound "
        f"for large sizes is {facts['algbw_bound_gbs']:.2f} GB/s: {facts['bottleneck']}"
    )
    return 0


def call_of(args: argparse.Namespace, topology: Topology) -> tuple[Collective, list[Call]]:
    """Return the call of all ranks, and the calls of groups that it is, if any."""
    from tuccl.synth import Collective

    if not has_layout(args):
        [name, *others] = collectives_of(args.collective)
        if others:
            raise InputError("-c: one collective at a time")
        return Collective(name, topology.ranks, args.root), []
    from tuccl.groups.bounds import kind_calls
    from tuccl.groups.relays import parent_call

    [(kind, name), *rest] = calls_of(args.collective, groups_of(args, topology))
    if rest or args.root or args.dialect != "executor":
        raise InputError("groups: expected one call, no --root, and no --dialect")
    nbytes = size_of(args.size, topology.ranks)
    return parent_call(name, kind.groups, topology.ranks), kind_calls(kind.groups, name, nbytes)


def print_in_groups(
    result: SearchResult, args: argparse.Namespace, topology: Topology, calls: list[Call]
) -> int:
    """Print the time of a program in groups beside bounds without and with relays."""
    from tuccl.groups.bounds import bound_between_members, joint_bound

    best = result.best
    members_us = bound_between_members(topology, calls).us
    relays_us = min(members_us, joint_bound(topology, calls, relays=True).us)
    facts = {
        "file": args.output,
        "method": best.method,
        "time_us": best.time_us,
        "time_is": "simulated",
        "protocol": best.knobs.protocol,
        "instances": best.knobs.channels,
        "bound_us": members_us,
        "relays_bound_us": relays_us,
    }
    if args.json:
        print_json(facts)
        return 0
    print(
        f"{args.output}: {best.method}, {best.knobs.protocol}, {best.knobs.channels} "
        f"channel{'s' * (best.knobs.channels != 1)}, {best.time_us:.1f} us simulated with all "
        f"groups at once; the bound is {members_us:.1f} us, {relays_us:.1f} with relays. Only "
        "tuccl's own executors run it"
    )
    return 0


def _write_plan(
    result: SearchResult,
    args: argparse.Namespace,
    topology: Topology,
    collective: Collective,
    nbytes: int,
) -> int:
    """Write the fastest plan that the fastest programs become, and print what it is worth."""
    from tuccl.runtime.executors.plan_sim import PlanSimulator, fastest_plan
    from tuccl.synth import bound

    simulator = PlanSimulator(topology, load_machine(args.machine) if args.machine else None)
    programs = result.programs[:_PLANNED]
    best = fastest_plan(simulator, [(p.program, p.knobs) for p in programs], nbytes, args.root)
    best.plan.write(args.output)
    source = programs[best.number]
    limit = bound(topology, collective)
    gbs = nbytes / best.time_us / 1e3
    blocks = max(len(gpu.threadblocks) for gpu in best.plan.gpus)
    if args.json:
        print_json(
            {
                "file": args.output,
                "method": source.method,
                "sketch": source.sketch,
                "protocol": best.plan.protocol,
                "threadblocks": blocks,
                "time_us": best.time_us,
                "time_is": "simulated",
                "algbw_gbs": gbs,
                "algbw_bound_gbs": limit.algbw_gbs,
                "max_bytes": best.plan.max_message_size,
            }
        )
        return 0
    print(
        f"{args.output}: {source.method}, {best.plan.protocol}, {blocks} thread "
        f"block{'s' * (blocks != 1)}, {gbs:.2f} GB/s simulated for MSCCL++; the bound for large "
        f"sizes is {limit.algbw_gbs:.2f} GB/s: {limit.bottleneck}"
    )
    return 0


def warn_of_hangs(collective: str, protocol: str | None, hosts: int) -> None:
    """Say where MSCCL's runtimes would hang in a program under Simple."""
    if not hangs_between_hosts(collective, protocol or "Simple", hosts):
        return
    why = f"MSCCL's runtimes hang in a {collective} between hosts under Simple"
    if protocol:
        warn([f"{why}: only tuccl's own executors run it (docs/reference/msccl.md)"])
    else:
        say(f"{why}: made for another protocol (docs/reference/msccl.md)")


def print_candidates(ranked: Sequence[SynthesizedProgram], facts: dict[str, object]) -> None:
    """Print the fastest program of each method, compared with what no program can beat."""
    by_method: dict[str, SynthesizedProgram] = {}
    for program in ranked:
        by_method.setdefault(program.method, program)
    many = f"{len(ranked)} program{'s' * (len(ranked) != 1)}"
    say(f"simulated; the fastest of each method, of {many}")
    limit_us = cast(float, facts["time_bound_us"])
    rows: list[list[object]] = [
        [
            r.method,
            r.sketch,
            r.chunks_per_rank,
            r.knobs.protocol,
            r.knobs.channels,
            r.hops,
            r.time_us,
            f"{limit_us / r.time_us:.1%}",
            f"{r.fraction_of_bound:.1%}",
        ]
        for r in by_method.values()
    ]
    bound_row = ["(bound)", "-", "-", "-", "-", facts["fewest_hops"], limit_us, "100.0%", "100.0%"]
    names = ["method", "sketch", "chunks", "protocol", "channels", "hops", "time us"]
    print(columns([*names, "of bound", "links allow"], [*rows, bound_row]))
    say(
        "hops: messages that wait for each other, at most; of bound: of the rate that no program "
        "can beat; links allow: the part of it that the program's busiest link allows"
    )


def proof_line(best: SynthesizedProgram) -> str:
    """Return in a line what the solver proved."""
    proof = best.proof
    assert proof is not None, "only a solver proves"
    by_clock = not proof.reproducible and proof.status != "interrupted"
    again = "; ended by the clock, so another run may differ" if by_clock else ""
    return (
        f"{best.method}: {proof.time_us:.2f} us by the sketch's costs, bound {proof.bound_us:.2f} "
        f"us, gap {proof.gap:.1%}: {proof.status} ({proof.minimized}{again})"
    )


def facts_of(
    result: SearchResult, file: str, topology: Topology, collective: Collective, nbytes: int
) -> dict[str, object]:
    """Return the facts that ``--json`` prints of the fastest program and of the search."""
    from tuccl.synth import bound, fewest_hops

    best = result.programs[0]
    limit = bound(topology, collective)
    proof = best.proof
    proved = (
        {
            "minimized": proof.minimized,
            "time_us": proof.time_us,
            "bound_us": proof.bound_us,
            "gap": proof.gap,
            "status": proof.status,
            "reproducible": proof.reproducible,
        }
        if proof
        else None
    )
    return {
        "proof": proved,
        "outcome": best.outcome or None,
        "file": file,
        "method": best.method,
        "sketch": best.sketch,
        "synthesis_seconds": best.seconds,
        "time_us": best.time_us,
        "time_is": "simulated",
        "protocol": best.knobs.protocol,
        "instances": best.knobs.channels,
        "threads": best.knobs.threads,
        "algbw_gbs": nbytes / best.time_us / 1e3,
        "algbw_bound_gbs": limit.algbw_gbs,
        "time_bound_us": limit.time_us(nbytes),
        "fraction_of_bound": limit.time_us(nbytes) / best.time_us,
        "channels": best.program.nchannels,
        "threadblocks": best.program.threadblocks,
        "max_steps": best.program.max_steps,
        "chunks": best.program.nchunks,
        "wires_allow": best.fraction_of_bound,
        "hops": best.hops,
        "fewest_hops": fewest_hops(topology, collective),
        "bottleneck": limit.bottleneck,
        "search_ended": result.ended,
        "untried": result.untried,
    }
