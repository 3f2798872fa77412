"""The method for middle sizes: packing's trees, each chunk passed on as soon as it arrived.

`packing` moves what shares a tree as one run, which is best where sizes are large. Here every chunk
is a message of its own, in the order in which it can start (docs/reference/methods.md).
"""

from __future__ import annotations

from tuccl.sketches.sketch import Sketch
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import LoweringHints, Schedule
from tuccl.synth.model.send import Send, list_schedule
from tuccl.synth.model.trace import Trace
from tuccl.synth.packing.packing import (
    PACKING_COLLECTIVES,
    packing_chunks,
    period_of,
    tree_packer,
)
from tuccl.synth.packing.tree_packing import pack_forest
from tuccl.synth.packing.tree_sends import chained_sends
from tuccl.topology import Topology

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
    period = period_of(packer, forest)
    if period:
        forest = forest.of_roots(period)
    first_chunks = [chunk * pieces for chunk in forest.first_chunks(collective.ranks)]
    up, down = (
        [tree._replace(weight=tree.weight * pieces) for tree in trees]
        for trees in (forest.reduction, forest.broadcast)
    )
    sends = chained_sends(up, down, first_chunks)
    network, alike = packer.network, sends
    if period:
        network = network.of_period(period)
        alike = [_below(send, period, collective.ranks) for send in sends]
    trace = Trace(collective, chunks_per_rank, "pipelined", period)
    for number in list_schedule(network, alike, problem.chunk_bytes):
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


def _below(send: Send, period: int, ranks: int) -> Send:
    """Return the send to a rank below ``period`` that ``send`` repeats."""
    by = send.dst - send.dst % period
    return send._replace(src=(send.src - by) % ranks, dst=send.dst - by)


def _packed(collective: Collective, sketch: Sketch, topology: Topology | None) -> int:
    return packing_chunks(collective, sketch, topology)[0]
