"""Symmetry of a sketch's links and chunks: TACCL solves for representatives of orbits alone."""

from __future__ import annotations

from tuccl.sketches.sketch import Sketch
from tuccl.sketches.symmetry import rotation
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.demand import demands_of
from tuccl.synth.model.symmetry import LinkGraph, Symmetry, symmetry_of
from tuccl.synth.taccl.costs import LinkCosts


def sketch_symmetry(
    collective: Collective, sketch: Sketch, costs: LinkCosts, chunks_per_rank: int
) -> Symmetry:
    """Return the group that the sketch's symmetries generate, as far as they can all hold.

    A symmetry is left out if it moves a root, changes a cost or a rule, or would have two sends of
    one orbit exclude each other on a link or a port.
    """
    links = costs.links
    graph = LinkGraph(
        costs.ranks,
        ends=[(link.src, link.dst) for link in links],
        costs=[(link.alpha, link.beta, link.inter) for link in links],
        resources=[link.ports for link in links],
    )
    rotations = (rotation(sketch.ranks, *each) for each in sketch.symmetry)
    return symmetry_of(
        graph,
        demands_of(collective, chunks_per_rank),
        [each for each in rotations if _keeps_rules(sketch, each) and not collective.rooted],
        exclusive=True,
    )


def _keeps_rules(sketch: Sketch, permutation: tuple[int, ...]) -> bool:
    """Return whether hosts go to hosts as a whole, and relays with what they carry to relays."""
    hosts: dict[int, int] = {}
    for rank, image in enumerate(permutation):
        if hosts.setdefault(sketch.hosts[rank], sketch.hosts[image]) != sketch.hosts[image]:
            return False
    relays = {sender: set(carried) for sender, carried in sketch.relays.items()}
    moved = {
        permutation[sender]: {permutation[rank] for rank in carried}
        for sender, carried in relays.items()
    }
    return moved == relays
