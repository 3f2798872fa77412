"""The table of ``tuccl train --ratios``: steps that send a part of the gradient."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tuccl.cli.output import columns, print_json
from tuccl.errors import InputError

if TYPE_CHECKING:
    from tuccl.training import Costs, Model
    from tuccl.training.compression.sparse_steps import SparseStep

RATIOS_HELP = (
    "simulate a step that sends these parts of the gradient, as 0.1,0.01 (AR-Topk); with --kind "
    "train: for the methods ar-topk-star, ar-topk-var, lw-topk, ms-topk"
)


def print_sparse(
    args: argparse.Namespace,
    about: str,
    model: Model,
    ranks: int,
    backends: Iterable[tuple[str, Costs]],
) -> int:
    """Print what steps that send a part of the gradient would take.

    Raises:
        InputError: a ratio is not above 0 and at most 1.
    """
    from tuccl.training.compression.sparse_steps import sparse_step

    ratios = ratios_of(args.ratios)
    steps = [
        (backend, sparse_step(model, ranks, costs, ratio))
        for backend, costs in backends
        for ratio in ratios
    ]
    if args.json:
        print_json({"kind": args.kind, "steps": [{"by": by, "step": step} for by, step in steps]})
        return 0
    print(f"# sim: {about}; finding the values to send is not counted")
    print(sparse_text(steps))
    return 0


def ratios_of(text: str) -> list[float]:
    """Return ratios given by comma.

    Raises:
        InputError: one is no number above 0 and at most 1.
    """
    from tuccl.training.compression.exchanges import values_sent

    ratios = []
    for word in text.split(","):
        try:
            ratios.append(float(word))
        except ValueError:
            raise InputError(f"--ratios {word[:20]!r}: expected numbers by comma") from None
        values_sent(1, ratios[-1])
    return ratios


def sparse_text(steps: Sequence[tuple[str, SparseStep]]) -> str:
    """Return the steps in columns, each with whose calls it is made of."""
    header = ["kind", "calls by", "ratio", "values", "dense ms", "all-gather ms", "AR-Topk ms"]
    header += ["faster", "by formula", "regret", "step ms"]
    return columns(
        header,
        [
            [
                *("sim", backend, f"{step.ratio:g}", step.values, step.dense_us / 1e3),
                *(step.allgather_us / 1e3, step.allreduce_us / 1e3),
                *(step.exchange, step.by_formula, f"{step.regret:.1%}", step.step_us / 1e3),
            ]
            for backend, step in steps
        ],
    )
