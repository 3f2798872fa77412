"""Symmetry groups of networks: one chunk and one link of each orbit stand for all."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from tuccl.sketches.symmetry import Permutation, images
from tuccl.synth.model.demand import Demand
from tuccl.synth.model.network import Network

__all__ = ["LinkGraph", "Symmetry", "isomorphic_groups", "symmetry_of"]

_MOST_ELEMENTS = 1024


@dataclass(frozen=True)
class LinkGraph:
    """Links between ranks as symmetries see them.

    Attributes:
        ranks: How many.
        ends: (sending, receiving) rank of each link.
        costs: What a link and its image must have in common.
        resources: What each link shares with others, in order.
    """

    ranks: int
    ends: Sequence[tuple[int, int]]
    costs: Sequence[Hashable]
    resources: Sequence[Sequence[Hashable]]

    def images(self, permutation: Permutation) -> tuple[tuple[int, ...], dict[Hashable, Hashable]]:
        """Return where a permutation takes links, up to one without an image, and resources."""
        number = {pair: link for link, pair in enumerate(self.ends)}
        links, resources = images(
            number,
            permutation,
            lambda one, other: self.costs[one] == self.costs[other],
            lambda link: self.resources[link],
        )
        return tuple(links), resources


@dataclass(frozen=True)
class Symmetry:
    """A group of permutations under which links, their costs and chunks stay as they are.

    The first element is the identity, and no other keeps a rank in place: so ranks fall in orbits
    of one size, and what one representative of each does tells what all do.

    Attributes:
        ranks: For each element, where it takes each rank.
        links: For each element, where it takes each link.
        chunks: For each element, where it takes each chunk.
    """

    ranks: tuple[tuple[int, ...], ...]
    links: tuple[tuple[int, ...], ...]
    chunks: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        """Return how many elements there are."""
        return len(self.ranks)

    @cached_property
    def link_representatives(self) -> tuple[int, ...]:
        """Return the least link of each link's orbit."""
        return tuple(map(min, zip(*self.links, strict=True)))

    @cached_property
    def representatives(self) -> tuple[int, ...]:
        """Return the least chunk of each orbit."""
        return tuple(sorted({min(orbit) for orbit in zip(*self.chunks, strict=True)}))

    @property
    def trivial(self) -> Symmetry:
        """Return the group of the identity alone."""
        return Symmetry(self.ranks[:1], self.links[:1], self.chunks[:1])


def symmetry_of(
    graph: LinkGraph,
    demands: Sequence[Demand],
    generators: Iterable[tuple[int, ...]],
    *,
    exclusive: bool = False,
) -> Symmetry:
    """Return the group of those `generators` that can all hold, taken in order.

    Args:
        graph: The links.
        demands: Of each chunk.
        generators: Permutations of the ranks to try.
        exclusive: Whether no element but the identity may keep a resource in place, so that an
            orbit of sends has at most one on it.
    """
    accepted: list[tuple[int, ...]] = []
    group = _group(graph, demands, [], exclusive)
    assert group is not None, "the identity is a symmetry"
    for generator in generators:
        larger = _group(graph, demands, [*accepted, generator], exclusive)
        if larger is not None and len(larger) > len(group):
            accepted.append(generator)
            group = larger
    return group


def _group(
    graph: LinkGraph,
    demands: Sequence[Demand],
    generators: Sequence[tuple[int, ...]],
    exclusive: bool,
) -> Symmetry | None:
    """Return what `generators` generate; None where an element is no symmetry or fixes a rank."""
    if any(len(graph.images(each)[0]) < len(graph.ends) for each in generators):
        return None
    elements = _generated(tuple(range(graph.ranks)), generators)
    links: list[tuple[int, ...]] = []
    chunks: list[tuple[int, ...]] = []
    for element in elements or ():
        taken, resources = graph.images(element)
        moved = _moved_chunks(demands, element)
        fixed = chain(
            zip(element, elements[0], strict=True), resources.items() if exclusive else ()
        )
        if moved is None or (links and any(one == image for one, image in fixed)):
            return None
        links.append(taken)
        chunks.append(moved)
    return Symmetry(tuple(elements), tuple(links), tuple(chunks)) if elements else None


def _generated(
    identity: tuple[int, ...], generators: Sequence[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """Return all that `generators` generate, the identity first; empty where that is too much."""
    elements = {identity: None}
    for element in (queue := [identity]):
        for generator in generators:
            product = tuple(generator[rank] for rank in element)
            if product not in elements:
                elements[product] = None
                queue.append(product)
                if len(queue) > _MOST_ELEMENTS:
                    return []
    return queue


def _moved_chunks(demands: Sequence[Demand], element: Sequence[int]) -> tuple[int, ...] | None:
    """Return where `element` takes each chunk, the first of equal demands to the first."""
    free: dict[Demand, list[int]] = {}
    for chunk, demand in enumerate(demands):
        free.setdefault(demand, []).append(chunk)
    moved: list[int] = [-1] * len(demands)
    for demand, chunks in free.items():
        image = Demand(element[demand.source], frozenset(element[to] for to in demand.targets))
        if len(free.get(image, ())) != len(chunks):
            return None
        for chunk, other in zip(chunks, free[image], strict=True):
            moved[chunk] = other
    return tuple(moved)


def isomorphic_groups(network: Network, size: int | None = None) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each host, or of each block of `size` ranks, where all are isomorphic.

    That is, they have equally many ranks, and links between the same local ranks; empty where they
    differ, or there is only one.
    """
    groups: dict[int, list[int]] = {}
    for rank, host in enumerate(network.hosts):
        groups.setdefault(rank // size if size else host, []).append(rank)
    members = tuple(map(tuple, groups.values()))
    inside = {
        frozenset(
            (a, b)
            for a, x in enumerate(ranks)
            for b, y in enumerate(ranks)
            if (x, y) in network.index
        )
        for ranks in members
    }
    equal = len(inside) == 1 and len({len(ranks) for ranks in members}) == 1
    return members if equal and len(members) > 1 else ()
