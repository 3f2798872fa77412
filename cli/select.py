"""``tuccl select``: what the runtime would pick for one call."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuccl.cli.arguments import add_collective, add_json, add_root, collectives_of
from tuccl.cli.output import print_json
from tuccl.errors import InputError
from tuccl.runtime import load_table
from tuccl.runtime import select as select_from
from tuccl.units import parse_size

HELP = "what the runtime would pick for one call, and why"
EXAMPLE = "tuccl select table/ -c allgather -s 64M"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("table", metavar="TABLE")
    add_collective(parser)
    parser.add_argument("-s", "--size", required=True, metavar="SIZE")
    parser.add_argument("--in-place", action="store_true", help="the call is in place")
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the choice."""
    [collective, *rest] = collectives_of(args.collective)
    if rest:
        raise InputError("-c: one collective at a time")
    table = load_table(Path(args.table))
    choice = select_from(
        table,
        collective,
        parse_size(args.size),
        in_place=args.in_place,
        root=args.root,
    )
    if args.json:
        told = {"candidate": choice.candidate, "reason": choice.reason}
        print_json({**told, "tuned_on": table.tuned_on})
    else:
        print(f"{choice.candidate.name}: {choice.reason}")
    return 0
