"""The throughput method: ForestColl's packing of weighted spanning trees (arXiv 2402.06787).

Every chunk travels down a tree of ranks (or its partial sums up one); the trees are packed so that
the busiest resource has the least to carry that cuts allow (docs/methods.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import Sketch
from tuccl.synth.bounds.graph import routed_fabric, topology_fabric
from tuccl.synth.lowering.rewrites import MOST_COUNT
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import Pair, sketch_network
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import LoweringHints, Schedule
from tuccl.synth.model.send import Send
from tuccl.synth.model.trace import Trace
from tuccl.synth.packing.modulo_order import modulo_order
from tuccl.synth.packing.tree_packing import (
    ENOUGH,
    Forest,
    TreePacker,
    chunked_fraction_of_bound,
    pack_forest,
)
from tuccl.synth.packing.tree_sends import chained_sends, merged_sends, placed_trees, runs_of
from tuccl.topology import Topology, all_paths

__all__ = ["PACKING_COLLECTIVES", "packing", "packing_chunks"]

PACKING_COLLECTIVES = frozenset({"allgather", "reduce-scatter", "allreduce", "broadcast", "reduce"})
# Thread blocks that a GPU should need at most; sums and results share theirs rather than need more.
_MOST_BLOCKS = 32
_CHUNKS_OF_CHOSEN_ROOTS = 48
# Chunks in a run that are tried in turn, runs that a thread block should have at most, and steps
# that a rank should, so that as many copies as its fastest connection needs fit a dialect.
_RUN_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, MOST_COUNT)
_MOST_RUNS = 40
_MOST_STEPS = 3600
_MOST_COPIES = 16
# What a thread block sustains, in GB/s: the classes of machines have 13 to 20.
_BLOCK_GBS = 14.0
# Ranks up to which trees are made for each number of chunks, to see which is best.
_MOST_TRIED = 12
# Ranks up to which a sketch may be the whole mesh, whose pairs take long to look at.
_MOST_MESHED = 512
_Connection = tuple[int, int, int]  # channel, sending and receiving rank


def packing(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return the schedule with the least load on the busiest resource, equal at every size.

    Args:
        problem: The collective and its links; the more chunks per rank, the closer to the bound.
            Without a topology the links tell what they share.
        options: Not looked at.

    Raises:
        Infeasible: the links do not join all ranks, or the sketch has relay rules.

    Notes:
        Edmonds 1973; Bang-Jensen, Frank and Jackson 1995; Zhao et al., arXiv 2402.06787.
    """
    collective, chunks_per_rank = problem.collective, problem.chunks_per_rank
    packer = tree_packer(problem.sketch, problem.topology)
    forest = pack_forest(packer, collective, chunks_per_rank)
    trace = Trace(collective, chunks_per_rank, "packing")
    connections = _connections(packer, forest)
    for send in _sends(packer, forest):
        if send.reduce:
            trace.reduce(send.chunk, send.src, send.dst, 0, send.nchunks)
        else:
            channel = connections.channel(send.src, send.dst)
            trace.send(send.chunk, send.src, send.dst, channel, send.nchunks)
    return trace.schedule(
        LoweringHints(
            split_send_recv=True,
            shared_threadblocks=connections.shared,
            rotation=forest.rotation,
        )
    )


def _sends(packer: TreePacker, forest: Forest) -> list[Send]:
    """Return the sends in an order by which thread blocks wait little for each other."""
    first_chunks = forest.first_chunks(packer.network.ranks)
    if forest.relay_group:
        # Sums go where results come from, in reverse order: in any other order blocks wait.
        up, down = (
            sorted(merged_sends(trees, first_chunks, forest.relay_group))
            for trees in (forest.reduction, forest.broadcast)
        )
        sums = [Send(s.chunk, s.child, s.parent, s.nchunks, reduce=True) for s in reversed(up)]
        return sums + [Send(s.chunk, s.parent, s.child, s.nchunks) for s in down]
    most = _run_length(forest, first_chunks, _copies(packer, forest))
    sends = chained_sends(forest.reduction, forest.broadcast, first_chunks, most)
    chunks = Counter[tuple[bool, int, int]]()
    for send in sends:
        chunks[send.reduce, send.src, send.dst] += send.nchunks
    utilisation = packer.utilisation(forest)
    # Every block is as slow as its busiest link allows if all share that link in proportion.
    durations = [
        utilisation[send.src, send.dst] * send.nchunks / chunks[send.reduce, send.src, send.dst]
        for send in sends
    ]
    return [sends[number] for number in modulo_order(sends, durations)]


def _run_length(forest: Forest, first_chunks: Sequence[int], copies: int) -> int:
    """Return the chunks that may go as one run: one, unless that takes too many steps.

    What is passed on a chunk at a time fills the trees sooner.
    """
    for most in _RUN_LENGTHS:
        runs = Counter[tuple[bool, int, int]]()
        for reduce, trees in ((True, forest.reduction), (False, forest.broadcast)):
            for tree, first in placed_trees(trees, first_chunks):
                number = sum(1 for _ in runs_of(first, tree.weight, most))
                for child, parent in tree.arcs:
                    runs[reduce, child, parent] += number
        steps = Counter[int]()
        for (_, child, parent), number in runs.items():
            steps.update({child: number + 1, parent: number + 1})
        if max(runs.values()) <= _MOST_RUNS and max(steps.values()) * copies <= _MOST_STEPS:
            return most
    return _RUN_LENGTHS[-1]


def _copies(packer: TreePacker, forest: Forest) -> int:
    """Return how many copies of the program (channels) the fastest connection needs."""
    chunks = Counter[tuple[bool, int, int]]()
    for reduce, trees in ((True, forest.reduction), (False, forest.broadcast)):
        for tree in trees:
            for child, parent in tree.arcs:
                chunks[reduce, child, parent] += tree.weight
    fastest_gbs = max(chunks.values()) / forest.busiest_s
    return min(_MOST_COPIES, math.ceil(fastest_gbs / _BLOCK_GBS))


@lru_cache(maxsize=8)
def tree_packer(sketch: Sketch, topology: Topology | None, method: str = "packing") -> TreePacker:
    """Return the packer of trees over the links of `sketch`.

    Raises:
        Infeasible: the sketch has relay rules.
    """
    if any(
        set(carried) != set(sketch.ranks_of(sketch.hosts[rank]))
        for rank, carried in sketch.relays.items()
    ):
        raise Infeasible(
            f"{method}: sketch {sketch.name[:60]} rules which rank carries whose chunks; {method} "
            "decides that itself: use a sketch without relay rules"
        )
    network = sketch_network(sketch, topology)
    small = topology is not None and sketch.ranks <= _MOST_MESHED
    if topology is not None and small and len(sketch.links) == len(all_paths(topology)):
        return TreePacker(network, topology_fabric(topology))
    return TreePacker(network, routed_fabric(network))


@dataclass(frozen=True)
class _Connections:
    """Channels and thread blocks of the connections.

    Attributes:
        broadcast: Channel of results; 0, that of sums, where they share thread blocks.
        shared: Connections that share the thread block of the opposite direction.
        idle: Pairs whose results go on the channel of sums, which do not use the pair.
    """

    broadcast: int
    shared: frozenset[_Connection]
    idle: frozenset[Pair] = frozenset()

    def channel(self, src: int, dst: int) -> int:
        """Return the channel of results from `src` to `dst`."""
        return 0 if (src, dst) in self.idle else self.broadcast


def _connections(packer: TreePacker, forest: Forest) -> _Connections:
    """Return a thread block for each direction of each connection, if need be fewer for idle ones.

    A block that serves two connections delays both, so those with the least used resources share
    first; only if that is not enough, results use the blocks of the sums.
    """
    hosts, ranks = packer.network.hosts, packer.network.ranks
    sums = {arc for tree in forest.reduction for arc in tree.arcs}
    results = {(parent, child) for tree in forest.broadcast for child, parent in tree.arcs}
    idle = frozenset[Pair]()
    if forest.relay_group and sums:
        # Between hosts a result may share the block of the sum that came back on the same route.
        idle = frozenset(pair for pair in results - sums if hosts[pair[0]] != hosts[pair[1]])
    up = {(0, *pair) for pair in sums}
    down = {(int(pair not in idle), *pair) for pair in results}
    blocks = Counter(rank for _, *ends in up | down for rank in ends)
    utilisation = packer.utilisation(forest)
    shared: set[_Connection] = set()

    def idlest(connection: _Connection) -> tuple[float, int, _Connection]:
        # In the order of src ^ dst every rank of a host gives up as many blocks as the others.
        _, src, dst = connection
        return round(utilisation[src, dst], 2), src ^ dst, connection

    duplex = [c for c in up | down if c[1] < c[2] and _opposite(c) in up | down]
    for orbit in _orbits(sorted(duplex, key=idlest), forest.rotation, ranks):
        if max(blocks[rank] for _, *ends in orbit for rank in ends) > _MOST_BLOCKS:
            shared.update(*((c, _opposite(c)) for c in orbit))
            blocks.subtract(rank for _, *ends in orbit for rank in ends)
    if max(blocks.values()) > _MOST_BLOCKS and not forest.rotation:
        return _Connections(0, frozenset())
    return _Connections(1 if up else 0, frozenset(shared), idle)


def _opposite(connection: _Connection) -> _Connection:
    channel, src, dst = connection
    return channel, dst, src


def _orbits(
    connections: Sequence[_Connection], rotation: int, ranks: int
) -> list[list[_Connection]]:
    """Return the connections in order, together where rotating ranks takes one to another."""
    orbits: dict[_Connection, list[_Connection]] = {}
    for connection in connections:
        channel, src, dst = connection
        distance = (dst - src) % ranks
        if not rotation:
            orbits[connection] = [connection]
        elif distance < ranks - distance:
            orbits.setdefault((channel, src % rotation, distance), []).append(connection)
        else:
            key = channel, dst % rotation, ranks - distance
            orbits.setdefault(key, []).append(connection)
    return list(orbits.values())


def packing_chunks(
    collective: Collective, sketch: Sketch, topology: Topology | None, most: int = 8
) -> tuple[int, ...]:
    """Return the fewest chunks per rank (up to `most`) that come within 1 % of the bound.

    Where none does, those that come closest; for an allreduce, whose roots are then chosen chunk by
    chunk, many.

    Raises:
        Infeasible: the links do not join all ranks, or the sketch has relay rules.
    """
    packer = tree_packer(sketch, topology)
    if not collective.rooted and packer.equal_hosts() is not None:
        return (1,)
    if packer.network.ranks <= _MOST_TRIED:
        return (_best_chunks(packer, collective, most),)
    candidates: list[tuple[Fraction, int]] = []
    for chunks in range(1, most + 1):
        fraction = chunked_fraction_of_bound(packer, collective, chunks)
        candidates.append((-fraction, chunks))
        if fraction >= ENOUGH:
            return (chunks,)
    if collective.name == "allreduce":
        return (max(1, min(most, _CHUNKS_OF_CHOSEN_ROOTS // collective.ranks)),)
    return (min(candidates)[1],)


def _best_chunks(packer: TreePacker, collective: Collective, most: int) -> int:
    """Return the fewest chunks whose trees, which are made to see, come within 1 % of the best."""
    best, best_chunks = Fraction(0), 1
    for chunks in range(1, most + 1):
        free = collective.name == "allreduce"  # with roots of choice it may gain more than promised
        if not free and chunked_fraction_of_bound(packer, collective, chunks) * ENOUGH <= best:
            continue
        bound_s = packer.bound_s(collective, chunks)
        fraction = bound_s / pack_forest(packer, collective, chunks).busiest_s
        if fraction * ENOUGH > best:
            best, best_chunks = fraction, chunks
        if best >= ENOUGH:
            break
    return best_chunks
