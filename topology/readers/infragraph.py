"""Reads InfraGraph's infrastructure files, JSON or YAML: hosts and switches, and their cables."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Literal

import msgspec

from tuccl.errors import InputError
from tuccl.topology.graph import quoted
from tuccl.topology.json_files import printable_path
from tuccl.topology.readers.reader import Reader
from tuccl.topology.readers.yaml_files import decode_values
from tuccl.topology.switches import Adapter, Fabric, Trunk

__all__ = ["INFRAGRAPH"]

_MOST_ENDS = 1 << 20
_ENDPOINT = re.compile(r"([\w><() -]+)(?:\[([0-9]{0,9})(:?)([0-9]{0,9})\])?", re.ASCII)


class _Bandwidth(msgspec.Struct, frozen=True):
    gigabits_per_second: float | None = None
    gigabytes_per_second: float | None = None


class _Physical(msgspec.Struct, frozen=True):
    bandwidth: _Bandwidth = _Bandwidth()


class _Link(msgspec.Struct, frozen=True):
    name: str
    physical: _Physical = _Physical()

    @property
    def gbs(self) -> float | None:
        """Return the rate in GB/s, None where none is given."""
        bandwidth = self.physical.bandwidth
        if bandwidth.gigabytes_per_second is not None:
            return bandwidth.gigabytes_per_second
        bits = bandwidth.gigabits_per_second
        return None if bits is None else bits / 8


class _Component(msgspec.Struct, frozen=True):
    name: str
    count: int
    choice: str


class _Device(msgspec.Struct, frozen=True):
    name: str
    components: list[_Component] = []


class _Instance(msgspec.Struct, frozen=True):
    name: str
    device: str
    count: int


class _Endpoint(msgspec.Struct, frozen=True):
    instance: str
    component: str


class _Edge(msgspec.Struct, frozen=True):
    ep1: _Endpoint
    ep2: _Endpoint
    link: str
    scheme: Literal["one2one", "many2many", "ring"] = "one2one"


class _Infrastructure(msgspec.Struct, frozen=True):
    devices: list[_Device]
    instances: list[_Instance]
    edges: list[_Edge] = []
    links: list[_Link] = []
    name: str = ""


class _Inventory:
    """Devices and instances by name, and the ends that endpoints stand for."""

    def __init__(self, infrastructure: _Infrastructure) -> None:
        self._devices = {device.name: device for device in infrastructure.devices}
        self._instances = {instance.name: instance for instance in infrastructure.instances}
        for instance in infrastructure.instances:
            if instance.device not in self._devices:
                raise InputError(f"instance {quoted(instance.name)}: no device {instance.device!r}")
            if not 0 <= instance.count <= _MOST_ENDS:
                raise InputError(f"instance {quoted(instance.name)}: count {instance.count}")

    def machines(self) -> Iterator[tuple[str, bool]]:
        """Yield the name of each machine, and whether it is a host: has accelerators or NICs."""
        for instance in self._instances.values():
            is_host = self._has(instance.device, ("xpu", "nic"), ())
            for number in range(instance.count):
                yield f"{instance.name}.{number}", is_host

    def _has(self, device: str, choices: tuple[str, ...], above: tuple[str, ...]) -> bool:
        if device in above:
            raise InputError(f"device {quoted(device)} is part of itself")
        return any(
            part.choice in choices
            or (
                part.choice == "device"
                and part.name in self._devices
                and self._has(part.name, choices, (*above, device))
            )
            for part in (self._devices[device].components if device in self._devices else ())
        )

    def ends(self, endpoint: _Endpoint) -> list[tuple[str, str, str]]:
        """Return the machine, the component's path, and the first component's choice of each."""
        name, numbers = _slice(endpoint.instance, self._counts())
        device = self._instances[name].device
        choice = ""
        paths: list[str] = []
        for text in endpoint.component.split("."):
            components = {c.name: c for c in self._devices[device].components}
            part, indexes = _slice(text, {c.name: c.count for c in components.values()})
            choice = choice or components[part].choice
            below = [f"{part}.{index}" for index in indexes]
            paths = [f"{p}.{b}" for p in paths for b in below] if paths else below
            device = part if part in self._devices else device
        if len(numbers) * len(paths) > _MOST_ENDS:
            raise InputError(f"endpoint {quoted(endpoint.component)}: more than {_MOST_ENDS} ends")
        return [(f"{name}.{number}", path, choice) for number in numbers for path in paths]

    def _counts(self) -> dict[str, int]:
        return {instance.name: instance.count for instance in self._instances.values()}


def _slice(text: str, counts: dict[str, int]) -> tuple[str, range]:
    """Return the name and the indexes that ``name[first:end]`` stands for; all without brackets."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or match[1] not in counts:
        raise InputError(
            f"endpoint {quoted(text)}: expected one of {', '.join(sorted(counts)[:8])}, and its "
            "indexes like [0:2]"
        )
    count = counts[match[1]]
    if not 0 <= count <= _MOST_ENDS:
        raise InputError(f"{quoted(match[1])}: count {count}; expected at most {_MOST_ENDS}")
    if match[3] or match[2] is None or not match[2]:
        first, end = int(match[2] or 0), int(match[4] or count)
    else:
        first = int(match[2])
        end = first + 1
    if not 0 <= first < end <= count:
        raise InputError(f"endpoint {quoted(text)}: out of range, there are {count}")
    return match[1], range(first, end)


def _decode(data: bytes, path: str, name: str) -> tuple[Fabric, tuple[str, ...]]:
    place = printable_path(path)
    infrastructure = decode_values(data, _Infrastructure, place)
    try:
        fabric, others = _fabric(infrastructure, infrastructure.name or name)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    text = f"{place}: {others} cables between hosts, or to parts that are no NIC, are left out"
    return fabric, (text,) if others else ()


def _fabric(infrastructure: _Infrastructure, name: str) -> tuple[Fabric, int]:
    """Return the fabric, and the number of cables that are not in it."""
    inventory = _Inventory(infrastructure)
    is_host = dict(itertools.islice(inventory.machines(), _MOST_ENDS))
    rates = {link.name: link.gbs for link in infrastructure.links}
    adapters: list[Adapter] = []
    adapter_counts: Counter[str] = Counter()
    cables: dict[tuple[str, str], list[float | None]] = defaultdict(list)
    others = 0
    for number, edge in enumerate(infrastructure.edges):
        if edge.link not in rates:
            raise InputError(f"$.edges[{number}].link: no link {quoted(edge.link)}")
        gbs = rates[edge.link]
        if gbs is not None and not 0 < gbs <= 1e9:
            raise InputError(f"link {quoted(edge.link)}: {gbs} GB/s; expected a positive rate")
        for ends in _pairs(inventory, edge, number):
            (near, path, choice), (far, _, _) = sorted(ends, key=lambda end: not is_host[end[0]])
            if is_host[far] or (is_host[near] and choice not in ("nic", "port", "device")):
                others += 1
            elif is_host[near]:
                label = f"{near}.{path}"
                adapter_counts[label] += 1
                if adapter_counts[label] > 1:
                    label = f"{label}/{adapter_counts[label]}"
                adapters.append(Adapter(label, far, gbs, near, path))
            else:
                low, high = sorted((near, far))
                cables[low, high].append(gbs)
        if len(adapters) + sum(map(len, cables.values())) > _MOST_ENDS:
            raise InputError(f"more than {_MOST_ENDS} cables")
    trunks = tuple(
        Trunk(src, dst, None if None in gbs else sum(g or 0 for g in gbs), len(gbs))
        for (src, dst), gbs in cables.items()
    )
    switches = tuple(machine for machine, host in is_host.items() if not host)
    return Fabric(name, switches, tuple(adapters), trunks), others


def _pairs(
    inventory: _Inventory, edge: _Edge, number: int
) -> Iterator[tuple[tuple[str, str, str], tuple[str, str, str]]]:
    try:
        ends = inventory.ends(edge.ep1), inventory.ends(edge.ep2)
    except InputError as error:
        raise InputError(f"$.edges[{number}]: {error}") from None
    if edge.scheme == "one2one":
        return zip(*ends, strict=False)
    if edge.scheme == "ring":
        raise InputError(f"$.edges[{number}].scheme: ring is not read; write its edges one by one")
    if len(ends[0]) * len(ends[1]) > _MOST_ENDS:
        raise InputError(f"$.edges[{number}]: more than {_MOST_ENDS} cables")
    return itertools.product(*ends)


_START = tuple(
    re.compile(rb'"%s"\s*:\s*\[|^%s:' % (key, key), re.MULTILINE)
    for key in (b"devices", b"instances")
)

INFRAGRAPH: Reader[Fabric] = Reader(
    "infragraph",
    "an InfraGraph infrastructure, JSON or YAML",
    lambda data: all(pattern.search(data) for pattern in _START),
    _decode,
)
