"""Rotations of ranks that map a sketch onto itself."""

from __future__ import annotations

from tuccl.sketches.sketch import LogicalLink, Sketch

__all__ = ["broken_link", "orbits", "rotate", "symmetries"]


def rotate(rank: int, offset: int, size: int) -> int:
    """Return where the symmetry (offset, size) takes `rank`.

    >>> [rotate(rank, 2, 4) for rank in range(8)]
    [2, 3, 0, 1, 6, 7, 4, 5]

    Notes:
        TACCL's ``symmetry_offsets``.
    """
    return rank // size * size + (rank % size + offset) % size


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
    forth: dict[str, str] = {}
    back: dict[str, str] = {}
    for link in sketch.links:
        image = sketch.link(rotate(link.src, offset, size), rotate(link.dst, offset, size))
        if image is None or image.inter != link.inter:
            return link
        if costs and not (_cost_alike(link, image) and _nics_alike(link, image, forth, back)):
            return link
    return None


def _cost_alike(one: LogicalLink, other: LogicalLink) -> bool:
    return (
        abs(one.alpha_us - other.alpha_us) <= 1e-6 * one.alpha_us
        and abs(one.beta_us_per_mb - other.beta_us_per_mb) <= 1e-6 * one.beta_us_per_mb
    )


def _nics_alike(
    one: LogicalLink, other: LogicalLink, forth: dict[str, str], back: dict[str, str]
) -> bool:
    """Return whether the NICs of two links fit the map of NICs found so far, and extend it."""
    return len(one.nics) == len(other.nics) and all(
        forth.setdefault(nic, image) == image and back.setdefault(image, nic) == nic
        for nic, image in zip(one.nics, other.nics, strict=True)
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
    found: list[tuple[int, int]] = []
    for offset in (offset for offset in range(1, size) if size % offset == 0):
        if broken_link(sketch, offset, size, costs=True) is None:
            found.append((offset, size))
            break
    if hosts > 1 and broken_link(sketch, size, sketch.ranks, costs=True) is None:
        found.append((size, sketch.ranks))
    return tuple(found)


def orbits(sketch: Sketch) -> list[list[tuple[int, int]]]:
    """Return the links as (src, dst) in sets that the symmetries found take into each other."""
    rotations = symmetries(sketch)
    left = {(link.src, link.dst): None for link in sketch.links}
    found = []
    while left:
        orbit = [next(iter(left))]
        del left[orbit[0]]
        for src, dst in orbit:
            for offset, size in rotations:
                image = rotate(src, offset, size), rotate(dst, offset, size)
                if image in left:
                    del left[image]
                    orbit.append(image)
        found.append(orbit)
    return found
