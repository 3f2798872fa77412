"""Machines: from the files that describe them, and profiles of known ones."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence

from tuccl.errors import InputError
from tuccl.files import printable_path
from tuccl.topology.clusters import read_cluster
from tuccl.topology.fabric import join, join_hosts
from tuccl.topology.graph import Topology
from tuccl.topology.profiles import load_profile, overlay


def profile(
    name: str,
    nodes: int = 1,
    *,
    fabric: str = "single",
    up_gbs: float | None = None,
    down_gbs: float | None = None,
) -> Topology:
    """Return ``nodes`` hosts of a known machine (`PROFILES`, `SHAPES`).

    Args:
        name: Like "dgx-h100" or "torus-4x4x4".
        nodes: Hosts; several are joined through their NICs.
        fabric: "single" (one switch), "rail" or "clos", as `join_hosts` takes it.
        up_gbs: Rate of a switch's uplinks in GB/s.
        down_gbs: Rate of a switch's port to a NIC in GB/s.

    >>> profile("ndv2", nodes=2).ranks
    16

    Raises:
        InputError: there is no such profile, or an argument is out of its range.
    """
    host = load_profile(name)
    return host if nodes == 1 else join(host, nodes, fabric, up_gbs, down_gbs)


def as_topology(machine: Topology | str | os.PathLike[str]) -> Topology:
    """Return a topology as it is, or as `read_topology` reads it from a file.

    Raises:
        InputError: the file cannot be read or is damaged.
    """
    return machine if isinstance(machine, Topology) else read_topology(machine)


def read_topology(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    nodes: int = 1,
    *,
    profile: str | None = None,
    fabric: str = "single",
    up_gbs: float | None = None,
    down_gbs: float | None = None,
) -> Topology:
    """Return the machine that files of any known format describe (docs/reference/topology.md).

    Numbers that a file lacks are filled in, and such links are marked ``assumed``; what else was
    assumed is said by a `UserWarning`.

    Args:
        paths: One file of a host or of a whole cluster, or a file for each host.
        nodes: Joins so many copies of the one host.
        profile: Known machine whose links and rates fill in what the files lack.
        fabric: Of several hosts: "single" (one switch), "rail" or "clos".
        up_gbs: Rate of a switch's uplinks in GB/s.
        down_gbs: Rate of a switch's port to a NIC in GB/s.

    Raises:
        InputError: a file cannot be read or is damaged, or an argument is out of its range.
    """
    files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not files or (len(files) > 1 and nodes != 1):
        raise InputError(
            f"{len(files)} files, nodes {nodes}: expected one host's file and its copies, or a "
            "file for each host"
        )
    hosts = []
    for path in files:
        host, notes = read_cluster(path)
        if profile is not None:
            host = overlay(host, profile)
            notes = tuple(note for note in notes if "by --profile" not in note)
        hosts.append(host)
        for note in notes:
            warnings.warn(f"{printable_path(path)}: {note}", stacklevel=2)
    if len(hosts) > 1:
        cluster, notes = join_hosts(hosts, None, fabric, up_gbs, down_gbs)
        for note in notes:
            warnings.warn(note, stacklevel=2)
        return cluster
    return hosts[0] if nodes == 1 else join(hosts[0], nodes, fabric, up_gbs, down_gbs)
