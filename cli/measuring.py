"""Measuring of what joins hosts, for ``tuccl probe --measure``."""

from __future__ import annotations

import argparse
import ipaddress
import shlex
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tuccl.cli.arguments import topology_of
from tuccl.cli.emulation import ended_by_signals, introduce
from tuccl.cli.output import check_target, say, warn
from tuccl.cli.progress import Progress
from tuccl.errors import InputError

if TYPE_CHECKING:
    from tuccl.runtime.jobs import HostLauncher
    from tuccl.topology import Topology
    from tuccl.topology.probing import Endpoint, Prober

_BOTH_WAYS = 0.8  # of a copy alone


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of measuring."""
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure the network between several hosts (latency, rates by TCP, shared links), or"
        " the pairs of GPUs of one host (CUDA copies; needs nvcc)",
    )
    parser.add_argument(
        "--cluster", metavar="T", help="with --measure: emulate the topology in T and measure that"
    )
    parser.add_argument(
        "--scale",
        type=float,
        metavar="F",
        help="with --cluster: emulated over nominal rates (default: 1 Gb/s for all NICs together)",
    )
    parser.add_argument(
        "--addresses",
        metavar="LIST",
        help="with --measure: the hosts' IP addresses, in their order, of several NICs joined by +,"
        " one alone with --rdma (default: of their names)",
    )
    parser.add_argument(
        "--rdma",
        nargs="?",
        const="",
        metavar="OPTIONS",
        help="with --measure: probe hosts by perftest (ib_write_lat, ib_write_bw), with these"
        ' options: --rdma="-d mlx5_0 -x 3"',
    )
    parser.add_argument(
        "--probes",
        metavar="FILE",
        help="keep each probe here; after an interrupt the same command continues from it"
        " (default: the -o file's name with .probes, until it is done)",
    )
    parser.add_argument(
        "--max-pairs", type=int, metavar="N", help="probe N pairs at most (default: four a host)"
    )
    parser.add_argument(
        "--traffic",
        metavar="FILE",
        help="lines `host host bytes` of earlier jobs: pairs of under 1 %% of the busiest one's"
        " bytes are not probed",
    )


def measure_topology(
    args: argparse.Namespace, topology: Topology
) -> tuple[Topology, tuple[str, ...]]:
    """Return ``topology`` as it was measured, and what remains unknown.

    Raises:
        InputError: the arguments contradict each other, or a host has no address.
        Unavailable: this host's GPUs cannot be measured.
        TucclError: a probe failed.
    """
    from tuccl.runtime.jobs import host_command
    from tuccl.runtime.probing import AgentProber, PerftestProber, agent_words
    from tuccl.topology.probing import endpoints_of

    if len(topology.hosts) == 1:
        if given_hosts(args):
            raise InputError("--hosts: a host's own GPUs are measured there: run this on the host")
        return measure_gpus(topology)
    endpoints = endpoints_of(topology, addresses_of(args, topology.hosts))
    users = {host.rpartition("@")[2]: host for host in given_hosts(args)}
    launcher: HostLauncher = args.remote_launcher or "ssh"

    def on_host(index: int, words: Sequence[str]) -> Sequence[str]:
        host = endpoints[index].host
        return host_command(launcher, users.get(host, host), words)

    with ended_by_signals():
        if args.rdma is not None:
            by_rdma = PerftestProber(endpoints, on_host, options_of(args.rdma))
            return measure_network(args, topology, by_rdma, endpoints)
        commands = [on_host(index, agent_words()) for index in range(len(endpoints))]
        with AgentProber(endpoints, commands) as prober:
            return measure_network(args, topology, prober, endpoints)


def measure_emulation(args: argparse.Namespace) -> tuple[Topology, tuple[str, ...]]:
    """Return the emulated cluster of ``--cluster`` as it was measured, and what remains unknown.

    Raises:
        InputError: the topology cannot be emulated.
        Unavailable: this process may not emulate.
    """
    from tuccl.emulation import (
        Emulation,
        emulated_endpoints,
        emulated_prober,
        unprobed_topology,
    )
    from tuccl.emulation.probing import probing_scale

    truth = topology_of(args.cluster)
    scale = probing_scale(truth) if args.scale is None else args.scale
    with ended_by_signals(), Emulation(truth, scale) as emulation:
        introduce(emulation)
        with emulated_prober(emulation) as prober:
            return measure_network(
                args, unprobed_topology(emulation), prober, emulated_endpoints(emulation)
            )


def measure_gpus(topology: Topology) -> tuple[Topology, tuple[str, ...]]:
    """Return this host with the rates of its pairs of GPUs, and pairs that are slower both ways.

    Raises:
        InputError: the host has another number of GPUs than ``topology``.
        Unavailable: there are no GPUs, or no nvcc.
    """
    from tuccl.runtime.probing import run_peer_copies
    from tuccl.topology.probing import with_peer_rates

    copies = run_peer_copies()
    if len(copies.bus_ids) != topology.ranks:
        raise InputError(
            f"{len(copies.bus_ids)} GPUs on this host, {topology.ranks} in {topology.name[:60]!r}"
        )
    worst = min(
        copies.both_ways[pair].gbs.value / alone.gbs.value for pair, alone in copies.one_way.items()
    )
    notes = [f"copies run at {worst:.0%} of their rate while the opposite ones run, at worst"]
    notes = notes if worst < _BOTH_WAYS else []
    warn(notes)
    return with_peer_rates(topology, copies.one_way, "CUDA peer copies"), tuple(notes)


def options_of(text: str) -> list[str]:
    """Return the words of perftest's options.

    Raises:
        InputError: a quotation has no end.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"--rdma: {text[:80]!r}: {error}; expected options of perftest") from None


def given_hosts(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the hosts as the arguments name them, users included."""
    from tuccl.runtime.jobs import hosts_in_file, hosts_of

    if args.hosts:
        return hosts_of(args.hosts)
    return hosts_in_file(args.hosts_file) if args.hosts_file else ()


def addresses_of(args: argparse.Namespace, hosts: Sequence[str]) -> dict[str, list[str]]:
    """Return the IP addresses of each host's NICs.

    Raises:
        InputError: there are not as many as hosts, or a name resolves to none of use.
    """
    if args.addresses is None:
        return {host: [address_of(host)] for host in hosts}
    texts = args.addresses.split(",")
    if len(texts) != len(hosts):
        raise InputError(
            f"--addresses: {len(texts)} addresses for {len(hosts)} hosts; expected as many"
        )
    return {
        host: [address_of(address, is_explicit=True) for address in text.split("+")]
        for host, text in zip(hosts, texts, strict=True)
    }


def address_of(name: str, *, is_explicit: bool = False) -> str:
    """Return the IP address of a name; a loopback one only where a user wrote it.

    Raises:
        InputError: there is none.
    """
    try:
        infos = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InputError(f"host {name[:80]!r}: {error}; name its address by --addresses") from None
    address = str(infos[0][4][0])
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback and not is_explicit:
        raise InputError(
            f"host {name[:80]!r}: its name resolves to {address}, where others cannot reach it; "
            "name its address by --addresses"
        )
    return address


def measure_network(
    args: argparse.Namespace, cluster: Topology, prober: Prober, endpoints: tuple[Endpoint, ...]
) -> tuple[Topology, tuple[str, ...]]:
    """Return ``cluster`` with the network that ``prober`` finds, and what remains unknown.

    Raises:
        InputError: a file of the arguments is bad.
        TucclError: a probe failed; the probes before are in their file.
    """
    from tuccl.topology.probing import (
        RecordedProber,
        measured_topology,
        probe_network,
        read_use,
    )

    use = None if args.traffic is None else read_use(args.traffic)
    file = args.probes or (f"{args.output}.probes" if args.output else None)
    if file is not None:
        check_target(Path(file))
        if Path(file).exists():
            say(f"{file}: probes that it holds are not repeated")
        method = "TCP" if args.rdma is None else f"perftest {args.rdma}".strip()
        prober = RecordedProber(prober, endpoints, file, method=method)
    try:
        with Progress() as progress:
            rates = probe_network(
                prober, endpoints, use=use, budget=args.max_pairs, update=progress.update
            )
    except KeyboardInterrupt:
        if file is not None:
            say(f"{file}: holds the probes so far; the same command continues")
        raise
    if file is not None and args.probes is None:
        Path(file).unlink(missing_ok=True)  # done: the next run measures anew
    say(f"{rates.probes} probes of {len(endpoints)} hosts; {rates.method}")
    warn(rates.notes)
    return measured_topology(cluster, rates), rates.notes
