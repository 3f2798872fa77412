"""Builds NCCL's <system> of PCI functions that are known with all the bridges above them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from tuccl.errors import InputError
from tuccl.topology.graph import quoted
from tuccl.topology.readers.xml_tree import Element

_CLASS = re.compile("(?:0x)?[0-9a-fA-F]{1,8}")
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?) GT/s(?: PCIe(?:/s)?)?")
_MOST_GTS, _MOST_LANES = 128, 64


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a PCI device, or a port of a bridge.

    Attributes:
        busid: its address, like ``0000:3b:00.0``.
        attributes: of its <pci>: class, vendor, device, link_speed, link_width.
        line: of the file, 0 where there are no lines.
    """

    busid: str
    attributes: dict[str, str] = field(default_factory=dict)
    line: int = 0


class PciTree:
    """Collects devices with the ports above them, then nests them as NCCL does.

    A PCIe switch is one <pci>, its upstream port; downstream ports and root ports are none. So of
    the ports above a device every second one counts, which is how NCCL climbs /sys. Only a port
    with several devices of their own right below it is kept: it is what joins them.
    """

    def __init__(self, place: str, cpu: dict[str, str] | None = None) -> None:
        """Start without a device; every <cpu> gets the attributes ``cpu``."""
        self._place = place
        self._cpu = cpu or {}
        self._devices: list[tuple[str, Sequence[Function], Element]] = []

    def add(self, numa: str, chain: Sequence[Function]) -> Element:
        """Return the <pci> of the last function of ``chain``, which begins at the root port."""
        element = self._element(chain[-1])
        self._devices.append((numa, chain, element))
        return element

    def system(self) -> Element:
        """Return the <system>."""
        root = Element("system", {"version": "1"}, self._place, 0)
        slots: dict[str, set[str]] = defaultdict(set)
        for _, chain, _ in self._devices:
            if len(chain) > 1:
                slots[chain[-2].busid].add(chain[-1].busid.partition(".")[0])
        elements: dict[str, Element] = {}
        for numa, chain, device in self._devices:
            parent = elements.get(f"cpu {numa}")
            if parent is None:
                attributes = {"numaid": numa, **self._cpu}
                parent = Element("cpu", attributes, device.place, device.line)
                elements[f"cpu {numa}"] = parent
                root.children.append(parent)
            is_shared = len(chain) > 1 and len(slots[chain[-2].busid]) > 1
            for port in reversed(chain[-2 if is_shared else -3 :: -2]):
                if port.busid not in elements:
                    elements[port.busid] = self._element(port)
                    parent.children.append(elements[port.busid])
                parent = elements[port.busid]
            parent.children.append(device)
        return root

    def _element(self, function: Function) -> Element:
        place = f"{self._place}:{function.line}" if function.line else self._place
        attributes = {"busid": function.busid, **function.attributes}
        return Element("pci", attributes, place, function.line)


def check_pci(pci: Element) -> None:
    """Refuse a <pci> whose class or link is no number of its field's form.

    An empty attribute, a width of 0 or 255 and ``Unknown`` are what drivers write for links they
    cannot see.

    Raises:
        InputError: such a <pci>.
    """
    kind, speed, width = (pci.get(n).strip() for n in ("class", "link_speed", "link_width"))
    if kind and not _CLASS.fullmatch(kind):
        _refuse(pci, "class", "a hexadecimal number like 0x030200")
    match = _SPEED.fullmatch(speed)
    if not _is_unknown(speed) and (match is None or float(match[1]) > _MOST_GTS):
        _refuse(pci, "link_speed", f"GT/s up to {_MOST_GTS}, like 16.0 GT/s PCIe")
    is_width = re.fullmatch("[0-9]{1,3}", width) and (int(width) <= _MOST_LANES or width == "255")
    if not _is_unknown(width) and not is_width:
        _refuse(pci, "link_width", f"lanes up to {_MOST_LANES}")


def _is_unknown(text: str) -> bool:
    return not text or text.lower().startswith("unknown")


def _refuse(pci: Element, name: str, expected: str) -> NoReturn:
    raise InputError(f"{pci.place}: <pci {name}={quoted(pci.get(name))}>; expected {expected}")
