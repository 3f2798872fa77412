"""Permutations of ranks that take links to links: rotations of a sketch, images and orbits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from tuccl.sketches.sketch import LogicalLink, Sketch

Permutation = Sequence[int]
LinkT = TypeVar("LinkT")
T = TypeVar("T", bound=Hashable)


def rotate(rank: int, offset: int, size: int) -> int:
    """Return where the symmetry (offset, size) takes `rank`.

    >>> [rotate(rank, 2, 4) for rank in range(8)]
    [2, 3, 0, 1, 6, 7, 4, 5]

    Notes:
        TACCL's ``symmetry_offsets``.
    """
    return rank // size * size + (rank % size + offset) % size


def rotation(ranks: int, offset: int, size: int) -> tuple[int, ...]:
    """Return the permutation of `ranks` ranks that `rotate` does."""
    return tuple(rotate(rank, offset, size) for rank in range(ranks))


def images(
    links: Mapping[tuple[int, int], LinkT],
    permutation: Permutation,
    equal: Callable[[LinkT, LinkT], bool],
    resources: Callable[[LinkT], Sequence[T]],
) -> tuple[list[LinkT], dict[T, T]]:
    """Return where a permutation of ranks takes links and what they share (NICs, ports, hops).

    Args:
        links: By (sending, receiving) rank.
        permutation: Of the ranks.
        equal: Whether a link may be taken to another: equal costs, for instance.
        resources: What a link shares with others; what two links share, their images share.

    Returns:
        The image of each link, in order, up to the first that has none; and of each resource.
    """
    link_images: list[LinkT] = []
    forth: dict[T, T] = {}
    back: dict[T, T] = {}
    for (src, dst), link in links.items():
        image = links.get((permutation[src], permutation[dst]))
        if image is None or not equal(link, image):
            break
        here, there = resources(link), resources(image)
        if len(here) != len(there) or any(
            forth.setdefault(resource, other) != other
            or back.setdefault(other, resource) != resource
            for resource, other in zip(here, there, strict=True)
        ):
            break
        link_images.append(image)
    return link_images, forth


def orbits(elements: Iterable[T], generators: Sequence[Callable[[T], T]]) -> list[list[T]]:
    """Return `elements` in the sets that the generators of a group take into each other.

    >>> orbits(range(6), [lambda rank: rotate(rank, 1, 3)])
    [[0, 1, 2], [3, 4, 5]]
    """
    seen: set[T] = set()
    result = []
    for element in elements:
        if element in seen:
            continue
        seen.add(element)
        orbit = [element]
        for member in orbit:
            for generator in generators:
                image = generator(member)
                if image not in seen:
                    seen.add(image)
                    orbit.append(image)
        result.append(orbit)
    return result


def broken_link(sketch: Sketch, offset: int, size: int, costs: bool = False) -> LogicalLink | None:
    """Return a link that the symmetry takes to no link of the sketch, or None if it holds.

    Args:
        sketch: The links and ranks; `size` must divide its ranks.
        offset: How far ranks rotate.
        size: In blocks of how many ranks.
        costs: Whether alpha and beta have to match too, and the NICs to be rotated as a whole:
            links that share a NIC go to links that share one.
    """
    if sketch.ranks % size:
        return sketch.links[0]
    links = {(link.src, link.dst): link for link in sketch.links}
    link_images, _ = images(
        links,
        rotation(sketch.ranks, offset, size),
        _equal_costs if costs else lambda link, image: link.inter == image.inter,
        lambda link: link.nics if costs else (),
    )
    return sketch.links[len(link_images)] if len(link_images) < len(sketch.links) else None


def _equal_costs(link: LogicalLink, image: LogicalLink) -> bool:
    return (
        link.inter == image.inter
        and abs(link.alpha_us - image.alpha_us) <= 1e-6 * link.alpha_us
        and abs(link.beta_us_per_mb - image.beta_us_per_mb) <= 1e-6 * link.beta_us_per_mb
    )


def symmetries(sketch: Sketch) -> tuple[tuple[int, int], ...]:
    """Return the rotations found: of hosts, and the smallest one inside every host.

    Notes:
        Costs and the sharing of NICs must agree as well, so that a schedule may be repeated along
        the rotation. Other automorphisms (a cube's reflections, say) are not looked for.
    """
    hosts = sketch.nhosts
    if not sketch.links or sketch.ranks % hosts:
        return ()
    size = sketch.ranks // hosts
    if sketch.hosts != tuple(rank // size for rank in range(sketch.ranks)):
        return ()
    rotations: list[tuple[int, int]] = []
    for offset in (offset for offset in range(1, size) if size % offset == 0):
        if broken_link(sketch, offset, size, costs=True) is None:
            rotations.append((offset, size))
            break
    if hosts > 1 and broken_link(sketch, size, sketch.ranks, costs=True) is None:
        rotations.append((size, sketch.ranks))
    return tuple(rotations)


def link_orbits(sketch: Sketch) -> list[list[tuple[int, int]]]:
    """Return the links as (src, dst) in sets that the symmetries found take into each other."""
    rotations = [rotation(sketch.ranks, *each) for each in symmetries(sketch)]
    return orbits(
        sketch.pairs,
        [lambda pair, to=to: (to[pair[0]], to[pair[1]]) for to in rotations],  # type: ignore[misc]
    )
