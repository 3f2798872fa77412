"""``tuccl groups``: the process groups of a job, which are alike, what they take together."""

from __future__ import annotations

import argparse
from itertools import permutations
from typing import Any

from tuccl.cli.arguments import add_json, add_nccl_version, add_sizes, topology_of
from tuccl.cli.group_times import GroupTimes, print_group_times
from tuccl.cli.layouts import add_company, add_layout, groups_of
from tuccl.cli.output import columns, print_json, say
from tuccl.errors import InputError
from tuccl.groups.concurrent import nccl_choice
from tuccl.groups.equivalence import group_key, group_orbits
from tuccl.groups.layout import Kind, save_groups
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
    nccl = nccl_choice(args.nccl_version or NCCL_VERSION)
    choosers = {"nccl": nccl, **({"tuccl": fastest_program} if args.synth else {})}
    times = GroupTimes(args, topology, job)
    if args.output:
        save_groups(job, args.output)
    facts = [kind_facts(topology, kind, group_orbits(topology, kind.groups)) for kind in job.kinds]
    if not args.json:
        print_kinds(topology, facts)
    rows = times.rows(choosers)
    if args.json:
        print_json({"machine": topology.name, "kinds": facts, "simulated": rows})
    elif rows:
        print()
        print_group_times(rows)
    return 0 if rows or not times.calls else 1


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
