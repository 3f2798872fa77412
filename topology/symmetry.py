"""Symmetries: permutations of ranks that take links to equal links, and what they generate.

A group of them is a few generators. Its orbits follow from these; its elements are listed where it
keeps no rank in place. Swaps of hosts, of which there are far too many to list, are in `HostSwaps`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import eq
from typing import Any, NamedTuple, TypeVar

Permutation = tuple[int, ...]
RankSets = tuple[Hashable, *tuple[frozenset[int], ...]]
"""Sets of ranks that belong together, behind a label: the owner and the receivers of a chunk."""
T = TypeVar("T", bound=Hashable)


def rotation(ranks: int, offset: int, size: int) -> Permutation:
    """Return the permutation that rotates `ranks` ranks by `offset` in blocks of `size`.

    >>> rotation(8, 2, 4)
    (2, 3, 0, 1, 6, 7, 4, 5)

    Notes:
        TACCL's ``symmetry_offsets``.
    """
    return tuple(rank // size * size + (rank % size + offset) % size for rank in range(ranks))


def set_images(sets: Sequence[RankSets], permutation: Permutation) -> tuple[int, ...] | None:
    """Return which of `sets` a permutation takes each to, None where one has no image.

    The first of equal ones goes to the first.

    >>> set_images([("host", frozenset({0, 1})), ("host", frozenset({2, 3}))], (2, 3, 0, 1))
    (1, 0)
    """
    numbers: dict[RankSets, list[int]] = defaultdict(list)
    for number, each in enumerate(sets):
        numbers[each].append(number)
    images = [0] * len(sets)
    for (label, *members), equal in numbers.items():
        moved = (frozenset([permutation[rank] for rank in ranks]) for ranks in members)
        onto = numbers.get((label, *moved), [])
        if len(onto) != len(equal):
            return None
        for number, image in zip(equal, onto, strict=True):
            images[number] = image
    return tuple(images)


def host_sets(hosts: Iterable[int]) -> list[RankSets]:
    """Return the ranks of each host, from the host of each rank.

    >>> host_sets([0, 0, 1])
    [('host', frozenset({0, 1})), ('host', frozenset({2}))]
    """
    members: dict[int, list[int]] = defaultdict(list)
    for rank, host in enumerate(hosts):
        members[host].append(rank)
    return [("host", frozenset(ranks)) for ranks in members.values()]


class Automorphism(NamedTuple):
    """A permutation of the ranks of a `LinkGraph`, and where it takes links, sets and resources."""

    ranks: Permutation
    links: tuple[int, ...]
    sets: tuple[int, ...]
    resources: Mapping[Any, Any]

    def pair(self, pair: tuple[int, int]) -> tuple[int, int]:
        """Return the image of two ranks."""
        return self.ranks[pair[0]], self.ranks[pair[1]]


@dataclass(frozen=True)
class LinkGraph:
    """Links between ranks, and what else a symmetry must keep.

    Attributes:
        ranks: How many.
        ends: (sending, receiving) rank of each link.
        costs: What a link and its image must have in common.
        resources: What each link shares with others (NICs, ports, hops), in order; what two links
            share, their images share.
        sets: Sets of ranks that go to such sets.
    """

    ranks: int
    ends: Sequence[tuple[int, int]]
    costs: Sequence[Hashable]
    resources: Sequence[Sequence[Hashable]]
    sets: Sequence[RankSets] = ()

    @cached_property
    def _number(self) -> dict[tuple[int, int], int]:
        return {pair: link for link, pair in enumerate(self.ends)}

    @cached_property
    def _labels(self) -> list[tuple[Hashable, int]]:
        return [
            (cost, len(shared)) for cost, shared in zip(self.costs, self.resources, strict=True)
        ]

    def automorphism(self, permutation: Permutation) -> Automorphism | None:
        """Return a permutation of the ranks with what it takes along; None where it is no symmetry.

        >>> both = LinkGraph(2, ends=[(0, 1), (1, 0)], costs=[25, 25], resources=[["a"], ["b"]])
        >>> both.automorphism((1, 0)).links
        (1, 0)
        """
        number, labels = self._number, self._labels
        links = tuple([number.get((permutation[a], permutation[b]), -1) for a, b in self.ends])
        if -1 in links or len(set(links)) < len(links):
            return None
        if [labels[image] for image in links] != labels:
            return None
        shared = chain.from_iterable(self.resources)
        images = chain.from_iterable([self.resources[image] for image in links])
        pairs = set(zip(shared, images, strict=True))
        resources = dict(pairs)  # onto all resources, as links are permuted; so one to one
        sets = set_images(self.sets, permutation)
        if sets is None or len(pairs) != len(resources):
            return None
        return Automorphism(permutation, links, sets, resources)


@dataclass(frozen=True)
class Symmetry:
    """The group that automorphisms of a graph generate.

    Where no element but the identity keeps a rank in place, the group has its elements listed and
    `len`; else they are none.

    Attributes:
        graph: What they keep.
        generators: The automorphisms; the identity alone needs none.
    """

    graph: LinkGraph
    generators: tuple[Automorphism, ...] = ()

    def orbits(self, members: Iterable[T], image: Callable[[Automorphism, T], T]) -> list[list[T]]:
        """Return `members` in the sets that the group takes into each other.

        Args:
            members: What the group acts on.
            image: Returns where an automorphism takes one of them.
        """
        seen: set[T] = set()
        result = []
        for first in members:
            if first in seen:
                continue
            seen.add(first)
            orbit = [first]
            for member in orbit:
                for generator in self.generators:
                    moved = image(generator, member)
                    if moved not in seen:
                        seen.add(moved)
                        orbit.append(moved)
            result.append(orbit)
        return result

    @cached_property
    def resource_orbits(self) -> list[list[Any]]:
        """Return what links share in the sets that the group takes into each other."""
        names = chain.from_iterable(self.graph.resources)
        return self.orbits(names, lambda to, name: to.resources[name])

    @cached_property
    def _permutations(self) -> tuple[Permutation, ...]:
        identity = tuple(range(self.graph.ranks))
        group = [identity]
        taking_first = {0: identity}  # the one element that takes rank 0 to each rank
        for element in group:
            for generator in self.generators:
                product = tuple([generator.ranks[rank] for rank in element])
                if product[0] not in taking_first and not any(map(eq, product, identity)):
                    taking_first[product[0]] = product
                    group.append(product)
                elif taking_first.get(product[0]) != product:
                    return ()
        return tuple(group)

    def __len__(self) -> int:
        """Return how many elements there are."""
        return len(self._permutations)

    @cached_property
    def elements(self) -> tuple[Automorphism, ...]:
        """Return the elements, the identity first."""
        return tuple(filter(None, map(self.graph.automorphism, self._permutations)))

    @cached_property
    def link_representatives(self) -> tuple[int, ...]:
        """Return the least link of each link's orbit."""
        return tuple(map(min, zip(*(element.links for element in self.elements), strict=True)))

    @cached_property
    def representatives(self) -> tuple[int, ...]:
        """Return the least set of each orbit of sets."""
        orbits = zip(*(element.sets for element in self.elements), strict=True)
        return tuple(sorted(set(map(min, orbits))))


def free_symmetry(
    graph: LinkGraph, permutations: Iterable[Permutation], *, exclusive: bool = False
) -> Symmetry:
    """Return a group of which no element but the identity keeps a rank in place.

    Args:
        graph: What the group keeps.
        permutations: Its generators, in order; those with which it would not be so are left out.
        exclusive: Whether none may keep a resource in place either, so that an orbit of sends has
            at most one on it.
    """
    group = Symmetry(graph)
    for generator in filter(None, map(graph.automorphism, permutations)):
        larger = Symmetry(graph, (*group.generators, generator))
        moves = not exclusive or all(len(orbit) == len(larger) for orbit in larger.resource_orbits)
        if len(larger) > len(group) and moves:
            group = larger
    return group
