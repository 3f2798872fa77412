"""Paths from GPU to GPU, by a rule that simulator, bounds and synthesis share.

A message takes the direct link between the two GPUs if there is one, else the widest and, among
those, the shortest path through relays (every node but GPUs: GPUs never forward); ties go to the
smallest sequence of node ids, compared as text. Where that leads through NICs of which a GPU has
several, its channels take them in turn. A fixed route of the topology comes before all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property

from tuccl.errors import InputError
from tuccl.topology.graph import Topology
from tuccl.topology.host_swaps import HostSwaps
from tuccl.topology.merge import MergedNics
from tuccl.topology.nics import own_nics
from tuccl.topology.relays import Path, RelayPaths

_NO_SWAPS = HostSwaps({}, {}, {})


def path(topology: Topology, src_rank: int, dst_rank: int, channel: int = 0) -> Path:
    """Return the path from one GPU to another of messages on ``channel``.

    >>> from tuccl.topology import load_profile
    >>> path(load_profile("v100x4"), 0, 3).bandwidth
    50.0

    Raises:
        InputError: a rank is not in the topology, both are the same, or only other GPUs join them.
    """
    paths = channel_paths(topology, src_rank, dst_rank)
    return paths[channel % len(paths)]


def channel_paths(topology: Topology, src_rank: int, dst_rank: int) -> tuple[Path, ...]:
    """Return the paths from one GPU to another that channels take in turn, channel 0's first.

    >>> from tuccl.topology import join, load_profile
    >>> hosts = join(load_profile("p5"), 2)
    >>> [each.nics for each in channel_paths(hosts, 0, 8)][:2]
    [('n0/nic0', 'n1/nic0'), ('n0/nic1', 'n1/nic1')]

    Raises:
        InputError: as `path`.
    """
    for rank in (src_rank, dst_rank):
        if not 0 <= rank < topology.ranks:
            raise InputError(
                f"rank {rank}: topology {topology.name[:60]!r} has ranks 0 to {topology.ranks - 1}"
            )
    if src_rank == dst_rank:
        raise InputError(f"rank {src_rank}: a path joins two different ranks")
    return topology.derived(_Routing).paths(src_rank, dst_rank)


def all_paths(topology: Topology) -> dict[tuple[int, int], Path]:
    """Return channel 0's path of every ordered pair of ranks, cached per topology.

    Do not change it. Pairs that only other GPUs connect, as in a torus, have none.
    """
    return topology.derived(_Routing).all


def find_path(topology: Topology, src_rank: int, dst_rank: int) -> Path | None:
    """Return channel 0's path from one rank to another, None where only other GPUs join them."""
    paths = topology.derived(_Routing).find(src_rank, dst_rank)
    return paths[0] if paths else None


def joined_pairs(topology: Topology) -> int:
    """Return the number of ordered pairs of ranks that have a path.

    >>> from tuccl.topology import load_profile
    >>> joined_pairs(load_profile("dgx-a100"))
    56
    """
    relays = topology.derived(RelayPaths)
    pairs = relays.swaps.representatives([gpu.id for gpu in topology.gpus])
    return sum(relays.swaps.count(pair) for pair in pairs if relays.between(*pair) is not None)


def path_orbits(topology: Topology) -> Iterator[tuple[Path, HostSwaps]]:
    """Yield paths, each with swaps of hosts: their images of it are paths of `all_paths` as well.

    All images of all that is yielded are all paths, each once.
    """
    return topology.derived(_Routing).orbits()


class _Routing:
    """The paths of one topology, each computed when first needed."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._kinds = {node.id: node.kind for node in topology.nodes}
        self._ids = [gpu.id for gpu in topology.gpus]
        self._relays = topology.derived(RelayPaths)
        self._fixed = {(route.src, route.dst): route.via for route in topology.routes}
        self._members = topology.derived(MergedNics).members
        self._paths: dict[tuple[int, int], tuple[Path, ...]] = {}

    @cached_property
    def all(self) -> dict[tuple[int, int], Path]:
        pairs = itertools.permutations(range(len(self._ids)), 2)
        paths = ((pair, self.find(*pair)) for pair in pairs)
        return {pair: channels[0] for pair, channels in paths if channels}

    def paths(self, src_rank: int, dst_rank: int) -> tuple[Path, ...]:
        paths = self.find(src_rank, dst_rank)
        if not paths:
            src, dst = self._ids[src_rank], self._ids[dst_rank]
            raise InputError(
                f"no path from {src[:60]!r} to {dst[:60]!r}: neither a direct link nor relays join "
                "them, and GPUs pass on only what a program has them send"
            )
        return paths

    def orbits(self) -> Iterator[tuple[Path, HostSwaps]]:
        relays, swaps = self._relays, self._relays.swaps
        fixed = {swaps.canonical(ends) for ends in self._fixed}
        rank_of = {gpu: rank for rank, gpu in enumerate(self._ids)}
        for pair in swaps.representatives(self._ids):
            alike = pair in relays.hops or relays.has_images(*pair)
            whole = alike and pair not in fixed and not self._members
            for src, dst in [pair] if whole else swaps.images(pair):
                if paths := self.find(rank_of[src], rank_of[dst]):
                    yield paths[0], swaps if whole else _NO_SWAPS

    def find(self, src_rank: int, dst_rank: int) -> tuple[Path, ...]:
        pair = src_rank, dst_rank
        if pair not in self._paths:
            self._paths[pair] = self._routes(*pair)
        return self._paths[pair]

    def _routes(self, src_rank: int, dst_rank: int) -> tuple[Path, ...]:
        src, dst = self._ids[src_rank], self._ids[dst_rank]
        if (via := self._fixed.get((src, dst))) is not None:
            return (self._relays.along((src, *via, dst)),)
        if (src, dst) in self._relays.hops:
            return (self._relays.along((src, dst)),)
        if self._members and self._topology.host_of(src_rank) != self._topology.host_of(dst_rank):
            merged = self._merged.find(src_rank, dst_rank)
            if merged and not self._members.keys().isdisjoint(merged[0].nics):
                nodes = (src, *(hop.dst for hop in merged[0].hops))
                own = own_nics(self._topology)
                if paths := self._alternatives(nodes, own, src_rank, dst_rank):
                    return paths
        path = self._relays.between(src, dst)
        return () if path is None else (path,)

    @cached_property
    def _merged(self) -> _Routing:
        return self._topology.derived(MergedNics).topology.derived(_Routing)

    def _alternatives(
        self, nodes: tuple[str, ...], own: dict[int, tuple[str, ...]], src: int, dst: int
    ) -> tuple[Path, ...]:
        """Return the paths that a path of the merged topology along ``nodes`` stands for."""
        layers = [self._members.get(node, (node,)) for node in nodes]
        places = [n for n, layer in enumerate(layers) if self._kinds[layer[0]] == "nic"]
        for place, rank in ((places[0], src), (places[-1], dst)):
            if rank in own and set(own[rank]) <= set(layers[place]):
                layers[place] = own[rank]
        count = math.lcm(*(len(layers[place]) for place in places))
        paths = []
        for channel in range(count):
            turned = list(layers)
            for place in places:
                first = channel % len(layers[place])
                turned[place] = layers[place][first:] + layers[place][:first]
            if chain := self._chain(nodes[:1], turned[1:]):
                paths.append(self._relays.along(chain))
        return tuple(paths)

    def _chain(self, nodes: tuple[str, ...], layers: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        """Return ``nodes`` with the first of each layer that are linked; () where none are."""
        if not layers:
            return nodes
        linked = (node for node in layers[0] if (nodes[-1], node) in self._relays.hops)
        chains = (self._chain((*nodes, node), layers[1:]) for node in linked)
        return next(filter(None, chains), ())
