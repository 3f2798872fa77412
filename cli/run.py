"""``tuccl run``: starts a program with the table loaded into MSCCL or NCCL."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from tuccl.cli.arguments import topology_of
from tuccl.cli.output import say, warn
from tuccl.errors import InputError
from tuccl.runtime import changed_machine, forwarding, open_table, run_environment, shell_block
from tuccl.runtime import run as run_command

HELP = "start a program with the table loaded into the runtime"
# Of an older run in this shell: they would load another table beside, or after, this one.
LEFT_OVER = (
    *("TUCCL_TABLE", "TUCCL_SIGNATURE", "TUCCL_TABLE_SHA256"),
    *("MSCCL_ALGO_DIR", "MSCCL_XML_FILES", "MSCCL_CONFIG"),
)
EXAMPLE = "tuccl run --table table/ -- mpirun -np 16 all_gather_perf -b 1K -e 1G -f 4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("--table", required=True, metavar="TABLE")
    parser.add_argument(
        "--dialect",
        help="what runs the programs: executor, rccl or fork (default: the table's own); "
        "a table of NCCL's own choices is loaded by NCCL's tuner plugin",
    )
    parser.add_argument(
        "--scheduler",
        action="store_true",
        help="load by tuccl's MSCCL scheduler, not from a folder of XML: knows root and datatype, "
        "serves the executor's releases for NCCL 2.17 to 2.19",
    )
    parser.add_argument(
        "--machine",
        metavar="T",
        help="the machine as it is now: another signature than the table's"
        " starts CMD without the table",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD", help="what to start")


def run(args: argparse.Namespace) -> int:
    """Set the environment, print it as a block to copy, and start the command."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise InputError("nothing to start; expected -- CMD after the options")
    if changes := changed(args):
        warn([f"the machine changed since the table was tuned: {changes[0]}"])
        warn(["CMD runs without the table, on the runtime's defaults; run `tuccl tune` again"])
        return run_command(command, {}, without=LEFT_OVER)
    environment, notes = run_environment(Path(args.table), args.dialect, scheduler=args.scheduler)
    handing, more = forwarding(command, environment)
    warn([*notes, *more])
    say(shell_block(environment))
    say(f"# starts: {shlex.join(handing)}")
    return run_command(handing, environment, without=LEFT_OVER)


def changed(args: argparse.Namespace) -> tuple[str, ...]:
    """Return why the table is not for this machine any more; nothing where it is."""
    now = topology_of(args.machine) if args.machine else None
    return changed_machine(open_table(Path(args.table)).topology, now)
