"""Automorphisms and their groups, against the definitions tried on all permutations."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable
from itertools import permutations, product

import pytest

from tuccl.topology.symmetry import (
    Automorphism,
    LinkGraph,
    Permutation,
    RankSets,
    Symmetry,
    free_symmetry,
    rotation,
)

RANKS = 6


def some_graph(seed: int) -> LinkGraph:
    """A ring or a mesh with shared resources and sets; a link or a set may stand out."""
    chance = random.Random(seed)
    steps = chance.choice([(1,), (1, 5), (1, 2, 3, 4, 5), (3,), (2, 4)])
    ends = [(rank, (rank + step) % RANKS) for rank in range(RANKS) for step in steps]
    costs = [(dst - src) % 3 == 0 for src, dst in ends]
    ports: list[Callable[[int], Hashable]] = [lambda n: n, lambda n: n // 2, lambda n: n % 3, bool]
    out, into = chance.choice(ports), chance.choice(ports)
    resources = [(("out", out(src)), ("in", into(dst)))[: seed % 3] for src, dst in ends]
    if seed % 5 == 0:
        costs[0] = not costs[0]
    size = chance.choice([1, 2, 3, 4])
    blocks = [range(n, min(n + size, RANKS)) for n in range(0, RANKS, size)]
    sets: list[RankSets] = [
        (len(ranks), frozenset(ranks[:first]), frozenset(ranks))
        for ranks in blocks
        for first in (0, 1)
    ]
    sets = sets * chance.choice([0, 1, 2]) + sets[: chance.choice([0, 0, 1])]
    return LinkGraph(RANKS, ends, costs, resources, sets)


def keeps(graph: LinkGraph, to: Permutation) -> bool:
    """The definition, link by link and for every two uses of resources."""
    number = {pair: link for link, pair in enumerate(graph.ends)}
    images = [number.get((to[src], to[dst])) for src, dst in graph.ends]
    if None in images or Counter(moved(each, to) for each in graph.sets) != Counter(graph.sets):
        return False
    pairs = [(link, image) for link, image in enumerate(images) if image is not None]
    shared = graph.resources
    uses = [(link, image, n) for link, image in pairs for n in range(len(shared[link]))]
    return all(graph.costs[link] == graph.costs[image] for link, image in pairs) and all(
        (shared[one][n] == shared[other][m]) == (shared[onto][n] == shared[other_onto][m])
        for (one, onto, n), (other, other_onto, m) in product(uses, uses)
    )


def moved(sets: RankSets, to: Permutation) -> RankSets:
    label, *members = sets
    return label, *(frozenset(to[rank] for rank in ranks) for ranks in members)


def generated(generators: list[Permutation]) -> set[Permutation]:
    """All products of the generators, by multiplying until nothing is new."""
    group = {tuple(range(RANKS))}
    while more := {tuple(g[rank] for rank in e) for g in generators for e in group} - group:
        group |= more
    return group


@pytest.mark.parametrize("seed", range(60))
def test_automorphisms_are_the_permutations_that_keep_the_graph(seed: int) -> None:
    graph = some_graph(seed)
    for to in permutations(range(RANKS)):
        found = graph.automorphism(to)
        assert (found is not None) == keeps(graph, to)
        if found is not None:
            for link, image in enumerate(found.links):
                assert graph.ends[image] == found.pair(graph.ends[link])
                shared = [found.resources[name] for name in graph.resources[link]]
                assert shared == list(graph.resources[image])
            for each, number in zip(graph.sets, found.sets, strict=True):
                assert graph.sets[number] == moved(each, to)
            assert sorted(found.sets) == list(range(len(graph.sets)))


@pytest.mark.parametrize("seed", range(60))
def test_orbits_are_what_all_products_of_the_generators_reach(seed: int) -> None:
    graph = some_graph(seed)
    turns = [rotation(RANKS, *each) for each in ((1, 2), (1, 3), (2, 6), (3, 6))]
    generators = tuple(filter(None, map(graph.automorphism, turns)))
    group = generated([each.ranks for each in generators])
    found = Symmetry(graph, generators).orbits(graph.ends, Automorphism.pair)
    assert {frozenset(orbit) for orbit in found} == {
        frozenset((to[src], to[dst]) for to in group) for src, dst in graph.ends
    }
    assert sum(map(len, found)) == len(graph.ends)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_a_free_group_takes_generators_in_turn_while_it_moves_all(
    seed: int, exclusive: bool
) -> None:
    graph = some_graph(seed)
    turns: list[Permutation] = [
        (3, 2, 4, 0, 5, 1),
        (0, 5, 4, 3, 2, 1),
        (1, 0, 5, 4, 3, 2),
        (1, 0, 2, 3, 4, 5),
    ]
    turns += [rotation(RANKS, *each) for each in ((3, 6), (1, 2), (1, 3), (1, 6))]
    if seed % 2:
        turns.reverse()
    group = free_symmetry(graph, turns, exclusive=exclusive)
    elements = {element.ranks for element in group.elements}
    assert len(elements) == len(group)
    kept: list[Permutation] = []
    for turn in turns:
        larger = generated([*kept, turn])
        if graph.automorphism(turn) and is_free(graph, larger, exclusive):
            kept += [turn] * (larger != generated(kept))
    assert elements == generated(kept) and [each.ranks for each in group.generators] == kept


def is_free(graph: LinkGraph, group: set[Permutation], exclusive: bool) -> bool:
    identity = tuple(range(RANKS))
    found = [graph.automorphism(to) for to in group - {identity}]
    return all(
        each is not None
        and all(to != rank for rank, to in enumerate(each.ranks))
        and not (exclusive and any(name == to for name, to in each.resources.items()))
        for each in found
    )


def test_representatives_are_the_least_of_their_orbits() -> None:
    ring = [(rank, (rank + 1) % RANKS) for rank in range(RANKS)]
    owners = [("chunk", frozenset({rank})) for rank in range(RANKS)] * 2
    graph = LinkGraph(RANKS, ring, [1] * RANKS, [()] * RANKS, owners)
    group = free_symmetry(graph, [rotation(RANKS, 2, RANKS)])
    assert group.elements[0].sets == tuple(range(12))
    assert group.elements[1].sets == (2, 3, 4, 5, 0, 1, 8, 9, 10, 11, 6, 7)
    assert group.representatives == (0, 1, 6, 7)
    assert group.link_representatives == (0, 1, 0, 1, 0, 1)
    assert Symmetry(graph).representatives == tuple(range(12))
    mirror = graph.automorphism((1, 0, 3, 2, 5, 4))
    assert mirror is None, "a ring of one direction has no reflections"
