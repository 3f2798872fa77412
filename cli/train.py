"""``tuccl train``: a step of data-parallel training by several methods, simulated or run."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.arguments import add_json, add_nccl_version, topology_of
from tuccl.cli.emulate import ended_by_signals
from tuccl.cli.output import check_target, columns, print_json, say, warn, write_text
from tuccl.cli.sparse import RATIOS_HELP, print_sparse
from tuccl.errors import InputError
from tuccl.runtime import NCCL_VERSION, StoredTable, open_table
from tuccl.topology import Topology, load_machine
from tuccl.units import format_bytes

if TYPE_CHECKING:
    from tuccl.training import Costs, Journal, Method, Model, TrainingRow, TrainingRun
    from tuccl.training.advice import Advice
    from tuccl.training.rows import Backend

HELP = "what a table saves a training step: methods from BSP to DeAR, simulated, replayed or run"
EXAMPLE = "tuccl train cluster.json --model resnet50 --table table/ --svg step.svg"

EQUAL = {"bitwise": "equal bit for bit", "rounding": "equal within rounding", "no": "not equal"}
KINDS = ("sim", "replay", "train")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("topology", metavar="T", help="topology file; a rank for each GPU")
    parser.add_argument(
        "--model",
        required=True,
        metavar="M",
        help="ResNet-50, BERT-Base, BERT-Large; a file of layers (docs/training.md); "
        "mlp, a small net, or module:function: a module of PyTorch (with --kind train computed)",
    )
    parser.add_argument("--batch", type=int, metavar="N", help="samples a step of one rank")
    parser.add_argument(
        "--kind",
        default="sim",
        help="sim: simulated (default); replay: timers compute, real bytes move; train: a real "
        "module computes; several hosts are emulated (needs root), by PyTorch",
    )
    parser.add_argument("--methods", metavar="LIST", help="by comma (default: all)")
    parser.add_argument("--table", metavar="DIR", help="a table: rows with it beside the default")
    parser.add_argument(
        "--scale",
        type=float,
        metavar="F",
        help="with replay, train: emulated over nominal rates, and of replayed bytes (default: the "
        "fastest NIC at 1 Gb/s)",
    )
    parser.add_argument(
        "--steps", type=int, default=5, metavar="N", help="of a turn (default 5), and one before"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="turns of each method (default 3)"
    )
    parser.add_argument("--machine", metavar="CLASS", help="machine class, a name or a file")
    add_nccl_version(parser)
    parser.add_argument(
        "--servers", type=int, default=0, metavar="N", help="server hosts (default: as workers)"
    )
    parser.add_argument("--colocated", action="store_true", help="servers on the workers' hosts")
    parser.add_argument(
        "--advise", action="store_true", help="instead: name the method to take and what to tune"
    )
    parser.add_argument("--ratios", metavar="LIST", help=RATIOS_HELP)
    parser.add_argument("--tune", metavar="DIR", help="with --advise: tune for it, write the table")
    parser.add_argument(
        "--budget", type=int, default=60, metavar="N", help="with --tune: as tune has it"
    )
    parser.add_argument("--svg", metavar="OUT", help="write a picture of the fastest step")
    parser.add_argument("--trace", metavar="OUT", help="write it as a trace for ui.perfetto.dev")
    parser.add_argument("-o", "--output", metavar="FILE", help="keep the rows, for --resume")
    parser.add_argument("--resume", action="store_true", help="go on with the rows of -o")
    parser.add_argument(
        "--limit", type=float, metavar="S", help="begin no method, or round, after S s"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Simulate or run each method, and print a row for each."""
    from tuccl.training import load_model

    check_options(args)
    topology = topology_of(args.topology)
    if args.kind == "train":
        journal, runs = measured(args, topology, None)
        about = f"{args.model} on {topology.name}; speed-ups are of a step alone at equal shares"
    else:
        model = load_model(args.model, args.batch)
        if args.advise:
            return print_advice(args, topology, model)
        if args.ratios:
            backends = backends_of(args, topology, table_of(args))
            return print_sparse(args, heading(model, topology), model, topology.ranks, backends)
        take = simulated if args.kind == "sim" else measured
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


def check_options(args: argparse.Namespace) -> None:
    """Refuse options that do not go together, and files that cannot be written.

    Raises:
        InputError: they do not.
    """
    if args.kind not in KINDS:
        raise InputError(f"--kind {args.kind[:20]}: expected {', '.join(KINDS)}")
    if args.advise and args.kind != "sim":
        raise InputError(f"--advise: simulates, not --kind {args.kind}; leave --kind out")
    if args.ratios and (args.advise or args.kind != "sim"):
        raise InputError("--ratios: simulates, and gives no advice; leave --kind, --advise out")
    if args.steps < 1 or args.rounds < 1:
        raise InputError("--steps, --rounds: expected at least 1 of each")
    if args.tune and not args.advise:
        raise InputError("--tune: expected --advise with it")
    if args.resume and not args.output:
        raise InputError("--resume: expected -o FILE with it")
    if args.servers < 0:
        raise InputError(f"--servers {args.servers}: expected at least 1 host")
    if args.limit is not None and not args.limit > 0:
        raise InputError(f"--limit {args.limit:g}: expected more than 0 seconds")
    for target in (args.svg, args.trace, args.output):
        if target:
            check_target(Path(target))


def methods_of(args: argparse.Namespace) -> list[Method]:
    """Return the methods asked for, all by default.

    Raises:
        InputError: one of them is unknown.
    """
    from tuccl.training import METHODS, method_of

    if args.methods is None:
        return list(METHODS.values())
    return [method_of(name.strip()) for name in args.methods.split(",")]


def table_of(args: argparse.Namespace) -> StoredTable | None:
    """Return the table of --table, None without."""
    return open_table(Path(args.table)) if args.table else None


def backends_of(
    args: argparse.Namespace, topology: Topology, stored: StoredTable | None
) -> Iterator[tuple[Backend, Costs]]:
    """Yield the default's costs, and the table's where one is given."""
    from tuccl.training import simulated_costs

    backends: tuple[tuple[Backend, StoredTable | None], ...]
    backends = (("default", None), ("table", stored))
    for backend, table in backends:
        if backend == "default" or table is not None:
            yield (
                backend,
                simulated_costs(
                    topology,
                    table,
                    servers=args.servers,
                    colocated=args.colocated,
                    version=args.nccl_version or NCCL_VERSION,
                    machine=load_machine(args.machine) if args.machine else None,
                ),
            )


def measured(
    args: argparse.Namespace, topology: Topology, model: Model | None
) -> tuple[Journal, list[TrainingRun]]:
    """Return the rows of the methods that ranks run, and the runs of those that ran just now.

    Raises:
        InputError: a method cannot be run.
    """
    from tuccl.topology import signature
    from tuccl.training import Journal
    from tuccl.training.runs import REPLAYED, RUN_METHODS, TORCH_DDP, replay_training, train_module

    stored = table_of(args)
    about = (
        f"{args.kind} {args.model} {model.step_us if model else 0:.6g} us on "
        f"{signature(topology)}, table {stored.table.checksum[:16] if stored else 'none'}, scale "
        f"{args.scale}, {args.steps} x {args.rounds}"
    )
    journal = Journal(Path(args.output) if args.output else None, about, resume=args.resume)
    usual = REPLAYED if model is not None else (*RUN_METHODS, TORCH_DDP.name)
    asked = [m.strip() for m in args.methods.split(",")] if args.methods else usual
    methods = [name for name in asked if journal.row(name, "gloo") is None]
    if not methods:
        return journal, []
    options = {"scale": args.scale, "steps": args.steps, "rounds": args.rounds}
    options |= {"table": stored and stored.folder, "limit_s": args.limit or 0.0}
    with ended_by_signals():
        if model is not None:
            runs = replay_training(model, topology, methods, **options)
        else:
            runs = train_module(args.model, topology, methods, batch=args.batch, **options)
    for each in runs:
        journal.add(each.row)
    return journal, list(runs)


def extra_rows(runs: Sequence[TrainingRun]) -> list[dict[str, object]]:
    """Return beside measured steps what measured calls predicted, and whether weights are DDP's."""
    from tuccl.training.runs import MeasuredRun

    rows: list[dict[str, object]] = []
    for each in runs:
        if isinstance(each, MeasuredRun):
            row: dict[str, object] = {"method": each.method.name, "calls by": each.row.backend}
            row["step ms"], row["predicted ms"] = each.row.step_us / 1e3, each.predicted_us / 1e3
            if each.equal:
                row["weights after 20 steps, and DDP's"] = EQUAL[each.equal]
            rows.append(row)
    return rows


def simulated(
    args: argparse.Namespace, topology: Topology, model: Model
) -> tuple[Journal, list[TrainingRun]]:
    """Return the rows of all methods, and the runs of those that were simulated just now."""
    from tuccl.topology import signature
    from tuccl.training import Journal, simulate_training

    stored = table_of(args)
    about = (
        f"sim {model.name} x{model.batch} {model.step_us:.6g} us on {signature(topology)}, table "
        f"{stored.table.checksum[:16] if stored else 'none'}, NCCL {args.nccl_version}, "
        f"servers {args.servers} {args.colocated}"
    )
    journal = Journal(Path(args.output) if args.output else None, about, resume=args.resume)
    runs, begin = [], time.monotonic()
    for backend, costs in backends_of(args, topology, stored):
        for method in methods_of(args):
            if journal.row(method.name, backend) is not None:
                continue
            if args.limit is not None and time.monotonic() - begin > args.limit:
                warn([f"{method.name} by {backend}: not begun within --limit; --resume goes on"])
                continue
            each = simulate_training(model, method, topology.ranks, costs, backend)
            runs.append(each)
            journal.add(each.row)
    return journal, runs


def heading(model: Model, topology: Topology) -> str:
    """Return what the rows are of, in a line."""
    return (
        f"{model.name}, batch {model.batch}, {format_bytes(model.nbytes)} bytes of "
        f"gradients, step alone {model.step_us / 1e3:.4g} ms ({model.source}), on {topology.name}"
    )


def rows_text(rows: Sequence[TrainingRow]) -> str:
    """Return the rows in columns."""
    header = ["kind", "method", "A2A/PS", "calls by", "samples/s", "speed-up", "efficiency"]
    header += ["exposed", "step ms", "10-90 %", "by program", "by default", "C2C"]
    return columns(
        header,
        [
            [
                *(row.kind, row.method, row.label[2], row.backend),
                *(row.samples_per_s, row.speedup, f"{row.efficiency:.1%}", f"{row.exposed:.1%}"),
                *(row.step_us / 1e3, f"{row.low_us / 1e3:.2f}-{row.high_us / 1e3:.2f}"),
                *(row.by_program, row.by_default, row.c2c),
            ]
            for row in rows
        ],
    )


def write_pictures(args: argparse.Namespace, runs: Sequence[TrainingRun]) -> None:
    """Write the timeline of the fastest of ``runs`` where the arguments ask for it.

    Raises:
        InputError: nothing ran that could be drawn.
    """
    from tuccl.training import timeline_svg, timeline_trace

    if not (args.svg or args.trace):
        return
    if not runs:
        raise InputError("--svg, --trace: all rows were there already; leave --resume out")
    fastest = min(runs, key=lambda each: each.row.step_us)
    if args.svg:
        write_text(Path(args.svg), timeline_svg(fastest))
    if args.trace:
        write_text(Path(args.trace), timeline_trace(fastest).decode())
    say(f"drawn: {fastest.row.method} by {fastest.row.backend}, {fastest.row.kind}")


def print_advice(args: argparse.Namespace, topology: Topology, model: Model) -> int:
    """Simulate all methods, print which to take and what to tune; with --tune tune it."""
    before = list(backends_of(args, topology, table_of(args)))[-1]
    advice = advised(args, topology, model, before)
    if args.tune and advice.tune_for:
        tuned = tuned_table(args, topology, advice)
        after = list(backends_of(args, topology, tuned))[-1]
        advice_after = advised(args, topology, model, after)
        if args.json:
            print_json({"advice": advice, "tuned": advice_after, "table": args.tune})
            return 0
        print(advice_text(args, advice))
        step_us, tuned_us = advice.row.step_us, advice_after.row.step_us
        print(
            f"tuned: {args.tune}; with it {advice_after.row.method} takes {tuned_us / 1e3:.4g} ms "
            f"in place of {step_us / 1e3:.4g}, {step_us / tuned_us:.3f}x (simulated)"
        )
        return 0
    if args.json:
        print_json({"advice": advice})
    else:
        print(advice_text(args, advice))
    return 0


def advised(
    args: argparse.Namespace, topology: Topology, model: Model, backend: tuple[Backend, Costs]
) -> Advice:
    """Return the advice for ``model`` where calls take what ``backend`` says."""
    from tuccl.training import METHODS, simulate_training
    from tuccl.training.advice import advise

    name, costs = backend
    # Servers are further hosts: only who has them is advised to use them.
    asked = [m for m in methods_of(args) if args.servers or args.colocated or not m.is_server]
    methods = {method.name: method for method in (METHODS["ddp"], *asked)}
    runs = [
        simulate_training(model, method, topology.ranks, costs, name) for method in methods.values()
    ]
    return advise(model, runs, costs)


def tuned_table(args: argparse.Namespace, topology: Topology, advice: Advice) -> StoredTable:
    """Tune exactly what the advice's method calls, simulated, and return the table."""
    from tuccl.runtime import SimExecutor
    from tuccl.runtime.workload import Call
    from tuccl.runtime.workload.calls import workload_of
    from tuccl.tuning import TuneOptions, tune_workload

    calls = [Call(each.collective, each.nbytes, each.count) for each in advice.tune_for]
    workload = workload_of(f"{advice.row.model} {advice.row.method}", calls, topology.ranks)
    options = TuneOptions(budget=args.budget, nccl_version=args.nccl_version or NCCL_VERSION)
    machine = load_machine(args.machine) if args.machine else None
    executor = SimExecutor(topology, machine)
    tune_workload(executor, topology, workload, Path(args.tune), options)
    return open_table(Path(args.tune))


def advice_text(args: argparse.Namespace, advice: Advice) -> str:
    """Return the advice in a few lines, with the command that tunes for it."""
    from tuccl.training.advice import workload_json

    row, sizes = advice.row, [each.nbytes for each in advice.tune_for]
    lines = [
        f"method: {row.method} ({', '.join(row.label[:4])}): {advice.reason}",
        (
            f"step: {row.step_us / 1e3:.4g} ms, {row.samples_per_s:.4g} samples/s, "
            f"{advice.gain:.3f}x of DDP's defaults; without communication "
            f"{advice.least_us / 1e3:.4g} ms (simulated)"
        ),
        (f"buckets: {len(advice.buckets)} of {bytes_text(advice.buckets)} bytes"),
        f"compression: {advice.compression}",
    ]
    if not sizes:
        return "\n".join([*lines, "tune: nothing; parameter servers call no collective"])
    names = ", ".join(dict.fromkeys(each.collective for each in advice.tune_for))
    lines.append(f"tune: {names}, {len(sizes)} kinds of call of {bytes_text(sizes)} bytes")
    if args.output:
        write_text(Path(args.output), workload_json(advice).decode())
        command = f"tuccl tune {args.topology} --workload {args.output} -o table"
        lines.append(f"calls: {args.output}; then: {command}")
    elif not args.tune:
        lines.append("with -o FILE the calls are written for tuccl tune --workload FILE")
    return "\n".join(lines)


def bytes_text(sizes: Sequence[int]) -> str:
    """Return the least and the most of ``sizes`` in bytes."""
    least, most = format_bytes(min(sizes)), format_bytes(max(sizes))
    return least if least == most else f"{least} to {most}"
