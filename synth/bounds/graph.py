"""The graphs that bounds are computed on: hops that messages between GPUs may take."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from tuccl.planners import distances
from tuccl.synth.model.network import Network, distinct, exact_rate, topology_network
from tuccl.topology import Node, Topology, merge_nics
from tuccl.topology.host_swaps import HostSwaps
from tuccl.topology.paths import path_orbits
from tuccl.topology.relays import RelayPaths

# Arcs into a relay from which on it is one vertex, whatever turns routes take there: this promises
# more, if anything, and spares as many arcs as the product of those in and those out.
_MOST_ENTRIES = 96


@dataclass(frozen=True)
class Arc:
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
        arcs: The hops; no two have equal ends.
        spots: By rank the class of its host, the host, and its place there, as numbers: hosts of
            one class may change places. Empty where no hosts may.
    """

    names: tuple[str, ...]
    hosts: tuple[str, ...]
    arcs: tuple[Arc, ...]
    spots: tuple[tuple[int, int, int], ...] = ()

    @property
    def ranks(self) -> int:
        """Return the number of GPUs."""
        return len(self.hosts)

    @cached_property
    def ends(self) -> list[tuple[int, int]]:
        """Return the (tail, head) of each arc."""
        return [(arc.tail, arc.head) for arc in self.arcs]

    @cached_property
    def denominator(self) -> int:
        """Return the least whole number that makes every rate whole."""
        return math.lcm(*(arc.rate.denominator for arc in self.arcs))

    @cached_property
    def capacities(self) -> list[tuple[int, int, int]]:
        """Return (tail, head, rate times `denominator`) of each arc."""
        return [(arc.tail, arc.head, int(arc.rate * self.denominator)) for arc in self.arcs]

    @cached_property
    def representatives(self) -> tuple[int, ...]:
        """Return ranks of which symmetries take one to each rank: those of the first hosts."""
        return self.images_of(())

    def images_of(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Return ranks of which symmetries that keep `ranks` in place take one to each rank."""
        if not self.spots:
            return tuple(range(self.ranks))
        kept = {self.spots[rank][1] for rank in ranks}
        first: dict[object, int] = {}
        for rank, (kind, host, place) in enumerate(self.spots):
            first.setdefault((kind, host if host in kept else -1, place), rank)
        return tuple(first.values())

    @cached_property
    def distinct_rates(self) -> tuple[tuple[Fraction, ...], list[int]]:
        """Return the rates that occur, and the number of each arc's among them."""
        return distinct(arc.rate for arc in self.arcs)

    @cached_property
    def reverse(self) -> Fabric:
        """Return the fabric with every arc reversed."""
        arcs = (Arc(a.head, a.tail, a.rate, a.latency) for a in self.arcs)
        return Fabric(self.names, self.hosts, tuple(arcs), self.spots)

    def crossing(self, side: frozenset[int]) -> tuple[Arc, ...]:
        """Return the arcs that leave the vertices in `side`."""
        return tuple(arc for arc in self.arcs if arc.tail in side and arc.head not in side)

    def latencies(self, *sources: int) -> list[float]:
        """Return the least latency in us from any of the vertices `sources` to each; or inf.

        >>> arcs = (Arc(0, 1, Fraction(1), 2.0), Arc(1, 2, Fraction(1), 3.0))
        >>> Fabric(("a", "b", "c"), ("h", "h", "h"), arcs).latencies(0)
        [0.0, 2.0, 5.0]
        """
        lengths = [arc.latency for arc in self.arcs]
        return distances(len(self.names), self.ends, lengths, sources)


def topology_fabric(topology: Topology) -> Fabric:
    """Return the hops that routes between GPUs take, with relays forwarding as routes do.

    Notes:
        A hop that no route takes cannot carry a byte (docs/reference/topology.md: a message
        takes the direct link, else the widest path), nor can bytes turn from hop to hop at a relay
        where no route does: two GPUs that share a PCIe bridge and an NVSwitch do not use the
        bridge between them. The NICs of a GPU are one, as its channels may share bytes among them
        freely. A relay where routes turn to some arcs only becomes a vertex for each
        arc in and each arc out. A bound that counted more would promise too much.
    """
    topology = merge_nics(topology)
    ends, turns = _routed(topology)
    split = _Split([gpu.id for gpu in topology.gpus])
    for node in topology.nodes:
        if node.id in turns:
            split.add(node, turns[node.id])
    hops = topology.derived(RelayPaths).hops
    arcs = []
    for src, dst in sorted(ends):
        rate, latency = exact_rate(hops[src, dst].bandwidth), hops[src, dst].latency
        arcs.append(Arc(split.exits[src, dst], split.entries[src, dst], rate, latency))
    endless = sum((arc.rate for arc in arcs), Fraction(1))
    arcs += [Arc(tail, head, endless, 0.0) for tail, head in split.inner]
    hosts = tuple(topology.host_of(rank) for rank in range(topology.ranks))
    return Fabric(tuple(split.names), hosts, tuple(arcs), _spots(topology))


def _spots(topology: Topology) -> tuple[tuple[int, int, int], ...]:
    """Return where each rank is in its class of hosts; () where fixed routes set hosts apart."""
    swaps = topology.derived(RelayPaths).swaps
    if any(others is not swaps for _, others in path_orbits(topology)):
        return ()
    if not all(swaps.host(gpu.id) is not None for gpu in topology.gpus):
        return ()
    return tuple(swaps.spot(gpu.id) for gpu in topology.gpus)


# Where routes go to at a relay, by where they come from.
_Turns = dict[str, set[str]]


def _routed(topology: Topology) -> tuple[set[tuple[str, ...]], dict[str, _Turns]]:
    """Return the ends of the hops that routes take, and how routes turn at each relay.

    At a relay that they enter by very many hops, they are all said to turn everywhere.
    """
    runs: dict[tuple[HostSwaps, tuple[str, ...]], None] = {}
    for path, swaps in path_orbits(topology):
        nodes = [path.hops[0].src, *(hop.dst for hop in path.hops)]
        for run in (*pairwise(nodes), *zip(nodes, nodes[1:], nodes[2:], strict=False)):
            runs[swaps, swaps.canonical(run)] = None
    hops = {image for swaps, run in runs if len(run) == 2 for image in swaps.images(run)}
    sources: dict[str, set[str]] = defaultdict(set)
    targets: dict[str, set[str]] = defaultdict(set)
    for src, dst in hops:
        sources[dst].add(src)
        targets[src].add(dst)
    turns: dict[str, _Turns] = defaultdict(lambda: defaultdict(set))
    for swaps, run in runs:
        relays = [relay for (relay,) in swaps.images(run[1:2])] if len(run) == 3 else []
        many = [relay for relay in relays if len(sources[relay]) > _MOST_ENTRIES]
        for relay in many:
            turns[relay] = dict.fromkeys(sources[relay], targets[relay])
        if len(many) < len(relays):
            for source, relay, target in swaps.images(run):
                turns[relay][source].add(target)
    return hops, turns


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

    def add(self, relay: Node, turns: _Turns) -> None:
        """Give the hops to and from a relay their vertices."""
        ways_out = {source: turns[source] for source in sorted(turns)}
        targets = set[str]().union(*turns.values())
        for source, ways in ways_out.items():
            # To turn back to a GPU gains nothing, at a network switch hardly; where a relay leads
            # everywhere else, it stays one vertex so.
            turns_back = source in self._gpus or relay.kind == "switch"
            if turns_back and targets - ways == {source}:
                ways.add(source)
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
    relays this promises less than `topology_fabric`, in which bytes may go by the relays.

    Args:
        network: The routes.
        names: Of the GPUs, for the words of cuts.
        hosts: Of each GPU its host's name.
    """
    names = names or [f"rank {rank}" for rank in range(network.ranks)]
    hosts = hosts or [str(host) for host in network.hosts]
    rates, (distinct_rates, kinds) = network.rates, network.distinct_rates
    rising = sorted(distinct_rates)
    place = {rate: number for number, rate in enumerate(rising)}
    level = [place[distinct_rates[kind]] for kind in kinds]
    ends = dict.fromkeys(hop for route in network.routes for hop in (route[0], route[-1]))
    enter = {hop: network.ranks + 2 * number for number, hop in enumerate(ends)}
    words: list[str] = []
    for hop in ends:
        tail, _, head = network.name(hop).partition(">")
        words += (tail, head)
    arcs = {(enter[hop], enter[hop] + 1): rates[hop] for hop in ends}
    for (src, dst), route in zip(network.pairs, network.routes, strict=True):
        arcs[src, enter[route[0]]] = rates[route[0]]
        arcs[enter[route[-1]] + 1, dst] = rates[route[-1]]
        if len(route) > 1:
            arcs[enter[route[0]] + 1, enter[route[-1]]] = rising[min([level[hop] for hop in route])]
    return Fabric(
        (*names, *words),
        tuple(hosts),
        tuple(Arc(tail, head, rate, 0.0) for (tail, head), rate in arcs.items()),
    )


def direct_fabric(topology: Topology) -> Fabric:
    """Return GPUs only: an arc for each pair, whose rate is its fair share when all pairs send.

    Notes:
        The shares are max-min fair and keep every hop within its rate, so what can be done on this
        fabric can be done with the topology's fixed routes: the attainable side of a certificate.
    """
    network = topology_network(topology)
    arcs = (
        Arc(src, dst, share, latency)
        for (src, dst), share, latency in zip(
            network.pairs,
            max_min_shares(network.routes, network.rates),
            network.latencies_us,
            strict=True,
        )
    )
    return Fabric(*_gpu_names(topology), tuple(arcs))


def routed_topology_fabric(topology: Topology) -> Fabric:
    """Return the `routed_fabric` of a machine."""
    return routed_fabric(topology_network(topology), *_gpu_names(topology))


def _gpu_names(topology: Topology) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the GPUs and of their hosts, by rank."""
    hosts = tuple(topology.host_of(rank) for rank in range(topology.ranks))
    return tuple(gpu.id for gpu in topology.gpus), hosts


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
    share: dict[int, Fraction] = {}
    while active:
        levels = {hop: left[hop] / number for hop, number in active.items()}
        level = min(levels.values())
        full = [hop for hop, reached in levels.items() if reached == level]
        fixed = {number for hop in full for number in users[hop]} - share.keys()
        share |= dict.fromkeys(fixed, level)
        for hop, number in Counter(hop for n in fixed for hop in routes[n]).items():
            left[hop] -= level * number
            active[hop] -= number
        active = {hop: number for hop, number in active.items() if number}
    return [share.get(number, Fraction(0)) for number in range(len(routes))]
