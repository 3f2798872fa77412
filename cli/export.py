"""``tuccl export``: the table as files that an unmodified runtime loads."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuccl.cli.arguments import add_json, add_prefer
from tuccl.cli.output import print_json, warn
from tuccl.runtime import export_table

HELP = "write the table as files that an unmodified runtime loads"
EXAMPLE = "tuccl export table/ --dialect executor -o algorithms/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument(
        "--dialect",
        default="executor",
        help="executor (default), rccl or fork of a table of programs; "
        "nccl (NVIDIA's example tuner) or ncclx of one of NCCL's own choices",
    )
    add_prefer(parser, "default: the table's order")
    parser.add_argument("-o", "--output", required=True, metavar="DIR")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Export and print the files."""
    exported = export_table(Path(args.table), args.dialect, Path(args.output), prefer=args.prefer)
    warn(exported.notes)
    if args.json:
        config = None if exported.config is None else str(exported.config)
        files = [str(f) for f in exported.files]
        print_json({"files": files, "config": config, "notes": list(exported.notes)})
    else:
        for file in exported.files:
            print(file)
        if exported.config is not None:
            print(exported.config)
    return 0
