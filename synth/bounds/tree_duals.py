"""A bound of spreading and reducing over fixed ways: prices of wires by which all trees are dear."""

from __future__ import annotations

from fractions import Fraction

from tuccl._native import price_trees
from tuccl.errors import InputError
from tuccl.synth.bounds.cuts import Cut, listed
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import Network

__all__ = ["priced_trees"]

# Ranks up to which prices are sought, and how often all are raised: about 0.3 s at most.
_MOST_RANKS = 12
_ROUNDS = 1600


def priced_trees(network: Network, collective: Collective) -> Cut | None:
    """Return what prices of wires prove of a collective whose chunks take trees; None if not sought.

    Parts are shards of an allgather or reduce-scatter, else the whole buffer.

    Args:
        network: The routes and their resources.
        collective: None is sought for one whose chunks have one target each.

    Notes:
        Give wire e of rate b_e any price l_e >= 0; a message pays what its wires cost. What spreads
        from a rank to all crosses the pairs of some spanning tree, so it pays at least the cheapest
        one's price, while in time T no wire is paid for more than b_e T bytes: the time is at least
        the sum of all cheapest trees over sum l_e b_e. The best prices prove the exact optimum of
        fractional trees (linear programming duality; Edmonds 1967). An allreduce pays a tree up to
        the first rank that has everything, and then a message to every other rank; or backwards in
        time a tree down and before it a message from every other rank.

    >>> from fractions import Fraction
    >>> pairs, routes = ((0, 1), (1, 2), (2, 0)), ((0,), (1,), (2,))
    >>> ring = Network((0, 0, 0), pairs, routes, (0.0,) * 3, (Fraction(10),) * 3)
    >>> priced_trees(ring, Collective("allgather", 3)).ratio
    Fraction(1, 5)
    """
    errands = _errands(collective)
    if not errands or not 2 <= network.ranks <= _MOST_RANKS:
        return None
    every = [float(rate) for rate in network.rates]
    routes = [list(route) for route in network.routes]
    try:
        prices, cost = price_trees(
            network.ranks, list(network.pairs), routes, every, errands, _ROUNDS
        )
    except InputError:
        return None  # the cuts say which ranks are cut off
    dearest = max(prices)
    worth = [price * rate for price, rate in zip(prices, network.rates, strict=True)]
    load, room = Fraction(cost, dearest), sum(worth, Fraction(0)) / dearest
    scarce = sorted(range(len(worth)), key=lambda wire: (-worth[wire], network.name(wire)))
    names = listed([network.name(wire) for wire in scarce if worth[wire] * 10 > worth[scarce[0]]])
    return Cut(load, room, frozenset(), f"scarcest: {names}", 0.0)


def _errands(collective: Collective) -> list[tuple[int, bool, bool]]:
    """Return (root, up, down) of each part's tree; root -1: any."""
    name = collective.name
    if name == "allreduce":
        return [(-1, True, True)]
    if name in ("broadcast", "reduce"):
        return [(collective.root, name == "reduce", name == "broadcast")]
    if name in ("allgather", "reduce-scatter"):
        rising = name == "reduce-scatter"
        return [(rank, rising, not rising) for rank in range(collective.ranks)]
    return []
