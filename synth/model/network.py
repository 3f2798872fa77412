"""The network that programs are planned on: pairs of ranks, their routes, and shared resources.

It is `tuccl.simulation.Network` with exact rates and with the ranks' hosts, as a value
that can be compared and hashed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from tuccl import simulation
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.topology import Topology, merge_nics, network

Pair = tuple[int, int]


@dataclass(frozen=True)
class Network:
    """Pairs of ranks that may send to each other, each over one route through shared resources.

    Attributes:
        hosts: Number of each rank's host.
        pairs: (sending, receiving) ranks.
        routes: For each pair the numbers of its resources, in the order in which a message takes
            them.
        latencies_us: Latency of each pair's route in us.
        rates: Rate of each resource in GB/s.
        names: Name of each resource: ``src>dst`` by node id where it is a hop of a topology.
    """

    hosts: tuple[int, ...]
    pairs: tuple[Pair, ...]
    routes: tuple[tuple[int, ...], ...]
    latencies_us: tuple[float, ...]
    rates: tuple[Fraction, ...]
    names: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return len(self.hosts)

    @cached_property
    def reverse(self) -> Network:
        """Return the network with every route reversed."""
        pairs = tuple((dst, src) for src, dst in self.pairs)
        routes = tuple(route[::-1] for route in self.routes)
        return Network(self.hosts, pairs, routes, self.latencies_us, self.rates, self.names)

    @cached_property
    def native(self) -> simulation.Network:
        """Return the network as native planners and the simulator take it."""
        return simulation.Network(
            self.ranks,
            [
                simulation.Resource(self.name(n), "", float(rate))
                for n, rate in enumerate(self.rates)
            ],
            [
                simulation.Route(src, dst, list(route), latency)
                for (src, dst), route, latency in zip(
                    self.pairs, self.routes, self.latencies_us, strict=True
                )
            ],
        )

    def name(self, resource: int) -> str:
        """Return the name of a resource, or its number in words."""
        return self.names[resource] if self.names else f"resource {resource}"

    @cached_property
    def index(self) -> dict[Pair, int]:
        """Return the number of each pair."""
        return {pair: number for number, pair in enumerate(self.pairs)}

    def over(self, pairs: Sequence[int]) -> Network:
        """Return the network of the pairs with these numbers alone; ranks and resources stay."""
        return Network(
            self.hosts,
            tuple(self.pairs[n] for n in pairs),
            tuple(self.routes[n] for n in pairs),
            tuple(self.latencies_us[n] for n in pairs),
            self.rates,
            self.names,
        )

    def of_period(self, period: int) -> Network:
        """Return the network of the pairs that end below ``period``, whose routes others repeat.

        The first of the resources that are alike stands for all of them.
        """
        ranks = self.ranks
        first = list(range(len(self.rates)))
        below = [n for n, (_, dst) in enumerate(self.pairs) if dst < period]
        for n in below:
            src, dst = self.pairs[n]
            further = (((src + by) % ranks, dst + by) for by in range(0, ranks, period))
            routes = [self.routes[self.index[pair]] for pair in further if pair in self.index]
            for alike in zip(*routes, strict=False):
                for resource in alike:
                    first[resource] = min(alike)
        network = self.over(below)
        routes_of_first = tuple(tuple(first[r] for r in route) for route in network.routes)
        return replace(network, routes=routes_of_first)

    def subnetwork(self, ranks: Sequence[int]) -> Network:
        """Return the network of the pairs among `ranks`, which are numbered anew, as one host."""
        number = {rank: local for local, rank in enumerate(ranks)}
        inner = [n for n, (src, dst) in enumerate(self.pairs) if src in number and dst in number]
        used = sorted({resource for n in inner for resource in self.routes[n]})
        renumbered = {resource: local for local, resource in enumerate(used)}
        return Network(
            (0,) * len(ranks),
            tuple((number[self.pairs[n][0]], number[self.pairs[n][1]]) for n in inner),
            tuple(tuple(renumbered[resource] for resource in self.routes[n]) for n in inner),
            tuple(self.latencies_us[n] for n in inner),
            tuple(self.rates[resource] for resource in used),
            tuple(self.names[resource] for resource in used) if self.names else (),
        )

    def hops_from(self, source: int) -> list[int]:
        """Return the fewest messages in a row from rank `source` to each rank; -1 where none lead.

        >>> Network((0, 0), ((0, 1),), ((0,),), (0.0,), (Fraction(1),)).hops_from(0)
        [0, 1]
        """
        hops = [-1] * self.ranks
        hops[source] = 0
        level = [source]
        while level:
            following = {dst for src in level for dst in self._destinations[src] if hops[dst] < 0}
            for rank in following:
                hops[rank] = hops[level[0]] + 1
            level = list(following)
        return hops

    @cached_property
    def _destinations(self) -> list[list[int]]:
        destinations: list[list[int]] = [[] for _ in range(self.ranks)]
        for src, dst in self.pairs:
            destinations[src].append(dst)
        return destinations

    def loads(self, counts: Sequence[int]) -> list[int]:
        """Return the chunks on each resource where each pair sends so many."""
        loads = [0] * len(self.rates)
        for route, count in zip(self.routes, counts, strict=True):
            for resource in route:
                loads[resource] += count
        return loads

    def busiest_s(self, loads: Sequence[int]) -> Fraction:
        """Return the seconds that the busiest resource takes for its load in chunks of 1 GB."""
        rates, kinds = self.distinct_rates
        most = [0] * len(rates)
        for load, kind in zip(loads, kinds, strict=True):
            most[kind] = max(load, most[kind])
        return max(
            (load / rate for load, rate in zip(most, rates, strict=True)), default=Fraction(0)
        )

    @cached_property
    def distinct_rates(self) -> tuple[tuple[Fraction, ...], list[int]]:
        """Return the rates that occur, and the number of each resource's among them."""
        return distinct(self.rates)


def sketch_network(sketch: Sketch, topology: Topology | None = None) -> Network:
    """Return the links of `sketch`, with the resources of `topology` or those the sketch names.

    Notes:
        A sketch alone knows NICs and switch ports; each is taken to be as fast as the fastest link
        that it serves. The NICs that a GPU's channels take in turn are one (`merge_nics`).

    >>> from tuccl.sketches import full_mesh
    >>> from tuccl.topology import load_profile
    >>> t = load_profile("v100x4")
    >>> sketch_network(full_mesh(t), t).ranks
    4
    """
    pairs = tuple((link.src, link.dst) for link in sketch.links)
    native = network(merge_nics(topology), pairs) if topology else _named_resources(sketch)
    latencies_us = tuple(link.alpha_us for link in sketch.links)
    routes = {(route.src, route.dst): tuple(route.resources) for route in native.routes}
    numbered = tuple(routes[pair] for pair in pairs)
    return Network(sketch.hosts, pairs, numbered, latencies_us, *_rates_and_names(native))


@lru_cache(maxsize=8)
def topology_network(topology: Topology) -> Network:
    """Return the routes between all GPUs of `topology` that can reach each other.

    The NICs that a GPU's channels take in turn are one (`merge_nics`).

    >>> from tuccl.topology import load_profile
    >>> len(topology_network(load_profile("v100x4")).pairs)
    12
    """
    native = network(merge_nics(topology))
    hosts = [topology.host_of(rank) for rank in range(topology.ranks)]
    number = {host: place for place, host in enumerate(dict.fromkeys(hosts))}
    return Network(
        tuple(number[host] for host in hosts),
        tuple((route.src, route.dst) for route in native.routes),
        tuple(tuple(route.resources) for route in native.routes),
        tuple(route.latency_us for route in native.routes),
        *_rates_and_names(native),
    )


def _rates_and_names(native: simulation.Network) -> tuple[tuple[Fraction, ...], tuple[str, ...]]:
    resources = native.resources
    rates = tuple(exact_rate(resource.bandwidth_gbs) for resource in resources)
    return rates, tuple(resource.name for resource in resources)


def _named_resources(sketch: Sketch) -> simulation.Network:
    """Return the links of a sketch, with NICs and switch ports as their shared resources."""
    rates: dict[str, float] = {}
    numbers: dict[str, int] = {}
    routes = []
    for link in sketch.links:
        names = [f"{link.src}>{link.dst}", *_shared_names(sketch, link)]
        for name in names:
            rates[name] = max(link.bandwidth_gbs, rates.get(name, 0.0))
        used = [numbers.setdefault(name, len(numbers)) for name in names]
        routes.append(simulation.Route(link.src, link.dst, used, link.alpha_us))
    resources = [simulation.Resource(name, "", rates[name]) for name in numbers]
    return simulation.Network(sketch.ranks, resources, routes)


def _shared_names(sketch: Sketch, link: LogicalLink) -> list[str]:
    """Return what `link` shares with others: NICs, or ports of a switch."""
    if link.inter:
        return [f"{way} {nic}" for way, nic in zip(("from", "to"), link.nics, strict=False)]
    return [
        f"switch {number} {way} {rank}"
        for number, ranks in enumerate(sketch.switches)
        if link.src in ranks and link.dst in ranks
        for way, rank in (("from", link.src), ("to", link.dst))
    ]


def distinct(rates: Iterable[Fraction]) -> tuple[tuple[Fraction, ...], list[int]]:
    """Return the rates that occur, and the number of each one among them: machines have few.

    >>> distinct([Fraction(2), Fraction(5), Fraction(2)])
    ((Fraction(2, 1), Fraction(5, 1)), [0, 1, 0])
    """
    number: dict[Fraction, int] = {}
    kinds = [number.setdefault(rate, len(number)) for rate in rates]
    return tuple(number), kinds


def exact_rate(bandwidth: float) -> Fraction:
    """Return a rate in GB/s as an exact number of kB/s, so that sums and flows are whole numbers.

    >>> exact_rate(12.5)
    Fraction(25, 2)
    """
    return Fraction(max(1, round(bandwidth * 10**6)), 10**6)
