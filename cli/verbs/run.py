"""``tuccl run``: starts a program with the table loaded into MSCCL or NCCL."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from tuccl.cli.arguments import add_prefer, topology_of
from tuccl.cli.output import say, warn
from tuccl.errors import InputError, TucclError
from tuccl.files import printable_path, read_bounded
from tuccl.groups.job import is_job, job_environment, load_job
from tuccl.runtime import Table, load_table, run_command, run_environment
from tuccl.runtime.jobs import (
    BOOTSTRAP_VARIABLES,
    changed_machine,
    forwarding,
    hosts_of,
    is_table,
    ranks_in,
    rendezvous_address,
    rendezvous_server,
    shell_block,
    table_for,
)
from tuccl.runtime.jobs.launch import scheduler_notes, window_notes
from tuccl.runtime.probing import read_transports
from tuccl.runtime.table import in_use
from tuccl.runtime.table.context import JobContext
from tuccl.runtime.table.store import JSON_NAME
from tuccl.topology import Topology, differences

# Of an older run in this shell: they would load another table with, or after, this one.
LEFT_OVER = (
    *("TUCCL_TABLE", "TUCCL_SIGNATURE", "TUCCL_TABLE_SHA256"),
    *("MSCCL_ALGO_DIR", "MSCCL_XML_FILES", "MSCCL_CONFIG"),
    *BOOTSTRAP_VARIABLES,
)
EXAMPLE = "tuccl run --table table/ -- mpirun -np 16 all_gather_perf -b 1K -e 1G -f 4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "--table",
        required=True,
        metavar="TABLE",
        help="folder of the table, or of several: that for the hosts which are there is loaded;"
        " or of a job, whose communicators of NCCL get the tables of their groups",
    )
    parser.add_argument(
        "--elastic",
        type=float,
        default=0.0,
        metavar="S",
        help="if none of several tables is for them, derive one in S seconds (simulated) from the"
        " nearest and keep it there; CMD starts without a table if that fails",
    )
    parser.add_argument(
        "--hosts",
        metavar="LIST",
        help="the hosts that are there, as --topology or the tables name them (default: Slurm's;"
        " without: all)",
    )
    parser.add_argument(
        "--dialect",
        help="what runs the programs: executor, rccl (legacy: RCCL 2.28 and later run none) or "
        "fork (default: the table's own); "
        "a table of NCCL's own choices is loaded by NCCL's tuner plugin",
    )
    parser.add_argument(
        "--scheduler",
        action="store_true",
        help="load programs by tuccl's MSCCL scheduler, which knows root and datatype, not "
        "from a folder of XML (executor's releases for NCCL 2.17 to 2.19)",
    )
    parser.add_argument(
        "--cuda",
        action="store_true",
        help="run the programs by tuccl's interpreter on GPUs in NCCL's place "
        "(libnccl-tuccl.so by LD_PRELOAD; `make cuda`)",
    )
    add_prefer(parser, "default: the table's order")
    parser.add_argument(
        "--topology",
        metavar="T",
        help="topology of the machine as it is now: CMD starts without the table if its signature "
        "is another than the table's; warns if measured rates drifted",
    )
    parser.add_argument(
        "--context",
        metavar="FILE",
        help="what `tuccl doctor --transports --json` printed for the job's ranks: CMD starts "
        "without a table that was tuned where ranks shared other things",
    )
    parser.add_argument(
        "--bootstrap",
        metavar="ADDR[:PORT]",
        help="IPv4 address of this host where the ranks agree on the table (default:"
        " the loopback for a table of one host, else this host's); none: each trusts its own copy",
    )
    parser.add_argument(
        "--explore",
        type=int,
        metavar="N",
        help="let one call in about N try another candidate that may be faster (NCCL 2.28 on)",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD", help="what to start")


def run(args: argparse.Namespace) -> int:
    """Set the environment, print it as a block to copy, and start the command."""
    if args.explore is not None and not 0 <= args.explore < 1 << 32:
        raise InputError(f"--explore {args.explore}: expected 0 (never) or one in how many calls")
    if args.explore is not None and args.cuda:
        raise InputError(
            "--explore: the plugins of NCCL and MSCCL do it, not the library of --cuda"
        )
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise InputError("no command to start; expected -- CMD after the options")
    if shutil.which(command[0]) is None:
        raise InputError(f"{command[0][:80]!r} cannot be started: there is no such command")
    now = topology_of(args.topology) if args.topology else None
    if is_job(args.table):
        return run_job(args, command, now)
    here = context_here(args.context) if args.context else None
    several = not is_table(args.table)
    if not several and (args.elastic or args.hosts):
        raise InputError(f"--elastic, --hosts: {args.table} is one table; name the folder it is in")
    stored, note = (
        one_of_several(args, now, here) if several else (load_table(Path(args.table)), "")
    )
    now = None if several else now  # which the choice has heeded
    if stored is not None and (changes := changed_machine(stored.topology, now)):
        stored, note = None, f"the machine changed since the table was tuned: {changes[0]}"
    context = stored.lookup.context if stored is not None else None
    if stored is not None and here and context and (why := context.difference(here)):
        stored, note = None, f"{args.table}: {why}{fitting_table(Path(args.table), here)}"
    warn([note] if note else [])
    if stored is None:
        warn(["CMD runs without the table, on the runtime's defaults; run `tuccl tune` again"])
        return run_command(command, {}, without=LEFT_OVER)
    if now is not None and (drift := differences(stored.topology, now)):
        warn([f"--topology drifted since the table was tuned: {drift[0]}"])
        warn(["the signature is the same and CMD has the table; `tuccl tune` may find faster ones"])
    with in_use(stored.folder):
        return run_with_table(args, command, stored)


def context_here(file: str) -> JobContext:
    """Return what the job's ranks share, as ``file`` has it.

    Raises:
        InputError: it is not what `tuccl doctor --transports --json` prints.
    """
    return read_transports(read_bounded(file, 1 << 24), printable_path(file)).context


def fitting_table(folder: Path, here: JobContext) -> str:
    """Return which table beside ``folder`` is for the job's ranks, as the end of a sentence."""
    for file in sorted(folder.resolve().parent.glob(f"*/{JSON_NAME}")):
        try:
            context = load_table(file.parent).lookup.context
        except (InputError, OSError):
            continue
        if context and not context.difference(here):
            return f"; {file.parent} fits: --table {file.parent}"
    return ""


def one_of_several(
    args: argparse.Namespace, whole: Topology | None, here: JobContext | None
) -> tuple[Table | None, str]:
    """Return that of several tables which is for the machine as it is, and notes, or why none.

    Raises:
        InputError: the folder has no tables at all.
    """
    if not any(Path(args.table).glob("*/table.json")):
        raise InputError(
            f"{printable_path(args.table)}: holds no table; expected one that `tuccl tune` wrote, "
            "or a folder of several"
        )
    others = {"mscclpp", "nccl"} if args.cuda or args.scheduler else {"mscclpp"}
    listed = args.hosts or os.environ.get("SLURM_JOB_NODELIST")
    hosts = hosts_of(listed) if listed else ()
    try:
        return table_for(
            args.table,
            hosts,
            all_gpus=True,
            whole=whole,
            seconds=args.elastic,
            without=others,
            here=here,
        )
    except (TucclError, OSError) as error:
        return None, str(error)


def run_with_table(args: argparse.Namespace, command: list[str], stored: Table) -> int:
    """Start the command with the table, and a place where its ranks' plugins can meet."""
    environment, notes = run_environment(
        stored.folder,
        args.dialect,
        scheduler=args.scheduler,
        prefer=args.prefer,
        cuda=args.cuda,
    )
    address = rendezvous_address(args.bootstrap, stored.lookup.hosts)
    if args.cuda or "TUCCL_TABLE_SHA256" in environment:  # the plugins' own
        if args.explore is not None:
            environment["TUCCL_EXPLORE"] = str(args.explore)
    else:
        address = None
        notes += tuple(
            f"{option}: no effect, the runtime loads programs from a folder without tuccl's plugin"
            for option, value in (("--bootstrap", args.bootstrap), ("--explore", args.explore))
            if value not in (None, "none", 0)
        )
    return start(command, environment, notes, address, stored.lookup.ranks)


def run_job(args: argparse.Namespace, command: list[str], now: Topology | None) -> int:
    """Start the command so that each communicator of NCCL gets the table of its members."""
    names = ("elastic", "hosts", "dialect", "prefer", "context")
    if others := [name for name in names if getattr(args, name)]:
        raise InputError(f"--{others[0]}: not with a job's tables ({args.table})")
    if args.bootstrap == "none":
        raise InputError("--bootstrap none: the ranks of a job's groups have to meet")
    job = load_job(args.table)
    if changes := changed_machine(job.topology, now):
        warn([f"the machine changed since the job was tuned: {changes[0]}"])
        warn(["CMD runs without the tables, on the runtime's defaults; run `tuccl tune` again"])
        return run_command(command, {}, without=LEFT_OVER)
    environment = job_environment(job, cuda=args.cuda)
    by_scheduler = "MSCCL_SCHEDULER" in environment
    if args.scheduler and not by_scheduler:
        raise InputError("--scheduler: expected a job's tables of dialect executor, without --cuda")
    if args.explore and by_scheduler:
        raise InputError("--explore: not with a job's tables of programs")
    if args.explore is not None:
        environment["TUCCL_EXPLORE"] = str(args.explore)
    notes: tuple[str, ...] = (f"every host of the job must see {job.folder.resolve()}",)
    if by_scheduler:
        notes = (
            *scheduler_notes(job.folder),
            "where groups of as many ranks differ in tables, calls are NCCL's, and rank 0 says so",
        )
    elif args.cuda:
        notes += ("ranks are as the launcher or the communicator of all of them numbers them",)
    else:
        notes += (
            "a group's table needs NCCL 2.27 or later, and ranks as its launcher numbers them",
            *window_notes(os.environ),
        )
    address = rendezvous_address(args.bootstrap, len(job.topology.hosts))
    return start(command, environment, notes, address, job.topology.ranks)


def start(
    command: list[str],
    environment: dict[str, str],
    notes: Sequence[str],
    address: tuple[str, int] | None,
    ranks: int,
) -> int:
    """Start the command of ``ranks`` ranks, which meet at ``address``, if any."""
    with rendezvous_server(address) as found:
        handing, more = forwarding(command, {**environment, **found})
        started = ranks_in(command)
        if started not in (None, ranks):
            more += (f"the table is for {ranks} ranks, CMD starts {started}",)
        warn([*notes, *more])
        say(shell_block(environment))
        if found:
            at = found["TUCCL_BOOTSTRAP"]
            say(f"# ranks meet at {at} (TUCCL_BOOTSTRAP, TUCCL_TOKEN: of this run only)")
        words = ["TOKEN" if word == found.get("TUCCL_TOKEN") else word for word in handing]
        say(f"# starts: {shlex.join(words)}")
        return run_command(handing, {**environment, **found}, without=LEFT_OVER)
