"""``--utilisation`` and ``--trace``: a simulated run's record, and what is printed of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tuccl.cli.arguments import sizes_of
from tuccl.cli.output import say, write_text
from tuccl.errors import InputError
from tuccl.runtime import TracedRun
from tuccl.units import format_bytes


def add_recording(parser: argparse.ArgumentParser) -> None:
    """Add ``--trace``, ``--trace-passes`` and ``--utilisation``."""
    parser.add_argument(
        "--trace",
        metavar="OUT.json",
        help="write a trace of every thread block, proxy and link for ui.perfetto.dev; one size",
    )
    parser.add_argument(
        "--trace-passes",
        type=int,
        metavar="N",
        help="passes to record from the start and up to the end (default: as many as fit)",
    )
    parser.add_argument(
        "--utilisation",
        action="store_true",
        help="also print the critical path of each run, its use of the links, and what thread "
        "blocks waited for",
    )


def is_recorded(args: argparse.Namespace) -> bool:
    """Return whether the arguments request anything that takes a record."""
    return bool(args.trace or args.utilisation)


def check_recording(args: argparse.Namespace) -> None:
    """Refuse what cannot be traced before anything runs.

    Raises:
        InputError: it is not simulated, there is more than one size, or a number of passes without
        a trace.
    """
    if is_recorded(args) and args.on != "sim":
        raise InputError(f"--trace, --utilisation: only --on sim records, not --on {args.on[:40]}")
    if args.trace and (sizes := len(sizes_of(args.size))) != 1:
        raise InputError(f"--trace: -s {args.size[:40]} is {sizes} sizes, expected one, like 64M")
    if args.trace_passes is not None:
        if not args.trace:
            raise InputError("--trace-passes: expected --trace OUT.json with it")
        if args.trace_passes < 1:
            raise InputError(f"--trace-passes {args.trace_passes}: expected 1 or more")


def use_row(run: TracedRun) -> dict[str, Any]:
    """Return the size of ``run``, its use of the links, its time by cause and its chain."""
    from tuccl.eval import critical_path, time_spent, utilisation

    return {
        "size": run.nbytes,
        "links": utilisation(run),
        "spent": time_spent(run),
        "chain": critical_path(run),
    }


def use_text(run: TracedRun) -> str:
    """Return the same of one run as tables."""
    from tuccl.eval import (
        critical_path,
        path_text,
        spent_text,
        time_spent,
        utilisation,
        utilisation_text,
    )

    parts = (
        path_text(critical_path(run)),
        utilisation_text(utilisation(run)),
        spent_text(time_spent(run)),
    )
    return f"## {format_bytes(run.nbytes)}\n" + "\n\n".join(parts)


def write_trace(path: Path, run: TracedRun) -> None:
    """Write the trace and say what is in it."""
    from tuccl.eval import trace_json

    write_text(path, trace_json(run).decode())
    passes = run.trace.first_passes + run.trace.last_passes
    say(
        f"trace: {path}, {passes} of {run.trace.passes} passes, simulated; "
        "open it in ui.perfetto.dev"
    )
