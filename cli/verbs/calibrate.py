"""``tuccl calibrate``: fits a machine class of the simulator to measured times."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuccl.cli.arguments import add_json, add_launch_mode, add_root, collectives_of
from tuccl.cli.output import columns, print_json, say, write_text
from tuccl.errors import InputError
from tuccl.eval import (
    CalibrationRun,
    Fit,
    RunErrors,
    Trial,
    cross_validate,
    errors_of,
    fit,
    read_calibration_set,
    trial_of,
)
from tuccl.runtime import NCCL_VERSION
from tuccl.topology import MachineFile, encode_machine, load_topology, machine_class, read_machine
from tuccl.topology.machine import class_name_of

EXAMPLE = "tuccl calibrate all_reduce.txt t.json -c allreduce --launch-mode mpi -o mine.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="TABLE… T",
        help="nccl-tests' text or JSON, or CSV, all taken on the topology T; or one "
        "tuccl-calibration/1 file (docs/reference/files.md), which lists them for each table",
    )
    parser.add_argument(
        "-c", "--collective", metavar="COLL", help="collective that the tables measured"
    )
    parser.add_argument(
        "--column", metavar="NAME", help="column to read: in-place, or one of a CSV"
    )
    add_launch_mode(parser, "the measured kernels were")
    parser.add_argument(
        "--nccl-version",
        default=NCCL_VERSION,
        metavar="V",
        help="version of NCCL that ran (default %(default)s)",
    )
    parser.add_argument(
        "--algorithm", metavar="A", help="NCCL_ALGO, if it was set: Ring, Tree, NVLS"
    )
    parser.add_argument(
        "--protocol", metavar="P", help="NCCL_PROTO, if it was set: LL, LL128, Simple"
    )
    parser.add_argument(
        "--channels",
        type=int,
        metavar="N",
        help="channels, if NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS were set",
    )
    parser.add_argument(
        "--program",
        action="append",
        default=[],
        metavar="F.xml",
        help="program that MSCCL ran; repeat for several",
    )
    add_root(parser)
    parser.add_argument(
        "--machine",
        metavar="CLASS",
        help="machine class that the fit begins with: a name or a file (default: by GPU model)",
    )
    parser.add_argument(
        "--no-fit",
        action="store_true",
        help="report the errors of --machine as it is; fit and write nothing",
    )
    parser.add_argument("-o", "--output", metavar="CLASS", help="write the fitted class here")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Read, fit, validate, write and print."""
    if not args.no_fit and not args.output:
        raise InputError("expected -o CLASS, the file to write (or --no-fit)")
    runs = runs_of(args)
    trials = [trial_of(one) for one in runs]
    start = read_machine(args.machine or start_of(runs))
    if args.no_fit:
        machine = machine_class(start)
        result = Fit(start, tuple(errors_of(trial, machine) for trial in trials))
        left_out: tuple[RunErrors, ...] = ()
    else:
        result, left_out = fitted(trials, start)
        named = renamed(result.machine, Path(args.output))
        write_text(Path(args.output), encode_machine(named).decode())
    if args.json:
        print_json(report(result, left_out, args.output))
    else:
        print(text(result, left_out))
        if args.output and not args.no_fit:
            print(f"{args.output}: use it with --machine {args.output}")
    return 0


def runs_of(args: argparse.Namespace) -> tuple[CalibrationRun, ...]:
    """Return the measured runs that the arguments name.

    Raises:
        InputError: a table without its topology or collective.
    """
    if len(args.files) == 1:
        return read_calibration_set(args.files[0])
    *tables, topology = args.files
    if not args.collective:
        raise InputError("-c: expected the collective that the tables measured")
    [collective, *rest] = collectives_of(args.collective)
    if rest:
        raise InputError("-c: one collective; tables of several go in a tuccl-calibration/1 file")
    return tuple(
        CalibrationRun(
            table=table,
            collective=collective,
            column=args.column,
            topology=topology,
            root=args.root,
            launch=args.launch_mode,
            nccl=args.nccl_version,
            algorithm=args.algorithm,
            protocol=args.protocol,
            channels=args.channels,
            programs=tuple(args.program),
        )
        for table in tables
    )


def start_of(runs: tuple[CalibrationRun, ...]) -> str:
    """Return the class of the runs' GPUs.

    Raises:
        InputError: they are not all of one class.
    """
    from tuccl.topology import load_profile

    names = {
        class_name_of(load_topology(r.topology) if r.topology else load_profile(r.profile or ""))
        for r in runs
    }
    if len(names) > 1:
        raise InputError(
            f"the tables are of classes {', '.join(sorted(names))}: calibrate one at a time"
        )
    return names.pop()


def fitted(trials: list[Trial], start: MachineFile) -> tuple[Fit, tuple[RunErrors, ...]]:
    """Return the fit to all tables, and each table's errors by a fit without it."""
    say(f"fitting {start.name} to {len(trials)} table{'s' if len(trials) > 1 else ''}")
    result = fit(trials, start, progress=say)
    say("again without each table, for the errors of what was not seen")
    return result, cross_validate(trials, start, progress=say)


def renamed(machine: MachineFile, path: Path) -> MachineFile:
    """Return the class named after its file."""
    import msgspec

    return msgspec.structs.replace(machine, name=path.stem[:40])


def report(result: Fit, left_out: tuple[RunErrors, ...], output: str | None) -> dict[str, object]:
    """Return what ``--json`` prints."""
    return {"file": output, "errors": result.errors, "left_out": left_out}


def text(result: Fit, left_out: tuple[RunErrors, ...]) -> str:
    """Return the errors by table: mean absolute, below and from 64 KiB, and the worst."""
    unseen = {e.name: e for e in left_out}
    rows = [
        [
            e.name,
            percent(e.small),
            percent(e.large),
            f"{e.worst:+.0%} at {e.worst_bytes}",
            percent(unseen[e.name].small) if e.name in unseen else None,
            percent(unseen[e.name].large) if e.name in unseen else None,
        ]
        for e in result.errors
    ]
    header = ["table", "< 64K", ">= 64K", "worst", "unseen < 64K", "unseen >= 64K"]
    return "# mean absolute errors, simulated against measured\n" + columns(header, rows)


def percent(part: float | None) -> str | None:
    """Return a part as a percentage."""
    return None if part is None else f"{part:.1%}"
