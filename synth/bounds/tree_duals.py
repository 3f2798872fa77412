"""A bound by duals of fractional tree packing: prices of resources at which all trees cost much."""

from __future__ import annotations

from fractions import Fraction

from tuccl.errors import InputError
from tuccl.planners import tree_duals
from tuccl.synth.bounds.cuts import Cut, listed
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import Network

__all__ = ["tree_dual_bound"]

# Ranks up to which duals are sought, and rounds of the search: about 0.3 s at most.
_MOST_RANKS = 12
_ROUNDS = 1600


def tree_dual_bound(network: Network, collective: Collective) -> Cut | None:
    """Return what duals prove of a collective whose chunks take trees; None if not sought.

    Parts are shards of an allgather or reduce-scatter, else the whole buffer.

    Args:
        network: The routes and their resources.
        collective: None is sought for one whose chunks have one target each.

    Notes:
        Give resource e of rate b_e any price l_e >= 0; a message pays for all on its route. A
        broadcast takes the routes of some spanning tree, so it pays at least the cheapest one's
        price, while in time T no resource is paid for more than b_e T bytes: the time is at least
        the sum of all cheapest trees over sum l_e b_e. The best prices prove the exact optimum of
        fractional trees (linear programming duality; Edmonds 1967). An allreduce pays a tree up to
        the first rank that has everything, and then a message to every other rank; or backwards in
        time a tree down and before it a message from every other rank.

    >>> from fractions import Fraction
    >>> pairs, routes = ((0, 1), (1, 2), (2, 0)), ((0,), (1,), (2,))
    >>> ring = Network((0, 0, 0), pairs, routes, (0.0,) * 3, (Fraction(10),) * 3)
    >>> tree_dual_bound(ring, Collective("allgather", 3)).ratio
    Fraction(1, 5)
    """
    demands = _demands(collective)
    if not demands or not 2 <= network.ranks <= _MOST_RANKS:
        return None
    try:
        prices, cost = tree_duals(network.native, demands, _ROUNDS)
    except InputError:
        return None  # the cuts say which ranks are cut off
    highest = max(prices)
    worth = [price * rate for price, rate in zip(prices, network.rates, strict=True)]
    load, room = Fraction(cost, highest), sum(worth, Fraction(0)) / highest
    scarcest = sorted(range(len(worth)), key=lambda n: (-worth[n], network.name(n)))
    names = [network.name(n) for n in scarcest if worth[n] * 10 > worth[scarcest[0]]]
    return Cut(load, room, frozenset(), f"scarcest: {listed(names)}", 0.0)


def _demands(collective: Collective) -> list[tuple[int, bool, bool]]:
    """Return (root, reduce, broadcast) of each part; root -1: any."""
    name = collective.name
    if name == "allreduce":
        return [(-1, True, True)]
    if name in ("broadcast", "reduce"):
        return [(collective.root, name == "reduce", name == "broadcast")]
    if name in ("allgather", "reduce-scatter"):
        reduces = name == "reduce-scatter"
        return [(rank, reduces, not reduces) for rank in range(collective.ranks)]
    return []
