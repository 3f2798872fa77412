"""Whole clusters that one file describes."""

from __future__ import annotations

import os
from pathlib import Path

from tuccl.errors import InputError
from tuccl.files import printable_path, read_bounded
from tuccl.topology.fabric import join_hosts
from tuccl.topology.graph import Topology
from tuccl.topology.readers.fabrics import read_fabric
from tuccl.topology.readers.infragraph import INFRAGRAPH
from tuccl.topology.readers.infragraph_hosts import infragraph_hosts
from tuccl.topology.readers.registry import read_host

_MOST_BYTES = 1 << 28


def read_cluster(
    path: str | os.PathLike[str], format: str | None = None
) -> tuple[Topology, tuple[str, ...]]:
    """Return the host, or the hosts and switches, that a file describes, and warnings about it.

    An InfraGraph describes both; of all other formats `read_host` reads one host.

    Raises:
        InputError: as `read_host` and `join_hosts`.
    """
    if Path(path).is_dir() or format is not None:
        return read_host(path, format)
    data = read_bounded(path, _MOST_BYTES)
    if not INFRAGRAPH.matches(data):
        return read_host(path)
    hosts, warnings = infragraph_hosts(data, os.fspath(path))
    if not hosts:
        raise InputError(f"{printable_path(path)}: no instance has an xpu; a machine needs one")
    if len(hosts) == 1:
        return next(iter(hosts.values())), warnings
    fabric, of_fabric = read_fabric(path)
    cluster, notes = join_hosts(list(hosts.values()), list(hosts), fabric)
    return cluster, (*warnings, *of_fabric, *notes)
