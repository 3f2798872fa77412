"""Duals of tree packing: cheapest trees against brute force, bounds that programs come close to."""

from __future__ import annotations

import heapq
import random
from fractions import Fraction
from itertools import permutations, product

import pytest

from reference_fabrics import random_fabric
from tuccl import _native
from tuccl.errors import InputError
from tuccl.planners import tree_duals
from tuccl.simulation import Resource, Route
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, bound, lower, make_schedule
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.synth.bounds.tree_duals import tree_dual_bound
from tuccl.synth.model.network import Network
from tuccl.synth.packing.packing import packing_chunks

Pair = tuple[int, int]


def mesh(rng: random.Random, ranks: int) -> tuple[list[Pair], _native.Network]:
    """Return pairs, and the network in which each has a link of its own."""
    pairs = list(permutations(range(ranks), 2))
    resources = [Resource(f"{a}>{b}", "", rng.choice((1.0, 2.0, 3.0, 7.0))) for a, b in pairs]
    routes = [Route(a, b, [n], 0.0) for n, (a, b) in enumerate(pairs)]
    return pairs, _native.Network(ranks, resources, routes)


def spans(root: int, parents: tuple[int, ...]) -> bool:
    """Return whether every rank comes to the root by its parents."""
    for rank in range(len(parents)):
        for _ in parents:
            rank = parents[rank] if rank != root else root
        if rank != root:
            return False
    return True


@pytest.mark.parametrize("seed", range(30))
def test_cheapest_trees_are_those_of_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    ranks = rng.randint(2, 5)
    pairs, network = mesh(rng, ranks)
    root, rising = rng.randrange(ranks), rng.random() < 0.5
    prices, cost = tree_duals(network, [(root, rising, not rising)], 1)
    price = dict(zip(pairs, prices, strict=True))
    least = min(
        sum(
            price[(rank, up) if rising else (up, rank)]
            for rank, up in enumerate(parents)
            if rank != root
        )
        for parents in product(range(ranks), repeat=ranks)
        if all(up != rank for rank, up in enumerate(parents) if rank != root)
        and spans(root, parents)
    )
    assert cost == least


@pytest.mark.parametrize("seed", range(40))
def test_an_allreduce_never_costs_less_than_its_prices_say(seed: int) -> None:
    """Messages in any order, each telling all its sender knows, until all know all."""
    rng = random.Random(seed)
    pairs, network = mesh(rng, 3)
    prices, cost = tree_duals(network, [(-1, True, True)], rng.randint(1, 30))
    begun: tuple[int, ...] = (1, 2, 4)
    ended = (7, 7, 7)
    known, waiting = {begun: 0}, [(0, begun)]
    while waiting:
        paid, state = heapq.heappop(waiting)
        if state == ended:
            break
        for (src, dst), price in zip(pairs, prices, strict=True):
            told = tuple(has | state[src] if r == dst else has for r, has in enumerate(state))
            if paid + price < known.get(told, 1 << 60):
                known[told] = paid + price
                heapq.heappush(waiting, (paid + price, told))
    assert cost <= known[ended]


def test_a_shared_link_is_proved_scarce() -> None:
    """Two of three GPUs hear of the third over one link alone, and so of each other."""
    cut = tree_dual_bound(
        Network(
            hosts=(0, 0, 0),
            pairs=((0, 1), (0, 2), (1, 0), (2, 0)),
            routes=((0,), (0,), (1,), (2,)),
            latencies_us=(0.0,) * 4,
            rates=(Fraction(10),) * 3,
        ),
        Collective("allgather", 3),
    )
    # It carries the shard of rank 0 to both others, and theirs to each other.
    assert cut is not None
    assert float(cut.ratio) == pytest.approx(4 / 10, rel=1e-3)
    assert "resource 0" in cut.words


# Fabrics on which cuts alone promise up to twice what trees over the pairs' own ways can do.
@pytest.mark.parametrize("seed", [864, 2489, 4339, 6956, 9206, 9116])
def test_lopsided_fabrics_come_close_to_what_prices_prove(seed: int) -> None:
    rng = random.Random(seed)
    name = rng.choice(("allgather", "reduce-scatter", "allreduce", "broadcast", "reduce"))
    rng.random()
    t = random_fabric(rng)
    collective = Collective(name, t.ranks, rng.randrange(t.ranks))
    mesh = full_mesh(t)
    [chunks] = packing_chunks(collective, mesh, t)
    program = lower(make_schedule(Problem(collective, mesh, chunks, 1, t), "packing"))
    assert 0.95 <= fraction_of_bound(program, t, collective) <= 1 + 1e-9
    assert "no program can use more than" in bound(t, collective).bottleneck


def test_arguments_are_checked() -> None:
    one_way = Network((0, 0), ((0, 1),), ((0,),), (0.0,), (Fraction(1),))
    assert tree_dual_bound(one_way, Collective("allgather", 2)) is None
    with pytest.raises(InputError, match="expected a rank or -1"):
        tree_duals(one_way.native, [(7, False, True)], 1)
    with pytest.raises(InputError, match="expected 1 or more"):
        tree_duals(one_way.native, [], 0)
    with pytest.raises(InputError, match="do not join"):
        tree_duals(one_way.native, [(1, False, True)], 1)
