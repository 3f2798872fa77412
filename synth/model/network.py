"""The network that programs are planned on: pairs of ranks, their routes, and shared resources.

It mirrors the simulator's `tuccl._native.Network`, with exact rates and with the ranks' hosts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from tuccl import _native
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.topology import Path, Topology, all_paths, path

__all__ = ["Network", "Pair", "exact_rate", "sketch_network", "topology_network"]

Pair = tuple[int, int]
_MOST_ROUTED = 128


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
    def native(self) -> _native.Network:
        """Return the network as native planners and the simulator take it."""
        return _native.Network(
            self.ranks,
            [_native.Resource(self.name(n), "", float(rate)) for n, rate in enumerate(self.rates)],
            [
                _native.Route(src, dst, list(route), latency)
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
        return max(
            (load / rate for load, rate in zip(loads, self.rates, strict=True)),
            default=Fraction(0),
        )


def sketch_network(sketch: Sketch, topology: Topology | None = None) -> Network:
    """Return the links of `sketch`, with the resources of `topology` or those the sketch names.

    Notes:
        A sketch alone knows NICs and switch ports; each is taken to be as fast as the fastest link
        that it serves.

    >>> from tuccl.sketches import full_mesh
    >>> from tuccl.topology import load_profile
    >>> t = load_profile("v100x4")
    >>> sketch_network(full_mesh(t), t).ranks
    4
    """
    pairs = [(link.src, link.dst) for link in sketch.links]
    latencies = [link.alpha_us for link in sketch.links]
    if topology is None:
        routes, rates = _sketch_routes(sketch)
    else:
        # Of very many ranks a sketch has few pairs: other pairs' paths are not sought.
        paths = all_paths(topology) if sketch.ranks <= _MOST_ROUTED else None
        found = (paths[pair] if paths else path(topology, *pair) for pair in pairs)
        routes, rates = _path_routes(found)
    return _network(sketch.hosts, pairs, latencies, routes, rates)


@lru_cache(maxsize=8)
def topology_network(topology: Topology) -> Network:
    """Return the routes between all GPUs of `topology` that can reach each other.

    >>> from tuccl.topology import load_profile
    >>> len(topology_network(load_profile("v100x4")).pairs)
    12
    """
    paths = all_paths(topology)
    routes, rates = _path_routes(paths.values())
    hosts = [topology.host_of(rank) for rank in range(topology.ranks)]
    number = {host: place for place, host in enumerate(dict.fromkeys(hosts))}
    latencies = [way.latency for way in paths.values()]
    return _network(tuple(number[host] for host in hosts), list(paths), latencies, routes, rates)


_Routes = list[tuple[Hashable, ...]]
_Rates = dict[Hashable, Fraction]


def _network(
    hosts: tuple[int, ...],
    pairs: Sequence[Pair],
    latencies: Sequence[float],
    routes: _Routes,
    rates: _Rates,
) -> Network:
    numbers: dict[Hashable, int] = {}
    numbered = tuple(
        tuple(numbers.setdefault(name, len(numbers)) for name in route) for route in routes
    )
    return Network(
        hosts,
        tuple(pairs),
        numbered,
        tuple(latencies),
        tuple(rates[name] for name in numbers),
        tuple(name if isinstance(name, str) else repr(name) for name in numbers),
    )


def _path_routes(paths: Iterable[Path]) -> tuple[_Routes, _Rates]:
    routes: _Routes = []
    rates: _Rates = {}
    for way in paths:
        names = tuple(f"{hop.src}>{hop.dst}" for hop in way.hops)
        routes.append(names)
        rates.update(
            (name, exact_rate(hop.bandwidth)) for name, hop in zip(names, way.hops, strict=True)
        )
    return routes, rates


def _sketch_routes(sketch: Sketch) -> tuple[_Routes, _Rates]:
    routes: _Routes = []
    rates: _Rates = {}
    for link in sketch.links:
        rate = exact_rate(link.bandwidth_gbs)
        route = ((link.src, link.dst), *_shared_resources(sketch, link))
        routes.append(route)
        for name in route:
            rates[name] = max(rate, rates.get(name, rate))
    return routes, rates


def _shared_resources(sketch: Sketch, link: LogicalLink) -> list[Hashable]:
    """Return what `link` shares with others: NICs, or ports of a switch."""
    if link.inter:
        return list(zip(("out", "in"), link.nics, strict=False))
    return [
        (port, number, rank)
        for number, ranks in enumerate(sketch.switches)
        if link.src in ranks and link.dst in ranks
        for port, rank in (("up", link.src), ("down", link.dst))
    ]


def exact_rate(bandwidth: float) -> Fraction:
    """Return a rate in GB/s as an exact number of kB/s, so that sums and flows are whole numbers.

    >>> exact_rate(12.5)
    Fraction(25, 2)
    """
    return Fraction(max(1, round(bandwidth * 10**6)), 10**6)
