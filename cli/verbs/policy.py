"""``tuccl policy``: trains a policy on simulated machines, for tuning others."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuccl.cli.arguments import (
    add_collective,
    add_json,
    add_nccl_version,
    add_sizes,
    collectives_of,
    sizes_of,
    topology_of,
)
from tuccl.cli.output import check_target, print_json
from tuccl.cli.progress import Progress
from tuccl.errors import InputError
from tuccl.runtime import NCCL_VERSION

EXAMPLE = "tuccl policy ndv2x2.json dgx2.json -c allgather,allreduce -s 64K:256M:x4 -o policy.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("topology", metavar="T", nargs="+", help="machines to train on")
    add_collective(parser, many=True)
    add_sizes(parser)
    parser.add_argument(
        "--budget",
        type=int,
        default=60,
        metavar="N",
        help="evaluations per machine, collective and size (default 60)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="same seed, same policy (default 0)"
    )
    parser.add_argument(
        "--dialect",
        default="executor",
        help="executor (default): of programs; nccl: of NCCL's own algorithms, for tune --dialect "
        "nccl",
    )
    add_nccl_version(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="policy to write")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Train and print on what."""
    from tuccl.tuning import save_policy, train_policy

    if args.budget < 1:
        raise InputError(f"--budget {args.budget}: expected at least 1 evaluation")
    if args.dialect not in ("executor", "nccl"):
        raise InputError(f"--dialect {args.dialect[:20]}: expected executor or nccl")
    if args.nccl_version and args.dialect != "nccl":
        raise InputError("--nccl-version: only policies of --dialect nccl depend on it; add that")
    output = Path(args.output)
    check_target(output)
    topologies = [topology_of(path) for path in args.topology]
    collectives, sizes = collectives_of(args.collective), sizes_of(args.size)
    with Progress() as progress:
        policy = train_policy(
            topologies,
            collectives,
            sizes,
            budget=args.budget,
            seed=args.seed,
            dialect=args.dialect,
            nccl_version=args.nccl_version or NCCL_VERSION,
            progress=progress.update,
        )
    save_policy(policy, output)
    calls = sum(len(each.calls) for each in policy.collectives)
    actions = sum(len(each.actions) for each in policy.collectives)
    if args.json:
        print_json(
            {
                "policy": str(output),
                "trained_on": policy.trained_on,
                "machines": policy.machines,
                "calls": calls,
                "actions": actions,
            }
        )
        return 0
    print(f"{output}: {actions} actions on {calls} calls; {policy.trained_on}")
    return 0
