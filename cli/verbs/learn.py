"""``tuccl learn``: what jobs measured with a table, folded into it on demand."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tuccl.cli.arguments import add_json
from tuccl.cli.output import columns, print_json_lines, say, warn, write_text
from tuccl.runtime import load_table
from tuccl.runtime.table import ObservedTiming, merge_observed, observed_timings
from tuccl.units import format_bytes

EXAMPLE = "tuccl learn table/ --write"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "table", metavar="TABLE", help="folder of a table, as `tuccl tune` writes it"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="order the table's candidates by what was measured; refused while a job that"
        " `tuccl run` started uses it",
    )
    parser.add_argument(
        "--traffic",
        metavar="FILE",
        help="write the bytes that programs sent between hosts: `tuccl probe --traffic` reads them",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the measurements, and merge them into the table with --write."""
    rows, left_aside = observed_timings(Path(args.table))
    warn([left_aside] if left_aside else [])
    if args.json:
        print_json_lines(msgspec.to_builtins(row) for row in rows)
    elif rows:
        print(as_columns(rows))
    else:
        say(f"{args.table}: no job measured anything with it yet")
    if args.traffic:
        from tuccl.eval.traffic import traffic_text

        write_text(Path(args.traffic), traffic_text(load_table(Path(args.table)), rows))
    if args.write:
        changed = merge_observed(Path(args.table))
        say(f"{args.table}: {'written' if changed else 'nothing to change'}")
    return 0


def as_columns(rows: Sequence[ObservedTiming]) -> str:
    """Return the rows as a table; times in us, the drift since tuning, the gain of a new order."""
    header = ["collective", "from", "candidate", "calls", "tuned", "median", "p99", "recent"]
    header += ["drift", "gain"]
    return columns([*header, "place"], [_cells(row) for row in rows])


def _cells(row: ObservedTiming) -> list[object]:
    moves = row.place != row.moves_to
    return [
        row.collective,
        format_bytes(row.min_bytes),
        row.candidate,
        row.calls,
        "-" if row.tuned_us is None else f"{row.tuned_us:.1f}",
        f"{row.median_us:.1f}",
        f"{row.p99_us:.1f}",
        f"{row.recent_us:.1f}",
        "-" if row.drift is None else f"{row.drift - 1:+.0%}",
        f"{row.gain - 1:.0%}" if row.place == 0 else "-",
        f"{row.place + 1} to {row.moves_to + 1}" if moves else str(row.place + 1),
    ]
