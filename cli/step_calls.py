"""``tuccl train --layout``: what the calls of a transformer's step take on a layout of Megatron."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tuccl.cli.layouts import add_megatron
from tuccl.cli.output import columns, print_json, warn
from tuccl.cli.progress import Progress
from tuccl.errors import InputError
from tuccl.groups.layout import MEGATRON_ORDER, megatron_groups
from tuccl.runtime import NCCL_VERSION
from tuccl.topology import Topology
from tuccl.units import format_bytes

if TYPE_CHECKING:
    from tuccl.groups.job import JobTables
    from tuccl.groups.layout import ProcessGroups
    from tuccl.training.step_times import StepRow

_USUAL = {
    "order": MEGATRON_ORDER,
    "micro_batch": 1,
    "global_batch": None,
    "sequence": None,
    "cp_comm_type": "p2p",
}
_OTHERS = (
    *("batch", "methods", "scale", "cross", "machine", "ratios", "tune", "picture", "trace"),
    *("output", "time_limit", "servers", "colocated", "advise", "resume"),
)

HEADING = """\
# simulated: all groups of a kind at once, kinds one after the other; calls of a GPU of the
# first pipeline stage"""
LEFT_OUT = """\
# not counted: overlap with computing and between kinds, uneven experts, small calls, calls without
# a time; of sends, from GPU to GPU, only the bytes are listed"""


def add_step_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a layout's step."""
    group = parser.add_argument_group("the calls of a step on a layout (simulated)")
    add_megatron(group, group)
    group.add_argument(
        "--micro-batch",
        type=int,
        default=_USUAL["micro_batch"],
        metavar="N",
        help="sequences that go through a pipeline stage at once (default 1)",
    )
    group.add_argument(
        "--global-batch",
        type=int,
        default=_USUAL["global_batch"],
        metavar="N",
        help="sequences of a step (default: a micro-batch of each data parallel rank)",
    )
    group.add_argument(
        "--sequence",
        type=int,
        default=_USUAL["sequence"],
        metavar="N",
        help="tokens of a sequence (default: as the model was trained)",
    )
    group.add_argument(
        "--no-sequence-parallel",
        action="store_true",
        help="tensor parallel groups all-reduce; else they gather and scatter sequences",
    )
    group.add_argument(
        "--cp-comm-type",
        choices=("p2p", "all_gather"),
        default=_USUAL["cp_comm_type"],
        help="how context parallel groups exchange keys and values (default p2p)",
    )


def check_step_options(args: argparse.Namespace) -> None:
    """Refuse options of a layout's step without a layout, and others with one.

    Raises:
        InputError: they do not go together.
    """
    if 0 in (args.sequence, args.global_batch):
        raise InputError("--sequence, --global-batch: expected 1 or more")
    if args.layout is None:
        given = [name for name, usual in _USUAL.items() if getattr(args, name) != usual]
        given += ["no_sequence_parallel"] if args.no_sequence_parallel else []
        if given:
            raise InputError(f"--{given[0].replace('_', '-')}: expected --layout with it")
        return
    given = [name for name in _OTHERS if getattr(args, name)]
    if given or args.kind != "sim":
        name = given[0].replace("_", "-") if given else "kind"
        raise InputError(f"--layout: its calls are simulated; leave out --{name}")


def print_step(args: argparse.Namespace, topology: Topology) -> int:
    """Print the calls of a step on the layout of the arguments, and what they take.

    Raises:
        InputError: model, layout, batch or tables do not fit each other.
    """
    from tuccl.training.step_calls import Batch, step_calls
    from tuccl.training.step_times import time_step
    from tuccl.training.transformers import load_transformer

    model = load_transformer(args.model)
    job = megatron_groups(args.layout, topology.ranks, args.order)
    sizes = args.micro_batch, args.global_batch or 0, args.sequence or 0
    batch = Batch(*sizes, not args.no_sequence_parallel, args.cp_comm_type)
    calls = step_calls(model, job, batch)
    tables = tables_of(args.table, job, topology) if args.table else None
    with Progress() as progress:
        version = args.nccl_version or NCCL_VERSION
        rows = time_step(topology, job, calls, tables, version, progress.update)
    warn(
        f"{row.kind}:{row.collective} {format_bytes(row.size)}: not timed: {row.refusal}"
        for row in rows
        if row.refusal
    )
    about = f"{model.name}, {args.layout}, on {topology.name}: {topology.ranks} GPUs"
    command = tune_command(args, rows)
    if args.json:
        print_json({"about": about, "simulated": facts(rows), "tune": command})
    else:
        print_rows(about, facts(rows), command)
    return 0


def tables_of(folder: str, job: ProcessGroups, topology: Topology) -> JobTables:
    """Return the tables of the same groups on the same machine.

    Raises:
        InputError: they are for others, or damaged.
    """
    from tuccl.groups.job import load_job

    tables = load_job(folder)
    if tables.groups != job or tables.topology != topology:
        raise InputError(f"--table {folder[:80]}: tuned for other groups or another machine")
    return tables


def facts(rows: Sequence[StepRow]) -> list[dict[str, Any]]:
    """Return each call with its ms in a step and its part of all."""
    whole = sum(row.step_us for row in rows)
    return [
        {
            "kind": row.kind,
            "collective": row.collective,
            "size": row.size,
            "calls": row.calls,
            "us": row.us,
            "choice": row.choice,
            "table_us": row.table_us,
            "table_choice": row.table_choice,
            "refusal": row.refusal,
            "step_ms": None if row.us is None else row.step_us / 1e3,
            "share": row.step_us / whole if whole else 0.0,
        }
        for row in rows
    ]


def tune_command(args: argparse.Namespace, rows: Sequence[StepRow]) -> str:
    """Return the command that tunes the calls of the size that takes most of a step."""
    timed = [row for row in rows if row.us is not None]
    if not timed:
        return ""
    of_size: dict[int, float] = {}
    for row in timed:
        of_size[row.size] = of_size.get(row.size, 0.0) + row.step_us
    size = max(of_size, key=of_size.__getitem__)
    calls = ",".join(f"{row.kind}:{row.collective}" for row in timed if row.size == size)
    order = ["--order", args.order] if args.order != MEGATRON_ORDER else []
    version = ["--nccl-version", args.nccl_version] if args.nccl_version else []
    words = ["tuccl", "tune", args.topology, "--layout", args.layout, *order, *version]
    words += ["-c", calls, "-s", format_bytes(size), "-o", args.table or "job/"]
    return shlex.join(words)


def print_rows(about: str, rows: Sequence[dict[str, Any]], command: str) -> None:
    """Print the calls, their sum, what is not counted and the command that tunes."""
    print(f"# {about}")
    print(HEADING)
    tabled = any(row["table_us"] is not None for row in rows)
    head = ["kind", "collective", "size", "calls", "NCCL us", "choice"]
    head += ["table us", "table's choice"] if tabled else []
    print(columns([*head, "ms a step", "share"], [cells(row, tabled=tabled) for row in rows]))
    whole = sum(row["step_ms"] or 0.0 for row in rows)
    before = sum(row["calls"] * (row["us"] or 0.0) / 1e3 for row in rows)
    print(f"total {whole:.1f} ms a step" + (f", {before:.1f} ms by NCCL" if tabled else ""))
    print(LEFT_OUT)
    if command:
        print(f"tune what takes most: {command}")


def cells(row: dict[str, Any], *, tabled: bool) -> list[object]:
    """Return a call in columns."""
    size = format_bytes(row["size"])
    by_table = [row["table_us"], row["table_choice"] or "-"] if tabled else []
    share = "-" if row["us"] is None else f"{row['share']:.1%}"
    return [
        *(row["kind"], row["collective"], size, row["calls"], row["us"], row["choice"] or "-"),
        *(*by_table, row["step_ms"], share),
    ]
