"""Builds NCCL's <system> of PCI functions that are known with all the bridges above them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tuccl.topology.readers.xml_tree import Element

__all__ = ["Function", "PciTree"]


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
