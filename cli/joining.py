"""Several hosts as one cluster, for ``tuccl probe``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tuccl.cli.emulation import ended_by_signals
from tuccl.cli.output import print_json, warn
from tuccl.errors import InputError
from tuccl.runtime.jobs import HOST_LAUNCHERS, HOST_TOOLS
from tuccl.topology import Fabric, Topology, join_hosts, read_fabric
from tuccl.topology.cabling import host_order
from tuccl.topology.readers.fabrics import FABRIC_READERS
from tuccl.topology.readers.hostlist import hostlist
from tuccl.topology.switches import united

if TYPE_CHECKING:
    from tuccl.runtime.jobs import HostLauncher


def add_joining(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of how hosts are joined."""
    group = parser.add_argument_group("joining hosts")
    summaries = "; ".join(f"{reader.name}: {reader.summary}" for reader in FABRIC_READERS)
    group.add_argument(
        "--fabric", default="single", help="without a file: single (default), rail or clos"
    )
    group.add_argument(
        "--fabric-file",
        dest="fabric_files",
        nargs="+",
        action="extend",
        default=[],
        metavar="F",
        help=f"files that list the switches, recognized by content ({summaries}); several files "
        "count as one; NICs match by GUID, then by the names of host and device",
    )
    group.add_argument(
        "--names",
        metavar="LIST",
        help="the hosts' names in their order, a,b or node[01-16] (else the files' names)",
    )
    group.add_argument(
        "--by-rack", action="store_true", help="order the hosts, and so ranks, as in --fabric-file"
    )
    group.add_argument(
        "--up", type=float, metavar="GB/s", help="rate of a switch's uplinks (rail, clos)"
    )
    group.add_argument(
        "--down", type=float, metavar="GB/s", help="rate of a switch's port to a NIC"
    )


def add_hosts(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of which hosts are read, and through what."""
    group = parser.add_argument_group("reading several hosts")
    group.add_argument(
        "--hosts",
        metavar="LIST",
        help="run `tuccl probe` on these hosts, a,b or node[01-16], and join them",
    )
    group.add_argument("--hosts-file", metavar="F", help="the same for the hosts in F, one a line")
    group.add_argument(
        "--remote-launcher",
        choices=HOST_LAUNCHERS,
        help="program that reaches the hosts: ssh (default), slurm (srun; without --hosts all of "
        "the job) or mpi (mpirun)",
    )
    group.add_argument(
        "--remote",
        choices=HOST_TOOLS,
        default="tuccl",
        help="program that reads the topology there (default tuccl); vendors' tools are there "
        "already, but report no rates: --profile adds them",
    )
    group.add_argument(
        "--remote-tuccl", default="tuccl", metavar="PATH", help="tuccl on the hosts (default tuccl)"
    )
    group.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="seconds after which a host counts as missing (default 60)",
    )
    group.add_argument(
        "--allow-missing", action="store_true", help="leave out hosts that do not answer"
    )


def answering_hosts(args: argparse.Namespace) -> tuple[dict[str, Topology], tuple[str, ...]]:
    """Return the topologies of the hosts that the arguments name, and warnings; none: no hosts.

    Raises:
        InputError: a host does not answer and may not be left out, or none answers.
    """
    from tuccl.runtime.jobs import allocated_hosts, hosts_in_file, hosts_of, probe_hosts

    if not (args.hosts or args.hosts_file or args.remote_launcher):
        return {}, ()
    if args.sources or args.nodes != 1:
        raise InputError("--hosts: expected no --from and no --nodes; each host reads itself")
    if args.hosts and args.hosts_file:
        raise InputError("--hosts and --hosts-file: expected one of the two")
    if not 0 < args.timeout <= 86400:
        raise InputError(f"--timeout {args.timeout}: expected seconds, up to a day")
    if args.hosts or args.hosts_file:
        names = hosts_of(args.hosts) if args.hosts else hosts_in_file(args.hosts_file)
    elif args.remote_launcher == "slurm":
        names = allocated_hosts(os.environ)
    else:
        raise InputError(
            f"--remote-launcher {args.remote_launcher}: expected --hosts or --hosts-file"
        )
    launcher: HostLauncher = args.remote_launcher or "ssh"
    with ended_by_signals():
        answers = probe_hosts(names, launcher, args.remote_tuccl, args.timeout, tool=args.remote)
    missing = {name: a.reason for name, a in answers.items() if a.topology is None}
    if missing and (not args.allow_missing or len(missing) == len(answers)):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(missing.items())[:4])
        more = f"; and {len(missing) - 4} more" if len(missing) > 4 else ""
        fix = "" if len(missing) == len(answers) else " (--allow-missing leaves them out)"
        raise InputError(f"{len(missing)} of {len(answers)} hosts missing{fix}: {reasons}{more}")
    warnings = [f"{name} is left out: {reason}" for name, reason in missing.items()]
    warnings += [warning for answer in answers.values() for warning in answer.warnings]
    hosts = {name: called(a.topology) for name, a in answers.items() if a.topology is not None}
    return hosts, tuple(warnings)


def called(topology: Topology) -> Topology:
    """Return the host's topology under a name that equal hosts share."""
    name = f"{topology.gpus[0].model or 'GPU'} x{topology.ranks}"
    return msgspec.structs.replace(topology, name=name)


def names_of(text: str) -> tuple[str, ...]:
    """Return the hosts' names that ``--names`` lists.

    >>> names_of("a, node[01-02]")
    ('a', 'node01', 'node02')

    Raises:
        InputError: a bracket or a range is not closed or falls, or names are too many.
    """
    try:
        return tuple(hostlist(",".join(part.strip() for part in text.split(","))))
    except InputError as error:
        raise InputError(f"--names: {error}") from None


def host_names(
    args: argparse.Namespace, hosts: int, names: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Return the names of that many hosts: given, else ``names``, the files' or n0, n1, ...

    Raises:
        InputError: another number of names is given, or one of them twice.
    """
    stems = tuple(Path(source).stem for source in args.sources)
    if args.names is not None:
        names = names_of(args.names)
    elif names is None and len(set(stems)) == hosts:
        names = stems
    names = names or tuple(f"n{number}" for number in range(hosts))
    if len(names) != hosts:
        raise InputError(f"--names: {len(names)} names for {hosts} hosts; expected as many")
    if len(set(names)) < len(names):
        raise InputError("--names: duplicate host name; give each host its own")
    return names


def join_cluster(
    args: argparse.Namespace, hosts: Mapping[str, Topology]
) -> tuple[Topology, tuple[str, ...]]:
    """Return the cluster of ``hosts``, by name, that the arguments name, and warnings.

    Raises:
        InputError: the arguments contradict each other, or the hosts cannot be joined.
    """
    fabric: str | Fabric = args.fabric
    warnings: tuple[str, ...] = ()
    if args.fabric_files:
        if args.fabric != "single":
            raise InputError("--fabric and --fabric-file: expected one of the two")
        files = [read_fabric(path) for path in args.fabric_files]
        fabric = united([of_file for of_file, _ in files])
        warnings = tuple(warning for _, of_file in files for warning in of_file)
    names = tuple(hosts)
    if args.by_rack and isinstance(fabric, Fabric):
        names = host_order(fabric, names)
    cluster, notes = join_hosts([hosts[n] for n in names], names, fabric, args.up, args.down)
    return cluster, (*warnings, *notes)


def report_fabric(args: argparse.Namespace) -> int:
    """Print what is in the fabric file that ``--from`` names.

    Raises:
        InputError: the file is damaged, or the arguments need a topology.
    """
    [path] = args.sources
    if args.output or args.drift or args.nodes != 1:
        raise InputError(
            f"{path}: lists switches, no host; give it as --fabric-file beside the hosts' files"
        )
    fabric, warnings = read_fabric(path)
    warn(warnings)
    if args.json:
        tiers = [0] * max(fabric.tiers.values(), default=0)
        for tier in fabric.tiers.values():
            tiers[tier - 1] += 1
        print_json(
            {
                "name": fabric.name,
                "switches": len(fabric.switches),
                "adapters": len(fabric.adapters) if fabric.names_adapters else None,
                "hosts": list(fabric.hosts),
                "cables": fabric.cables if fabric.names_adapters else None,
                "trunks": len(fabric.trunks),
                "tiers": tiers,
                "parts": len(fabric.parts),
                "warnings": list(warnings),
            }
        )
    else:
        print(fabric.describe())
    return 0
