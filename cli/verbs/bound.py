"""``tuccl bound``: the best that any algorithm could do."""

from __future__ import annotations

import argparse

from tuccl.cli.arguments import (
    COLLECTIVES,
    add_collective,
    add_json,
    add_root,
    collectives_of,
    topology_of,
)
from tuccl.cli.output import columns, print_json_lines
from tuccl.synth import Collective
from tuccl.synth import bound as bound_of

EXAMPLE = "tuccl bound ndv2x2.json -c allgather,allreduce"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("topology", metavar="T", help="topology file, as `tuccl probe` writes it")
    add_collective(parser, many=True, required=False)
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the bound of each collective."""
    topology = topology_of(args.topology)
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
