"""``tuccl train``: a step of data-parallel training by several methods; the calls of a layout."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.advice import print_advice
from tuccl.cli.arguments import topology_of
from tuccl.cli.emulation import ended_by_signals
from tuccl.cli.output import columns, print_json, say, warn, write_text
from tuccl.cli.sparse import print_sparse, ratios_of
from tuccl.cli.step_calls import print_step
from tuccl.cli.train_options import (
    add_arguments,
    backends_of,
    check_options,
    methods_of,
    table_of,
)
from tuccl.errors import InputError
from tuccl.runtime import Table
from tuccl.topology import Topology, load_cross_traffic
from tuccl.units import format_bytes

if TYPE_CHECKING:
    from tuccl.training import Journal, Model, TrainingRow, TrainingRun

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "tuccl train cluster.json --model resnet50 --table table/ --picture step.svg"

EQUAL = {
    "bitwise": "equal bit for bit",
    "rounding": "equal within rounding",
    "no": "not equal",
    "": "lossy",
}


def run(args: argparse.Namespace) -> int:
    """Simulate or run each method, and print a row for each."""
    from tuccl.training import load_model

    check_options(args)
    topology = topology_of(args.topology)
    if args.layout is not None:
        return print_step(args, topology)
    if args.kind == "train":
        journal, runs = measure_methods(args, topology, None)
        about = f"{args.model} on {topology.name}; speed-ups are of a step alone at equal shares"
    else:
        model = load_model(args.model, args.batch)
        if args.advise:
            return print_advice(args, topology, model)
        if args.ratios:
            backends = backends_of(args, topology, table_of(args))
            return print_sparse(args, heading(model, topology), model, topology.ranks, backends)
        take = simulate_methods if args.kind == "sim" else measure_methods
        journal, runs = take(args, topology, model)
        about = heading(model, topology)
    if args.json:
        print_json({"kind": args.kind, "rows": journal.rows, "runs": extra_rows(runs)})
    else:
        print(f"# {args.kind}: {about}")
        print(rows_text(journal.rows))
        if more := extra_rows(runs):
            print("\n" + columns([*more[0]], [list(each.values()) for each in more]))
    write_pictures(args, runs)
    return 0


def measure_methods(
    args: argparse.Namespace, topology: Topology, model: Model | None
) -> tuple[Journal, list[TrainingRun]]:
    """Return the rows of the methods that ranks run, and the runs of those that ran just now.

    Raises:
        InputError: a method cannot be run.
    """
    from tuccl.training import Journal
    from tuccl.training.lossy import LOSSY, with_ratios
    from tuccl.training.runs import RUN_METHODS, TORCH_DDP, replay_training, train_module

    stored = table_of(args)
    about = (
        f"--kind {args.kind}, --model {args.model} {model_text(model)}, "
        f"{run_text(args, topology, stored)}, --scale {args.scale}, --steps {args.steps}, "
        f"--rounds {args.rounds}" + (f", --cross {args.cross}" if args.cross else "")
    )
    journal = Journal(Path(args.output) if args.output else None, about, resume=args.resume)
    usual = RUN_METHODS if model is not None else (*RUN_METHODS, TORCH_DDP.name)
    ratios = ratios_of(args.ratios) if args.ratios else []
    if ratios:
        usual = (TORCH_DDP.name, *LOSSY)
    named = [m.strip() for m in args.methods.split(",")] if args.methods else list(usual)
    named = with_ratios(named, ratios)
    whole = args.steps * args.rounds
    done = {row.method for row in journal.rows if row.backend == "gloo" and row.steps >= whole}
    methods = [name for name in named if name not in done]
    if not methods:
        return journal, []
    options = {"scale": args.scale, "steps": args.steps, "rounds": args.rounds}
    options |= {"table": stored and stored.folder, "limit_s": args.time_limit or 0.0}
    options |= {"servers": args.servers, "colocated": args.colocated}
    if args.cross:
        cross = load_cross_traffic(args.cross)
        options |= {"cross": cross, "on_load": lambda load: say(load.text)}

    def keep(some: Sequence[TrainingRun]) -> None:
        for each in some:
            journal.add(each.row)

    with ended_by_signals():
        if model is not None:
            runs = replay_training(model, topology, methods, progress=keep, **options)
        else:
            runs = train_module(
                args.model, topology, methods, batch=args.batch, progress=keep, **options
            )
    return journal, list(runs)


def extra_rows(runs: Sequence[TrainingRun]) -> list[dict[str, object]]:
    """Return beside measured steps what measured calls predicted, and whether weights are DDP's."""
    from tuccl.training.runs import MeasuredRun

    rows: list[dict[str, object]] = []
    for each in runs:
        if isinstance(each, MeasuredRun):
            row: dict[str, object] = {"method": each.method.name, "calls by": each.row.backend}
            predicted = each.predicted_us / 1e3 if each.predicted_us else None
            row["step ms"], row["predicted ms"] = each.row.step_us / 1e3, predicted
            if each.row.kind == "train":
                row["weights after 20 steps, and DDP's"] = EQUAL[each.equal]
                row["loss"], row["after steps"] = each.loss, each.trained_steps
            rows.append(row)
    return rows


def simulate_methods(
    args: argparse.Namespace, topology: Topology, model: Model
) -> tuple[Journal, list[TrainingRun]]:
    """Return the rows of all methods, and the runs of those that were simulated just now."""
    from tuccl.training import Journal, simulate_training

    stored = table_of(args)
    about = (
        f"--kind sim, --model {model.name} {model_text(model)}, "
        f"{run_text(args, topology, stored)}, --nccl-version {args.nccl_version}"
    )
    journal = Journal(Path(args.output) if args.output else None, about, resume=args.resume)
    runs, begin = [], time.monotonic()
    for backend, costs in backends_of(args, topology, stored):
        for method in methods_of(args):
            if journal.row(method.name, backend) is not None:
                continue
            if args.time_limit is not None and time.monotonic() - begin > args.time_limit:
                warn(
                    [f"{method.name} by {backend}: not begun within --time-limit; --resume goes on"]
                )
                continue
            each = simulate_training(model, method, topology.ranks, costs, backend)
            runs.append(each)
            journal.add(each.row)
    return journal, runs


def heading(model: Model, topology: Topology) -> str:
    """Return what the rows are of, in a line."""
    from tuccl.training import c2c_by_operations

    text = (
        f"{model.name}, batch {model.batch}, {format_bytes(model.nbytes)} bytes of gradients, "
        f"step alone {model.step_us / 1e3:.4g} ms ({model.source}), on {topology.name}"
    )
    if not model.operations:
        return text
    c2c = c2c_by_operations(model.nbytes, topology.ranks, model.batch, model.operations)
    return f"{text}; C2C by operations {c2c:.3g}"


def rows_text(rows: Sequence[TrainingRow]) -> str:
    """Return the rows in columns."""
    header = ["kind", "method", "A2A/PS", "calls by", "samples/s", "speed-up", "efficiency"]
    header += ["exposed", "step ms", "10-90 %", "by program", "by default", "C2C"]
    return columns(
        header,
        [
            [
                *(row.kind, row.method, row.label[2], row.backend),
                *(row.samples_per_s, *gain_of(row), f"{row.exposed:.1%}"),
                *(row.step_us / 1e3, f"{row.low_us / 1e3:.2f}-{row.high_us / 1e3:.2f}"),
                *(row.by_program, row.by_default, row.c2c),
            ]
            for row in rows
        ],
    )


def gain_of(row: TrainingRow) -> tuple[str, str]:
    """Return the speed-up and the efficiency as text."""
    if not row.comparable:
        return "not comparable", "-"
    return f"{row.speedup:.4g}", f"{row.efficiency:.1%}"


def write_pictures(args: argparse.Namespace, runs: Sequence[TrainingRun]) -> None:
    """Write the timeline of the fastest of ``runs`` where the arguments request it.

    Raises:
        InputError: nothing ran that could be drawn.
    """
    from tuccl.training import timeline_svg, timeline_trace

    if not (args.picture or args.trace):
        return
    if not runs:
        raise InputError("--picture, --trace: all rows were there already; leave --resume out")
    fastest = min(runs, key=lambda each: each.row.step_us)
    if args.picture:
        write_text(Path(args.picture), timeline_svg(fastest))
    if args.trace:
        write_text(Path(args.trace), timeline_trace(fastest).decode())
    say(f"drawn: {fastest.row.method} by {fastest.row.backend}, {fastest.row.kind}")


def run_text(args: argparse.Namespace, topology: Topology, stored: Table | None) -> str:
    """Return the options of every run, by which its rows are comparable with others."""
    from tuccl.topology import signature

    table = stored.lookup.checksum[:16] if stored else "none"
    return (
        f"topology {signature(topology)}, --table {table}, --servers {args.servers}, "
        f"--colocated {args.colocated}"
    )


def model_text(model: Model | None) -> str:
    """Return what distinguishes a run's model; measured times differ each time."""
    if model is None:
        return "as trained"
    times = "measured" if model.source.startswith("measured") else f"{model.step_us:.6g} us"
    return f"x{model.batch} {model.nbytes} bytes {times}"
