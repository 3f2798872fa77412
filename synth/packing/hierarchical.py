"""Trees for many equal hosts: those of the hosts' circle and those of one host, put together."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tuccl._native import pack_trees
from tuccl.synth.bounds.graph import routed_fabric
from tuccl.synth.model.network import Network
from tuccl.synth.model.symmetry import isomorphic
from tuccl.synth.packing.pair_units import Demand, least_counts
from tuccl.synth.packing.tree import Growth

__all__ = ["MOST_RUNS", "MOST_RUNS_BOTH_WAYS", "EqualHosts", "composed", "equal_hosts"]

_MOST_INNER = 6
# Runs of chunks that a connection inside a host should carry at most: a thread block has 64 steps,
# and where it takes turns with the way back half as many for each.
MOST_RUNS = 36
MOST_RUNS_BOTH_WAYS = 32


@dataclass(frozen=True)
class EqualHosts:
    """Hosts that are alike, as far as pairs of ranks go, numbered round a circle.

    Attributes:
        members: Ranks of each host, by place.
        band: Ranks of a host whose chunks go by one gate together, as one run where they lie side
            by side; the hosts' turns at the gates repeat after as many hosts.
    """

    members: tuple[tuple[int, ...], ...]
    band: int

    @property
    def shift(self) -> int:
        """Return by how many ranks the trees may be turned without changing; 0: by none.

        >>> EqualHosts(((0, 1), (2, 3), (4, 5), (6, 7)), 2).shift
        4
        """
        ranks = [rank for own in self.members for rank in own]
        whole = len(self.members) % self.band == 0 and ranks == list(range(len(ranks)))
        return self.band * len(self.members[0]) if whole else 0

    def gate(self, host: int, place: int) -> int:
        """Return the place by which chunks of a rank leave their host and enter others.

        >>> hosts = EqualHosts(((0, 1), (2, 3), (4, 5), (6, 7)), 2)
        >>> [hosts.gate(host, 0) for host in range(4)]
        [0, 1, 0, 1]
        """
        return place // self.band * self.band + host % self.band


@lru_cache(maxsize=8)
def equal_hosts(wires: Network, runs: int = MOST_RUNS) -> EqualHosts | None:
    """Return the hosts where they are alike and joined between equal places, else None.

    `runs` are those of chunks that a connection should carry at most.
    """
    groups: dict[int, list[int]] = {}
    for rank, host in enumerate(wires.hosts):
        groups.setdefault(host, []).append(rank)
    members = tuple(tuple(own) for own in groups.values())
    hosts = EqualHosts(members, _band(len(members), len(members[0]), runs))
    return hosts if len(members) > 1 and _even(wires, hosts) else None


def _band(hosts: int, places: int, runs: int) -> int:
    """Return the fewest ranks to a band with which connections carry no more runs than they should.

    With more than one, a host's own band is a run apart from those of others. A band of one shares the wires between hosts exactly; larger ones have some hosts carry more.
    """
    able = [band for band in range(1, places + 1) if places % band == 0 and hosts % band == 0]
    return next((band for band in able if hosts <= band * (runs - (band > 1))), able[-1])


def _even(wires: Network, hosts: EqualHosts) -> bool:
    """Return whether all hosts have as many ranks, the same pairs inside, and rails to others."""
    members = hosts.members
    if not isomorphic(wires.index, members):
        return False
    rails = (
        (own[place], members[(number + stride) % len(members)][place])
        for number, own in enumerate(members)
        for stride in _strides(hosts)
        for place in range(len(own))
    )
    return all(pair in wires.index for pair in rails)


def _strides(hosts: EqualHosts) -> list[int]:
    """Return how far hosts send: within a band of hosts to the next, else to the like of others."""
    bands = -(-len(hosts.members) // hosts.band)
    far = [hosts.band << power for power in range((bands - 1).bit_length())]
    return far if hosts.band == 1 else [1, *far]


def composed(
    wires: Network, chunks_per_rank: int, runs: int = MOST_RUNS
) -> tuple[Growth, ...] | None:
    """Return trees from every rank by which its chunks get to all; None where hosts differ.

    A chunk gets to all ranks of its host, from one of them, the gate, to the ranks of that place
    on the other hosts (rails), and from there to their mates. Hosts send to the ones 1, 2, 4 and
    so on further (or as many bands of hosts): few connections, and ways that grow as the logarithm
    of their number. All hosts do the same, each for the hosts as far before it, so wires between
    hosts are shared evenly.
    """
    hosts = equal_hosts(wires, runs)
    if hosts is None:
        return None
    inner = _inner(wires, hosts.members[0])
    outer = _outer(hosts)
    return tuple(
        Growth(rank, chunks_per_rank, _parents(hosts, home, place, outer, inner))
        for home, own in enumerate(hosts.members)
        for place, rank in enumerate(own)
    )


def _outer(hosts: EqualHosts) -> list[int]:
    """Return for each host the stride from its parent in the tree from host 0.

    The strides between bands take about as many arcs each. They lead to hosts of the same turn at
    the gates, and within the first band each host sends to the next: so those of each turn send as
    much as the others, and with them all gates of a host.
    """
    count, band = len(hosts.members), hosts.band
    far = [stride for stride in _strides(hosts) if stride >= band]
    used, stride_into = [0] * len(far), [min(host, 1) for host in range(count)]
    for host in sorted(range(band, count), key=lambda host: ((host // band).bit_count(), host)):
        able = [number for number, stride in enumerate(far) if host // band & stride // band]
        number = min(able, key=lambda number: (used[number], number))
        used[number] += 1
        stride_into[host] = far[number]
    return stride_into


def _parents(
    hosts: EqualHosts, home: int, place: int, outer: list[int], inner: list[list[tuple[int, ...]]]
) -> tuple[int, ...]:
    """Return the parents of all ranks in the tree of one rank's chunks."""
    members, count = hosts.members, len(hosts.members)
    parents = [-1] * sum(len(own) for own in members)
    gate = hosts.gate(home, place)
    for turn, stride in enumerate(outer):
        own = members[(home + turn) % count]
        start = gate if turn else place
        inside = inner[start][turn % len(inner[start])]
        for at, rank in enumerate(own):
            if at != start:
                parents[rank] = own[inside[at]]
        if turn:
            parents[own[gate]] = members[(home + turn - stride) % count][gate]
    return tuple(parents)


def _inner(wires: Network, own: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    """Return for each place in a host the parents of the trees that its chunks take in turn."""
    host = wires.subnetwork(own)
    fabric = routed_fabric(host)
    best: tuple[Fraction, list[list[tuple[int, ...]]]] | None = None
    for chunks in range(1, _MOST_INNER + 1):
        demand = Demand(host, fabric, (chunks,) * len(own))
        counts = least_counts(demand)
        span = host.busiest_s(host.loads(counts)) / chunks
        if best is None or span < best[0] * Fraction(99, 100):
            found: list[list[tuple[int, ...]]] = [[] for _ in own]
            for tree in pack_trees(demand.arcs(counts), list(demand.feeds)):
                found[tree.root] += [tuple(tree.parent)] * tree.weight
            best = span, found
    return best[1] if best else []
