"""Reads this machine's GPUs and NICs."""

from __future__ import annotations

import os
from pathlib import Path

from tuccl.errors import Unavailable
from tuccl.topology.graph import Topology
from tuccl.topology.readers.nvml import add_nvlinks, nvml_system
from tuccl.topology.readers.sysfs import DEVICES, sysfs_system
from tuccl.topology.readers.system import host_of
from tuccl.topology.readers.trees import Folder


def probe_local(
    root: str | os.PathLike[str] = "/", name: str = "this machine"
) -> tuple[Topology, tuple[str, ...]]:
    """Return the PCIe tree of this machine's GPUs and NICs, their NVLinks, and warnings.

    Args:
        root: the file system that holds ``sys``; `read_host` reads recorded ones.
        name: of the topology.

    Notes:
        /sys has the PCIe tree and AMD's links. NVML reports NVLinks where nvidia-ml-py is
        installed; else a profile can fill them in (`overlay`).

    Raises:
        Unavailable: there is no GPU, or no /sys.
    """
    tree = Folder(Path(root))
    notes: list[str] = []
    system = None
    if tree.names(DEVICES):
        system = sysfs_system(tree, "/sys", lambda gpus: notes.extend(add_nvlinks(gpus)))
    if system is None and (system := nvml_system("NVML")) is not None:
        notes.append("no GPU in /sys: NVML reports the GPUs, and NICs are not known")
    if system is None:
        raise Unavailable(
            f"no GPU among the {len(tree.names(DEVICES))} PCI devices of this machine; describe "
            "one with `tuccl probe --from FILE` or `--profile NAME`"
        )
    topology, warnings = host_of(system, "/sys", name)
    return topology, (*notes, *warnings)
