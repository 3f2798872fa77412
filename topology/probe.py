"""Reads this machine's GPUs and NICs."""

from __future__ import annotations

import os
from pathlib import Path

from tuccl.errors import Unavailable
from tuccl.topology.graph import Topology
from tuccl.topology.readers.sysfs import DEVICES, sysfs_system
from tuccl.topology.readers.system import host_of
from tuccl.topology.readers.trees import Folder

__all__ = ["probe_local"]


def probe_local(
    root: str | os.PathLike[str] = "/", name: str = "this machine"
) -> tuple[Topology, tuple[str, ...]]:
    """Return the PCIe tree of this machine's GPUs and NICs, and warnings.

    Args:
        root: the file system that holds ``sys``, another one for recorded machines.
        name: of the topology.

    Notes:
        /sys tells no NVLink and no rate of a switch; a profile can fill that in (`overlay`).

    Raises:
        Unavailable: there is no GPU, or no /sys.
    """
    tree = Folder(Path(root))
    system = sysfs_system(tree, "/sys") if tree.names(DEVICES) else None
    if system is None:
        raise Unavailable(
            f"no GPU among the {len(tree.names(DEVICES))} PCI devices of this machine; describe "
            "one with `tuccl probe --from FILE` or `--profile NAME`"
        )
    return host_of(system, "/sys", name)
