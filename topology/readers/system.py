"""Turns a <system> of elements, as NCCL's XML has it, into the one host that it describes.

Every reader of hosts makes such a tree of what it reads, so that equal machines become equal
topologies. It lists the PCIe tree under each CPU; NVLink, xGMI and C2C only where a GPU was seen
by its driver. What a tree lacks is filled in as NCCL fills it, marked ``assumed`` and warned about.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tuccl.errors import InputError
from tuccl.topology import rates
from tuccl.topology.graph import BUSID, Link, LinkKind, Node, Topology, quoted
from tuccl.topology.models import gpu_gts, gpu_model, is_gpu_class, is_nic_class, nic_model
from tuccl.topology.rates import Rate
from tuccl.topology.readers.nvlinks import NvLinks
from tuccl.topology.readers.pci_tree import check_pci
from tuccl.topology.readers.xml_tree import Element
from tuccl.topology.switches import natural

HOST = "n0"


def host_of(root: Element, place: str, name: str) -> tuple[Topology, tuple[str, ...]]:
    """Return the host that the <system> ``root`` describes, and warnings.

    Args:
        root: as NCCL's XML has it.
        place: the file, for messages.
        name: of the topology.

    Raises:
        InputError: it describes no GPU, or contradicts itself.
    """
    reader = _Reader(root)
    reader.read()
    if not any(node.kind == "gpu" for node in reader.nodes):
        raise InputError(f"{place}: {_no_gpu_reason(root)}")
    try:
        topology = Topology(name, tuple(reader.nodes), tuple(reader.links))
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    return topology, reader.warnings.lines()


def _no_gpu_reason(root: Element) -> str:
    """Return why no GPU was recognized, and what to do about it."""
    if any(element.tag == "pci" and not element.get("class").strip() for element in root.walk()):
        return (
            "no GPU: <pci> elements have bus ids without a class, which NCCL fills in when it "
            "runs; run any NCCL program on that machine with NCCL_TOPO_FILE set to this file and "
            "NCCL_TOPO_DUMP_FILE=full.xml, and read full.xml instead, or take a --profile"
        )
    return "no GPU: neither a <gpu> nor a <pci> of a GPU's class (0x0302, 0x0380, 0x12)"


class _Warnings:
    """Messages, each with the lines that it is about."""

    def __init__(self) -> None:
        self._lines: dict[str, list[int]] = {}

    def add(self, text: str, at: Element) -> None:
        self._lines.setdefault(text, []).append(at.line)

    def lines(self) -> tuple[str, ...]:
        return tuple(text + _places(sorted(lines)) for text, lines in self._lines.items())


def _places(lines: list[int]) -> str:
    """Return ``" (lines 3, 4)"``; nothing where the lines are unknown (0)."""
    lines = [line for line in lines if line]
    first_lines = ", ".join(str(line) for line in lines[:4])
    rest = f" and {len(lines) - 4} more" if len(lines) > 4 else ""
    return f" (line{'s' if len(lines) > 1 else ''} {first_lines}{rest})" if lines else ""


@dataclass(frozen=True, slots=True)
class _Device:
    """A GPU or a NIC in the PCIe tree; ``element`` is its <gpu> or <net>, if it has one."""

    pci: Element | None
    element: Element | None
    parent: str
    cpu: str
    rate: Rate
    at: Element

    @property
    def busid(self) -> str:
        return _busid(self.pci) if self.pci is not None else ""

    def integer(self, name: str) -> int | None:
        return None if self.element is None else self.element.integer(name, -1, 1 << 20)

    def attribute(self, name: str) -> str:
        return "" if self.element is None else self.element.get(name)

    def pci_attribute(self, name: str) -> str:
        return "" if self.pci is None else self.pci.get(name)


def _busid(pci: Element) -> str:
    text = pci.get("busid").strip().lower()
    if not BUSID.fullmatch(text):
        raise InputError(
            f"{pci.place}: <pci busid={quoted(text)}>; expected an address like 0000:3b:00.0"
        )
    return text


def _address(pci: Element | None) -> str | None:
    """Return a PCI address as drivers print it; None where a reader without any made it up."""
    if pci is None or pci.get("assumed"):
        return None
    domain, _, rest = _busid(pci).partition(":")
    return f"{int(domain, 16):04x}:{rest}"


class _Reader:
    """Turns the elements into nodes and links, CPU by CPU."""

    def __init__(self, root: Element) -> None:
        self.nodes: list[Node] = []
        self.links: list[Link] = []
        self.warnings = _Warnings()
        self._root = root
        tags = Counter(element.tag for element in root.walk())
        self._bare_gpus = not tags["gpu"]
        self._bare_nics = not tags["net"]
        self._busids: dict[str, int] = {}
        self._switches: Counter[str] = Counter()
        self._gpus: list[_Device] = []
        self._nics: list[_Device] = []

    def read(self) -> None:
        cpus = [(self._cpu_id(cpu), cpu) for cpu in self._root.all("cpu")]
        self._warn_unknown(self._root, ("cpu",))
        for cpu_id, cpu in cpus:
            self.nodes.append(Node(cpu_id, "cpu", HOST, model=cpu.get("vendor")[:100] or None))
            self._warn_unknown(cpu, ("pci", "nic"))
            for pci in cpu.all("pci"):
                self._pci(pci, cpu_id, cpu_id)
            for nic in cpu.all("nic"):
                self._nic_without_pci(nic, cpu_id)
        self._place_gpus()
        self._place_nics()
        self._join_cpus(cpus)

    def _warn_unknown(self, element: Element, expected: tuple[str, ...]) -> None:
        for child in element.children:
            if child.tag not in expected:
                self.warnings.add(f"<{child.tag[:40]}> in <{element.tag}> is not known", child)

    def _cpu_id(self, cpu: Element) -> str:
        numa = cpu.integer("numaid", -1, 1 << 20)
        cpu_ids = {node_id for node_id in self._busids if node_id.startswith("cpu")}
        if numa is None or numa < 0 or f"cpu{numa}" in cpu_ids:
            self.warnings.add("unknown or duplicate NUMA node; the next free number taken", cpu)
            numa = next(n for n in range(len(cpu_ids) + 1) if f"cpu{n}" not in cpu_ids)
        self._busids[f"cpu{numa}"] = cpu.line
        return f"cpu{numa}"

    def _pci(self, pci: Element, parent: str, cpu: str) -> None:
        busid = _busid(pci)
        check_pci(pci)
        if pci.get("link_speed").strip().endswith("PCIe/s"):
            self.warnings.add("'GT/s PCIe/s' read as GT/s; NCCL takes 8 GT/s there", pci)
        if busid in self._busids and not (pci.all("pci") or busid in self._switches):
            raise InputError(
                f"{pci.place}: <pci busid={busid!r}> is there already, in line "
                f"{self._busids[busid]}; addresses must differ"
            )
        if busid in self._busids:
            # Files made by hand have it, and NCCL takes them.
            self.warnings.add("a PCIe switch of another's address is taken as one of its own", pci)
        self._busids[busid] = pci.line
        self._warn_unknown(pci, ("pci", "gpu", "nic", "pcilink"))
        gpus = pci.all("gpu")
        nets = [net for nic in pci.all("nic") for net in (nic.all("net") or (nic,))]
        below = pci.all("pci")
        if not (gpus or nets or below):
            self._leaf(pci, parent, cpu)
        elif len(gpus) + len(nets) == 1 and not below:
            rate = self._rate(pci)
            devices = self._gpus if gpus else self._nics
            devices.append(_Device(pci, (*gpus, *nets)[0], parent, cpu, rate, pci))
        else:
            self._bridge(pci, gpus, nets, parent, cpu)

    def _bridge(
        self, pci: Element, gpus: tuple[Element, ...], nets: list[Element], parent: str, cpu: str
    ) -> None:
        busid = _busid(pci)
        self._switches[busid] += 1
        node_id = f"pci-{busid}" + f"+{self._switches[busid]}" * (self._switches[busid] > 1)
        rate = self._rate(pci)
        is_card = bool(nets) and not (gpus or pci.all("pci"))
        model = _card_model(pci) if is_card else None
        self.nodes.append(Node(node_id, "pcie", HOST, model=model))
        self._link(node_id, parent, "pcie", rate, rates.PCIE_US, pci)
        for gpu in gpus:
            self._gpus.append(_Device(pci, gpu, node_id, cpu, rate, gpu))
        for net in nets:
            self._nics.append(_Device(pci, net, node_id, cpu, rate, net))
        for child in pci.all("pci"):
            self._pci(child, node_id, cpu)

    def _leaf(self, pci: Element, parent: str, cpu: str) -> None:
        pci_class = pci.get("class")
        gpu, nic = (
            is_gpu_class(pci_class, pci.get("vendor"), pci.get("device")),
            is_nic_class(pci_class),
        )
        if (gpu and self._bare_gpus) or (nic and self._bare_nics):
            (self._gpus if gpu else self._nics).append(
                _Device(pci, None, parent, cpu, self._rate(pci), pci)
            )
        elif gpu or nic:
            tag = "gpu" if gpu else "net"
            self.warnings.add(f"a device without <{tag}> beside others with it is left out", pci)
        elif not pci_class.strip().lower().startswith("0x06"):
            self.warnings.add("a device that is neither GPU nor NIC is left out", pci)

    def _nic_without_pci(self, nic: Element, cpu: str) -> None:
        for net in nic.all("net") or (nic,):
            port = _port_gbs(net)
            rate = Rate(15.76, "PCIe place not known: 8 GT/s x16 taken", True)
            if port is not None:
                rate = Rate(port, "PCIe place not known: the port's rate taken", True)
            self._nics.append(_Device(None, net, cpu, cpu, rate, net))

    def _rate(self, pci: Element) -> Rate:
        likely_gts = float(pci.get("likely_gts") or 8)
        rate = rates.pcie_rate(pci.get("link_speed"), pci.get("link_width"), likely_gts)
        if rate.assumed:
            self.warnings.add(rate.source, pci)
        if rate.source.startswith("2.5 GT/s") and not pci.all("pci"):
            return self._rate_when_busy(pci, rate)
        fastest = _fastest_below(pci)
        if fastest.gbs > 4 * rate.gbs and rate.source.startswith("2.5 GT/s"):
            # Hypervisors show emulated bridges at gen 1; the links behind them are the devices'.
            self.warnings.add("an emulated bridge (2.5 GT/s): its devices' rate taken", pci)
            return Rate(fastest.gbs, f"emulated bridge: {fastest.source} taken", True)
        if fastest.gbs > rate.gbs:
            self.warnings.add("a bridge slower than a device behind it, kept as written", pci)
        return rate

    def _rate_when_busy(self, pci: Element, rate: Rate) -> Rate:
        """Return the rate of a GPU that was idle when it was read, as it is under load."""
        gts = gpu_gts(pci.get("vendor"), pci.get("device"))
        if gts is None:
            return rate
        self.warnings.add(f"an idle GPU (2.5 GT/s): {gts} GT/s of its model taken", pci)
        busy = rates.pcie_rate(f"{gts} GT/s", pci.get("link_width"))
        return Rate(busy.gbs, f"idle at 2.5 GT/s: {busy.source} of the model taken", True)

    def _link(
        self, src: str, dst: str, kind: LinkKind, rate: Rate, latency: float, at: Element
    ) -> None:
        source = f"{Path(at.place).name}: {rate.source}"
        self.links.append(
            Link(src, dst, kind, rate.gbs, latency, True, assumed=rate.assumed, source=source)
        )

    def _place_gpus(self) -> None:
        ordered = self._numbered(self._gpus, ("rank", "dev"))
        ids = [f"gpu{rank}" for rank in range(len(ordered))]
        for rank, device in enumerate(ordered):
            sm = device.integer("sm") if not device.attribute("gcn") else None
            identity = device.pci_attribute("vendor"), device.pci_attribute("device")
            model = gpu_model(*identity, sm, device.attribute("gcn")[:100])
            if device.element is None:
                self.warnings.add(
                    "the file does not list the GPU's NVLink; add it by --profile", device.at
                )
            address = _address(device.pci)
            self.nodes.append(Node(ids[rank], "gpu", HOST, rank=rank, model=model, busid=address))
            self._link(ids[rank], device.parent, "pcie", device.rate, rates.PCIE_US, device.at)
        nvlinks = NvLinks(self.nodes.append, self._link, self.warnings.add, HOST)
        nvlinks.read(
            [
                (i, device.busid, device.cpu, device.element)
                for i, device in zip(ids, ordered, strict=True)
            ]
        )

    def _place_nics(self) -> None:
        devices = self._numbered(self._nics, ("dev",))
        functions = Counter(
            (device.parent, device.busid[:-2]) for device in devices if device.pci is not None
        )
        slots: dict[tuple[str, str], str] = {}
        for index, device in enumerate(devices):
            port = None if device.element is None else _port_gbs(device.element)
            if port is None:
                self.warnings.add("the NIC's port speed is unknown; add it by --profile", device.at)
            model = nic_model(device.pci_attribute("vendor"), device.pci_attribute("device"))
            node = Node(
                f"nic{index}",
                "nic",
                HOST,
                model=model,
                port_gbs=port,
                device=_device_name(device.attribute("name")),
                guid=_guid(device.attribute("guid")),
            )
            self.nodes.append(node)
            key = (device.parent, device.busid[:-2])
            parent = device.parent
            if functions[key] > 1 and not parent.startswith(f"pci-{key[1]}"):
                parent = slots.get(key) or self._slot(device, key)
                slots[key] = parent
            self._link(node.id, parent, "pcie", device.rate, rates.PCIE_US, device.at)

    def _slot(self, device: _Device, key: tuple[str, str]) -> str:
        """Add the slot that the functions of one card share, and return its id."""
        node_id = f"slot-{key[1]}"
        model = _card_model(device.pci) if device.pci is not None else None
        self.nodes.append(Node(node_id, "pcie", HOST, model=model))
        self._link(node_id, device.parent, "pcie", device.rate, rates.PCIE_US, device.at)
        return node_id

    def _numbered(self, devices: list[_Device], names: tuple[str, ...]) -> list[_Device]:
        """Return ``devices`` by the first attribute that differs between all, name, or address."""
        for name in names:
            numbers = [device.integer(name) for device in devices]
            given = [number for number in numbers if number is not None and number >= 0]
            unique = set(given)
            if twice := [n for n, count in Counter(given).items() if count > 1]:
                place = devices[numbers.index(twice[0])].at
                self.warnings.add(f"{name} {twice[0]} is given to several devices", place)
            if devices and len(unique) == len(devices):
                order = sorted(range(len(devices)), key=lambda place: numbers[place] or 0)
                return [devices[place] for place in order]
        adapters = [device.attribute("name") for device in devices]
        if all(adapters) and len(set(adapters)) == len(adapters):
            return sorted(devices, key=lambda device: natural(device.attribute("name")))
        if any(device.element is not None for device in devices):
            text = f"no {' or '.join(names)} numbers all devices apart; ordered by PCI address"
            self.warnings.add(text, devices[0].at)
        return sorted(devices, key=lambda device: device.busid)

    def _join_cpus(self, cpus: list[tuple[str, Element]]) -> None:
        """Add a link between every two CPUs, which the file never lists."""
        for (src, element), (dst, peer) in itertools.combinations(cpus, 2):
            rate = min(_cpu_rate(element), _cpu_rate(peer))
            self._link(src, dst, "cpu", rate, rates.CPU_US, element)


def _card_model(pci: Element) -> str:
    """Return the model of a card with several ports, which distinguishes it from a switch."""
    return nic_model(pci.get("vendor"), pci.get("device")) or "NIC"


def _cpu_rate(cpu: Element) -> Rate:
    family, model = cpu.integer("familyid", -1, 1 << 20), cpu.integer("modelid", -1, 1 << 20)
    return rates.cpu_rate(cpu.get("vendor"), cpu.get("arch"), family, model)


def _fastest_below(pci: Element) -> Rate:
    """Return the rate of the fastest device under a bridge, rate 0 where there is none."""
    fastest_rate = Rate(0.0, "")
    for child in pci.all("pci"):
        rate = rates.pcie_rate(child.get("link_speed"), child.get("link_width"))
        fastest_rate = max(
            fastest_rate, _fastest_below(child), rate if not rate.assumed else fastest_rate
        )
    return fastest_rate


def _device_name(text: str) -> str | None:
    return text if re.fullmatch(r"[\w.:+-]{1,100}", text) else None


def _guid(text: str) -> str | None:
    """Return a GUID as 16 hexadecimal digits; None where it is zero, as some drivers leave it."""
    match = re.fullmatch("(?:0x)?([0-9a-f]{1,16})", text.strip().lower())
    return match[1].rjust(16, "0") if match and match[1].strip("0") else None


def _port_gbs(net: Element) -> float | None:
    speed = net.integer("speed", -1, 10**9)
    return speed / 8000 if speed is not None and speed > 0 else None
