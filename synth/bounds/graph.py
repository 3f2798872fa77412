"""The graph that bounds are computed on: the wires that messages between GPUs may take."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from tuccl.synth.model.network import Network, exact_rate, topology_network
from tuccl.topology import Node, Topology, all_paths

__all__ = [
    "Fabric",
    "Wire",
    "direct_fabric",
    "direct_load",
    "fabric",
    "max_min_shares",
    "routed_fabric",
    "topology_routes",
]

# Ways into a relay from which on it is one vertex, whatever turns routes take there: this promises
# more, if anything, and spares as many wires as there are ways in times ways out.
_MOST_ENTRIES = 96


@dataclass(frozen=True)
class Wire:
    """A directed hop from vertex `tail` to vertex `head`: exact rate in GB/s, latency in us."""

    tail: int
    head: int
    rate: Fraction
    latency: float


@dataclass(frozen=True)
class Fabric:
    """A directed graph whose first `ranks` vertices are the GPUs, by rank; the rest are relays.

    Attributes:
        names: Name of each vertex.
        hosts: Name of the host of each rank.
        wires: The hops; no two have equal ends.
    """

    names: tuple[str, ...]
    hosts: tuple[str, ...]
    wires: tuple[Wire, ...]

    @property
    def ranks(self) -> int:
        """Return the number of GPUs."""
        return len(self.hosts)

    @cached_property
    def arcs(self) -> tuple[tuple[int, int], ...]:
        """Return the (tail, head) of each wire."""
        return tuple((wire.tail, wire.head) for wire in self.wires)

    @cached_property
    def denominator(self) -> int:
        """Return the least whole number that makes every rate whole."""
        return math.lcm(*(wire.rate.denominator for wire in self.wires))

    @cached_property
    def whole_rates(self) -> tuple[int, ...]:
        """Return the rate of each wire times `denominator`."""
        return tuple(int(wire.rate * self.denominator) for wire in self.wires)

    @cached_property
    def reverse(self) -> Fabric:
        """Return the fabric with every wire turned round."""
        wires = (Wire(w.head, w.tail, w.rate, w.latency) for w in self.wires)
        return Fabric(self.names, self.hosts, tuple(wires))

    def crossing(self, side: frozenset[int]) -> tuple[Wire, ...]:
        """Return the wires that leave the vertices in `side`."""
        return tuple(w for w in self.wires if w.tail in side and w.head not in side)

    def latencies(self, source: int) -> list[float]:
        """Return the least latency in us from rank `source` to each rank; inf where no way leads.

        >>> wires = (Wire(0, 1, Fraction(1), 2.0), Wire(1, 2, Fraction(1), 3.0))
        >>> Fabric(("a", "b", "c"), ("h", "h", "h"), wires).latencies(0)
        [0.0, 2.0, 5.0]
        """
        return self.nearest([source])[: self.ranks]

    def nearest(self, sources: Iterable[int]) -> list[float]:
        """Return the least latency in us from any of the vertices `sources` to each vertex."""
        least = [math.inf] * len(self.names)
        waiting = [(0.0, source) for source in sources]
        for _, source in waiting:
            least[source] = 0.0
        while waiting:
            latency, vertex = heapq.heappop(waiting)
            if latency > least[vertex]:
                continue
            for wire in self._leaving[vertex]:
                total = latency + wire.latency
                if total < least[wire.head]:
                    least[wire.head] = total
                    heapq.heappush(waiting, (total, wire.head))
        return least

    @cached_property
    def _leaving(self) -> dict[int, list[Wire]]:
        leaving: dict[int, list[Wire]] = defaultdict(list)
        for wire in self.wires:
            leaving[wire.tail].append(wire)
        return leaving


def fabric(t: Topology) -> Fabric:
    """Return the wires that routes from GPU to GPU take, with relays passing on as routes do.

    Notes:
        A wire that no route takes cannot carry a byte (docs/formats.md, "Routes": a message takes
        the direct link, else the widest way), nor can bytes turn from wire to wire at a relay
        where no route does: two GPUs that share a PCIe bridge and an NVSwitch do not use the
        bridge between them. A relay where routes turn in some ways only becomes a vertex for each
        way in and each way out. A bound that counted more would promise too much.
    """
    paths = all_paths(t).values()
    hops = {(hop.src, hop.dst): hop for path in paths for hop in path.hops}
    turns: dict[str, set[_Turn]] = defaultdict(set)
    for path in paths:
        for first, second in pairwise(path.hops):
            turns[first.dst].add((first.src, second.dst))
    split = _Split([gpu.id for gpu in t.gpus])
    for node in t.nodes:
        if node.id in turns:
            split.add(node, turns[node.id])
    wires = [
        Wire(split.exits[src, dst], split.entries[src, dst], exact_rate(hop.bandwidth), hop.latency)
        for (src, dst), hop in sorted(hops.items())
    ]
    endless = sum((wire.rate for wire in wires), Fraction(1))
    wires += [Wire(*ends, endless, 0.0) for ends in split.inner]
    hosts = tuple(t.host_of(rank) for rank in range(t.ranks))
    return Fabric(tuple(split.names), hosts, tuple(wires))


# Where a route comes from and goes to at a relay.
_Turn = tuple[str, str]


class _Ends(dict[tuple[str, str], int]):
    """The vertex at one end of each hop; at a GPU it is always the GPU."""

    def __init__(self, gpus: dict[str, int], end: int) -> None:
        super().__init__()
        self._gpus, self._end = gpus, end

    def __missing__(self, hop: tuple[str, str]) -> int:
        return self._gpus[hop[self._end]]


class _Split:
    """Numbers for GPUs and for relays, split by how routes turn there."""

    def __init__(self, gpus: list[str]) -> None:
        self._gpus = {name: rank for rank, name in enumerate(gpus)}
        self.names = list(gpus)
        self.exits, self.entries = _Ends(self._gpus, 0), _Ends(self._gpus, 1)
        self.inner: list[tuple[int, int]] = []

    def add(self, relay: Node, turns: set[_Turn]) -> None:
        """Give the hops to and from a relay their vertices."""
        ways_out: dict[str, set[str]] = defaultdict(set)
        for source, target in sorted(turns):
            ways_out[source].add(target)
        targets = {target for _, target in turns}
        for source, ways in ways_out.items():
            # To turn back to a GPU gains nothing, and at a network switch hardly: large switches
            # stay one vertex.
            if source in targets and (source in self._gpus or relay.kind == "switch"):
                ways.add(source)
        if len(ways_out) > _MOST_ENTRIES:
            ways_out = dict.fromkeys(ways_out, targets)
        entries: dict[frozenset[str], int] = {}
        for source, ways in ways_out.items():
            vertex = entries.setdefault(frozenset(ways), len(self.names) + len(entries))
            self.entries[source, relay.id] = vertex
        self.names += [relay.id] * len(entries)
        self._add_exits(relay.id, sorted(targets), entries)

    def _add_exits(
        self, relay: str, targets: list[str], entries: dict[frozenset[str], int]
    ) -> None:
        into = {
            target: frozenset(vertex for ways, vertex in entries.items() if target in ways)
            for target in targets
        }
        exits: dict[frozenset[int], int] = {}
        for target, vertices in into.items():
            if vertices not in exits:
                exits[vertices] = self._exit(relay, vertices, alone=len(set(into.values())) == 1)
            self.exits[relay, target] = exits[vertices]

    def _exit(self, relay: str, entries: frozenset[int], *, alone: bool) -> int:
        if alone and len(entries) == 1:
            return next(iter(entries))
        vertex = len(self.names)
        self.names.append(relay)
        self.inner += [(entry, vertex) for entry in sorted(entries)]
        return vertex


def routed_fabric(
    network: Network, names: Sequence[str] | None = None, hosts: Sequence[str] | None = None
) -> Fabric:
    """Return a graph in which bytes between two GPUs keep to the one route of that pair.

    A route goes from its first resource straight to its last, at the rate of its narrowest; what
    routes share in between is left out. Where many pairs have a slow link of their own beside fast
    relays this promises less than `fabric`, in which bytes may go by the relays.

    Args:
        network: The routes.
        names: Of the GPUs, for the words of cuts.
        hosts: Of each GPU its host's name.
    """
    names = names or [f"rank {rank}" for rank in range(network.ranks)]
    hosts = hosts or [str(host) for host in network.hosts]
    rates = network.rates
    ends = dict.fromkeys(hop for route in network.routes for hop in (route[0], route[-1]))
    enter = {hop: network.ranks + 2 * number for number, hop in enumerate(ends)}
    words: list[str] = []
    for hop in ends:
        tail, _, head = network.name(hop).partition(">")
        words += (tail, head)
    wires = {(enter[hop], enter[hop] + 1): rates[hop] for hop in ends}
    for (src, dst), route in zip(network.pairs, network.routes, strict=True):
        wires[src, enter[route[0]]] = rates[route[0]]
        wires[enter[route[-1]] + 1, dst] = rates[route[-1]]
        if len(route) > 1:
            wires[enter[route[0]] + 1, enter[route[-1]]] = min(rates[hop] for hop in route)
    return Fabric(
        (*names, *words),
        tuple(hosts),
        tuple(Wire(*pair, rate, 0.0) for pair, rate in wires.items()),
    )


def direct_fabric(t: Topology) -> Fabric:
    """Return GPUs only: a wire for each pair, whose rate is its fair share when all pairs send.

    Notes:
        The shares are max-min fair and keep every hop within its rate, so what can be done on this
        fabric can be done with the topology's fixed routes: the attainable side of a certificate.
    """
    network = topology_network(t)
    shares = max_min_shares(network.routes, network.rates)
    wires = (
        Wire(src, dst, share, latency)
        for (src, dst), share, latency in zip(
            network.pairs, shares, network.latencies_us, strict=True
        )
    )
    names = tuple(gpu.id for gpu in t.gpus)
    return Fabric(names, tuple(t.host_of(rank) for rank in range(t.ranks)), tuple(wires))


def direct_load(t: Topology) -> Fraction:
    """Return the us that the busiest hop needs when each pair sends 1000 bytes by its own route."""
    network = topology_network(t)
    return network.busiest_s(network.loads([1] * len(network.pairs)))


def topology_routes(t: Topology) -> Fabric:
    """Return the `routed_fabric` of a machine."""
    hosts = [t.host_of(rank) for rank in range(t.ranks)]
    return routed_fabric(topology_network(t), [gpu.id for gpu in t.gpus], hosts)


def max_min_shares(routes: Sequence[Sequence[int]], rates: Sequence[Fraction]) -> list[Fraction]:
    """Return the max-min fair rate of each route (progressive filling) over resources of `rates`.

    Notes:
        Bertsekas and Gallager, Data Networks, 1992, 6.5.2.
    """
    users: dict[int, list[int]] = defaultdict(list)
    for number, route in enumerate(routes):
        for hop in route:
            users[hop].append(number)
    left = list(rates)
    active = {hop: len(numbers) for hop, numbers in users.items()}
    share = [Fraction(0)] * len(routes)
    fixed = [False] * len(routes)
    while active:
        level, narrowest = min((left[hop] / active[hop], hop) for hop in active)
        for number in users[narrowest]:
            if fixed[number]:
                continue
            share[number], fixed[number] = level, True
            for hop in routes[number]:
                left[hop] -= level
                active[hop] -= 1
        active = {hop: number for hop, number in active.items() if number}
    return share
