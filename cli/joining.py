"""Several hosts as one cluster, for ``tuccl probe``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from tuccl.cli.output import print_json, warn
from tuccl.errors import InputError
from tuccl.topology import (
    FABRIC_READERS,
    Fabric,
    Topology,
    host_order,
    join_hosts,
    read_fabric,
)

__all__ = ["add_joining", "host_names", "joined", "report_fabric"]


def add_joining(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of how hosts are joined."""
    summaries = "; ".join(f"{reader.name}: {reader.summary}" for reader in FABRIC_READERS)
    parser.add_argument(
        "--fabric", default="single", help="single (default), rail or clos, without a file"
    )
    parser.add_argument(
        "--fabric-file",
        metavar="F",
        help=f"the switches, told by the file's content ({summaries}); NICs find their places by "
        "GUID, then by the names of host and device",
    )
    parser.add_argument(
        "--names", metavar="LIST", help="the hosts' names, in their order (else the files' names)"
    )
    parser.add_argument(
        "--by-rack", action="store_true", help="order the hosts, and so ranks, as in --fabric-file"
    )
    parser.add_argument(
        "--up", type=float, metavar="GB/s", help="rate of a switch's uplinks (rail, clos)"
    )
    parser.add_argument(
        "--down", type=float, metavar="GB/s", help="rate of a switch's port to a NIC"
    )


def host_names(args: argparse.Namespace, hosts: int) -> tuple[str, ...]:
    """Return the names of that many hosts: given, else the files' where they differ, else n0, ...

    Raises:
        InputError: another number of names is given.
    """
    names = [name.strip() for name in args.names.split(",")] if args.names is not None else []
    if names and len(names) != hosts:
        raise InputError(f"--names: {len(names)} names for {hosts} hosts; expected as many")
    if len(set(names)) < len(names):
        raise InputError("--names: a name is there twice; give each host its own")
    stems = [Path(source).stem for source in args.sources]
    if not names and len(set(stems)) == hosts:
        names = stems
    return tuple(names or (f"n{number}" for number in range(hosts)))


def joined(
    args: argparse.Namespace, hosts: Mapping[str, Topology]
) -> tuple[Topology, tuple[str, ...]]:
    """Return the cluster of ``hosts``, by name, that the arguments ask for, and warnings.

    Raises:
        InputError: the arguments contradict each other, or the hosts cannot be joined.
    """
    fabric: str | Fabric = args.fabric
    warnings: tuple[str, ...] = ()
    if args.fabric_file is not None:
        if args.fabric != "single":
            raise InputError("--fabric and --fabric-file: expected one of the two")
        fabric, warnings = read_fabric(args.fabric_file)
    names = tuple(hosts)
    if args.by_rack:
        if not isinstance(fabric, Fabric):
            raise InputError("--by-rack: expected --fabric-file, which tells the racks")
        names = host_order(fabric, names)
    cluster, notes = join_hosts([hosts[n] for n in names], names, fabric, args.up, args.down)
    return cluster, (*warnings, *notes)


def report_fabric(args: argparse.Namespace) -> int:
    """Print what is in the fabric file that ``--from`` names.

    Raises:
        InputError: the file is damaged, or a topology is asked of it.
    """
    [path] = args.sources
    if args.output or args.check or args.nodes != 1:
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
