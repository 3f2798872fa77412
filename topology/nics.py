"""NICs that GPUs send through."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from tuccl.topology.graph import Topology
from tuccl.topology.relays import Path, RelayPaths, relay_path


def nearest_nics(topology: Topology, rank: int) -> tuple[str, ...]:
    """Return the ids of the NICs of the rank's host that it reaches best, in the file's order.

    Best is the widest path inside the host (the NIC's own port and its links into the network
    included), then the one of fewest hops: the rule of `path`. There are several where they tie.

    >>> from tuccl.topology import load_profile
    >>> nearest_nics(load_profile("ndv4"), 0)
    ('nic0', 'nic1')
    """
    distances = topology.derived(_Distances).of_rank[rank]
    nearest = min(distances.values(), default=None)
    return tuple(nic for nic, distance in distances.items() if distance == nearest)


class _Distances:
    """For each rank the minus width in GB/s and the hops to each NIC of its host."""

    def __init__(self, topology: Topology) -> None:
        self.of_rank: list[dict[str, tuple[float, int]]] = []
        paths = {host: RelayPaths(topology, host or None) for host in topology.hosts}
        nics = {host: topology.nics_of(host) for host in topology.hosts}
        networks: Counter[str] = Counter()
        for link in topology.links:
            if link.kind == "network":
                networks.update({src: link.bandwidth for src, _ in link.directions()})
        for rank, gpu in enumerate(topology.gpus):
            host = topology.host_of(rank)
            distances: dict[str, tuple[float, int]] = {}
            for nic in nics[host]:
                path = paths[host].between(gpu.id, nic)
                if path is not None and (nic in networks or not networks):
                    port = topology.node(nic).port_gbs or math.inf
                    width = min(path.bandwidth, port, networks.get(nic, math.inf))
                    distances[nic] = (-width, len(path.hops))
            self.of_rank.append(distances)


def bound_nics(topology: Topology) -> dict[int, str]:
    """Return one of its nearest NICs for each rank, so that ties spread over the NICs evenly.

    Ranks of hosts without a NIC are left out.

    >>> from tuccl.topology import load_profile
    >>> bound_nics(load_profile("ndv4"))[1]
    'nic1'
    """
    nearest = {rank: nearest_nics(topology, rank) for rank in range(topology.ranks)}
    return spread_evenly({rank: nics for rank, nics in nearest.items() if nics})


def spread_evenly(choices: Mapping[int, Sequence[str]]) -> dict[int, str]:
    """Return one of its choices for each rank so that NICs carry as equal numbers as possible.

    >>> spread_evenly({0: ("a", "b"), 1: ("a",), 2: ("a", "b")})
    {0: 'b', 1: 'a', 2: 'a'}

    Notes:
        An optimal semi-matching: each rank takes the least loaded NIC that it reaches over
        alternating paths, moving ranks bound before (Harvey et al., "Semi-matchings for bipartite
        graphs and load balancing", 2006).
    """
    nic_of: dict[int, str] = {}
    for newcomer in choices:
        came_from: dict[str, int] = {}
        frontier = [newcomer]
        for rank in frontier:
            for nic in choices[rank]:
                if nic not in came_from:
                    came_from[nic] = rank
                    frontier.extend(bound_rank for bound_rank, at in nic_of.items() if at == nic)
        loads = {nic: sum(at == nic for at in nic_of.values()) for nic in came_from}
        nic = min(loads, key=loads.__getitem__)
        while (rank := came_from[nic]) != newcomer:
            nic_of[rank], nic = nic, nic_of[rank]
        nic_of[newcomer] = nic
    return nic_of


def own_nics(topology: Topology) -> dict[int, tuple[str, ...]]:
    """Return the NICs of each rank, in the order in which its channels take them in turn.

    There are as many as NICs are equally near, divided by the GPUs that are nearest to them and
    rounded up. Where that is one, or one of them is another GPU's only one, it is the rank's of
    `bound_nics`. Do not change the dictionary.

    >>> from tuccl.topology import load_profile
    >>> own_nics(load_profile("ndv4"))[1], own_nics(load_profile("p5"))[0]
    (('nic1',), ('nic0', 'nic1', 'nic2', 'nic3'))

    Notes:
        NCCL 2.19, src/graph/topo.cc, ncclTopoGetLocalNet: the first NIC is that of the GPU's place
        on its host, with mirrored bits where the NICs are a power of two. There a GPU far from all
        NICs takes in turn those that nearer GPUs have for themselves; here it keeps to one.
    """
    return topology.derived(_own_nics)


def _own_nics(topology: Topology) -> dict[int, tuple[str, ...]]:
    own = {}
    ranks = {host: topology.gpus_of(host) for host in topology.hosts}
    of_rank = topology.derived(_Distances).of_rank
    bound = topology.derived(bound_nics)
    for rank, nic in bound.items():
        here = ranks[topology.host_of(rank)]
        nearest = nearest_nics(topology, rank)
        distances = [of_rank[peer][nearest[0]] for peer in here if nearest[0] in of_rank[peer]]
        count = -(-len(nearest) // distances.count(min(distances)))
        first = _mirrored(here.index(rank), len(nearest))
        turns = ((first + channel) % len(nearest) for channel in range(count))
        own[rank] = (nic,) if count == 1 else tuple(nearest[place] for place in turns)
    alone: set[str] = set()
    while fresh := {nics[0] for nics in own.values() if len(nics) == 1} - alone:
        alone |= fresh
        own = {r: nics if alone.isdisjoint(nics) else (bound[r],) for r, nics in own.items()}
    return own


def _mirrored(number: int, count: int) -> int:
    """Return the low bits of ``number`` in reverse where ``count`` is a power of two."""
    if count & (count - 1):
        return number % count
    width = count.bit_length() - 1
    return sum((number >> bit & 1) << (width - 1 - bit) for bit in range(width))


def tied_via(
    topology: Topology, path: Path, ends: tuple[str, str], out_nic: str, choices: Sequence[str]
) -> tuple[str, ...] | None:
    """Return the relays of a path as good as ``path`` through other NICs, None to keep ``path``.

    The path leaves through the NIC ``out_nic`` and arrives by the first of ``choices`` that ties.
    """
    for in_nic in choices:
        if path.nics == (out_nic, in_nic):
            return None
        chain = (ends[0], out_nic, in_nic, ends[1])
        parts = [relay_path(topology, src, dst) for src, dst in itertools.pairwise(chain)]
        hops = [hop for part in parts if part is not None for hop in part.hops]
        nodes_between = tuple(hop.src for hop in hops[1:])
        is_simple = None not in parts and len({*ends, *nodes_between}) == len(nodes_between) + 2
        tied = len(hops) == len(path.hops) and min(h.bandwidth for h in hops) == path.bandwidth
        if is_simple and tied:
            return nodes_between
    return None
