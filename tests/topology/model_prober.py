"""A prober that works out, from a topology's rates, what probes would tell."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tuccl.topology import Link, Node, Topology, relay_path
from tuccl.topology.probing import Endpoint, PairTimes
from tuccl.topology.probing.prober import Pair

QUEUE_US = 20_000.0
IDLE_US = 30.0  # that software adds to each message, one way


def network(
    racks: Sequence[Sequence[int]],
    *,
    up_gbs: Sequence[float | None] = (),
    slow: dict[int, float] | None = None,
    hop_us: float = 5.0,
    nics: int = 1,
) -> Topology:
    """Return hosts of a GPU and NICs of 1 GB/s; racks of host numbers, joined as ``up_gbs`` says.

    One rack is one switch. Two are joined by a link of the first rate; more by a spine, each
    through its own; None is 100 GB/s.
    """
    count = sum(map(len, racks))
    nodes, links = [], []
    for host in range(count):
        name, gbs = f"h{host}", (slow or {}).get(host, 1.0)
        rack = next(place for place, members in enumerate(racks) if host in members)
        nodes.append(Node(f"{name}/gpu0", "gpu", name, rank=host))
        for nic in (f"{name}/nic{number}" for number in range(nics)):
            nodes.append(Node(nic, "nic", name))
            links.append(Link(f"{name}/gpu0", nic, "pcie", 16.0, 0.4, duplex=True))
            links.append(Link(nic, f"s{rack}", "network", gbs, hop_us, duplex=True))
    nodes += [Node(f"s{rack}", "switch") for rack in range(len(racks))]
    rates = [gbs or 100.0 for gbs in up_gbs]
    if len(racks) == 2:
        links.append(Link("s0", "s1", "network", rates[0], hop_us, duplex=True))
    elif len(racks) > 2:
        nodes.append(Node("spine", "switch"))
        links += [
            Link(f"s{rack}", "spine", "network", gbs, hop_us, duplex=True)
            for rack, gbs in enumerate(rates)
        ]
    return Topology("model", tuple(nodes), tuple(links))


class ModelProber:
    """Flows share links max-min fairly, and the queue before each link that is full is full."""

    def __init__(self, truth: Topology, noise: float = 0.02, seed: int = 0) -> None:
        self.truth = truth
        self._nics = [truth.nics_of(host) for host in truth.hosts]
        self._gbs = {e: x.bandwidth for x in truth.links for e in x.directions()}
        self._noise = noise
        self._chance = random.Random(seed)
        self._routes: dict[tuple[int, int, int], list[tuple[str, str]]] = {}
        self._latencies = {e: x.latency for x in truth.links for e in x.directions()}
        self.pairs: list[Pair] = []
        self.flows: list[Pair] = []

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(
            Endpoint(
                host,
                self._nics[place][0],
                f"10.0.0.{place + 1}",
                others=tuple((nic, f"10.1.0.{place + 1}") for nic in self._nics[place][1:]),
            )
            for place, host in enumerate(self.truth.hosts)
        )

    def pair(self, src: int, dst: int) -> PairTimes:
        self.pairs.append((src, dst))
        us = self._latency(src, dst) + IDLE_US
        trips = tuple(2 * us * self._noisy() for _ in range(9))
        ways = []
        for flow in ((src, dst), (dst, src)):
            (gbs,) = self.shared([flow], nics=1)[0]
            ways.append(
                tuple(
                    (n, us + n / gbs / 1e3 * self._noisy())
                    for n in (4_000_000, 8_000_000)
                    for _ in range(5)
                )
            )
        return PairTimes(trips, ways[0], ways[1], "model")

    @contextmanager
    def load(self, flows: Sequence[Pair]) -> Iterator[ModelLoad]:
        self.flows += flows
        yield ModelLoad(self, list(flows))

    def route(self, pair: Pair, nic: int = 0) -> list[tuple[str, str]]:
        key = (*pair, nic)
        if key not in self._routes:
            path = relay_path(self.truth, self._nics[pair[0]][nic], self._nics[pair[1]][nic])
            assert path is not None
            self._routes[key] = [(hop.src, hop.dst) for hop in path.hops]
        return self._routes[key]

    def shared(
        self, flows: Sequence[Pair], nics: int | None = None
    ) -> tuple[list[float], set[tuple[str, str]]]:
        """Return the max-min fair rates of flows over their NICs in GB/s, and the full links."""
        count = nics or len(self._nics[0])
        routes = [self.route(flow, nic) for flow in flows for nic in range(count)]
        rates: dict[int, float] = {}
        left, full = dict(self._gbs), set()
        while len(rates) < len(routes):
            users: dict[tuple[str, str], list[int]] = {}
            for number, route in enumerate(routes):
                for link in route if number not in rates else ():
                    users.setdefault(link, []).append(number)
            share, link = min((left[k] / len(who), k) for k, who in users.items())
            full.add(link)
            for number in users[link]:
                rates[number] = share
                for passed in routes[number]:
                    left[passed] -= share
        in_order = [rates[number] for number in range(len(routes))]
        return [sum(in_order[n : n + count]) for n in range(0, len(routes), count)], full

    def _latency(self, src: int, dst: int) -> float:
        return sum(self._latencies[link] for link in self.route((src, dst)))

    def round_trip(self, pair: Pair, full: set[tuple[str, str]]) -> float:
        passed = {*self.route(pair), *self.route(pair[::-1])}
        idle = 2 * (self._latency(*pair) + IDLE_US)
        return (idle + QUEUE_US * len(passed & full)) * self._noisy()

    def _noisy(self) -> float:
        return 1 + self._noise * abs(self._chance.gauss(0, 1))

    def noisy(self, rates: Sequence[float]) -> tuple[float, ...]:
        return tuple(rate / self._noisy() for rate in rates)


class ModelLoad:
    def __init__(self, prober: ModelProber, flows: list[Pair]) -> None:
        self._prober, self._flows = prober, flows

    def rates(self) -> tuple[float, ...]:
        return self._prober.noisy(self._prober.shared(self._flows)[0])

    def keep(self, flows: Sequence[Pair]) -> None:
        self._flows = list(flows)

    def round_trips(self, pairs: Sequence[Pair]) -> tuple[float, ...]:
        full = self._prober.shared(self._flows)[1]
        return tuple(self._prober.round_trip(pair, full) for pair in pairs)
