"""How fast any algorithm could be on a topology: exact cut bounds and latency bounds.

A bound counts what GPUs may do as much as what they may not: they copy, reduce and pass on;
relays only pass on. Reduction or multicast inside a switch (NVLS, SHARP) may beat these bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import msgspec

from tuccl._native import diameter, scarcity
from tuccl.errors import InputError
from tuccl.synth.bounds.cuts import Cut, allgather_cut, broadcast_cut, described, gbs, scatter_cut
from tuccl.synth.bounds.graph import (
    Fabric,
    Wire,
    direct_fabric,
    direct_load,
    fabric,
    topology_routes,
)
from tuccl.synth.bounds.partitions import Isolation, allreduce_cut
from tuccl.synth.bounds.tree_duals import priced_trees
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import topology_network
from tuccl.topology import Topology

__all__ = [
    "MOST_ROUTED",
    "Bound",
    "Cut",
    "allgather_cut",
    "allreduce_cut",
    "alltoall_cut",
    "bound",
    "broadcast_cut",
    "scatter_cut",
    "time_bound_us",
]

# Above this many GPUs the attainable side of a certificate is not computed: it needs a flow over
# all pairs for every rank. The bound itself is exact at any size.
_MOST_CERTIFIED = 128
# Above this many GPUs bytes are not held to the one route of each pair.
MOST_ROUTED = 64
# Above this many GPUs no prices of wires are sought for an all-to-all's bound.
_MOST_PRICED = 64
_PRICED_SOURCES = 16_000  # GPUs from which cheapest ways are found, over all rounds,
_PRICED_WIRES = 4_000_000  # and wires looked at on the way
_DEAREST = 1 << 20  # price of the dearest wire


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The best that any algorithm can do on a topology.

    Attributes:
        algbw_gbs: No algorithm has a higher algbw (size over time, as nccl-tests counts), in GB/s.
        latency_us: No call takes less, however small.
        bottleneck: The tight cut in words.
        certified: The algbw is attainable (large sizes, no executor cost), so the bound is tight.
        cut_latency_us: The least latency of a way between GPUs across the tight cut.
    """

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


def time_bound_us(bound: Bound, nbytes: int) -> float:
    """Return the us that no algorithm for `nbytes` can beat (`Bound.time_us`)."""
    return bound.time_us(nbytes)


@lru_cache(maxsize=64)
def bound(t: Topology, collective: Collective) -> Bound:
    """Return the best algbw and latency that any algorithm for `collective` could have on `t`.

    Raises:
        InputError: the collective has another number of ranks than the topology.

    Notes:
        Allgather: the cut bound of ForestColl (arXiv 2402.06787), by discrete Newton over maximum
        flows; broadcast: Edmonds 1973; allreduce: partitions, after Harary and Schwenk 1974. Where
        no program is known to meet the cut, up to 12 GPUs: prices of wires (`priced_trees`).
    """
    if collective.ranks != t.ranks:
        raise InputError(
            f"{collective.name} of {collective.ranks} ranks on a topology of {t.ranks}: "
            "the numbers must agree"
        )
    whole = fabric(t)
    cut = _tightest(whole, collective)
    if t.ranks <= MOST_ROUTED and collective.name != "alltoall":
        routed = _tightest(topology_routes(t), collective)
        # The latency of ways across is known in the first graph alone.
        cut = cut if routed.ratio <= cut.ratio else replace(routed, latency=0.0)
    certified = _attained(t, collective, cut.ratio)
    if not certified:
        priced = priced_trees(topology_network(t), collective)
        if priced is not None and priced.ratio > cut.ratio:
            cut = replace(priced, words=_less_than_cut(cut, priced))
    return Bound(
        algbw_gbs=float(1 / (cut.ratio * _part(collective))),
        latency_us=_latency_us(whole, collective),
        bottleneck=cut.words,
        certified=certified,
        cut_latency_us=cut.latency,
    )


def _less_than_cut(cut: Cut, priced: Cut) -> str:
    """Return the cut in words, and how much of it prices of wires leave."""
    return (
        f"{cut.words}, and with one way for each pair of GPUs no program can use more than "
        f"{float(cut.ratio / priced.ratio):.1%} of that ({priced.words})"
    )


def _part(collective: Collective) -> Fraction:
    """Return the part of the size (as nccl-tests counts it) that a cut's load is counted in."""
    if collective.name in ("broadcast", "reduce", "allreduce"):
        return Fraction(1)
    return Fraction(1, collective.ranks)


def _tightest(whole: Fabric, collective: Collective) -> Cut:
    """Return the tight cut; gathering and reducing are the reverse of spreading."""
    name, root = collective.name, collective.root
    finders: dict[str, Callable[[], Cut]] = {
        "allgather": lambda: allgather_cut(whole),
        "reduce-scatter": lambda: allgather_cut(whole.reverse, backwards=True),
        "broadcast": lambda: broadcast_cut(whole, root),
        "reduce": lambda: broadcast_cut(whole.reverse, root, backwards=True),
        "scatter": lambda: scatter_cut(whole, root),
        "gather": lambda: scatter_cut(whole.reverse, root, backwards=True),
        "allreduce": lambda: allreduce_cut(whole),
        "alltoall": lambda: alltoall_cut(whole),
    }
    if name not in finders:
        raise InputError(f"no bound is known for {name!r}; known are {', '.join(finders)}")
    return finders[name]()


def _attained(t: Topology, collective: Collective, ratio: Fraction) -> bool:
    """Return whether the bound is met with the fixed routes of `t`, sharing each hop fairly."""
    if collective.name == "alltoall":
        return direct_load(t) == ratio
    if t.ranks > _MOST_CERTIFIED:
        return False
    direct = direct_fabric(t)
    if collective.name == "allreduce":
        halves = allgather_cut(direct).ratio + allgather_cut(direct.reverse).ratio
        return halves / t.ranks == ratio
    return _tightest(direct, collective).ratio == ratio


def _latency_us(whole: Fabric, collective: Collective) -> float:
    """Return the alpha diameter in us, or the root's eccentricity."""
    if not collective.rooted:
        lengths = [wire.latency for wire in whole.wires]
        return diameter(len(whole.names), list(whole.arcs), lengths, whole.ranks)
    spreads = collective.name in ("broadcast", "scatter")
    return max((whole if spreads else whole.reverse).latencies(collective.root))


def alltoall_cut(whole: Fabric) -> Cut:
    """Return the tightest of a family of cuts and of prices; parts are what one rank has for another.

    Notes:
        A bound only: tried are single GPUs, hosts, halves of the hosts, aligned blocks of ranks and
        the allgather's tight cut, each in both directions, and prices of wires (`_priced`).
    """
    isolated = Isolation(whole)
    everyone = frozenset(range(whole.ranks))
    sides = [side for group in _groups(whole) for side in (group, everyone - group)]
    if not sides:
        raise InputError("an all-to-all bound needs at least two ranks")
    ratios = (
        Fraction(len(side) * (whole.ranks - len(side))) / rate
        for side, rate in zip(sides, isolated.rates(sides), strict=True)
    )
    tightest = max(zip(ratios, range(0, -len(sides), -1), strict=True))
    side = isolated.side(sides[-tightest[1]])
    inside = sum(vertex < whole.ranks for vertex in side)
    load = Fraction(inside * (whole.ranks - inside))
    cut = described(whole, side, load, f"{load} of {whole.ranks**2} blocks", False)
    priced = _priced(whole)
    return cut if priced is None or priced.ratio <= cut.ratio else priced


def _priced(whole: Fabric) -> Cut | None:
    """Return what prices of wires prove of an all-to-all; None where looking would take long.

    Notes:
        Give wire e of rate b_e any price l_e >= 0, and let d(s, t) be the price of the cheapest way
        from s to t. Bytes from s to t pay at least d(s, t) each, and in time T no wire is paid for
        more than b_e T bytes: with one part for each pair, sum d(s, t) <= T sum b_e l_e. The best
        prices prove the maximum concurrent flow (linear programming duality; Shahrokhi and Matula
        1990); a cut is the case of price 1 across and 0 elsewhere. Prices are sought by rising
        where flows crowd (Garg and Koenemann 1998), rounded to whole numbers, and what they prove
        is then computed exactly.
    """
    if whole.ranks > _MOST_PRICED:
        return None
    arcs = [(*ends, rate) for ends, rate in zip(whole.arcs, whole.whole_rates, strict=True)]
    rounds = min(_PRICED_SOURCES // whole.ranks, _PRICED_WIRES // (whole.ranks * len(arcs)))
    found = scarcity(len(whole.names), arcs, whole.ranks, max(20, rounds))
    dearest = max(found)
    prices = [round(price / dearest * _DEAREST) for price in found]
    paid = sum((p * w.rate for p, w in zip(prices, whole.wires, strict=True)), Fraction(0))
    priced = (Wire(w.tail, w.head, w.rate, p) for w, p in zip(whole.wires, prices, strict=True))
    graph = Fabric(whole.names, whole.hosts, tuple(priced))
    ways = sum(int(cost) for rank in range(whole.ranks) for cost in graph.latencies(rank))
    words = (
        f"{whole.ranks * (whole.ranks - 1)} of {whole.ranks**2} blocks must take "
        f"{float(Fraction(ways) / max(prices)):.6g} of the dearest wires' room, and all wires have "
        f"{gbs(paid / max(prices))} of it"
    )
    return Cut(Fraction(ways), paid, frozenset(), words, 0.0)


def _groups(whole: Fabric) -> Iterable[frozenset[int]]:
    """Return sets of ranks that are likely sides of a tight cut; each leaves a rank out."""
    groups = {frozenset({gpu}) for gpu in range(whole.ranks)}
    hosts = list(dict.fromkeys(whole.hosts))
    for first, last in [(n, n + 1) for n in range(len(hosts))] + [(0, len(hosts) // 2)]:
        some = set(hosts[first:last])
        groups.add(frozenset(gpu for gpu in range(whole.ranks) if whole.hosts[gpu] in some))
    block = 2
    while block < whole.ranks:
        groups |= {frozenset(range(n, n + block)) for n in range(0, whole.ranks - block + 1, block)}
        block *= 2
    groups.add(frozenset(gpu for gpu in allgather_cut(whole).side if gpu < whole.ranks))
    return sorted((g for g in groups if 0 < len(g) < whole.ranks), key=sorted)
