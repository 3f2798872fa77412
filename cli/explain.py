"""``tuccl explain``: what the table decides, size by size, with its switch points."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuccl.cli.arguments import add_json
from tuccl.cli.output import columns, print_json_lines
from tuccl.runtime import explain as explain_table
from tuccl.runtime import load_table
from tuccl.units import format_bytes

HELP = "what the table decides for every size, and why"
EXAMPLE = "tuccl explain table/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("table", metavar="TABLE")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the decisions."""
    table = load_table(Path(args.table))
    rows = explain_table(table)
    if args.json:
        print_json_lines(rows)
        return 0
    if table.tuned_on:
        print(f"# times {table.tuned_on}")
    header = ["collective", "root", "placement", "from", "below", "choice", "gain", "why"]
    print(
        columns(
            header,
            [
                [
                    r.collective,
                    "-" if r.root is None else str(r.root),
                    r.placement,
                    format_bytes(r.min_bytes),
                    format_bytes(r.max_bytes) if r.max_bytes else "no limit",
                    r.candidate,
                    "-" if r.gain is None else f"{r.gain:.2f}x",
                    f"{r.reason}; not honoured: {r.not_honoured}" if r.not_honoured else r.reason,
                ]
                for r in rows
            ],
        )
    )
    return 0
