"""Reads InfraGraph's infrastructure files, JSON or YAML: hosts and switches, and their cables."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from tuccl.errors import InputError
from tuccl.files import printable_path
from tuccl.topology.graph import quoted
from tuccl.topology.readers.inventory import (
    Inventory,
    check_count,
    is_nic,
    joined_pairs,
    part_of,
)
from tuccl.topology.readers.reader import Reader
from tuccl.topology.switches import Adapter, Fabric, Trunk


def _decode(data: bytes, path: str, name: str) -> tuple[Fabric, tuple[str, ...]]:
    place = printable_path(path)
    try:
        fabric, others = _fabric(Inventory(data, place), name)
    except InputError as error:
        raise InputError(f"{place}: {str(error).removeprefix(f'{place}: ')}") from None
    text = (
        f"{place}: {others} cables between hosts, from a switch to itself, or to parts that are no "
        "NIC are left out"
    )
    return fabric, (text,) if others else ()


def _fabric(inventory: Inventory, name: str) -> tuple[Fabric, int]:
    """Return the fabric, and the number of cables that are not in it."""
    device_of = inventory.machines()
    devices = set(device_of.values())
    hosts = {device for device in devices if inventory.has(device, "xpu", "nic")}
    parts = {device: inventory.parts(device) for device in hosts}
    links = {link.name: link for link in inventory.infrastructure.links}
    adapters: list[Adapter] = []
    cables: dict[tuple[str, str], list[float | None]] = defaultdict(list)
    labels: Counter[str] = Counter()
    others = 0
    for number, edge in enumerate(inventory.infrastructure.edges):
        where = f"$.edges[{number}]"
        if edge.link not in links:
            raise InputError(f"{where}.link: no link {quoted(edge.link)}")
        try:
            ends = inventory.ends(edge.ep1), inventory.ends(edge.ep2)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        gbs = links[edge.link].gbs
        for pair in joined_pairs(*ends, edge.scheme, where):
            (near, path), (far, _) = sorted(pair, key=lambda end: device_of[end[0]] not in hosts)
            of_near = parts.get(device_of[near], {})
            nic = part_of(path, of_near)
            if device_of[near] not in hosts and near != far:
                low, high = sorted((near, far))
                cables[low, high].append(gbs)
            elif near == far or device_of[far] in hosts or nic is None or not is_nic(of_near[nic]):
                others += 1
            else:
                label = f"{near}.{path}"
                labels[label] += 1
                label += f"/{labels[label]}" if labels[label] > 1 else ""
                adapters.append(Adapter(label, far, gbs, near, nic))
        check_count(len(adapters) + sum(map(len, cables.values())), "cables")
    trunks = tuple(
        Trunk(src, dst, None if None in gbs else sum(g or 0 for g in gbs), len(gbs))
        for (src, dst), gbs in cables.items()
    )
    switches = tuple(machine for machine, device in device_of.items() if device not in hosts)
    return Fabric(inventory.name or name, switches, tuple(adapters), trunks), others


_START = tuple(
    re.compile(rb'"%s"\s*:\s*\[|^[ ]*%s:' % (key, key), re.MULTILINE)
    for key in (b"devices", b"instances")
)
INFRAGRAPH: Reader[Fabric] = Reader(
    "infragraph",
    "an InfraGraph infrastructure, JSON or YAML",
    lambda data: all(pattern.search(data) for pattern in _START),
    _decode,
)
