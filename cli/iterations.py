"""``bench --iterate``: a program in a training job's iterations; and what others carried."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from tuccl.cli.output import columns, print_json
from tuccl.errors import InputError
from tuccl.program import Knobs, Program
from tuccl.runtime import Executor

if TYPE_CHECKING:
    from tuccl.training.iteration import Iteration

_MOST_LOADS = 16


def add_iterate(parser: argparse.ArgumentParser) -> None:
    """Add ``--iterate`` and ``--iterations``."""
    parser.add_argument(
        "--iterate",
        metavar="MODEL",
        help="time iterations of a training job instead, whose buckets the program all-reduces "
        "while backward runs: BERT-large, VGG-16, DenseNet-161 or ResNet-50 with a thesis's "
        "shares of computing and bytes, or a file of a model (docs/howto/training.md)",
    )
    parser.add_argument(
        "--iterations", type=int, default=30, metavar="N", help="of --iterate (default 30)"
    )


def print_iterations(
    args: argparse.Namespace, executor: Executor, program: Program, knobs: Knobs
) -> None:
    """Time iterations and print their mean and percentiles.

    Raises:
        InputError: there is no such model, or ranks of one host alone.
    """
    if args.iterations < 1:
        raise InputError(f"--iterations {args.iterations}: expected at least 1")
    iteration = _iteration(args.iterate, executor)
    times = executor.iterate(
        program, knobs, iteration.nbytes, iteration.releases_us, runs=args.iterations
    )
    row = {
        "model": iteration.name,
        "buckets": len(iteration.releases_us),
        "bytes": iteration.nbytes,
        "mean ms": mean(times) / 1e3,
        "p50 ms": percentile(times, 50) / 1e3,
        "p99 ms": percentile(times, 99) / 1e3,
        "iterations": len(times),
    }
    if args.json:
        samples = {"samples_us": times, "releases_us": iteration.releases_us}
        print_json({"label": executor.label, **row, **samples, "cross": executor.loads})
        return
    print(f"# {executor.label}")
    print(columns(list(row), [list(row.values())]))
    print_loads(executor)


def _iteration(name: str, executor: Executor) -> Iteration:
    from tuccl.training import load_model
    from tuccl.training.iteration import model_iteration, thesis_iteration

    if Path(name).exists():
        return model_iteration(load_model(name))
    if executor.topology is None:
        raise InputError("--iterate: needs links whose rate is known; use --on sim, or --emulate")
    return thesis_iteration(name, executor.topology)


def percentile(samples: Sequence[float], part: float) -> float:
    """Return the sample below which ``part`` % of them lie, or the next.

    >>> percentile([3.0, 1.0, 2.0], 50), percentile([3.0, 1.0, 2.0], 99)
    (2.0, 3.0)
    """
    return sorted(samples)[max(math.ceil(part / 100 * len(samples)), 1) - 1]


def print_loads(executor: Executor) -> None:
    """Print what the traffic of others carried during each time; of many, only what all did."""
    if len(executor.loads) > _MOST_LOADS:
        mbps = [8e3 * load.carried_gbs for load in executor.loads]
        print(f"# cross traffic, Mb/s carried: {min(mbps):.3g} to {max(mbps):.3g}, over all times")
        return
    for load in executor.loads:
        print(f"# {load.text}")
