"""A bound of spreading and reducing over fixed ways: prices of wires by which all trees are dear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from tuccl._native import price_trees
from tuccl.errors import InputError
from tuccl.synth.bounds.cuts import Cut, listed
from tuccl.synth.model.collective import Collective

__all__ = ["priced_trees"]

# Ranks up to which prices are sought, and how often all are raised: about 0.3 s at most.
_MOST_RANKS = 12
_ROUNDS = 1600
_Wire = TypeVar("_Wire", int, tuple[str, str])


def priced_trees(
    ranks: int,
    ways: Mapping[tuple[int, int], Sequence[_Wire]],
    rates: Mapping[_Wire, Fraction],
    collective: Collective,
) -> Cut | None:
    """Return what prices of wires prove of a collective whose chunks take trees; None if not sought.

    Parts are shards of an allgather or reduce-scatter, else the whole buffer.

    Args:
        ranks: Number of GPUs.
        ways: The wires that a message of each pair of ranks takes.
        rates: Of each wire in GB/s.
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
    >>> ring = {(0, 1): [0], (1, 2): [1], (2, 0): [2]}
    >>> rates = dict.fromkeys(range(3), Fraction(10))
    >>> priced_trees(3, ring, rates, Collective("allgather", 3)).ratio
    Fraction(1, 5)
    """
    errands = _errands(collective)
    if not errands or not 2 <= ranks <= _MOST_RANKS:
        return None
    number = {wire: place for place, wire in enumerate(rates)}
    wires = [[number[wire] for wire in way] for way in ways.values()]
    every = [float(rate) for rate in rates.values()]
    try:
        prices, cost = price_trees(ranks, list(ways), wires, every, errands, _ROUNDS)
    except InputError:
        return None  # the cuts say which ranks are cut off
    dearest = max(prices)
    worth = {wire: price * rates[wire] for price, wire in zip(prices, rates, strict=True)}
    load, room = Fraction(cost, dearest), sum(worth.values(), Fraction(0)) / dearest
    scarce = sorted(worth, key=lambda wire: (-worth[wire], wire))
    names = listed([_name(wire) for wire in scarce if worth[wire] * 10 > worth[scarce[0]]])
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


def _name(wire: int | tuple[str, str]) -> str:
    return f"wire {wire}" if isinstance(wire, int) else ">".join(wire)
