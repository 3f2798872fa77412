"""Measuring of what joins hosts, for ``tuccl probe --measure``."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from tuccl.cli.arguments import topology_of
from tuccl.cli.emulate import ended_by_signals, introduce
from tuccl.cli.output import check_target, say, warn
from tuccl.cli.progress import Progress
from tuccl.emulation import (
    Emulation,
    emulated_endpoints,
    emulated_prober,
    probing_scale,
    unprobed_topology,
)
from tuccl.errors import InputError
from tuccl.topology import Topology
from tuccl.topology.probing import (
    Endpoint,
    Prober,
    RecordedProber,
    measured_topology,
    probe_network,
    read_use,
)

__all__ = ["add_measuring", "measured"]


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of measuring."""
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure what joins the hosts: latency by echoes, rates by TCP, and what they share",
    )
    parser.add_argument(
        "--cluster", metavar="T", help="with --measure: emulate the topology in T and measure that"
    )
    parser.add_argument(
        "--scale",
        type=float,
        metavar="F",
        help="with --cluster: emulated over nominal rates (default: all NICs at 1 Gb/s together)",
    )
    parser.add_argument(
        "--probes",
        metavar="FILE",
        help="keep each probe here; if it is cut off, the same command goes on from there"
        " (default: the -o file's name with .probes, until it is done)",
    )
    parser.add_argument(
        "--budget", type=int, metavar="N", help="probe N pairs at most (default: four a host)"
    )
    parser.add_argument(
        "--use",
        metavar="FILE",
        help="lines `host host bytes` of earlier jobs: pairs of under 1 %% of the busiest one's"
        " bytes are not probed",
    )


def measured(args: argparse.Namespace) -> tuple[Topology, tuple[str, ...]]:
    """Return the topology as it was measured, and what could not be told.

    Raises:
        InputError: the arguments contradict each other.
    """
    if not args.cluster:
        raise InputError("--measure: expected --cluster T, a topology to emulate")
    truth = topology_of(args.cluster)
    scale = probing_scale(truth) if args.scale is None else args.scale
    with ended_by_signals(), ExitStack() as stack:
        emulation = stack.enter_context(Emulation(truth, scale))
        introduce(emulation)
        prober = stack.enter_context(emulated_prober(emulation))
        return network_measured(
            args, unprobed_topology(emulation), prober, emulated_endpoints(emulation)
        )


def network_measured(
    args: argparse.Namespace, cluster: Topology, prober: Prober, endpoints: tuple[Endpoint, ...]
) -> tuple[Topology, tuple[str, ...]]:
    """Return ``cluster`` with the network that ``prober`` finds, and what could not be told.

    Raises:
        InputError: a file of the arguments is bad.
        TucclError: a probe failed; the probes before are in their file.
    """
    use = None if args.use is None else read_use(args.use)
    file = args.probes or (f"{args.output}.probes" if args.output else None)
    if file is not None:
        check_target(Path(file))
        if Path(file).exists():
            say(f"{file}: probes that it holds are not repeated")
        prober = RecordedProber(prober, endpoints, file)
    try:
        with Progress() as progress:
            rates = probe_network(
                prober, endpoints, use=use, budget=args.budget, update=progress.update
            )
    except KeyboardInterrupt:
        if file is not None:
            say(f"{file}: holds the probes so far; the same command goes on from there")
        raise
    if file is not None and args.probes is None:
        Path(file).unlink(missing_ok=True)  # done: the next run measures anew
    say(f"{rates.probes} probes of {len(endpoints)} hosts; {rates.method}")
    warn(rates.notes)
    return measured_topology(cluster, rates), rates.notes
