"""The method for middle sizes: packing's trees, each chunk passed on as soon as it arrived.

`packing` moves what shares a tree as one run, which is best where sizes are large. Here every chunk
is a message of its own, in the order in which it can start (docs/methods.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuccl.sketches.sketch import Sketch
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import LoweringHints, Schedule
from tuccl.synth.model.send import Send, list_schedule
from tuccl.synth.model.trace import Trace
from tuccl.synth.packing.packing import PACKING_COLLECTIVES, packing_chunks, tree_packer
from tuccl.synth.packing.tree import Tree
from tuccl.synth.packing.tree_packing import Forest, pack_forest
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
    packer = tree_packer(sketch, topology, "pipelined")
    packed = _packed(collective, sketch, topology)
    pieces = chunks_per_rank // packed if chunks_per_rank % packed == 0 else 1
    forest = pack_forest(packer, collective, chunks_per_rank // pieces)
    sends = _sends(forest, collective.ranks, pieces)
    trace = Trace(collective, chunks_per_rank, "pipelined")
    for number in list_schedule(packer.network, sends, problem.chunk_bytes):
        send = sends[number]
        if send.reduce:
            trace.reduce(send.chunk, send.src, send.dst)
        else:
            trace.send(send.chunk, send.src, send.dst, 1 if forest.reduction else 0)
    return trace.schedule(LoweringHints(split_send_recv=True))


def pipelined_chunks(
    collective: Collective, sketch: Sketch, topology: Topology | None, most: int = 8
) -> tuple[int, ...]:
    """Return the chunks per rank (up to `most`) worth a try: few, and packing's cut in pieces.

    Raises:
        Infeasible: the links do not join all ranks, or the sketch has relay rules.
    """
    packed = _packed(collective, sketch, topology)
    directions = 2 if collective.name == "allreduce" else 1
    messages = collective.ranks * (collective.ranks - 1) * directions
    enough = min(most, max(1, _MOST_MESSAGES // messages))
    tried = {1, 2, packed, *(packed * pieces for pieces in _PIECES)}
    return tuple(n for n in sorted(tried) if n <= enough)


def _packed(collective: Collective, sketch: Sketch, topology: Topology | None) -> int:
    return packing_chunks(collective, sketch, topology)[0]


def _sends(forest: Forest, ranks: int, pieces: int) -> list[Send]:
    """Return a send for each chunk and arc: sums, the leaves' first, then results from roots on.

    Each waits for all that its sender gets of the chunk before.
    """
    first_chunks = [chunk * pieces for chunk in forest.first_chunks(ranks)]
    sends: list[Send] = []
    arrived: dict[tuple[int, int], tuple[int, ...]] = {}
    for trees, reduce in ((forest.reduction, True), (forest.broadcast, False)):
        for chunk, tree in _chunks(trees, first_chunks, pieces):
            depth = tree.depths()
            sign = -1 if reduce else 1
            for child, parent in sorted(tree.arcs, key=lambda arc: (sign * depth[arc[0]], arc)):
                src, dst = (child, parent) if reduce else (parent, child)
                before = arrived.get((chunk, dst), ()) if reduce else ()
                after = arrived.get((chunk, src), ())
                arrived[chunk, dst] = (*before, len(sends))
                sends.append(Send(chunk, src, dst, reduce=reduce, after=after))
    return sends


def _chunks(
    trees: Sequence[Tree], first_chunks: Sequence[int], pieces: int
) -> Iterator[tuple[int, Tree]]:
    """Yield every chunk with its tree."""
    following = list(first_chunks)
    for tree in trees:
        for _ in range(tree.weight * pieces):
            yield following[tree.root], tree
            following[tree.root] += 1
