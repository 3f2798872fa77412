"""``tuccl train --advise``: the recommended method, and a table tuned for its calls."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.output import print_json, write_text
from tuccl.cli.train_options import backends_of, methods_of, table_of
from tuccl.runtime import NCCL_VERSION, Table, load_table
from tuccl.topology import Topology, load_machine
from tuccl.units import format_bytes

if TYPE_CHECKING:
    from tuccl.training import Advice, Costs, Model
    from tuccl.training.rows import Backend


def print_advice(args: argparse.Namespace, topology: Topology, model: Model) -> int:
    """Simulate all methods, print the recommended one and its calls; with --tune tune them."""
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
    from tuccl.training import GRADIENT_METHODS, simulate_training
    from tuccl.training.advice import advise

    name, costs = backend
    # Servers are further hosts: only who has them is advised to use them.
    allowed = [m for m in methods_of(args) if args.servers or args.colocated or not m.is_server]
    methods = {method.name: method for method in (GRADIENT_METHODS["ddp"], *allowed)}
    runs = [
        simulate_training(model, method, topology.ranks, costs, name) for method in methods.values()
    ]
    return advise(model, runs, costs)


def tuned_table(args: argparse.Namespace, topology: Topology, advice: Advice) -> Table:
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
    tune_workload(topology, workload, lambda _: executor, options, path=Path(args.tune))
    return load_table(Path(args.tune))


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
