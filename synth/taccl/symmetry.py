"""The symmetries of a sketch as permutations, so that only one of a set of like sends is solved."""

from __future__ import annotations

from dataclasses import dataclass

from tuccl.sketches.sketch import Sketch
from tuccl.sketches.symmetry import rotate
from tuccl.synth.model.collective import Collective
from tuccl.synth.taccl.costs import Costs

__all__ = ["Group", "group_of", "spanned"]

_MOST_ELEMENTS = 1024
_Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """Permutations of ranks under which items, wires and rules stay alike; the first is identity.

    No rank, wire or port is kept in place by any but the identity, so each orbit of sends meets
    each wire and port at most once, and one member may be solved for all.

    Attributes:
        ranks: For each element, where it takes each rank.
        wires: For each element, where it takes each wire.
        chunks: For each element, where it takes each chunk.
    """

    ranks: tuple[_Ranks, ...]
    wires: tuple[tuple[int, ...], ...]
    chunks: tuple[dict[int, int], ...]

    def __len__(self) -> int:
        """Return how many elements there are."""
        return len(self.ranks)

    def wire_orbit(self, wire: int) -> int:
        """Return the least wire that `wire` is alike to."""
        return min(to[wire] for to in self.wires)


def group_of(collective: Collective, sketch: Sketch, costs: Costs, chunks_per_rank: int) -> Group:
    """Return the group that the sketch's symmetries span, as far as they can all hold.

    A symmetry is left out if it moves a root, changes a cost or a rule, or would have two like
    sends meet on a wire or a port.
    """
    kept: list[_Ranks] = []
    best = _elements(sketch, costs, [])
    assert best is not None, "the identity is a symmetry"
    for offset, size in sketch.symmetry if not collective.rooted else ():
        move = tuple(rotate(rank, offset, size) for rank in range(sketch.ranks))
        found = _elements(sketch, costs, [*kept, move])
        if found is not None:
            kept.append(move)
            best = found
    numbers = collective.chunk_ids(chunks_per_rank)
    return Group(
        tuple(best),
        tuple(best.values()),
        tuple(
            {chunk: _moved_chunk(collective, chunk, element, chunks_per_rank) for chunk in numbers}
            for element in best
        ),
    )


def _elements(
    sketch: Sketch, costs: Costs, moves: list[_Ranks]
) -> dict[_Ranks, tuple[int, ...]] | None:
    """Return what `moves` span and where each of it takes the wires; None if one cannot hold."""
    elements = spanned(costs.ranks, moves)
    found: dict[_Ranks, tuple[int, ...]] = {}
    for element in elements or ():
        wires = _moved_wires(costs, element)
        if wires is None or not _keeps_rules(sketch, element):
            return None
        if found and not _moves_all(costs, element, wires):
            return None
        found[element] = wires
    return found or None


def spanned(ranks: int, moves: list[_Ranks]) -> list[_Ranks] | None:
    """Return all permutations that `moves` make together, None where they are too many."""
    identity = tuple(range(ranks))
    found = {identity: None}
    ahead = [identity]
    for element in ahead:
        for move in moves:
            after = tuple(move[rank] for rank in element)
            if after not in found:
                found[after] = None
                ahead.append(after)
                if len(ahead) > _MOST_ELEMENTS:
                    return None
    return ahead


def _moved_wires(costs: Costs, element: _Ranks) -> tuple[int, ...] | None:
    by_ends = {(wire.src, wire.dst): number for number, wire in enumerate(costs.wires)}
    moved = []
    for wire in costs.wires:
        number = by_ends.get((element[wire.src], element[wire.dst]))
        if number is None:
            return None
        image = costs.wires[number]
        if (image.alpha, image.beta, image.inter) != (wire.alpha, wire.beta, wire.inter):
            return None
        moved.append(number)
    return tuple(moved)


def _moved_chunk(collective: Collective, chunk: int, element: _Ranks, parts: int) -> int:
    owner, part = divmod(chunk, parts)
    if collective.name == "alltoall":
        src, dst = divmod(owner, collective.ranks)
        return (element[src] * collective.ranks + element[dst]) * parts + part
    return element[owner] * parts + part


def _keeps_rules(sketch: Sketch, element: _Ranks) -> bool:
    """Return whether hosts go to hosts as a whole, and relays with what they carry to relays."""
    hosts: dict[int, int] = {}
    for rank, image in enumerate(element):
        if hosts.setdefault(sketch.hosts[rank], sketch.hosts[image]) != sketch.hosts[image]:
            return False
    relays = {sender: set(carried) for sender, carried in sketch.relays.items()}
    moved = {element[sender]: {element[r] for r in carried} for sender, carried in relays.items()}
    return moved == relays


def _moves_all(costs: Costs, element: _Ranks, moved: tuple[int, ...]) -> bool:
    """Return whether ports are taken to ports, and no port or rank to itself."""
    if any(rank == image for rank, image in enumerate(element)):
        return False
    images: dict[object, object] = {}
    for wire, number in zip(costs.wires, moved, strict=True):
        other = costs.wires[number]
        if len(wire.ports) != len(other.ports):
            return False
        for port, its in zip(wire.ports, other.ports, strict=True):
            if images.setdefault(port, its) != its or port == its:
                return False
    return True
