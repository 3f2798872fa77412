"""Arguments of ``tuccl train``, and what they select: methods, and the costs of calls."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.arguments import add_json, add_nccl_version
from tuccl.cli.output import check_picture, check_target, warn_new
from tuccl.cli.sparse import RATIOS_HELP
from tuccl.cli.step_calls import add_step_arguments, check_step_options
from tuccl.errors import InputError
from tuccl.runtime import NCCL_VERSION, Table, load_table
from tuccl.topology import Topology, load_machine

if TYPE_CHECKING:
    from tuccl.training import Costs, GradientMethod
    from tuccl.training.rows import Backend

KINDS = ("sim", "replay", "train")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("topology", metavar="T", help="topology file; a rank for each GPU")
    parser.add_argument(
        "--model",
        required=True,
        metavar="M",
        help="ResNet-50, BERT-Base, BERT-Large; a file of layers (docs/howto/training.md); "
        "mlp, a small net, or module:function: a module of PyTorch (with --kind train computed); "
        "with --layout a transformer: LLaMA-3-8B, -70B, -405B, GPT-3-175B, Mixtral-8x7B, -8x22B, "
        "DeepSeek-V3, or a file of its sizes",
    )
    parser.add_argument("--batch", type=int, metavar="N", help="samples a step of one rank")
    parser.add_argument(
        "--kind",
        default="sim",
        help="sim: simulated (default); replay: timers compute, real bytes move; train: a real "
        "module computes; several hosts are emulated (needs root), by PyTorch",
    )
    parser.add_argument("--methods", metavar="LIST", help="methods, by comma (default: all)")
    parser.add_argument(
        "--table",
        metavar="DIR",
        help="a table: adds rows with its programs; with --layout the folder of a job's tables",
    )
    parser.add_argument(
        "--scale",
        type=float,
        metavar="F",
        help="with replay, train: ratio of emulated to nominal rates, and of replayed bytes "
        "(default: the fastest NIC at 1 Gb/s)",
    )
    parser.add_argument(
        "--cross",
        metavar="FILE",
        help="with replay, train: play the traffic of others on the links meanwhile "
        "(tuccl-cross/1)",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=5,
        metavar="N",
        help="timed steps per round, after one warm-up (default 5)",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="rounds of each method (default 3)"
    )
    parser.add_argument(
        "--machine", metavar="CLASS", help="machine class of the simulator: a name or a file"
    )
    add_nccl_version(parser)
    parser.add_argument(
        "--servers",
        type=int,
        default=0,
        metavar="N",
        help="number of further hosts that are parameter servers (default: as many as workers; in "
        "replay and train on the workers' hosts)",
    )
    parser.add_argument(
        "--colocated", action="store_true", help="run the servers on the workers' hosts"
    )
    parser.add_argument(
        "--advise",
        action="store_true",
        help="recommend a method and the calls to tune, and run nothing",
    )
    parser.add_argument("--ratios", metavar="LIST", help=RATIOS_HELP)
    parser.add_argument(
        "--tune", metavar="DIR", help="with --advise: tune for the method, write the table"
    )
    parser.add_argument(
        "--budget",
        type=int,
        default=60,
        metavar="N",
        help="with --tune: evaluations per collective and size (default 60)",
    )
    parser.add_argument("--picture", metavar="OUT.svg", help="write a picture of the fastest step")
    parser.add_argument(
        "--trace", metavar="OUT", help="write the fastest step as a trace for ui.perfetto.dev"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the rows here, for --resume")
    parser.add_argument("--resume", action="store_true", help="continue with the rows of -o")
    parser.add_argument(
        "--time-limit",
        type=float,
        metavar="S",
        help="begin no method and no round after S seconds (default: none)",
    )
    add_step_arguments(parser)
    add_json(parser)


def check_options(args: argparse.Namespace) -> None:
    """Refuse options that do not go together, and files that cannot be written.

    Raises:
        InputError: they do not.
    """
    check_step_options(args)
    if args.kind not in KINDS:
        raise InputError(f"--kind {args.kind[:20]}: expected {', '.join(KINDS)}")
    if args.advise and args.kind != "sim":
        raise InputError(f"--advise: simulates, not --kind {args.kind}; leave --kind out")
    if args.cross and args.kind == "sim":
        raise InputError("--cross: of --kind replay or train; simulated steps share no links")
    if args.ratios and (args.advise or args.kind == "replay"):
        raise InputError("--ratios: of --kind sim or train; leave --advise out")
    if args.steps < 1 or args.rounds < 1:
        raise InputError("--steps, --rounds: expected at least 1 of each")
    if args.tune and not args.advise:
        raise InputError("--tune: expected --advise with it")
    if args.resume and not args.output:
        raise InputError("--resume: expected -o FILE with it")
    if args.servers < 0:
        raise InputError(f"--servers {args.servers}: expected at least 1 host")
    if args.time_limit is not None and not args.time_limit > 0:
        raise InputError(f"--time-limit {args.time_limit:g}: expected more than 0 seconds")
    for target in (args.trace, args.output):
        if target:
            check_target(Path(target))
    check_picture(args.picture)
    if args.resume:
        warn_new(Path(args.output))


def methods_of(args: argparse.Namespace) -> list[GradientMethod]:
    """Return the methods that the arguments name, all by default.

    Raises:
        InputError: one of them is unknown.
    """
    from tuccl.training import GRADIENT_METHODS, method_of

    if args.methods is None:
        return list(GRADIENT_METHODS.values())
    return [method_of(name.strip()) for name in args.methods.split(",")]


def table_of(args: argparse.Namespace) -> Table | None:
    """Return the table of --table, None without."""
    return load_table(Path(args.table)) if args.table else None


def backends_of(
    args: argparse.Namespace, topology: Topology, stored: Table | None
) -> Iterator[tuple[Backend, Costs]]:
    """Yield the default's costs, and the table's where one is given."""
    from tuccl.training import simulated_costs

    backends: tuple[tuple[Backend, Table | None], ...]
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
