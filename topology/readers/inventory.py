"""Devices, instances and edges as InfraGraph files list them, in JSON or YAML."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from tuccl.errors import InputError
from tuccl.topology.graph import quoted
from tuccl.topology.readers.yaml_files import decode_values

T = TypeVar("T")

_MOST_ENDS = 1 << 17
_MOST_DEPTH = 32
_ENDPOINT = re.compile(
    r"([\w><() -]+)(?:\[(?:([0-9]{1,9})|([0-9]{0,9}):([0-9]{0,9})(?::([0-9]{1,9}))?)\])?", re.ASCII
)


_INNER = {
    key: re.compile(rb'"%b"\s*:\s*\{|^[ ]*%b:\s*$' % (key.encode(), key.encode()), re.MULTILINE)
    for key in ("infragraph", "infrastructure")
}


class _Bandwidth(msgspec.Struct, frozen=True):
    gigabits_per_second: float | None = None
    gigabytes_per_second: float | None = None


class _Physical(msgspec.Struct, frozen=True):
    bandwidth: _Bandwidth = _Bandwidth()


class LinkType(msgspec.Struct, frozen=True):
    """A link of InfraGraph: a technology that edges refer to by name."""

    name: str
    description: str = ""
    physical: _Physical = _Physical()

    @property
    def gbs(self) -> float | None:
        """Return the rate in GB/s, None where none is given.

        Raises:
            InputError: it is no positive rate.
        """
        bandwidth = self.physical.bandwidth
        gbs = bandwidth.gigabytes_per_second
        if gbs is None and bandwidth.gigabits_per_second is not None:
            gbs = bandwidth.gigabits_per_second / 8
        if gbs is not None and not 0 < gbs <= 1e9:
            raise InputError(f"link {quoted(self.name)}: {gbs} GB/s; expected a positive rate")
        return gbs


class Component(msgspec.Struct, frozen=True):
    """Equal parts of a device; of the choice ``device`` they are devices of that name."""

    name: str
    count: int
    choice: str
    description: str = ""


_Scheme = Literal["one2one", "many2many", "ring"]


class _PartEndpoint(msgspec.Struct, frozen=True):
    component: str
    device: str = ""

    @property
    def path(self) -> str:
        """Return the components from the device down."""
        return f"{self.device}.{self.component}" if self.device else self.component


class _PartEdge(msgspec.Struct, frozen=True):
    ep1: _PartEndpoint
    ep2: _PartEndpoint
    link: str
    scheme: _Scheme = "one2one"


class _Device(msgspec.Struct, frozen=True):
    name: str
    components: list[Component] = []
    links: list[LinkType] = []
    edges: list[_PartEdge] = []


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
    scheme: _Scheme = "one2one"


class _Infrastructure(msgspec.Struct, frozen=True):
    devices: list[_Device]
    instances: list[_Instance]
    edges: list[_Edge] = []
    links: list[LinkType] = []
    name: str = ""


class _Graph(msgspec.Struct, frozen=True):
    infrastructure: _Infrastructure


class _Response(msgspec.Struct, frozen=True):
    infragraph: _Graph


def _infrastructure(data: bytes, place: str) -> _Infrastructure:
    """Return the infrastructure in a file of its own, or in what its service answers."""
    if _INNER["infragraph"].search(data):
        return decode_values(data, _Response, place).infragraph.infrastructure
    if _INNER["infrastructure"].search(data):
        return decode_values(data, _Graph, place).infrastructure
    return decode_values(data, _Infrastructure, place)


class Inventory:
    """The devices and instances of an InfraGraph, their parts and what joins them.

    A part is called by its path, ``cx5.0.port.1``. A device inside another that has ports or NICs
    and neither accelerators nor switches is one part, a NIC.
    """

    def __init__(self, data: bytes, place: str) -> None:
        """Read ``data``.

        Raises:
            InputError: it is no InfraGraph, or a name is a duplicate or is not defined.
        """
        self.infrastructure = _infrastructure(data, place)
        self.name = self.infrastructure.name
        self._devices = {device.name: device for device in self.infrastructure.devices}
        self._instances = {entry.name: entry for entry in self.infrastructure.instances}
        if len(self._devices) < len(self.infrastructure.devices):
            raise InputError("$.devices: duplicate device name")
        if len(self._instances) < len(self.infrastructure.instances):
            raise InputError("$.instances: duplicate instance name")
        for entry in self.infrastructure.instances:
            if entry.device not in self._devices:
                raise InputError(f"instance {quoted(entry.name)}: no device {quoted(entry.device)}")
        check_count(sum(max(entry.count, -1) for entry in self._instances.values()), "instances")
        self._choices: dict[str, frozenset[str]] = {}
        self._depths: dict[str, int] = {}
        self._parts: dict[str, dict[str, Component]] = {}
        self._edges: dict[str, list[tuple[str, str, LinkType]]] = {}
        for device in self._devices:
            self._choices_in(device, ())

    def machines(self) -> dict[str, str]:
        """Return the device of each machine: host.0, host.1, ..."""
        return {
            f"{entry.name}.{number}": entry.device
            for entry in self._instances.values()
            for number in range(check_count(entry.count, entry.name))
        }

    def has(self, device: str, *choices: str) -> bool:
        """Return whether a part of ``device``, at any depth, is one of ``choices``."""
        return not self._choices[device].isdisjoint(choices)

    def _choices_in(self, device: str, above: tuple[str, ...]) -> frozenset[str]:
        if device in above:
            raise InputError(f"device {quoted(device)} is part of itself")
        if len(above) + self._depths.get(device, 1) > _MOST_DEPTH:
            raise InputError(f"device {quoted(device)}: nested over {_MOST_DEPTH} devices deep")
        if device not in self._choices:
            parts = self._components(device)
            if len({part.name for part in parts}) < len(parts):
                raise InputError(f"device {quoted(device)}: duplicate component name")
            choices = {part.choice for part in parts}
            for part in parts:
                if part.choice == "device":
                    choices |= self._choices_in(part.name, (*above, device))
            inner = (self._depths[part.name] for part in parts if part.choice == "device")
            self._depths[device] = 1 + max(inner, default=0)
            self._choices[device] = frozenset(choices)
        return self._choices[device]

    def parts(self, device: str) -> dict[str, Component]:
        """Return the parts of ``device`` by path.

        Raises:
            InputError: they are too many.
        """
        if device in self._parts:
            return self._parts[device]
        parts: dict[str, Component] = {}
        for part in self._components(device):
            inner = {"": part}
            if part.choice == "device" and not self._is_nic(part.name):
                inner = {f".{path}": value for path, value in self.parts(part.name).items()}
            count = check_count(part.count, part.name)
            check_count(len(parts) + count * len(inner), device)
            for number in range(count):
                parts.update({f"{part.name}.{number}{path}": v for path, v in inner.items()})
        self._parts[device] = parts
        return parts

    def edges(self, device: str) -> list[tuple[str, str, LinkType]]:
        """Return the pairs of paths that edges join in ``device``, at any depth.

        Raises:
            InputError: an edge names what is not there, or they are too many.
        """
        if device in self._edges:
            return self._edges[device]
        links = {link.name: link for link in self._devices[device].links}
        pairs = []
        for number, edge in enumerate(self._devices[device].edges):
            where = f"device {quoted(device)}, $.edges[{number}]"
            if edge.link not in links:
                raise InputError(f"{where}.link: no link {quoted(edge.link)}")
            try:
                ends = self._paths(device, edge.ep1.path), self._paths(device, edge.ep2.path)
            except InputError as error:
                raise InputError(f"{where}: {error}") from None
            for src, dst in joined_pairs(*ends, edge.scheme, where):
                pairs.append((src, dst, links[edge.link]))
            check_count(len(pairs), where)
        for part in self._components(device):
            if part.choice == "device" and not self._is_nic(part.name):
                inner = self.edges(part.name)
                check_count(len(pairs) + len(inner) * part.count, part.name)
                for number in range(part.count):
                    path = f"{part.name}.{number}."
                    pairs += [(f"{path}{src}", f"{path}{dst}", link) for src, dst, link in inner]
        self._edges[device] = pairs
        return pairs

    def ends(self, endpoint: _Endpoint) -> list[tuple[str, str]]:
        """Return the machine and the component's path of each end that ``endpoint`` stands for.

        Raises:
            InputError: it names what is not there.
        """
        name, numbers = _slice(
            endpoint.instance, {entry.name: entry.count for entry in self._instances.values()}
        )
        paths = self._paths(self._instances[name].device, endpoint.component)
        check_count(len(numbers) * len(paths), endpoint.component)
        return [(f"{name}.{number}", path) for number in numbers for path in paths]

    def _components(self, device: str) -> list[Component]:
        if device not in self._devices:
            raise InputError(f"no device {quoted(device)}; expected one of $.devices")
        return self._devices[device].components

    def _is_nic(self, device: str) -> bool:
        is_switch = re.search("switch|sw[0-9_]*$", device.lower())
        inner = self.has(device, "port", "nic") and not self.has(device, "xpu", "switch")
        return inner and not is_switch

    def _paths(self, device: str, text: str) -> list[str]:
        paths = [""]
        for words in text.split("."):
            part, indexes = _slice(words, {c.name: c.count for c in self._components(device)})
            check_count(len(paths) * len(indexes), text)
            paths = [f"{path}.{part}.{index}" for path in paths for index in indexes]
            device = part if part in self._devices else device
        return [path[1:] for path in paths]


def check_count(count: int, name: str) -> int:
    """Return ``count``.

    Raises:
        InputError: it is negative, or more than a reader takes.
    """
    if not 0 <= count <= _MOST_ENDS:
        raise InputError(f"{quoted(name)}: count {count}; expected at most {_MOST_ENDS}")
    return count


def joined_pairs(
    first: Sequence[T], second: Sequence[T], scheme: _Scheme, where: str
) -> Iterator[tuple[T, T]]:
    """Return the pairs of ends that an edge of that scheme joins, an end with itself left out.

    Raises:
        InputError: they are too many, or the scheme is a ring, which no reader defines.
    """
    if scheme == "ring":
        raise InputError(f"{where}.scheme: ring is not read; write its edges one by one")
    if scheme == "many2many":
        check_count(len(first) * len(second), where)
        return ((a, b) for a, b in itertools.product(first, second) if a != b)
    return ((a, b) for a, b in zip(first, second, strict=False) if a != b)


def _slice(text: str, counts: dict[str, int]) -> tuple[str, range]:
    """Return the name and the indexes that ``name[first:end]`` stands for; all without brackets."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or match[1] not in counts:
        raise InputError(
            f"endpoint {quoted(text)}: expected one of {', '.join(sorted(counts)[:8])}, and its "
            "indexes like [0:2]"
        )
    count = check_count(counts[match[1]], match[1])
    if match[2]:
        first, end, step = int(match[2]), int(match[2]) + 1, 1
    else:
        first, end, step = int(match[3] or 0), int(match[4] or count), int(match[5] or 1)
    if not (0 <= first < end <= count and step):
        raise InputError(f"endpoint {quoted(text)}: out of range, there are {count}")
    return match[1], range(first, end, step)


def part_of(path: str, parts: Mapping[str, Component]) -> str | None:
    """Return the one of ``parts`` that ``path`` is, or is inside; None if it is in none.

    >>> part_of("cx5.0.port.1", {"cx5.0": Component("cx5", 1, "device")})
    'cx5.0'
    """
    words = path.split(".")
    prefixes = (".".join(words[:length]) for length in range(2, len(words) + 1, 2))
    return next((prefix for prefix in prefixes if prefix in parts), None)


def is_nic(part: Component) -> bool:
    """Return whether a part of a host is a NIC, or a port on the host itself."""
    return part.choice in ("nic", "port", "device")
