"""``--on``: which executor runs the programs, and the options that shape it."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from tuccl.cli.emulate import add_scale, ended_by_signals, introduce
from tuccl.errors import InputError
from tuccl.runtime import (
    Effort,
    EmulatedExecutor,
    EmulatedSimExecutor,
    Emulation,
    Executor,
    LoopbackExecutor,
    MpiExecutor,
    SimExecutor,
    Workload,
    find_mpi,
)
from tuccl.topology import Topology, load_machine

__all__ = ["ONE_RUN", "add_executor", "add_real", "executor_of", "real_executor_of"]

_EXECUTORS = ("sim",)
_REAL = ("mpi", "loopback")
ONE_RUN = Effort(warmup=1, runs=1)
"""One time is one run: who compares takes many, in turns."""
_LAUNCHES = ("process", "mpi", "graph")


def add_executor(parser: argparse.ArgumentParser) -> None:
    """Add ``--on``, ``--machine`` and ``--launch``."""
    parser.add_argument(
        "--on",
        default="sim",
        metavar="EXECUTOR",
        help="sim: simulated (default); bench, tune, compare: mpi; bench: loopback",
    )
    parser.add_argument(
        "--machine",
        metavar="CLASS",
        help="machine class of the simulator: a name or a file (default: by GPU model)",
    )
    parser.add_argument(
        "--launch",
        default="mpi",
        help="who launches: process (one for all GPUs of a host), mpi (one a GPU, default) or graph",
    )


def executor_of(
    args: argparse.Namespace, topology: Topology, others: tuple[str, ...] = ()
) -> SimExecutor:
    """Return the simulator as the arguments ask for it; ``others`` could be had instead.

    Raises:
        InputError: there is no such executor or launch.
    """
    if args.on not in _EXECUTORS:
        raise InputError(
            f"--on {args.on[:40]}: expected one of {', '.join([*_EXECUTORS, *others])}"
        )
    if args.launch not in _LAUNCHES:
        raise InputError(f"--launch {args.launch[:40]}: expected one of {', '.join(_LAUNCHES)}")
    machine = load_machine(args.machine) if args.machine else None
    return SimExecutor(topology, machine=machine, launch=args.launch)


def add_real(parser: argparse.ArgumentParser, *, elements: bool = True) -> None:
    """Add what shapes runs on real data: ``--mpi``, ``--check``, ``--emulate`` and their like.

    Without ``elements`` they are sums of floats.
    """
    parser.add_argument(
        "--mpi",
        metavar="MPI",
        help="with --on mpi: openmpi, mpich or the path of an mpiexec (default: the first found)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="with --on mpi, loopback: compare every element with what is right",
    )
    if elements:
        parser.add_argument(
            "--datatype", default="float", help="elements, by nccl-tests' names (default float)"
        )
        parser.add_argument("--op", default="sum", help="sum (default), prod, min, max or avg")
    else:
        parser.set_defaults(datatype="float", op="sum")
    parser.add_argument(
        "--emulate",
        action="store_true",
        help="with --on mpi: on network namespaces, one a host, with the links' rates (needs root); "
        "with --on sim: simulate that (--machine: a class fitted by calibrate)",
    )
    add_scale(parser)
    parser.add_argument(
        "--latency",
        type=float,
        metavar="F",
        help="with --emulate: hold each message back by F times its route's latency (default: none)",
    )


def real_executor_of(
    args: argparse.Namespace,
    topology: Topology,
    stack: ExitStack,
    *,
    effort: Effort | None = None,
    real: tuple[str, ...] = _REAL,
) -> Executor:
    """Return the executor the arguments ask for, real or simulated; ``stack`` ends its processes.

    ``effort`` says how often a program runs for one time; ``real`` which executors may be real.

    Raises:
        InputError: there is no such executor, or it does not take one of the options.
        Unavailable: there is no such MPI.
    """
    network = args.emulate or args.scale is not None or args.latency is not None
    if network and args.on not in ("mpi", "sim"):
        raise InputError(
            f"--emulate, --scale, --latency: --on {args.on[:40]} uses no network; use --on mpi"
        )
    if (args.scale is not None or args.latency is not None) and not args.emulate:
        raise InputError("--scale, --latency: shape the network of --emulate; add it")
    if args.on not in real:
        usual = {"mpi": None, "check": False, "datatype": "float", "op": "sum"}
        given = [f"--{name}" for name, value in usual.items() if getattr(args, name) != value]
        if given and args.on in _EXECUTORS:
            raise InputError(f"{', '.join(given)}: --on {args.on} moves no data; use --on mpi")
        if args.on == "sim" and args.emulate:
            if real != _REAL:
                raise InputError("--emulate: only bench simulates it; use --on mpi")
            machine = load_machine(args.machine) if args.machine else None
            return EmulatedSimExecutor(topology, args.scale, args.latency or 0.0, machine)
        return executor_of(args, topology, real)
    workload = Workload(args.datatype, args.op, args.check)
    if args.on == "mpi" and args.emulate:
        return emulated_executor(args, topology, workload, stack, effort)
    if args.on == "mpi":
        mpi = find_mpi(args.mpi)
        executor = MpiExecutor(topology.ranks, mpi, workload=workload, effort=effort)
        return stack.enter_context(executor)
    if args.mpi:
        raise InputError("--mpi: --on loopback uses none; use --on mpi")
    return LoopbackExecutor(topology.ranks, workload)


def emulated_executor(
    args: argparse.Namespace,
    topology: Topology,
    workload: Workload,
    stack: ExitStack,
    effort: Effort | None = None,
) -> EmulatedExecutor:
    """Return an executor on an emulated cluster; ``stack`` ends it and takes the cluster down.

    Raises:
        InputError: the topology cannot be emulated.
        Unavailable: there is no such MPI, or this process may not make namespaces.
    """
    mpi = find_mpi(args.mpi)
    stack.enter_context(ended_by_signals())
    emulation = stack.enter_context(Emulation(topology, args.scale, args.latency or 0.0))
    introduce(emulation)
    executor = EmulatedExecutor(emulation, mpi, workload=workload, effort=effort)
    return stack.enter_context(executor)
