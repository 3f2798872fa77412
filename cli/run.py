"""``tuccl run``: starts a program with the table loaded into MSCCL."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuccl.cli.arguments import topology_of
from tuccl.cli.output import say, warn
from tuccl.errors import InputError
from tuccl.runtime import changed_machine, open_table, run_environment, shell_block
from tuccl.runtime import run as run_command

HELP = "start a program with the table loaded into the runtime"
EXAMPLE = "tuccl run --table table/ -- mpirun -np 16 all_gather_perf -b 1K -e 1G -f 4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("--table", required=True, metavar="TABLE")
    parser.add_argument("--dialect", default="executor", help="executor (default), rccl or fork")
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
        return run_command(command, {})
    environment, notes = run_environment(Path(args.table), args.dialect)
    warn(notes)
    say(shell_block(environment))
    return run_command(command, environment)


def changed(args: argparse.Namespace) -> tuple[str, ...]:
    """Return why the table is not for this machine any more; nothing where it is."""
    now = topology_of(args.machine) if args.machine else None
    return changed_machine(open_table(Path(args.table)).topology, now)
