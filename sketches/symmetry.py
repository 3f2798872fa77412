"""The rotations of ranks that take a sketch's links to equal links."""

from __future__ import annotations

from collections.abc import Iterable

from tuccl.sketches.sketch import Sketch
from tuccl.topology.symmetry import Automorphism, LinkGraph, Symmetry, rotation


def symmetries(sketch: Sketch) -> tuple[tuple[int, int], ...]:
    """Return the rotations found: of hosts, and the smallest one inside every host.

    Notes:
        Costs and the sharing of NICs must agree as well, so that a schedule may be repeated along
        the rotation. Other automorphisms (a cube's reflections, say) are not looked for.
    """
    return tuple(_rotations(sketch))


def link_orbits(sketch: Sketch) -> list[list[tuple[int, int]]]:
    """Return the links as (src, dst) in sets that the symmetries found take into each other."""
    found = Symmetry(_link_graph(sketch), tuple(_rotations(sketch).values()))
    return found.orbits(sketch.pairs, Automorphism.pair)


def _link_graph(sketch: Sketch) -> LinkGraph:
    """Return the links with what rotations of them must keep: costs and NICs."""
    alphas = _levels(link.alpha_us for link in sketch.links)
    betas = _levels(link.beta_us_per_mb for link in sketch.links)
    return LinkGraph(
        sketch.ranks,
        ends=list(sketch.pairs),
        costs=[
            (link.inter, alphas[link.alpha_us], betas[link.beta_us_per_mb]) for link in sketch.links
        ],
        resources=[link.nics for link in sketch.links],
    )


def _levels(values: Iterable[float]) -> dict[float, float]:
    """Return for each value the least of those that rise to it by a millionth at most each."""
    levels: dict[float, float] = {}
    before = level = -1.0
    for value in sorted(set(values)):
        level = level if value - before <= 1e-6 * value else value
        before, levels[value] = value, level
    return levels


def _rotations(sketch: Sketch) -> dict[tuple[int, int], Automorphism]:
    size = sketch.ranks // max(1, sketch.nhosts)
    if not sketch.links or sketch.hosts != tuple(rank // size for rank in range(sketch.ranks)):
        return {}
    graph, found = _link_graph(sketch), {}
    inside = [(offset, size) for offset in range(1, size) if size % offset == 0]
    between = [(size, sketch.ranks)] if sketch.nhosts > 1 else []
    for turns in (inside, between):
        for turn in turns:
            automorphism = graph.automorphism(rotation(sketch.ranks, *turn))
            if automorphism is not None:
                found[turn] = automorphism
                break
    return found
