"""The sketch of very many ranks: links inside hosts, and between equal places of hosts."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from msgspec.structs import replace

from tuccl.errors import InputError
from tuccl.sketches.congestion import with_congestion
from tuccl.sketches.full_mesh import host_numbers, link_over, switches
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.sketches.symmetry import symmetries
from tuccl.topology.graph import Topology
from tuccl.topology.merge import merge_nics
from tuccl.topology.paths import find_path
from tuccl.topology.signature import signature

RAILS = "rails"
"""The name of the sketch."""
# Ranks above which equal hosts are joined at some distances alone, and above which all must be so:
# two million links join the rails of 4,096.
_MANY, _MOST_JOINED = 640, 1024
# Ranks of its host and its rail up to which one may send to all of them in an alltoall.
_MOST_PEERS = 128


def rails(topology: Topology, collective: str = "") -> Sketch:
    """Return the sketch whose links join ranks of one host, or of equal place on their hosts.

    The full mesh of many ranks has more links than can be looked at: a million of 1,024 ranks. Of
    more, even rails have too many; there a rank is joined to those at the distances between hosts
    that methods for `collective` use.

    >>> from tuccl.topology import join, load_profile
    >>> len(rails(join(load_profile("dgx-a100"), 4)).links)  # 4 hosts of 56, 8 rails of 12
    320

    Raises:
        InputError: the topology joins no such ranks, or hosts of very many differ in size.
    """
    return topology.derived(_Rails).of(collective)


class _Rails:
    """The sketches of one topology, made at their first use."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._sketches: dict[str, Sketch] = {}

    def of(self, collective: str) -> Sketch:
        if collective not in self._sketches:
            self._sketches[collective] = _rails(self._topology, collective)
        return self._sketches[collective]


def _rails(topology: Topology, collective: str) -> Sketch:
    merged = merge_nics(topology)
    hosts = [merged.gpus_of(host) for host in merged.hosts]
    equal = len(set(map(len, hosts))) == 1 < len(hosts[0])
    if not equal and topology.ranks > _MOST_JOINED:
        raise InputError(f"more than {_MOST_JOINED} GPUs: expected 2 or more, as many on each host")
    sparse = equal and topology.ranks > _MANY
    along = _pairs_at_distances(hosts, collective) if sparse else _rail_pairs(hosts)
    inside = (pair for ranks in hosts for pair in itertools.permutations(ranks, 2))
    links = tuple(_links(merged, sorted({*inside, *along})))
    if not links:
        raise InputError(
            f"topology {topology.name[:60]!r}: no links inside hosts nor between equal places"
        )
    sketch = Sketch(
        name=RAILS,
        ranks=topology.ranks,
        hosts=host_numbers(topology),
        links=links,
        switches=switches(topology),
        signature=signature(topology),
    )
    sketch = with_congestion(sketch, topology)
    return replace(sketch, symmetry=symmetries(sketch))


def _rail_pairs(hosts: list[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    rail_of: dict[int, list[int]] = defaultdict(list)
    for ranks in hosts:
        for place, rank in enumerate(ranks):
            rail_of[place].append(rank)
    for rail in rail_of.values():
        yield from itertools.permutations(rail, 2)


def _pairs_at_distances(hosts: list[tuple[int, ...]], collective: str) -> Iterator[tuple[int, int]]:
    size = len(hosts[0])
    for place in range(size):
        for distance in _distances(place, size, len(hosts), collective):
            for host, ranks in enumerate(hosts):
                yield ranks[place], hosts[(host + distance) % len(hosts)][place]


def _distances(place: int, size: int, hosts: int, collective: str) -> set[int]:
    """Return how many hosts further the ranks are that one at `place` is joined to."""
    powers = {1 << bit for bit in range((hosts - 1).bit_length())}
    in_turn = set(range(place or size, hosts, size))
    if collective == "alltoall":  # `rail_alltoall` of few hosts, `host_pair_alltoall`
        many = hosts + size - 2 > _MOST_PEERS
        turns = (hosts - 1) // size * size if many else 0
        return in_turn | set(range(turns + 1, hosts))
    if collective in ("scatter", "gather"):  # `host_scatter`
        ahead = in_turn
    elif collective in ("broadcast", "reduce"):  # `host_trees`
        ahead = powers | {power + 1 for power in powers}
    else:  # `hierarchical_doubling`
        strides = [stride for stride in range(1, size + 1) if size % stride == 0]
        ahead = {stride * power for stride in strides for power in powers}
        ahead = {distance for distance in ahead if distance < hosts}
        ahead |= {1 + place * stride // size for stride in strides}
    return {sign * distance % hosts for distance in ahead for sign in (1, -1)} - {0}


def _links(topology: Topology, pairs: list[tuple[int, int]]) -> Iterator[LogicalLink]:
    hosts = host_numbers(topology)
    for src, dst in pairs:
        route = find_path(topology, src, dst)
        if route is not None:  # else only other GPUs join them
            yield link_over(route, src, dst, hosts[src] != hosts[dst])
