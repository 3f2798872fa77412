"""Reads GPUs and NICs from Linux's /sys: live, captured in a folder, or in a tar file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from tuccl.errors import InputError
from tuccl.files import printable_path
from tuccl.topology.graph import Topology, quoted
from tuccl.topology.models import is_gpu_class, is_nic_class
from tuccl.topology.readers.kfd import add_xgmi
from tuccl.topology.readers.pci_tree import Function, PciTree
from tuccl.topology.readers.reader import Reader
from tuccl.topology.readers.system import host_of
from tuccl.topology.readers.trees import Archive, Folder, Tree, is_archive
from tuccl.topology.readers.xml_tree import Element

DEVICES = "sys/bus/pci/devices"
_MOST_DEVICES = 65536
_BUSID = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]"
_TARGET = re.compile(rf"((?:[\w.:-]+/)*{_BUSID})/?")
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s")


def read_sysfs(
    path: str | os.PathLike[str], name: str = "machine"
) -> tuple[Topology, tuple[str, ...]]:
    """Return the host whose /sys the folder ``path`` holds, and warnings.

    Args:
        path: the folder that holds ``sys``, or one that holds just such a folder.
        name: of the topology.

    Notes:
        /sys has no NVLink and no rate of a switch; xGMI only where AMD's driver was loaded. A
        NIC counts if it has an RDMA device, or, where none has, a known speed.

    Raises:
        InputError: there is no GPU, or no tree of PCI devices.
    """
    return _host(Folder(Path(path)), printable_path(path), name)


def _decode(data: bytes, path: str, name: str) -> tuple[Topology, tuple[str, ...]]:
    place = printable_path(path)
    return _host(Archive(data, place), place, name)


def _host(tree: Tree, place: str, name: str) -> tuple[Topology, tuple[str, ...]]:
    system = sysfs_system(tree, place)
    if system is None:
        raise InputError(
            f"{place}: no GPU among the {len(tree.names(DEVICES))} PCI devices of {DEVICES}; "
            "capture /sys on the GPU host, or describe it by --profile NAME"
        )
    return host_of(system, place, name)


SYSFS = Reader("sysfs", "/sys of a machine in a folder or tar file", is_archive, _decode)


def sysfs_system(
    tree: Tree, place: str, describe: Callable[[dict[str, Element]], None] | None = None
) -> Element | None:
    """Return NCCL's <system> of the GPUs and NICs under ``sys`` in ``tree``, None without a GPU.

    Args:
        tree: holds ``sys``.
        place: of the tree, for messages.
        describe: adds <gpu> elements to the <pci> of GPUs, by address.

    Raises:
        InputError: the devices are no links into a tree of them, or are too many.
    """
    chains = _chains(tree, place)
    functions = {chain[-1]: _function(tree, chain[-1]) for chain in chains}
    gpus = [chain for chain in chains if _is_gpu(functions[chain[-1]])]
    if not gpus:
        return None
    nics = _nics(tree, [c for c in chains if is_nic_class(functions[c[-1]].attributes["class"])])
    numa_nodes = re.findall(r"node([0-9]+)", " ".join(tree.names("sys/devices/system/node")))
    pci = PciTree(place, _cpu(tree))
    elements: dict[str, Element] = {}
    for chain in (*gpus, *(chain for chain, _ in nics)):
        for port in chain:
            functions.setdefault(port, _function(tree, port))
        numa = tree.text(f"{chain[-1]}/numa_node") or "-1"
        if numa == "-1" and len(numa_nodes) == 1:
            numa = numa_nodes[0]
        elements[chain[-1]] = pci.add(numa, [functions[port] for port in chain])
    for chain, mbps in nics:
        attributes = {"speed": str(mbps), **_adapter(tree, chain[-1])}
        nic = Element("nic", {}, place, 0, [Element("net", attributes, place, 0)])
        elements[chain[-1]].children.append(nic)
    by_busid = {functions[chain[-1]].busid: elements[chain[-1]] for chain in gpus}
    add_xgmi(tree, by_busid)
    if describe is not None:
        describe(by_busid)
    return pci.system()


def _chains(tree: Tree, place: str) -> list[list[str]]:
    """Return for each PCI device the paths of the ports above it and its own, root port first."""
    names = tree.names(DEVICES)
    if not names:
        raise InputError(f"{place}: no {DEVICES}; expected a folder or tar file that holds it")
    if len(names) > _MOST_DEVICES:
        raise InputError(f"{place}: {len(names)} PCI devices; at most {_MOST_DEVICES} are read")
    chains = []
    for name in names:
        match = _TARGET.fullmatch(f"/{tree.link(f'{DEVICES}/{name}')}".partition("/devices/")[2])
        if match is None or not match[1].endswith(f"/{name}"):
            raise InputError(
                f"{place}: {DEVICES}/{quoted(name)} is no link to its place under sys/devices; "
                "capture /sys with its links (tar, cp -a)"
            )
        parts = match[1].split("/")
        paths = ["sys/devices/" + "/".join(parts[: at + 1]) for at in range(len(parts))]
        chains.append(
            [path for path, part in zip(paths, parts, strict=True) if re.fullmatch(_BUSID, part)]
        )
    return chains


def _is_gpu(function: Function) -> bool:
    return is_gpu_class(*(function.attributes[key] for key in ("class", "vendor", "device")))


def _function(tree: Tree, path: str) -> Function:
    """Return a PCI function with the speed that both ends of its link can take.

    Current speeds are not read: idle GPUs lower them. A port at 2.5 GT/s above a faster device is
    one that a hypervisor made up.
    """
    parent, _, busid = path.rpartition("/")
    attributes = {name: tree.text(f"{path}/{name}")[:255] for name in ("class", "vendor", "device")}
    speed, width = (tree.text(f"{path}/max_link_{name}")[:255] for name in ("speed", "width"))
    port_speed, port_width = (tree.text(f"{parent}/max_link_{name}") for name in ("speed", "width"))
    if _gts(port_speed) > 2.5:
        speed = min(speed, port_speed, key=_gts) if _gts(speed) else speed
        if port_width.isdecimal() and width.isdecimal() and 0 < int(port_width) < int(width):
            width = port_width
    return Function(busid, {**attributes, "link_speed": speed, "link_width": width})


def _gts(speed: str) -> float:
    match = _SPEED.match(speed)
    return float(match[1]) if match else 0.0


def _nics(tree: Tree, chains: list[list[str]]) -> list[tuple[list[str], int]]:
    """Return the NICs with their rates in Mb/s: RDMA adapters, else interfaces that are up."""
    for rate in (_rdma_mbps, _ethernet_mbps):
        nics = [(chain, rate(tree, chain[-1])) for chain in chains]
        if any(mbps for _, mbps in nics):
            return [(chain, mbps) for chain, mbps in nics if mbps]
    return []


def _rdma_mbps(tree: Tree, device: str) -> int:
    """Return the rate of the fastest port of the device's RDMA adapter, 0 if it has none.

    It is -1, as in NCCL's files, where no port is up: such ports show the rate of the slowest.
    """
    fastest_mbps = 0
    for adapter in tree.names(f"{device}/infiniband")[:64]:
        for port in tree.names(f"{device}/infiniband/{adapter}/ports")[:64]:
            folder = f"{device}/infiniband/{adapter}/ports/{port}"
            rate = re.match(r"([0-9]{1,4})(?:\.([0-9]))?[0-9]* Gb", tree.text(f"{folder}/rate"))
            if rate and "ACTIVE" not in (tree.text(f"{folder}/state") or "ACTIVE"):
                fastest_mbps = fastest_mbps or -1
            elif rate:
                fastest_mbps = max(fastest_mbps, int(rate[1]) * 1000 + int(rate[2] or 0) * 100)
    return fastest_mbps


def _adapter(tree: Tree, device: str) -> dict[str, str]:
    """Return name and GUID of the device's adapter, or the interface's name, as <net> has them."""
    for name in tree.names(f"{device}/infiniband")[:1]:
        guid = tree.text(f"{device}/infiniband/{name}/node_guid")
        return {"name": name, "guid": guid.replace(":", "")}
    interfaces = tree.names(f"{device}/net")
    return {"name": interfaces[0]} if interfaces else {}


def _ethernet_mbps(tree: Tree, device: str) -> int:
    """Return the speed of the fastest interface of the device, 0 if none is up."""
    interfaces = tree.names(f"{device}/net")[:64]
    speeds = (tree.text(f"{device}/net/{interface}/speed") for interface in interfaces)
    return max((int(s) for s in speeds if re.fullmatch("[0-9]{1,7}", s)), default=0)


def _cpu(tree: Tree) -> dict[str, str]:
    """Return vendor, family and model as <cpu> has them, where /proc was captured too."""
    text = tree.text("proc/cpuinfo")
    names = {"vendor_id": "vendor", "cpu family": "familyid", "model": "modelid"}
    fields = dict(re.findall(r"(?m)^(vendor_id|cpu family|model)\s*: (\w{1,40})$", text))
    return {ours: fields[theirs] for theirs, ours in names.items() if theirs in fields}
