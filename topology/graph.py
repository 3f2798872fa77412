"""Machines: GPUs, NICs, bridges and switches as nodes, joined by links with nominal rates.

The classes mirror ``topology.json`` (``tuccl-topology/1``); a `Topology` is checked when it is
made, so every one that exists is sound.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Literal, TypeVar, cast

import msgspec

from tuccl.errors import InputError

FORMAT = "tuccl-topology/1"
T = TypeVar("T")
NodeKind = Literal["gpu", "nic", "cpu", "pcie", "nvswitch", "switch"]
LinkKind = Literal["nvlink", "xgmi", "c2c", "pcie", "cpu", "network"]
Origin = Literal["read", "measured", "inferred", "assumed"]

BUSID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_MOST_RANKS = 4096
_MOST_NODES = 65536
_MOST_LINKS = 1 << 20
_MOST_CHARACTERS = 255
_LARGEST = 1e9


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the machine that ends or passes on traffic.

    Attributes:
        id: its name, unique in the topology.
        kind: what it is; ``pcie`` is a PCIe switch or bridge, or a card with several ports.
        host: the server it is in; network switches have none. The trays that an NVLink domain
            joins count as one, as NCCL counts nodes.
        rank: the number of a GPU, 0 to n-1; nothing else has one.
        model: as the vendor calls it, where known; of ``pcie`` nodes cards alone have one.
        port_gbs: of a NIC, what its port can carry in GB/s per direction, where known.
        device: of a NIC, what its host calls it, like mlx5_0, where known.
        guid: of a NIC, its GUID as 16 hexadecimal digits, where known.
        busid: of a GPU, its PCI address like 0000:3b:00.0, where known.
    """

    id: str
    kind: NodeKind
    host: str | None = None
    rank: int | None = None
    model: str | None = None
    port_gbs: float | None = None
    device: str | None = None
    guid: str | None = None
    busid: str | None = None


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A link from ``src`` to ``dst``, in both directions if ``duplex``.

    Attributes:
        src: node id.
        dst: node id.
        kind: the technology.
        bandwidth: nominal rate in GB/s per direction, or of a network that was probed the measured
            one; links of equal ends add up.
        latency: in us, from one end to the other.
        duplex: whether the same link also runs from ``dst`` to ``src``.
        assumed: whether a rate or the link itself was filled in, not read from the machine.
        source: where the numbers are from.
        measured: rate in GB/s per direction as last measured; `differences` compares it, nothing
            else reads it.
        spread_gbs: half the width of the 95 % interval of ``measured``.
        spread_us: half the width of the 95 % interval of a measured ``latency``.
        inferred_from: the measured link (``src dst``) that the numbers were taken from, where this
            one was not measured itself.
    """

    src: str
    dst: str
    kind: LinkKind
    bandwidth: float
    latency: float
    duplex: bool = False
    assumed: bool = False
    source: str = ""
    measured: float | None = None
    spread_gbs: float | None = None
    spread_us: float | None = None
    inferred_from: str = ""

    @property
    def origin(self) -> Origin:
        """Return where the rate is from.

        >>> Link("a", "b", "pcie", 10.0, 0.5, assumed=True).origin
        'assumed'
        """
        if self.inferred_from:
            return "inferred"
        if self.measured is not None:
            return "measured"
        return "assumed" if self.assumed else "read"

    @property
    def has_nominal_rate(self) -> bool:
        """Return whether ``bandwidth`` is nominal, not a network's measured or inferred rate."""
        probed = bool(self.inferred_from) or self.bandwidth == self.measured
        return self.kind != "network" or not probed

    def directions(self) -> tuple[tuple[str, str], ...]:
        """Return the (source, destination) pairs that the link carries.

        >>> Link("a", "b", "pcie", 10.0, 0.5, duplex=True).directions()
        (('a', 'b'), ('b', 'a'))
        """
        forth = (self.src, self.dst)
        return (forth, forth[::-1]) if self.duplex else (forth,)


class FixedRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A route that replaces the computed one from GPU ``src`` to GPU ``dst``.

    Attributes:
        src: id of a GPU.
        dst: id of a GPU.
        via: ids of the relays between the two, in order; empty for the direct link.
    """

    src: str
    dst: str
    via: tuple[str, ...]


class Topology(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    dict=True,
    weakref=True,
):
    """A cluster, or one host of it; sound by construction.

    Raises:
        InputError: a part contradicts another; names the place, like ``$.links[3].dst``.

    >>> pair = Topology(
    ...     "pair",
    ...     (Node("a", "gpu", host="n0", rank=0), Node("b", "gpu", host="n0", rank=1)),
    ...     (Link("a", "b", "nvlink", 25.0, 0.7, duplex=True),),
    ... )
    >>> pair.ranks, pair.hosts, pair.gpus_of("n0")
    (2, ('n0',), (0, 1))
    """

    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    routes: tuple[FixedRoute, ...] = ()
    format: str = FORMAT

    def __post_init__(self) -> None:
        """Refuse a topology whose parts contradict each other."""
        _check(self)

    @property
    def ranks(self) -> int:
        """Return the number of GPUs."""
        return len(self.gpus)

    @cached_property
    def gpus(self) -> tuple[Node, ...]:
        """Return the GPUs, by rank."""
        return tuple(sorted((n for n in self.nodes if n.kind == "gpu"), key=_rank))

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts that have GPUs, in the order of their first rank."""
        return tuple(dict.fromkeys(self.host_of(rank) for rank in range(self.ranks)))

    @cached_property
    def _by_id(self) -> dict[str, Node]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def _gpus_by_host(self) -> dict[str, tuple[int, ...]]:
        return _by_host((gpu.host, _rank(gpu)) for gpu in self.gpus)

    @cached_property
    def _nics_by_host(self) -> dict[str, tuple[str, ...]]:
        return _by_host((node.host, node.id) for node in self.nodes if node.kind == "nic")

    @cached_property
    def _derived(self) -> dict[object, object]:
        return {}

    def derived(self, kind: Callable[[Topology], T]) -> T:
        """Return ``kind(self)``, computed once for this topology; do not change it."""
        derived = self._derived
        if kind not in derived:
            derived[kind] = kind(self)
        return cast(T, derived[kind])

    def host_of(self, rank: int) -> str:
        """Return the host of the GPU ``rank``; GPUs that name none share the host ``""``."""
        return self.gpus[rank].host or ""

    def gpus_of(self, host: str) -> tuple[int, ...]:
        """Return the ranks on ``host``, rising."""
        return self._gpus_by_host.get(host, ())

    def nics_of(self, host: str) -> tuple[str, ...]:
        """Return the ids of the NICs of ``host``, in the order of the file."""
        return self._nics_by_host.get(host, ())

    def node(self, node_id: str) -> Node:
        """Return the node of that id.

        Raises:
            InputError: there is none.
        """
        try:
            return self._by_id[node_id]
        except KeyError:
            raise InputError(f"no node {quoted(node_id)} in topology {quoted(self.name)}") from None


def quoted(text: str) -> str:
    """Return ``text`` quoted for an error message, cut to a sane length."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _by_host(members: Iterable[tuple[str | None, T]]) -> dict[str, tuple[T, ...]]:
    hosts: dict[str, list[T]] = defaultdict(list)
    for host, member in members:
        hosts[host or ""].append(member)
    return {host: tuple(found) for host, found in hosts.items()}


def _rank(gpu: Node) -> int:
    return gpu.rank if gpu.rank is not None else -1


def _check(topology: Topology) -> None:
    if topology.format != FORMAT:
        raise InputError(f"$.format: {quoted(topology.format)} is not known; expected {FORMAT!r}")
    for value, most, where in (
        (topology.nodes, _MOST_NODES, "$.nodes"),
        (topology.links, _MOST_LINKS, "$.links"),
        (topology.routes, _MOST_RANKS**2, "$.routes"),
    ):
        if len(value) > most:
            raise InputError(f"{where}: {len(value)} entries; at most {most} are read")
    _check_text(topology.name, "$.name")
    kinds = _check_nodes(topology.nodes)
    for index, link in enumerate(topology.links):
        _check_link(link, kinds, f"$.links[{index}]")
    neighbours = _neighbours(topology.links)
    _check_routes(topology.routes, kinds, neighbours)
    _check_connected(topology, neighbours)


def _check_text(text: str, where: str, *, empty: bool = False) -> None:
    if not (text or empty) or len(text) > _MOST_CHARACTERS or not text.isprintable():
        raise InputError(
            f"{where}: {quoted(text)}; expected 1 to {_MOST_CHARACTERS} printable characters"
        )


def _check_nodes(nodes: tuple[Node, ...]) -> dict[str, str]:
    kinds: dict[str, str] = {}
    index_of: dict[int, int] = {}
    for index, node in enumerate(nodes):
        where = f"$.nodes[{index}]"
        _check_text(node.id, f"{where}.id")
        _check_text(node.host or "", f"{where}.host", empty=True)
        _check_text(node.model or "", f"{where}.model", empty=True)
        _check_text(node.device or "", f"{where}.device", empty=True)
        if node.id in kinds:
            raise InputError(f"{where}.id: duplicate {quoted(node.id)}; ids must be unique")
        kinds[node.id] = node.kind
        _check_port(node, where)
        _check_busid(node, where)
        if (node.kind == "gpu") != (node.rank is not None):
            fix = "give each GPU its rank" if node.kind == "gpu" else "only GPUs have a rank"
            raise InputError(f"{where}.rank: {quoted(node.id)} is a {node.kind}; {fix}")
        if node.rank is not None and node.rank in index_of:
            raise InputError(
                f"{where}.rank: $.nodes[{index_of[node.rank]}] has rank {node.rank} already; ranks "
                "must differ"
            )
        if node.rank is not None:
            index_of[node.rank] = index
    _check_ranks(index_of)
    return kinds


def _check_port(node: Node, where: str) -> None:
    for name, value in (
        ("port_gbs", node.port_gbs),
        ("device", node.device),
        ("guid", node.guid),
    ):
        if value is not None and node.kind != "nic":
            raise InputError(f"{where}.{name}: a {node.kind} has none; only a nic has one")
    if node.guid is not None and not re.fullmatch("[0-9a-f]{16}", node.guid):
        raise InputError(f"{where}.guid: {quoted(node.guid)}; expected 16 hexadecimal digits")
    if node.port_gbs is not None:
        _check_rate(node.port_gbs, f"{where}.port_gbs")


def _check_busid(node: Node, where: str) -> None:
    if node.busid is None:
        return
    if node.kind != "gpu":
        raise InputError(f"{where}.busid: a {node.kind} has none; only a gpu has one")
    if not BUSID.fullmatch(node.busid) or re.match("0[0-9a-f]{4,7}:", node.busid):
        raise InputError(
            f"{where}.busid: {quoted(node.busid)}; expected an address like 0000:3b:00.0"
        )


def _check_ranks(index_of: dict[int, int]) -> None:
    if not index_of:
        raise InputError("$.nodes: no GPU; a topology needs at least one node of kind 'gpu'")
    if len(index_of) > _MOST_RANKS:
        raise InputError(f"$.nodes: {len(index_of)} GPUs; at most {_MOST_RANKS} are handled")
    for rank, index in index_of.items():
        if not 0 <= rank < len(index_of):
            raise InputError(
                f"$.nodes[{index}].rank: rank {rank}, but the {len(index_of)} GPUs must be "
                f"numbered 0 to {len(index_of) - 1} without a gap"
            )


def _check_rate(value: float, where: str) -> None:
    if not (math.isfinite(value) and 0 < value <= _LARGEST):
        raise InputError(f"{where}: {value}; expected a positive rate in GB/s")


def _check_link(link: Link, kinds: dict[str, str], where: str) -> None:
    for end, node_id in (("src", link.src), ("dst", link.dst)):
        if node_id not in kinds:
            raise InputError(
                f"{where}.{end}: no node {quoted(node_id)}; name one of $.nodes or add it there"
            )
    if link.src == link.dst:
        raise InputError(f"{where}.dst: a link from {quoted(link.src)} to itself; remove it")
    _check_rate(link.bandwidth, f"{where}.bandwidth")
    if link.measured is not None:
        _check_rate(link.measured, f"{where}.measured")
    _check_text(link.inferred_from, f"{where}.inferred_from", empty=True)
    for name, spread in (("spread_gbs", link.spread_gbs), ("spread_us", link.spread_us)):
        if spread is not None and not 0 <= spread <= _LARGEST:
            raise InputError(f"{where}.{name}: {spread}; expected zero or more")
    if not (math.isfinite(link.latency) and 0 <= link.latency <= _LARGEST):
        raise InputError(f"{where}.latency: {link.latency}; expected us, zero or more")


def _neighbours(links: Iterable[Link]) -> dict[str, set[str]]:
    neighbours: dict[str, set[str]] = defaultdict(set)
    for link in links:
        for src, dst in link.directions():
            neighbours[src].add(dst)
    return neighbours


def _check_routes(
    routes: tuple[FixedRoute, ...], kinds: dict[str, str], neighbours: dict[str, set[str]]
) -> None:
    seen: set[tuple[str, str]] = set()
    for index, route in enumerate(routes):
        where = f"$.routes[{index}]"
        for end, node_id in (("src", route.src), ("dst", route.dst)):
            if kinds.get(node_id) != "gpu":
                raise InputError(f"{where}.{end}: {quoted(node_id)} is no GPU of $.nodes")
        if route.src == route.dst or (route.src, route.dst) in seen:
            raise InputError(f"{where}: the route must join two GPUs, each ordered pair once")
        seen.add((route.src, route.dst))
        nodes = (route.src, *route.via, route.dst)
        if len(set(nodes)) != len(nodes):
            raise InputError(f"{where}.via: a node is passed twice; a route has no loop")
        for position, node_id in enumerate(route.via):
            if kinds.get(node_id) in (None, "gpu"):
                raise InputError(
                    f"{where}.via[{position}]: {quoted(node_id)} is no relay of $.nodes (GPUs do "
                    "not forward)"
                )
        for src, dst in itertools.pairwise(nodes):
            if dst not in neighbours.get(src, ()):
                raise InputError(f"{where}.via: no link from {quoted(src)} to {quoted(dst)}")


def _check_connected(topology: Topology, neighbours: dict[str, set[str]]) -> None:
    """Refuse a topology in which some GPU cannot reach the first one, or the reverse."""
    backwards: dict[str, set[str]] = defaultdict(set)
    for node, following in neighbours.items():
        for neighbour in following:
            backwards[neighbour].add(node)
    first = topology.gpus[0].id
    for edges, is_reversed in ((neighbours, False), (backwards, True)):
        reached = _reachable(first, edges)
        lost = next((gpu.id for gpu in topology.gpus if gpu.id not in reached), None)
        if lost is not None:
            src, dst = (lost, first) if is_reversed else (first, lost)
            raise InputError(
                f"$.links: GPU {quoted(dst)} cannot be reached from GPU {quoted(src)}, not even "
                "through other GPUs; add the missing link"
            )


def _reachable(start: str, neighbours: dict[str, set[str]]) -> set[str]:
    reached = {start}
    frontier = [start]
    for node in frontier:
        fresh = neighbours.get(node, set()) - reached
        reached |= fresh
        frontier.extend(fresh)
    return reached
