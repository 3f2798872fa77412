"""``tuccl compare``: tuned against default, size by size."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.arguments import add_json, add_nccl_version, add_prefer, sizes_of, warn_of_nccl
from tuccl.cli.emulation import ended_by_signals, introduce
from tuccl.cli.executors import (
    TUNED_ON,
    add_executor,
    add_real,
    cross_executor,
    one_run,
    real_executor_of,
)
from tuccl.cli.iterations import print_loads
from tuccl.cli.output import columns, print_json, say, write_text
from tuccl.cli.progress import Progress
from tuccl.cli.studies import add_study, studies_of
from tuccl.errors import InputError
from tuccl.groups.job import is_job, load_job
from tuccl.runtime import (
    SYMMETRIC_BASELINE,
    Executor,
    Table,
    baselines_on,
    load_table,
)
from tuccl.runtime.baseline import LIBRARIES_BASELINE
from tuccl.units import format_bytes

if TYPE_CHECKING:
    from tuccl.eval.compare_groups import GroupsRow

EXAMPLE = "tuccl compare table/ --on sim --baseline both --report report.html"
_BASELINES = {
    "msccl-default": ("msccl-default", "msccl-default-robust", "msccl-best"),
    "nccl": ("nccl", "nccl-best"),
    SYMMETRIC_BASELINE: ("nccl", "nccl-best", SYMMETRIC_BASELINE),
    "both": ("nccl", "nccl-best", "msccl-default", "msccl-best"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "table",
        metavar="TABLE",
        help="folder of a table, or of a job's tables: these only in simulation, against NCCL's "
        "choice, or with --emulate, measured against Gloo under PyTorch",
    )
    add_executor(parser)
    add_real(parser, elements=False)
    parser.add_argument(
        "--baseline",
        default="both",
        help="nccl: NCCL's own choice, and nccl-best, the fastest that a user can set; "
        "msccl-default: the paper's default, its robust form, and msccl-best, the fastest program "
        "that ships with MSCCL; both (default): of each the default and the best; --on mpi has no "
        f"nccl, and a table of NCCL's own choices only nccl; {SYMMETRIC_BASELINE}: nccl, also on "
        "symmetric windows, which no tuner reaches (--on nccl-tests, NCCL 2.27 on)",
    )
    add_nccl_version(parser, "the one the table was tuned against")
    parser.add_argument(
        "-s", "--size", metavar="RANGE", help="sizes (default: those that were tuned)"
    )
    parser.add_argument(
        "--report",
        metavar="OUT.html",
        help="write a page: charts, reasons, knob effects, link use, sketches, the search",
    )
    parser.add_argument(
        "--idle",
        metavar="TABLE",
        help="with --cross: a table of the same machine that was tuned without others' traffic",
    )
    add_study(parser)
    add_prefer(parser, "default: the table's order")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Compare and print; 1 where the table is slower than a default."""
    from tuccl.eval import compare, html_report, text_report

    if args.baseline not in _BASELINES:
        raise InputError(
            f"--baseline {args.baseline[:40]}: expected one of {', '.join(_BASELINES)}"
        )
    warn_of_nccl(args.nccl_version)
    if is_job(args.table):
        return compare_job(args)
    if args.idle and not args.cross:
        raise InputError("--idle: a table to compare under --cross; name the cross traffic")
    if args.study and not args.report:
        raise InputError("--study: what --report draws the search from; name the page")
    stored = load_table(Path(args.table))
    sizes = None if args.size is None else sizes_of(args.size)
    if args.cross and args.on == "sim":
        return compare_cross(args, stored, sizes)
    with ExitStack() as stack:
        executor = real_executor_of(
            args,
            stored.topology,
            stack,
            effort=one_run(),
            real=TUNED_ON,
            dialect=stored.lookup.dialect,
        )
        progress = stack.enter_context(Progress())
        comparison = compare(
            stored,
            lambda _: executor,
            baselines=baselines_of(args, executor),
            sizes=sizes,
            nccl_version=args.nccl_version,
            prefer=args.prefer,
            progress=progress.update,
        )
    if args.report:
        studies = studies_of(args.study, Path(args.table), stored.lookup)
        page = html_report(
            comparison,
            studies,
            stored.preferring(args.prefer),
            command=shlex.join(["tuccl", *sys.argv[1:]]),
            date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        )
        write_text(Path(args.report), page)
    if args.json:
        print_json(comparison)
    else:
        print(text_report(comparison))
        print_loads(executor)
    if args.report:
        say(f"report: {args.report}")
    return 1 if comparison.regressions or comparison.wrong else 0


def compare_job(args: argparse.Namespace) -> int:
    """Print a job's tables against NCCL's choice, all groups of a kind at once."""
    from tuccl.eval.compare_groups import compare_groups

    others = (
        args.cross,
        args.report,
        args.idle,
        args.prefer,
        args.machine,
        args.regime,
        args.study,
    )
    if args.on != "sim" or any(others) or args.baseline not in ("both", "nccl"):
        raise InputError(
            f"{args.table}: a job's tables are compared with NCCL's choice, simulated, without "
            "--cross, --report, --idle, --prefer, --machine, --regime, --study and --baseline, or "
            "measured with --emulate alone; of its groups' parts compare the tables in tables/"
        )
    sizes = sizes_of(args.size) if args.size else None
    if args.emulate:
        return measure_job(args, sizes)
    rows = compare_groups(load_job(args.table), sizes, args.nccl_version)
    if args.json:
        print_json({"simulated": rows})
    else:
        print("# simulated, us: from the start of all groups of a kind to the end of the last")
        if beside := any(row.beside for row in rows):
            print(
                "# beside: us of other kinds' calls, by NCCL's choice and by the tables; of calls"
            )
            print("# that repeat a turn, without what fills the links")
        table = [
            [
                *(row.kind, row.collective, format_bytes(row.size)),
                *(row.default_us, row.tuned_us, f"{row.default_us / row.tuned_us:.2f}x"),
                *(row.bound_us, f"{row.bound_us / row.tuned_us:.2f}", row.choice),
                *([beside_text(row)] if beside else []),
            ]
            for row in rows
        ]
        head = ["kind", "collective", "size", "nccl", "tuned", "gain", "bound", "of bound"]
        print(columns([*head, "choice", *(["beside"] if beside else [])], table))
    times = [(row.default_us, row.tuned_us) for row in rows]
    times += [(each.default_us, each.tuned_us) for row in rows for each in row.beside]
    return 1 if any(tuned_us > default_us * 1.01 for default_us, tuned_us in times) else 0


def measure_job(args: argparse.Namespace, sizes: list[int] | None) -> int:
    """Print a job's tables against Gloo, measured on emulated hosts; 0."""
    from tuccl.emulation import Emulation
    from tuccl.eval.measure_groups import GLOO, MEASURED, calls_of_job, measure_groups

    job = load_job(args.table)
    calls, tables = calls_of_job(job, sizes), {"tables": job.folder}
    if not calls:
        raise InputError(f"{args.table}: has no call to measure; expected {', '.join(MEASURED)}")
    with ended_by_signals(), ExitStack() as stack:
        several = len(job.topology.hosts) > 1
        where = stack.enter_context(Emulation(job.topology, args.scale)) if several else None
        if where is not None:
            introduce(where)
        progress = stack.enter_context(Progress())
        found = measure_groups(job.groups, tables, calls, where, progress=progress.update)
    label = where.label if where else "this machine"
    if args.json:
        print_json({"measured": found, "label": label})
        return 0
    print(f"# measured on {label}")
    print("# us of the slowest rank, the calls beside being under way: median of the rounds, and")
    print("# their spread; programs: calls of rank 0 that ran one, not Gloo")
    rows = [
        [
            *(row.call.kind, row.call.collective, format_bytes(row.call.nbytes)),
            *(f"{row.median_us(arm):.0f} {row.spread(arm):.0%}" for arm in (GLOO, "tables")),
            f"{row.median_us(GLOO) / row.median_us('tables'):.2f}x",
            *(f"{row.programs['tables']:.0%}", ", ".join(map(str, row.call.beside))),
        ]
        for row in found
    ]
    head = ["kind", "collective", "size", "gloo", "tables", "gain", "programs", "beside"]
    print(columns(head, rows))
    return 0


def beside_text(row: GroupsRow) -> str:
    """Return the calls beside a row's with their times."""
    return ", ".join(f"{c.call} {c.default_us:.1f} {c.tuned_us:.1f}" for c in row.beside)


def compare_cross(args: argparse.Namespace, table: Table, sizes: list[int] | None) -> int:
    """Print the table's choices under the scenarios of --cross beside others and the ceiling."""
    from tuccl.eval.compare_scenarios import compare_scenarios, scenarios_text

    executor = cross_executor(args, table.topology, table.lookup.dialect)
    idle = load_table(Path(args.idle)) if args.idle else None
    rows = compare_scenarios(table, executor.scenarios, idle, sizes)
    if args.json:
        print_json({"label": executor.label, "rows": rows})
    else:
        print(scenarios_text(rows, executor.label))
    return 0


def baselines_of(args: argparse.Namespace, executor: Executor) -> Sequence[str]:
    """Return the baselines that --baseline names and the executor can time."""
    able = baselines_on(executor)
    own = [LIBRARIES_BASELINE] if executor.libraries else []
    baselines = own + [b for b in _BASELINES[args.baseline] if b in able]
    if args.baseline == "both" and "msccl-best" not in able:
        baselines.append("msccl-default-robust")  # the strongest that it can time
    return baselines or _BASELINES[args.baseline]
