"""``tuccl groups``: the process groups of a job, which are alike, what they take together."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

from tuccl.cli.arguments import (
    add_json,
    add_nccl_version,
    add_sizes,
    sizes_of,
    topology_of,
)
from tuccl.cli.layouts import add_company, add_layout, beside_of, calls_of, groups_of
from tuccl.cli.output import columns, print_json, say, warn
from tuccl.errors import Infeasible, InputError
from tuccl.groups.concurrent import KindCall, company_calls, nccl_choice, time_groups
from tuccl.groups.equivalence import group_key, group_orbits
from tuccl.groups.layout import Kind, ProcessGroups, save_groups
from tuccl.runtime import NCCL_VERSION, ConfiguredProgram
from tuccl.topology import Topology
from tuccl.topology.paths import channel_paths
from tuccl.units import format_bytes

EXAMPLE = "tuccl groups ndv2x2.json --layout tp=4 -c dp:allreduce,tp:allgather -s 1M:64M:x8"
_SHOWN = 8  # members of a group


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("topology", metavar="T", help="topology file, as `tuccl probe` writes it")
    add_layout(parser, required=True)
    parser.add_argument(
        "-c",
        "--collective",
        metavar="CALLS",
        help="time KIND:COLLECTIVE,... with all groups of the kind at once, simulated (with -s)",
    )
    add_sizes(parser, required=False)
    add_company(parser)
    parser.add_argument(
        "--synth",
        action="store_true",
        help="also time the fastest program for a group alone",
    )
    add_nccl_version(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the groups (tuccl-groups/1)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the kinds and, with calls, their times."""
    topology = topology_of(args.topology)
    job = groups_of(args, topology)
    if bool(args.collective) != bool(args.size):
        raise InputError("-c and -s: expected both, or none")
    calls = calls_of(args.collective, job) if args.collective else []
    company = company_of(args, job)
    if args.output:
        save_groups(job, args.output)
    orbits = {kind.name: group_orbits(topology, kind.groups) for kind in job.kinds}
    facts = [kind_facts(topology, kind, orbits[kind.name]) for kind in job.kinds]
    if not args.json:
        print_kinds(topology, facts)
    rows = [
        row
        for kind, collective in calls
        for beside in [[call for call in company if call.kind != kind.name]]
        for row in timed(args, topology, job, kind, collective, orbits[kind.name], beside)
    ]
    warn(dict.fromkeys(f"bound by cuts alone: {why}" for r in rows if (why := r["why_no_flow"])))
    if args.json:
        print_json({"machine": topology.name, "kinds": facts, "simulated": rows})
    elif rows:
        print_times(rows)
    return 0 if rows or not calls else 1


def company_of(args: argparse.Namespace, job: ProcessGroups) -> list[KindCall]:
    """Return the calls of --beside.

    Raises:
        InputError: --concurrent has no meaning here, or there are no calls to time beside them.
    """
    company = [KindCall(*call) for call in beside_of(args.beside, job)]
    if args.concurrent not in (None, "kind", "all"):
        raise InputError(f"--concurrent {args.concurrent[:20]}: expected kind or all")
    if args.concurrent == "all" and not company:
        raise InputError("--concurrent all: expected the calls of other kinds; add --beside")
    if company and not args.collective:
        raise InputError("--beside: expected calls that it is beside; add -c and -s")
    return company


def timed(
    args: argparse.Namespace,
    topology: Topology,
    job: ProcessGroups,
    kind: Kind,
    collective: str,
    orbits: list[list[int]],
    beside: list[KindCall],
) -> Iterator[dict[str, Any]]:
    """Yield the simulated times of a call, size by size, by NCCL's choice and by programs."""
    nccl = nccl_choice(args.nccl_version or NCCL_VERSION)
    choosers = {"nccl": nccl, **({"tuccl": fastest_program} if args.synth else {})}
    choices, repeats = {call.kind: nccl for call in beside}, args.concurrent == "all"
    company = company_calls(topology, job, beside, choices, repeats=repeats)
    for nbytes, who in product(sizes_of(args.size), choosers):
        try:
            found = time_groups(
                topology, kind.groups, orbits, collective, nbytes, choosers[who], company
            )
        except (Infeasible, InputError) as error:
            what = f"{kind.name}:{collective} {format_bytes(nbytes)}"
            warn([f"{what}, {who}: not timed: {error}"])
            continue
        yield {
            "kind": kind.name,
            "collective": collective,
            "size": nbytes,
            "programs": who,
            "choice": found.choice,
            "alone_us": max(found.alone_us.values()),
            "together_us": found.together_us,
            "slowdown": found.slowdown,
            "bound_us": found.bound_us,
            "beside_us": {str(c): us for c, us in zip(beside, found.company_us, strict=True)},
            "why_no_flow": found.bound.why_no_flow,
        }


def fastest_program(part: Topology, collective: str, nbytes: int) -> ConfiguredProgram:
    """Return the program that is fastest for a group alone."""
    from tuccl.tuning.program_search import synthesize

    say(f"synthesizing {collective} {format_bytes(nbytes)} for {part.ranks} ranks")
    best = synthesize(part, collective, nbytes).best
    name = f"{best.method}/{best.knobs.protocol}/{best.program.nchannels}ch"
    return ConfiguredProgram(best.program, best.knobs, name=name)


def kind_facts(topology: Topology, kind: Kind, orbits: list[list[int]]) -> dict[str, Any]:
    """Return a kind's groups, those that are alike with their key, and the NICs of the first."""
    return {
        "kind": kind.name,
        "desc": kind.desc,
        "groups": kind.groups,
        "orbits": orbits,
        "keys": [group_key(topology, kind.groups, orbit[0]) for orbit in orbits],
        "forms": [form(topology, kind.groups[orbit[0]]) for orbit in orbits],
        "nics": [nics(topology, kind.groups[orbit[0]]) for orbit in orbits],
    }


def form(topology: Topology, group: tuple[int, ...]) -> str:
    """Return the members as HOST.GPU, hosts in order of appearance, as "0.3 1.3"."""
    hosts = list(dict.fromkeys(map(topology.host_of, group)))
    local = {rank: n for host in hosts for n, rank in enumerate(topology.gpus_of(host))}
    places = [f"{hosts.index(topology.host_of(rank))}.{local[rank]}" for rank in group]
    return " ".join(places[:_SHOWN]) + (" ..." if len(places) > _SHOWN else "")


def nics(topology: Topology, group: tuple[int, ...]) -> list[str]:
    """Return the NICs of the routes between the members, in order."""
    found = {
        nic
        for src, dst in permutations(group, 2)
        for path in channel_paths(topology, src, dst)
        for nic in path.nics
    }
    return sorted(found)


def print_kinds(topology: Topology, facts: list[dict[str, Any]]) -> None:
    """Print a line for each set of groups that are alike."""
    print(f"# {topology.name}: {topology.ranks} ranks; groups in a line are alike, one program")
    print("# serves them; members as HOST.GPU, hosts in order of appearance")
    rows = [
        [kind["kind"], len(orbit), len(kind["groups"][orbit[0]]), members, len(used), key]
        for kind in facts
        for orbit, key, members, used in zip(
            kind["orbits"], kind["keys"], kind["forms"], kind["nics"], strict=True
        )
    ]
    print(columns(["kind", "groups", "ranks", "members of the first", "NICs", "key"], rows))


def print_times(rows: list[dict[str, Any]]) -> None:
    """Print the times of each call."""
    print("\n# simulated, us: a group alone, all groups of the kind at once, and the bound on this")
    beside = any(r["beside_us"] for r in rows)
    table = [
        [
            *(r["kind"], r["collective"], format_bytes(r["size"]), r["programs"], r["choice"]),
            *(f"{r['alone_us']:.1f}", f"{r['together_us']:.1f}", f"{r['slowdown']:.2f}"),
            *(f"{r['bound_us']:.1f}", f"{r['bound_us'] / r['together_us']:.2f}"),
            *([", ".join(f"{c} {us:.1f}" for c, us in r["beside_us"].items())] if beside else []),
        ]
        for r in rows
    ]
    head = ["kind", "collective", "size", "programs", "choice", "alone", "at once", "ratio"]
    print(columns([*head, "bound", "of bound", *(["beside"] if beside else [])], table))
