"""``tuccl bound``: the best that any algorithm could do."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain, product
from typing import Any

from tuccl.cli.arguments import (
    COLLECTIVES,
    add_collective,
    add_json,
    add_root,
    add_sizes,
    collectives_of,
    sizes_of,
    topology_of,
)
from tuccl.cli.layouts import add_layout, calls_of, groups_of, has_layout
from tuccl.cli.output import columns, print_json_lines, warn
from tuccl.errors import InputError
from tuccl.synth import Collective
from tuccl.synth import bound as bound_of
from tuccl.topology import Topology
from tuccl.units import format_bytes

EXAMPLE = "tuccl bound ndv2x2.json -c allgather,allreduce"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("topology", metavar="T", help="topology file, as `tuccl probe` writes it")
    add_collective(parser, many=True, required=False)
    add_root(parser)
    add_layout(parser, required=False)
    add_sizes(parser, required=False)
    parser.add_argument(
        "--concurrent",
        metavar="WHO",
        help="with groups, whose calls -c names as KIND:COLLECTIVE, of the sizes -s: kind "
        "(default): all groups of a kind call at once; all: those of all calls that -c names",
    )
    parser.add_argument(
        "--relays",
        action="store_true",
        help="with groups: also print the least time where GPUs pass on what other groups send; "
        "programs of NCCL and MSCCL have no such relays",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the bound of each collective, or of groups that call at once."""
    topology = topology_of(args.topology)
    if has_layout(args):
        return print_joint(args, topology)
    if args.size or args.concurrent or args.relays:
        raise InputError(
            "-s, --concurrent, --relays: expected groups; add --layout, --mesh or --groups"
        )
    rows = []
    for name in COLLECTIVES if args.collective is None else collectives_of(args.collective):
        call = Collective(name, topology.ranks, args.root)
        bound, in_switches = bound_of(topology, call), bound_of(topology, call, "switches")
        rows.append(
            {
                "collective": name,
                "algbw_bound_gbs": bound.algbw_gbs,
                "latency_bound_us": bound.latency_us,
                "bottleneck": bound.bottleneck,
                "certified": bound.certified,
                "algbw_bound_switches_gbs": in_switches.algbw_gbs,
            }
        )
    if args.json:
        print_json_lines(rows)
    else:
        print(
            "# algbw over links alone, and where switches may reduce and multicast (NVLS, SHARP);"
        )
        print("# certified and bottleneck are of the first")
        print(
            columns(
                [
                    "collective",
                    "links GB/s",
                    "switches GB/s",
                    "latency us",
                    "certified",
                    "bottleneck",
                ],
                [
                    [
                        r["collective"],
                        r["algbw_bound_gbs"],
                        r["algbw_bound_switches_gbs"],
                        r["latency_bound_us"],
                        "yes" if r["certified"] else "no",
                        r["bottleneck"],
                    ]
                    for r in rows
                ],
            )
        )
    return 0


def print_joint(args: argparse.Namespace, topology: Topology) -> int:
    """Print the bounds of groups that call at once, rule by rule."""
    if not args.collective or not args.size:
        raise InputError("-c and -s: expected both with groups, as -c dp:allreduce -s 64M")
    if args.concurrent not in (None, "kind", "all"):
        raise InputError(f"--concurrent {args.concurrent[:20]!r}: expected kind or all")
    if args.root:
        raise InputError(f"--root {args.root}: roots of groups are their first ranks; leave it out")
    rows = list(joint_rows(args, topology))
    for what, key in (("bound", "why_no_flow"), ("bound with relays", "relays_why_no_flow")):
        warn(dict.fromkeys(f"{what} by cuts alone: {why}" for r in rows if (why := r.get(key))))
    if args.json:
        print_json_lines(rows)
        return 0
    print(f"# {topology.name}: least us over links: a group alone, and all groups at once by")
    print("# cuts, by what hosts send in all, by the flows of all calls; the greatest binds")
    totals = {"at once": "joint_us"}
    if args.relays:
        totals["with relays"] = "relays_us"
        print("# with relays through non-members, which programs of NCCL and MSCCL do not have")
    rules = ["alone", "cut", "hosts", "flow"]
    table = [
        [
            *(",".join(row["calls"]), format_bytes(row["size"])),
            *("-" if us is None else f"{us:.1f}" for us in map(row["rules_us"].get, rules)),
            *("-" if us is None else f"{us:.1f}" for us in map(row.get, totals.values())),
            *(row["binds"], row["why"]),
        ]
        for row in rows
    ]
    print(columns(["calls", "size", *rules, *totals, "binds", "why"], table))
    return 0


def joint_rows(args: argparse.Namespace, topology: Topology) -> Iterator[dict[str, Any]]:
    """Yield the joint bound of each call, or of all calls, size by size."""
    # A bound without groups starts without.
    from tuccl.groups.bounds import bound_between_members, joint_bound, kind_calls

    calls = calls_of(args.collective, groups_of(args, topology))
    together = [calls] if args.concurrent == "all" else [[call] for call in calls]
    for named, nbytes in product(together, sizes_of(args.size)):
        made = (kind_calls(kind.groups, collective, nbytes) for kind, collective in named)
        at_once = list(chain.from_iterable(made))
        found = (bound_between_members if args.relays else joint_bound)(topology, at_once)
        row = {
            "calls": [f"{kind.name}:{collective}" for kind, collective in named],
            "size": nbytes,
            "rules_us": {rule.name: rule.us for rule in found.rules},
            "joint_us": found.us,
            "binds": found.binding.name,
            "why": found.binding.words,
            "why_no_flow": found.why_no_flow,
        }
        if args.relays:
            passed = joint_bound(topology, at_once, relays=True)
            # Equal flows may fill links of a longer latency, but with relays no call takes longer.
            row["relays_us"] = min(passed.us, found.us) or None  # calls with a root have none
            row["relays_why_no_flow"] = passed.why_no_flow
        yield row
