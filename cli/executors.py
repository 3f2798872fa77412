"""``--on``: which executor runs the programs, and the options that shape it."""

from __future__ import annotations

import argparse

from tuccl.errors import InputError
from tuccl.runtime import SimExecutor
from tuccl.topology import Topology, load_machine

__all__ = ["add_executor", "executor_of"]

_EXECUTORS = ("sim",)
_LAUNCHES = ("process", "mpi", "graph")


def add_executor(parser: argparse.ArgumentParser) -> None:
    """Add ``--on``, ``--machine`` and ``--launch``."""
    parser.add_argument("--on", default="sim", metavar="EXECUTOR", help="sim: simulated (default)")
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


def executor_of(args: argparse.Namespace, topology: Topology) -> SimExecutor:
    """Return the executor the arguments ask for.

    Raises:
        InputError: there is no such executor or launch.
    """
    if args.on not in _EXECUTORS:
        raise InputError(f"--on {args.on[:40]}: expected one of {', '.join(_EXECUTORS)}")
    if args.launch not in _LAUNCHES:
        raise InputError(f"--launch {args.launch[:40]}: expected one of {', '.join(_LAUNCHES)}")
    machine = load_machine(args.machine) if args.machine else None
    return SimExecutor(topology, machine=machine, launch=args.launch)
