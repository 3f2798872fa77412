"""Reads this machine's GPUs and NICs from Linux's /sys."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from tuccl.errors import Unavailable
from tuccl.topology.graph import Topology
from tuccl.topology.models import is_gpu_class, is_nic_class
from tuccl.topology.readers.system import host_of
from tuccl.topology.readers.xml_tree import Element

__all__ = ["probe_local"]

_BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_FIELDS = {
    "class": "class",
    "vendor": "vendor",
    "device": "device",
    "max_link_speed": "link_speed",
    "max_link_width": "link_width",
}


def probe_local(
    root: str | os.PathLike[str] = "/", name: str = "this machine"
) -> tuple[Topology, tuple[str, ...]]:
    """Return the PCIe tree of this machine's GPUs and NICs, and warnings.

    Args:
        root: the file system that holds ``sys``, another one for recorded machines.
        name: of the topology.

    Notes:
        /sys tells neither NVLink nor how fast switches forward; a profile can fill that in
        (`overlay`). A NIC counts if it has an RDMA device, or, where none has, a known speed.

    Raises:
        Unavailable: there is no GPU, or no /sys.
    """
    devices = list(_entries(Path(root) / "sys/bus/pci/devices"))
    gpus = [d for d in devices if is_gpu_class(_text(d / "class"), _text(d / "vendor"))]
    if not gpus:
        raise Unavailable(
            f"no GPU among the {len(devices)} PCI devices of this machine; describe one with "
            "`tuccl probe --from FILE` or `--profile NAME`"
        )
    nics = [d for d in devices if is_nic_class(_text(d / "class"))]
    speeds = {nic: _rdma_mbps(nic) for nic in nics}
    if not any(speeds.values()):
        speeds = {nic: _ethernet_mbps(nic) for nic in nics}
    tree = _Tree()
    for gpu in gpus:
        tree.add(gpu)
    for place, (nic, mbps) in enumerate((n, s) for n, s in speeds.items() if s):
        holder = tree.add(nic)
        net = _element("net", {"dev": str(place), "speed": str(mbps)})
        holder.children.append(_element("nic", {}, net))
    return host_of(tree.root, "/sys", name)


class _Tree:
    """The <system> that NCCL would write, without what only drivers know."""

    def __init__(self) -> None:
        self.root = _element("system", {"version": "1"})
        self._cpus: dict[str, Element] = {}
        self._devices: dict[str, Element] = {}

    def add(self, device: Path) -> Element:
        """Add a device with the bridges above it, and return its <pci>."""
        real = device.resolve()
        chain = [real, *real.parents]
        parent = self._cpu(_text(device / "numa_node") or "-1")
        for folder in reversed([part for part in chain if _BDF.fullmatch(part.name)]):
            if folder.name not in self._devices:
                fields = {ours: _text(folder / theirs) for theirs, ours in _FIELDS.items()}
                element = _element("pci", {"busid": folder.name, **fields})
                self._devices[folder.name] = element
                parent.children.append(element)
            parent = self._devices[folder.name]
        return parent

    def _cpu(self, numa: str) -> Element:
        if numa not in self._cpus:
            self._cpus[numa] = _element("cpu", {"numaid": numa})
            self.root.children.append(self._cpus[numa])
        return self._cpus[numa]


def _element(tag: str, attributes: dict[str, str], *children: Element) -> Element:
    return Element(tag, attributes, "/sys", 0, list(children))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()[:255]
    except OSError:
        return ""


def _rdma_mbps(device: Path) -> int:
    """Return the rate in Mb/s of the fastest port of the device's RDMA adapter, 0 if none."""
    fastest_mbps = 0
    for adapter in _entries(device / "infiniband"):
        for port in _entries(adapter / "ports"):
            rate = re.match(r"([0-9]{1,4})(?:\.[0-9]+)? Gb", _text(port / "rate"))
            fastest_mbps = max(fastest_mbps, int(rate[1]) * 1000 if rate else 0)
    return fastest_mbps


def _ethernet_mbps(device: Path) -> int:
    """Return the speed in Mb/s of the fastest interface of the device, 0 if none is up."""
    speeds = (_text(interface / "speed") for interface in _entries(device / "net"))
    return max((int(s) for s in speeds if re.fullmatch(r"[0-9]{1,7}", s)), default=0)


def _entries(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted(folder.iterdir())
    except OSError:
        return
