"""The xGMI links between AMD's GPUs, as the kernel's compute driver lists them in /sys."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuccl.topology.readers.trees import Tree
from tuccl.topology.readers.xml_tree import Element

_NODES = "sys/devices/virtual/kfd/kfd/topology/nodes"
_MOST_NODES = 1024
_XGMI = 11  # CRAT_IOLINK_TYPE_XGMI in the driver's kfd_crat.h
_HOP_WEIGHT = 15  # what every hop of xGMI adds to a link's weight
_MBS = {"906": 46000, "908": 46000}  # of one link; later generations say 50000 or more


@dataclass(frozen=True, slots=True)
class _Link:
    target: int
    weight: int
    mbs: int


def add_xgmi(tree: Tree, gpus: dict[str, Element]) -> None:
    """Add a <gpu> with its <xgmi> links to each <pci> of ``gpus``, by address.

    Nothing is added where the driver does not know all of them. Links with relays between their
    ends are left out: their weight shows them, or a bandwidth of 0 beside others that have some.
    """
    nodes = tree.names(_NODES)[:_MOST_NODES]
    properties = {
        int(name): _properties(tree.text(f"{_NODES}/{name}/properties"))
        for name in nodes
        if name.isdecimal() and len(name) < 5
    }
    busids = {
        node: _busid(values) for node, values in properties.items() if values.get("simd_count")
    }
    if not gpus or not set(gpus) <= set(busids.values()):
        return
    links = {node: _links(tree, node) for node in busids}
    is_rated = any(link.mbs for node_links in links.values() for link in node_links)
    for number, (node, busid) in enumerate(sorted(busids.items())):
        if busid not in gpus:
            continue
        pci = gpus[busid]
        gcn = _gcn(properties[node].get("gfx_target_version", 0))
        gpu = Element("gpu", {"dev": str(number), "gcn": gcn}, pci.place, pci.line)
        pci.children.append(gpu)
        for link in links[node]:
            if link.target in busids and link.weight <= _HOP_WEIGHT and (link.mbs or not is_rated):
                count = max(1, round(link.mbs / _MBS.get(gcn, 50000)))
                attributes = {
                    "target": busids[link.target],
                    "count": str(min(count, 16)),
                    "tclass": "0x038000",
                }
                gpu.children.append(Element("xgmi", attributes, pci.place, pci.line))


def _links(tree: Tree, node: int) -> list[_Link]:
    folder = f"{_NODES}/{node}/io_links"
    links = []
    for name in tree.names(folder)[:_MOST_NODES]:
        values = _properties(tree.text(f"{folder}/{name}/properties"))
        if values.get("type") == _XGMI and values.get("node_to", node) != node:
            links.append(
                _Link(values["node_to"], values.get("weight", 0), values.get("max_bandwidth", 0))
            )
    return links


def _properties(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"(?m)^(\w+) ([0-9]{1,18})$", text)}


def _busid(properties: dict[str, int]) -> str:
    location = properties.get("location_id", 0)
    domain = properties.get("domain", 0)
    bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 7
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def _gcn(version: int) -> str:
    """Return ``90a`` of 90010, as the driver writes gfx90a."""
    return f"{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else ""
