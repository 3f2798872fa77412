"""Reads hwloc's XML, as lstopo writes it: version 1 (no number), 2 and 3."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import NoReturn

from tuccl.errors import InputError
from tuccl.files import printable_path
from tuccl.topology import rates
from tuccl.topology.graph import Topology, quoted
from tuccl.topology.models import gpu_architecture, is_gpu_class, is_nic_class
from tuccl.topology.readers.pci_tree import Function, PciTree
from tuccl.topology.readers.reader import Reader
from tuccl.topology.readers.system import host_of
from tuccl.topology.readers.xml_tree import Element, read_xml, root_tag

_MOST_BYTES = 1 << 26
_MOST_LINKED = 4096
_MOST_WARNINGS = 20
_MOST_GBS = 1024  # 64 lanes of 128 GT/s
_LINKS = {"NVLinkBandwidth": "nvlink", "XGMIBandwidth": "xgmi"}
_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]")
_GPU_NAMES = [re.compile(rf"{driver}([0-9]{{1,4}})") for driver in ("nvml", "rsmi", "cuda")]
_DRIVER = re.compile("nvml|rsmi|cuda|opencl|card")
_GBS = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,8})?")
_LANES = (16, 8, 4, 2, 1, 32, 12)
_GTS = {0.25: 2.5, 0.5: 5.0, 0.985: 8.0, 1.969: 16.0, 3.938: 32.0, 7.563: 64.0}


@dataclass(slots=True)
class _Device:
    """A PCI device of the file, with the ports above it, root port first.

    Attributes:
        names: of its OS devices: ``nvml0``, ``mlx5_0``.
        adapter: the RDMA adapter among them, with its GUID as ``guid``.
        is_network: whether one of them is a network interface.
    """

    chain: list[Function]
    numa: str
    names: list[str] = field(default_factory=list)
    adapter: dict[str, str] | None = None
    is_network: bool = False


def _decode(data: bytes, path: str, name: str) -> tuple[Topology, tuple[str, ...]]:
    place = printable_path(path)
    if len(data) > _MOST_BYTES:
        raise InputError(f"{place}: longer than {_MOST_BYTES} bytes; export with fewer objects")
    root = read_xml(data, place, None, "hwloc's XML (lstopo --of xml)")
    if root.tag != "topology":
        raise InputError(f"{root.place}: <{root.tag[:40]}>; expected hwloc's <topology>")
    reader = _Reader(root, place)
    topology, warnings = host_of(reader.system(), place, name)
    return topology, (*reader.warnings, *warnings)


HWLOC = Reader(
    "hwloc",
    "hwloc's XML (`lstopo --of xml FILE`)",
    lambda data: root_tag(data) == "topology",
    _decode,
)


class _Reader:
    """Collects the PCI devices of the objects, then the matrices of links between them."""

    def __init__(self, root: Element, place: str) -> None:
        self._root = root
        self._place = place
        self._rdma, self._network = _codes(root)
        self.warnings: list[str] = []
        self._devices: list[_Device] = []
        self._ids: dict[str, tuple[str, str]] = {}  # object -> address and class, or CPU
        for child in root.all("object"):
            self._walk(child, "-1", [], None)

    def system(self) -> Element:
        """Return NCCL's <system>."""
        gpus = [d for d in self._devices if _is_gpu(d.chain[-1])]
        nics = [d for d in self._devices if is_nic_class(d.chain[-1].attributes["class"])]
        if not gpus:
            raise InputError(
                f"{self._place}: no GPU among {len(self._devices)} PCI devices; export with "
                "`lstopo --of xml --whole-io FILE` on the GPU host"
            )
        if not any(element.get("type") == "Bridge" for element in self._root.walk()):
            self.warnings.append(
                "no bridge in the file: PCIe switches are not known; export without --no-bridges"
            )
        adapters = [nic for nic in nics if nic.adapter] or [nic for nic in nics if nic.is_network]
        pci = PciTree(self._place, self._cpu())
        elements = {gpu.chain[-1].busid: pci.add(gpu.numa, gpu.chain) for gpu in gpus}
        for nic in adapters:
            holder = pci.add(nic.numa, nic.chain)
            net = Element("net", nic.adapter or {"name": nic.names[0]}, holder.place, holder.line)
            holder.children.append(Element("nic", {}, holder.place, holder.line, [net]))
        self._add_links(gpus, elements)
        return pci.system()

    def _walk(self, obj: Element, numa: str, ports: list[Function], device: _Device | None) -> None:
        kind = obj.get("type")
        index = obj.get("gp_index") or obj.get("id").removeprefix("obj")
        numa = _numa(obj.get("nodeset")) if obj.get("nodeset") else numa
        if kind == "Bridge" and obj.get("bridge_type").startswith("1-"):
            ports = [*ports, self._function(obj)]
        elif kind == "PCIDev":
            function = self._function(obj)
            device = _Device([*ports, function], numa)
            self._devices.append(device)
            # Some are unreadable but for the subtype that the driver gives them.
            is_switch = obj.get("subtype") == "NVSwitch"
            pci_class = "0x068000" if is_switch else function.attributes["class"]
            self._ids[f"PCIDev:{index}"] = function.busid, pci_class
        elif kind == "OSDev" and device is not None:
            function = device.chain[-1]
            device.names.append(obj.get("name"))
            code = obj.integer("osdev_type", 0, 1 << 20) or 0
            if code in self._rdma:
                guid = next((x for x in obj.all("info") if x.get("name") == "NodeGUID"), None)
                device.adapter = {
                    "name": obj.get("name"),
                    "guid": guid.get("value").replace(":", "") if guid else "",
                }
            device.is_network |= code in self._network
            self._ids[f"OSDev:{index}"] = function.busid, function.attributes["class"]
        elif kind in ("Package", "NUMANode", "Machine"):
            self._ids[f"{kind}:{index}"] = "", "cpu"
        for child in obj.all("object"):
            self._walk(child, numa, ports, device)

    def _function(self, obj: Element) -> Function:
        match = _TYPE.match(obj.get("pci_type"))
        if match is None:
            raise InputError(
                f"{obj.place}: pci_type={quoted(obj.get('pci_type'))}; expected a class and ids "
                "like '0302 [10de:20b0]'"
            )
        text = obj.get("pci_link_speed")
        if text and (not _GBS.fullmatch(text) or float(text) > _MOST_GBS):
            raise InputError(
                f"{obj.place}: pci_link_speed={quoted(text)}; expected GB/s up to {_MOST_GBS}"
            )
        speed, width = _speed(text)
        attributes = {
            "class": f"0x{match[1]}00",
            "vendor": f"0x{match[2]}",
            "device": f"0x{match[3]}",
            "link_speed": speed,
            "link_width": width,
        }
        return Function(obj.get("pci_busid").lower(), attributes, obj.line)

    def _cpu(self) -> dict[str, str]:
        names = {
            "CPUVendor": "vendor",
            "CPUFamilyNumber": "familyid",
            "CPUModelNumber": "modelid",
            "Architecture": "arch",
        }
        infos = [element for element in self._root.walk() if element.tag == "info"]
        fields = {info.get("name"): info.get("value")[:100] for info in reversed(infos)}
        return {ours: fields[theirs] for theirs, ours in names.items() if theirs in fields}

    def _add_links(self, gpus: list[_Device], elements: dict[str, Element]) -> None:
        matrices = [m for m in self._root.children if m.get("name") in _LINKS]
        numbers = _numbers(gpus)
        for gpu, number in zip(gpus, numbers, strict=True):
            if not matrices and not any(numbers):
                continue
            holder = elements[gpu.chain[-1].busid]
            attributes = {"dev": number} if number else {}
            architecture = gpu_architecture(holder.get("vendor"), holder.get("device"))
            if architecture is not None:
                attributes["gcn" if isinstance(architecture, str) else "sm"] = str(architecture)
            holder.children.append(Element("gpu", attributes, holder.place, holder.line))
        for matrix in matrices:
            self._add_matrix(matrix, elements)

    def _add_matrix(self, matrix: Element, elements: dict[str, Element]) -> None:
        """Add the links of a matrix of bandwidths in MB/s."""
        names, values = self._matrix(matrix)
        tag = _LINKS[matrix.get("name")]
        ends = [self._end(name, matrix) for name in names]
        for row, column in itertools.combinations(range(len(ends)), 2):
            there, back = values[row * len(ends) + column], values[column * len(ends) + row]
            if there != back and len(self.warnings) < _MOST_WARNINGS:
                self.warnings.append(
                    f"{matrix.get('name')} from {names[row]} to {names[column]} is {there}, but "
                    f"{back} back (line {matrix.line})"
                )
        for row, (busid, _) in enumerate(ends):
            if busid not in elements:
                continue
            gpu = elements[busid].children[0]
            for column, (target, pci_class) in enumerate(ends):
                mbs = values[row * len(ends) + column]
                if not mbs or column == row:
                    continue
                rate = _link_gbs(tag, gpu) * 1000
                attributes = {
                    "target": target,
                    "count": str(max(1, round(mbs / rate))),
                    "tclass": "0x068001" if pci_class == "cpu" else pci_class,
                }
                gpu.children.append(Element(tag, attributes, matrix.place, matrix.line))

    def _matrix(self, matrix: Element) -> tuple[list[str], list[int]]:
        count = matrix.integer("nbobjs", 0, _MOST_LINKED) or 0
        kind = matrix.get("type")
        names = " ".join(part.text for part in matrix.all("indexes")).split()
        texts = " ".join(part.text for part in matrix.all("u64values")).split()
        if len(names) != count or len(texts) != count * count:
            _refuse(matrix, f"{len(names)} indexes and {len(texts)} values for {count} objects")
        if not all(re.fullmatch("[0-9]{1,12}", text) for text in set(texts)):
            _refuse(matrix, "a value that is no whole number")
        return [n if ":" in n else f"{kind}:{n}" for n in names], [int(text) for text in texts]

    def _end(self, name: str, matrix: Element) -> tuple[str, str]:
        if name not in self._ids:
            _refuse(matrix, f"no object {quoted(name)}")
        return self._ids[name]


def _refuse(matrix: Element, what: str) -> NoReturn:
    raise InputError(
        f"{matrix.place}: the matrix {quoted(matrix.get('name'))} is damaged: {what}; export the "
        "file again"
    )


def _codes(root: Element) -> tuple[frozenset[int], frozenset[int]]:
    """Return the types of OS devices that are RDMA adapters, and those that are interfaces.

    Types are numbers up to version 2 (which files of version 1 do not say) and flags since; the
    first files that say 3.0 have numbers still, which a disk (0), a GPU (1) or a coprocessor (5)
    betrays.
    """
    text = root.get("version") or "1"
    if not re.fullmatch(r"[123](?:\.[0-9]{1,3})*", text):
        raise InputError(f"{root.place}: <topology version={quoted(text)}>; expected 1, 2 or 3")
    devices = [element for element in root.walk() if element.get("type") == "OSDev"]
    codes = {(d.get("osdev_type"), bool(_DRIVER.match(d.get("name")))) for d in devices}
    is_numbered = any(code in ("0", "5") or (code == "1" and gpu) for code, gpu in codes)
    if text < "3" or is_numbered:
        return frozenset({3}), frozenset({2})
    flags = range(128)
    return frozenset(f for f in flags if f & 32), frozenset(f for f in flags if f & 16)


def _is_gpu(function: Function) -> bool:
    return is_gpu_class(*(function.attributes[key] for key in ("class", "vendor", "device")))


def _numbers(gpus: list[_Device]) -> list[str]:
    """Return the numbers that one driver gives all GPUs, else empty ones."""
    for pattern in _GPU_NAMES:
        numbers = [
            next((m[1] for name in gpu.names if (m := pattern.fullmatch(name))), "") for gpu in gpus
        ]
        if all(numbers):
            return numbers
    return [""] * len(gpus)


def _numa(nodeset: str) -> str:
    """Return the only member of a set of NUMA nodes, ``-1`` where there are more or none.

    >>> _numa("0x00000002"), _numa("0x00000001,,0x0"), _numa("0x3"), _numa("0xf...f")
    ('1', '64', '-1', '-1')
    """
    words = nodeset.split(",")
    if not all(re.fullmatch("(?:0x)?[0-9a-f]{0,8}", word) for word in words) or len(words) > 4096:
        return "-1"
    bits = [int(word or "0", 16) for word in words]
    occupied = [place for place, word in enumerate(reversed(bits)) if word]
    if len(occupied) != 1 or bits[-1 - occupied[0]].bit_count() != 1:
        return "-1"
    return str(32 * occupied[0] + bits[-1 - occupied[0]].bit_length() - 1)


def _speed(text: str) -> tuple[str, str]:
    """Return the PCIe speed and width that make a rate in GB/s, empty where it is unknown.

    >>> _speed("15.753846"), _speed("4.000000"), _speed("0.000000")
    (('8 GT/s', '16'), ('2.5 GT/s', '16'), ('', ''))
    """
    gbs = float(text) if _GBS.fullmatch(text) else 0.0
    errors = {
        (lane, lanes): abs(lane * lanes / gbs - 1) for lane in _GTS for lanes in _LANES if gbs > 0
    }
    if not errors or min(errors.values()) > 0.02:
        return "", ""
    lane, lanes = min(errors, key=lambda key: round(errors[key], 3))
    return f"{_GTS[lane]:g} GT/s", str(lanes)


def _link_gbs(tag: str, gpu: Element) -> float:
    if tag == "xgmi":
        return rates.xgmi_rate(gpu.get("gcn")).gbs
    return rates.nvlink_rate(gpu.integer("sm", 0, 9999)).gbs
