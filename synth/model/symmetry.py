"""Symmetry groups of networks: one chunk and one link of each orbit stand for all."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise

from tuccl.sketches.symmetry import Permutation, images
from tuccl.synth.model.demand import Demand
from tuccl.synth.model.network import Network

_Ends = tuple[int, frozenset[int]]


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
    of one size, and one representative of each determines what all do.

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
    chunks_of: dict[_Ends, list[int]] = {}
    for chunk, demand in enumerate(demands):
        chunks_of.setdefault((demand.source, demand.targets), []).append(chunk)
    ranks, links = graph.ranks, len(graph.ends)
    names = dict.fromkeys(chain.from_iterable(graph.resources))
    number = {name: index for index, name in enumerate(names)}
    starts = (0, ranks, ranks + links, ranks + links + len(demands))
    size = starts[3] + len(names)
    moving = [*range(ranks), *(range(starts[3], size) if exclusive else ())]
    actions: list[tuple[int, ...]] = []
    group = [tuple(range(size))]
    for generator in generators:
        taken, resources = graph.images(generator)
        chunks = _moved_chunks(chunks_of, generator)
        if len(taken) < links or chunks is None:
            continue
        parts = (generator, taken, chunks, [number[resources[name]] for name in names])
        action = tuple(
            start + index for start, part in zip(starts, parts, strict=True) for index in part
        )
        larger = _generated(group[0], [*actions, action], ranks, moving)
        if len(larger) > len(group):
            actions.append(action)
            group = larger
    of_ranks, of_links, of_chunks = (
        tuple(tuple(index - start for index in element[start:end]) for element in group)
        for start, end in pairwise(starts)
    )
    return Symmetry(of_ranks, of_links, of_chunks)


def _generated(
    identity: tuple[int, ...],
    actions: Sequence[tuple[int, ...]],
    ranks: int,
    moving: Sequence[int],
) -> list[tuple[int, ...]]:
    """Return all that `actions` generate, the identity first; empty if one keeps `moving` in place.

    Args:
        identity: On ranks, links, chunks and resources, in a row.
        actions: The generators.
        ranks: How many of the indices are ranks, by which elements differ.
        moving: The indices that all but the identity must move.
    """
    seen = {identity[:ranks]}
    group = [identity]
    for element in group:
        for action in actions:
            product = tuple(map(action.__getitem__, element))
            if product[:ranks] not in seen:
                # A group that acts freely has at most as many elements as ranks.
                if len(group) == ranks or any(product[index] == index for index in moving):
                    return []
                seen.add(product[:ranks])
                group.append(product)
    return group


def _moved_chunks(
    chunks_of: Mapping[_Ends, Sequence[int]], permutation: Permutation
) -> tuple[int, ...] | None:
    """Return where a permutation takes each chunk, the first of equal demands to the first."""
    moved: dict[int, int] = {}
    for (source, targets), chunks in chunks_of.items():
        image = permutation[source], frozenset(permutation[to] for to in targets)
        others = chunks_of.get(image, ())
        if len(others) != len(chunks):
            return None
        moved.update(zip(chunks, others, strict=True))
    return tuple(moved[chunk] for chunk in range(len(moved)))


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
