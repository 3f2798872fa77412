"""The method for middle sizes: packing's trees, each chunk passed on as soon as it arrived.

`packing` moves what shares a tree as one run, which is best where sizes are large. Here every chunk
is a message of its own, in the order in which it can start (docs/methods.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tuccl.sketches.sketch import Sketch
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import LoweringHints, Schedule
from tuccl.synth.model.trace import Trace
from tuccl.synth.packing.forest import Forest, grown
from tuccl.synth.packing.list_scheduler import Leg, Timetable
from tuccl.synth.packing.packing import PACKING_COLLECTIVES, machine_of_sketch, packing_chunks
from tuccl.synth.packing.tree import Growth
from tuccl.topology import Topology

__all__ = ["PIPELINED_COLLECTIVES", "pipelined", "pipelined_chunks"]

PIPELINED_COLLECTIVES = PACKING_COLLECTIVES
# Messages beyond which a program takes long to make, and has too many steps besides.
_MOST_MESSAGES = 17_000
_PIECES = (2, 4, 8)


def pipelined(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return packing's trees with a message for each chunk, in the order in which they can start.

    Args:
        problem: The collective, its links and size. Chunks per rank that are a multiple of what
            packing takes share its trees.
        options: Not looked at.

    Raises:
        Infeasible: the links do not join all ranks, or the sketch has relay rules.
    """
    collective, sketch, topology = problem.collective, problem.sketch, problem.topology
    chunks_per_rank = problem.chunks_per_rank
    machine = machine_of_sketch(sketch, topology, "pipelined")
    packed = _packed(collective, sketch, topology)
    pieces = chunks_per_rank // packed if chunks_per_rank % packed == 0 else 1
    forest = grown(machine, collective, chunks_per_rank // pieces)
    moves = list(_moves(forest, collective.ranks, pieces))
    trace = Trace(collective, chunks_per_rank, "pipelined")
    legs = _legs(moves, machine.wires.index)
    timetable = Timetable(machine.wires, sketch, problem.chunk_bytes)
    for number in timetable.order(legs):
        move = moves[number]
        if move.up:
            trace.reduce(move.chunk, move.src, move.dst)
        else:
            trace.send(move.chunk, move.src, move.dst, 1 if forest.up else 0)
    return trace.schedule(LoweringHints(split_send_recv=True))


def pipelined_chunks(
    collective: Collective, sketch: Sketch, topology: Topology | None, most: int = 8
) -> tuple[int, ...]:
    """Return the chunks per rank (up to `most`) worth a try: few, and packing's cut in pieces.

    Raises:
        Infeasible: the links do not join all ranks, or the sketch has relay rules.
    """
    packed = _packed(collective, sketch, topology)
    ways = 2 if collective.name == "allreduce" else 1
    messages = collective.ranks * (collective.ranks - 1) * ways
    enough = min(most, max(1, _MOST_MESSAGES // messages))
    tried = {1, 2, packed, *(packed * pieces for pieces in _PIECES)}
    return tuple(n for n in sorted(tried) if n <= enough)


def _packed(collective: Collective, sketch: Sketch, topology: Topology | None) -> int:
    return packing_chunks(collective, sketch, topology)[0]


class _Move(NamedTuple):
    """A chunk over one arc of its tree; `up` where it is a sum."""

    chunk: int
    src: int
    dst: int
    up: bool


def _moves(forest: Forest, ranks: int, pieces: int) -> Iterator[_Move]:
    """Yield a move for each chunk and arc: first sums, the leaves' first, then from roots on."""
    feeds = forest.feeds(ranks)
    firsts = [sum(feeds[:rank]) * pieces for rank in range(ranks)]
    for chunk, tree in _chunks(forest.up, firsts, pieces):
        depth = tree.depths()
        for child, parent in sorted(tree.arcs, key=lambda arc: (-depth[arc[0]], arc)):
            yield _Move(chunk, child, parent, up=True)
    for chunk, tree in _chunks(forest.down, firsts, pieces):
        depth = tree.depths()
        for child, parent in sorted(tree.arcs, key=lambda arc: (depth[arc[0]], arc)):
            yield _Move(chunk, parent, child, up=False)


def _chunks(
    trees: Sequence[Growth], firsts: Sequence[int], pieces: int
) -> Iterator[tuple[int, Growth]]:
    """Yield every chunk with its tree."""
    following = list(firsts)
    for tree in trees:
        for _ in range(tree.weight * pieces):
            yield following[tree.root], tree
            following[tree.root] += 1


def _legs(moves: Sequence[_Move], number: dict[tuple[int, int], int]) -> list[Leg]:
    """Return the moves as legs: each waits for all that its sender gets of the chunk before."""
    arrived: dict[tuple[int, int], tuple[int, ...]] = {}
    after: list[tuple[int, ...]] = []
    for place, move in enumerate(moves):
        after.append(arrived.get((move.chunk, move.src), ()))
        before = arrived.get((move.chunk, move.dst), ()) if move.up else ()
        arrived[move.chunk, move.dst] = (*before, place)
    left = [0] * len(moves)
    for place in reversed(range(len(moves))):
        for before_it in after[place]:
            left[before_it] = max(left[before_it], left[place] + 1)
    pairs = [number[move.src, move.dst] for move in moves]
    return [Leg(*leg) for leg in zip(pairs, after, left, strict=True)]
