"""Exact cut bounds and latency bounds of any algorithm on a topology.

There are two bounds. Over ``links`` GPUs copy, reduce and pass on, and relays only forward: it
covers every program of MSCCL and NCCL's rings and trees. Over ``switches`` relays may reduce and
multicast too (NVLS, SHARP), so it covers those as well.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import msgspec

from tuccl.errors import InputError
from tuccl.planners import diameter, flow_duals
from tuccl.synth.bounds.cuts import (
    Cut,
    allgather_cut,
    broadcast_cut,
    delivery_cut,
    described,
    gbs,
    scatter_cut,
)
from tuccl.synth.bounds.graph import (
    Arc,
    Fabric,
    direct_fabric,
    routed_topology_fabric,
    topology_fabric,
)
from tuccl.synth.bounds.partitions import GroupCuts, allreduce_cut
from tuccl.synth.model.collective import Collective, collective_on
from tuccl.synth.model.network import exact_rate
from tuccl.topology import Topology, merge_nics
from tuccl.topology.machines import as_topology
from tuccl.topology.paths import path_orbits
from tuccl.topology.relays import RelayPaths

__all__ = [
    "MOST_ROUTED",
    "Bound",
    "BoundKind",
    "Cut",
    "allgather_cut",
    "allreduce_cut",
    "alltoall_cut",
    "bound",
    "broadcast_cut",
    "scatter_cut",
    "switch_cut",
    "tightest_cut",
]

# Above this many GPUs the attainable side of a certificate is not computed: it needs a flow over
# all pairs for every rank. The bound itself is exact at any size.
_MOST_CERTIFIED = 128
# Above this many GPUs bytes are not held to the one route of each pair.
MOST_ROUTED = 64
# Above this many GPUs no duals are sought for an all-to-all's bound.
_MOST_PRICED = 64
_PRICED_SOURCES = 16_000  # GPUs from which shortest paths are sought, over all rounds,
_PRICED_ARCS = 4_000_000  # and arcs that these look at
_HIGHEST_PRICE = 1 << 20


BoundKind = Literal["links", "switches"]
_SWITCHES = ("nvswitch", "switch")


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The best that any algorithm can do on a topology.

    Attributes:
        over: ``links``: what only sends between GPUs can do; ``switches``: what also reduction and
            multicast inside switches can do.
        algbw_gbs: No algorithm has a higher algbw (size over time, as nccl-tests counts), in GB/s.
        latency_us: No call takes less, however small.
        bottleneck: The tight cut in words.
        certified: The algbw is attainable (large sizes, no executor cost), so the bound is tight;
            never said over switches.
        cut_latency_us: The least latency of a path between GPUs across the tight cut.
    """

    over: BoundKind
    algbw_gbs: float
    latency_us: float
    bottleneck: str
    certified: bool
    cut_latency_us: float = 0.0

    def time_us(self, nbytes: int) -> float:
        """Return the us that no algorithm for `nbytes` can beat.

        Notes:
            max(alpha diameter, least alpha across the cut + bytes / algbw): both sides hold, the
            second since the last byte still has to cross once it was sent.
        """
        return max(self.latency_us, self.cut_latency_us + nbytes / (self.algbw_gbs * 1e3))


def bound(
    topology: Topology | str | os.PathLike[str],
    collective: str | Collective,
    over: BoundKind = "links",
) -> Bound:
    """Return the best algbw and latency that any algorithm for `collective` could have.

    ``topology`` may be the path of its file.

    >>> from tuccl.topology import load_profile
    >>> best = bound(load_profile("dgx-a100"), "allgather")
    >>> round(best.algbw_gbs), best.certified, best.bottleneck[:17]
    (343, True, '7 of 8 shards mus')

    ``over`` says whether switches only forward (``links``) or may also reduce and multicast, as
    NVSwitches do from H100 on (NVLS) and InfiniBand's by SHARP (``switches``).

    Raises:
        InputError: the collective has another number of ranks than the topology.

    Notes:
        Allgather: the cut bound of ForestColl (arXiv 2402.06787), by discrete Newton over maximum
        flows; broadcast: Edmonds 1973; allreduce: partitions, after Harary and Schwenk 1974.
    """
    return _bound(as_topology(topology), collective, over)


@lru_cache(maxsize=64)
def _bound(topology: Topology, collective: str | Collective, over: BoundKind) -> Bound:
    collective = collective_on(topology.ranks, collective)
    if collective.groups is not None:
        raise InputError(f"{collective.name} in groups: see tuccl.groups.bounds.joint_bound")
    fabric = topology_fabric(topology)
    if over == "switches" and not any(n.kind in _SWITCHES for n in topology.nodes):
        return msgspec.structs.replace(_bound(topology, collective, "links"), over=over)
    if over == "switches":
        cut = switch_cut(fabric, collective)
        return _bound_of(over, cut, fabric, collective, certified=False)
    cut = tightest_cut(fabric, collective)
    if topology.ranks <= MOST_ROUTED and collective.name != "alltoall":
        routed = tightest_cut(routed_topology_fabric(topology), collective)
        # The latency of paths across is known in the first graph alone.
        cut = cut if routed.ratio <= cut.ratio else replace(routed, latency=0.0)
    certified = _attained(topology, collective, cut.ratio)
    return _bound_of(over, cut, fabric, collective, certified=certified)


def _bound_of(
    over: BoundKind, cut: Cut, fabric: Fabric, collective: Collective, *, certified: bool
) -> Bound:
    return Bound(
        over=over,
        algbw_gbs=float(1 / (cut.ratio * _part(collective))),
        latency_us=_latency_us(fabric, collective),
        bottleneck=cut.words,
        certified=certified,
        cut_latency_us=cut.latency,
    )


def _part(collective: Collective) -> Fraction:
    """Return the part of the size (as nccl-tests counts it) that a cut's load is counted in."""
    if collective.name in ("broadcast", "reduce", "allreduce"):
        return Fraction(1)
    return Fraction(1, collective.ranks)


def tightest_cut(fabric: Fabric, collective: Collective) -> Cut:
    """Return the tight cut; gathering and reducing are the reverse of scattering and broadcasting.

    Raises:
        InputError: the GPUs are not joined, or no bound of the collective is known.
    """
    everyone, others = collective.ranks * (collective.ranks - 1), collective.ranks - 1
    fewest_messages = {  # of a part
        "allgather": everyone,
        "reduce-scatter": everyone,
        "alltoall": everyone,
        "allreduce": 2 * others,
    }
    cut = _cut(fabric, collective, lambda: allreduce_cut(fabric))
    delivery = delivery_cut(fabric, fewest_messages.get(collective.name, others))
    return delivery if delivery.ratio > cut.ratio else cut


def switch_cut(fabric: Fabric, collective: Collective) -> Cut:
    """Return the tight cut where every relay may reduce and multicast.

    Raises:
        InputError: as `tightest_cut`.

    Notes:
        Any set of vertices with a GPU inside and one outside: what those inside gather must leave
        once, however it is copied on the other side. An allreduce crosses each such cut once in
        each direction, since a sum of all contributions inside is enough. An all-to-all gains
        nothing: each byte has one receiver.
    """

    def both_directions() -> Cut:
        forth = broadcast_cut(fabric, 0)
        back = broadcast_cut(fabric.reverse, 0, backwards=True)
        return max(forth, back, key=lambda cut: cut.ratio)

    return _cut(fabric, collective, both_directions)


def _cut(fabric: Fabric, collective: Collective, allreduce: Callable[[], Cut]) -> Cut:
    name, root = collective.name, collective.root
    cuts: dict[str, Callable[[], Cut]] = {
        "allgather": lambda: allgather_cut(fabric),
        "reduce-scatter": lambda: allgather_cut(fabric.reverse, backwards=True),
        "broadcast": lambda: broadcast_cut(fabric, root),
        "reduce": lambda: broadcast_cut(fabric.reverse, root, backwards=True),
        "scatter": lambda: scatter_cut(fabric, root),
        "gather": lambda: scatter_cut(fabric.reverse, root, backwards=True),
        "allreduce": allreduce,
        "alltoall": lambda: alltoall_cut(fabric),
    }
    if name not in cuts:
        raise InputError(f"no bound is known for {name!r}; known are {', '.join(cuts)}")
    return cuts[name]()


def _attained(topology: Topology, collective: Collective, ratio: Fraction) -> bool:
    """Return whether the bound is met with the fixed routes, sharing each hop fairly."""
    if collective.name == "alltoall":
        return _direct_time(merge_nics(topology)) == ratio
    if topology.ranks > _MOST_CERTIFIED:
        return False
    direct = direct_fabric(topology)
    if collective.name == "allreduce":
        halves = allgather_cut(direct).ratio + allgather_cut(direct.reverse).ratio
        return halves / topology.ranks == ratio
    return tightest_cut(direct, collective).ratio == ratio


def _direct_time(topology: Topology) -> Fraction:
    """Return the time of the busiest hop where each pair of ranks sends one part."""
    loads = Counter[tuple[str, ...]]()
    for path, swaps in path_orbits(topology):
        pairs = swaps.count((path.hops[0].src, path.hops[-1].dst))
        for hop in path.hops:
            ends = hop.src, hop.dst
            # Swaps take the paths over one image of a hop to those over another: all are as many.
            load = pairs // swaps.count(ends)
            loads.update(dict.fromkeys(swaps.images(ends), load))
    hops = topology.derived(RelayPaths).hops
    rates = {ends: exact_rate(hop.bandwidth) for ends, hop in hops.items()}
    return max(load / rates[src, dst] for (src, dst), load in loads.items())


def _latency_us(fabric: Fabric, collective: Collective) -> float:
    """Return the alpha diameter in us, or the root's eccentricity."""
    if not collective.rooted:
        lengths = [arc.latency for arc in fabric.arcs]
        ends, sources = fabric.ends, fabric.representatives
        return diameter(len(fabric.names), ends, lengths, fabric.ranks, sources)
    outwards = fabric if collective.name in ("broadcast", "scatter") else fabric.reverse
    return max(outwards.latencies(collective.root)[: fabric.ranks])


def alltoall_cut(fabric: Fabric) -> Cut:
    """Return the tightest of a family of cuts and of duals.

    Parts are what one rank has for another.

    Notes:
        A bound only. The cuts evaluated are around single GPUs, hosts, halves of the hosts, aligned
        blocks of ranks and the allgather's tight cut, each in both directions; and duals of the
        concurrent flow (`_dual_bound`).
    """
    cuts = GroupCuts(fabric)
    everyone = frozenset(range(fabric.ranks))
    groups = cuts.distinct(_groups(fabric))
    sides = [side for group in groups for side in (group, everyone - group)]
    if not sides:
        raise InputError("an all-to-all bound needs at least two ranks")
    ratios = [
        Fraction(len(side) * (fabric.ranks - len(side))) / rate
        for side, rate in zip(sides, cuts.rates(sides), strict=True)
    ]
    side = cuts.side(sides[ratios.index(max(ratios))])
    inside = sum(vertex < fabric.ranks for vertex in side)
    load = Fraction(inside * (fabric.ranks - inside))
    cut = described(fabric, side, load, f"{load} of {fabric.ranks**2} blocks", False)
    duals = _dual_bound(fabric)
    return cut if duals is None or duals.ratio <= cut.ratio else duals


def _dual_bound(fabric: Fabric) -> Cut | None:
    """Return what duals prove of an all-to-all; None where the search would take long.

    Notes:
        Give arc e of rate b_e any price l_e >= 0, and let d(s, t) be the price of the cheapest path
        from s to t. Bytes from s to t pay at least d(s, t) each, and in time T no arc is paid for
        more than b_e T bytes: with one part for each pair, sum d(s, t) <= T sum b_e l_e. The best
        prices prove the maximum concurrent flow (linear programming duality; Shahrokhi and Matula
        1990); a cut is the case of price 1 across and 0 elsewhere. Prices rise where flows congest
        (Garg and Koenemann 1998), are rounded to whole numbers, and what they prove is then
        computed exactly.
    """
    if fabric.ranks > _MOST_PRICED:
        return None
    ranks, arcs = fabric.ranks, fabric.capacities
    rounds = min(_PRICED_SOURCES // ranks, _PRICED_ARCS // (ranks * len(arcs)))
    duals = flow_duals(len(fabric.names), arcs, ranks, max(20, rounds))
    highest = max(duals)
    prices = [round(dual / highest * _HIGHEST_PRICE) for dual in duals]
    paid = sum((p * arc.rate for p, arc in zip(prices, fabric.arcs, strict=True)), Fraction(0))
    priced = (
        Arc(arc.tail, arc.head, arc.rate, price)
        for arc, price in zip(fabric.arcs, prices, strict=True)
    )
    graph = Fabric(fabric.names, fabric.hosts, tuple(priced))
    cost = sum(int(price) for rank in range(ranks) for price in graph.latencies(rank)[:ranks])
    words = (
        f"{ranks * (ranks - 1)} of {ranks**2} blocks must take "
        f"{float(Fraction(cost) / max(prices)):.6g} of the dearest links' room, and all links have "
        f"{gbs(paid / max(prices))} of it"
    )
    return Cut(Fraction(cost), paid, frozenset(), words, 0.0)


def _groups(fabric: Fabric) -> Iterable[frozenset[int]]:
    """Return sets of ranks that are likely sides of a tight cut; each leaves a rank out."""
    groups = {frozenset({gpu}) for gpu in range(fabric.ranks)}
    hosts = list(dict.fromkeys(fabric.hosts))
    for first, last in [(n, n + 1) for n in range(len(hosts))] + [(0, len(hosts) // 2)]:
        some = set(hosts[first:last])
        groups.add(frozenset(gpu for gpu in range(fabric.ranks) if fabric.hosts[gpu] in some))
    block = 2
    while block < fabric.ranks:
        groups |= {
            frozenset(range(n, n + block)) for n in range(0, fabric.ranks - block + 1, block)
        }
        block *= 2
    groups.add(frozenset(gpu for gpu in allgather_cut(fabric).side if gpu < fabric.ranks))
    return sorted((g for g in groups if 0 < len(g) < fabric.ranks), key=sorted)
