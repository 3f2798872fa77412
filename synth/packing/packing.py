"""The throughput method: ForestColl's packing of weighted spanning trees (arXiv 2402.06787).

Every chunk travels down a tree of ranks (or its partial sums up one); the trees are packed so that
the busiest resource has the least to carry that cuts allow (docs/reference/methods.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from tuccl.errors import Infeasible
from tuccl.planners import MOST_COUNT
from tuccl.sketches.sketch import Sketch
from tuccl.synth.bounds.graph import routed_fabric, topology_fabric
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import sketch_network
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import LoweringHints, Schedule
from tuccl.synth.model.send import Send
from tuccl.synth.model.trace import Trace
from tuccl.synth.packing.connections import Connections, plan_connections
from tuccl.synth.packing.modulo_order import modulo_order
from tuccl.synth.packing.tree_packing import (
    ENOUGH,
    Flow,
    Forest,
    TreePacker,
    chunked_fraction_of_bound,
    pack_forest,
)
from tuccl.synth.packing.tree_sends import chained_sends, merged_sends
from tuccl.topology import Topology, load_machine, machine_of
from tuccl.topology.paths import joined_pairs

PACKING_COLLECTIVES = frozenset({"allgather", "reduce-scatter", "allreduce", "broadcast", "reduce"})
_CHUNKS_OF_CHOSEN_ROOTS = 48
# Chunks in a run that are tried in turn, runs that a thread block should have at most, and steps
# that a rank should, so that as many copies as its fastest connection needs fit a dialect.
_RUN_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, MOST_COUNT)
_MOST_RUNS = 40
_MOST_STEPS = 3600
# Ranks up to which trees are made for each number of chunks, to see which is best.
_MOST_TRIED = 12
# Ranks up to which a sketch may be the whole mesh, whose pairs take long to look at.
_MOST_MESHED = 512


def packing(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return the schedule with the least load on the busiest resource, equal at every size.

    Args:
        problem: The collective and its links; the more chunks per rank, the closer to the bound.
            Without a topology the links show what they share.
        options: Not looked at.

    Raises:
        Infeasible: the links do not join all ranks, or the sketch has relay rules.

    Notes:
        Edmonds 1973; Bang-Jensen, Frank and Jackson 1995; Zhao et al., arXiv 2402.06787.
    """
    collective, chunks_per_rank = problem.collective, problem.chunks_per_rank
    packer = tree_packer(problem.sketch, problem.topology)
    forest = pack_forest(packer, collective, chunks_per_rank)
    machine = machine_of(problem.topology) if problem.topology else load_machine("plain")
    connections = plan_connections(packer, forest, machine)
    period = period_of(packer, forest)
    trace = Trace(collective, chunks_per_rank, "packing", period)
    if period:
        forest = forest.of_roots(period)
    for send, channel in _sends(packer, forest, connections):
        if send.reduce:
            trace.reduce(send.chunk, send.src, send.dst, channel, send.nchunks)
        else:
            trace.send(send.chunk, send.src, send.dst, channel, send.nchunks)
    shared = frozenset((channel, a, b, a) for channel, a, b in connections.shared)
    return trace.schedule(LoweringHints(split_send_recv=True, shared_threadblocks=shared))


def period_of(packer: TreePacker, forest: Forest) -> int:
    """Return the ranks whose trees those of the others repeat, 0 if none do."""
    rails = packer.rails() if forest.relay_group else None
    if rails is None:
        return 0
    hosts, size = len(rails.members), len(rails.members[0])
    in_order = [rank for host in rails.members for rank in host] == list(range(hosts * size))
    turns = rails.relay_group
    return turns * size if in_order and hosts % turns == 0 and turns < hosts else 0


def _sends(packer: TreePacker, forest: Forest, connections: Connections) -> list[tuple[Send, int]]:
    """Return sends and channels in an order by which thread blocks wait little for each other."""
    first_chunks = forest.first_chunks(packer.network.ranks)
    if forest.relay_group:
        # Sums go where results come from, in reverse order: in any other order blocks wait.
        up, down = (
            sorted(merged_sends(trees, first_chunks, forest.relay_group))
            for trees in (forest.reduction, forest.broadcast)
        )
        channels = {flow: connections.channel(flow, 0) for flow in forest.chunks}
        ordered = [
            Send(chunk, child, parent, nchunks, reduce=True)
            for _, _, parent, child, chunk, nchunks in reversed(up)
        ]
        ordered += [
            Send(chunk, parent, child, nchunks) for _, _, parent, child, chunk, nchunks in down
        ]
        return [(send, channels[send.flow]) for send in ordered]
    # What is passed on a chunk at a time fills the trees sooner, but takes more steps.
    heaviest = max(tree.weight for tree in (*forest.reduction, *forest.broadcast))
    for most in _RUN_LENGTHS:
        sends = chained_sends(forest.reduction, forest.broadcast, first_chunks, most)
        if most >= heaviest or _fits(sends, connections):
            break
    utilisation, turns = packer.utilisation(forest), Counter[Flow]()
    placed, durations = [], []
    for send in sends:
        placed.append((send, connections.channel(send.flow, turns[send.flow])))
        turns[send.flow] += 1
        # Lanes side by side; all that share a link share it in proportion to what they carry.
        part = send.nchunks * connections.lanes[send.flow] / forest.chunks[send.flow]
        durations.append(utilisation[send.src, send.dst] * part)
    blocks = [(channel, send.src, send.dst) for send, channel in placed]
    return [placed[number] for number in modulo_order(sends, blocks, durations)]


def _fits(sends: Sequence[Send], connections: Connections) -> bool:
    """Return whether thread blocks and ranks have few enough steps."""
    steps = Counter(send.flow for send in sends)
    total = Counter(rank for send in sends for rank in (send.src, send.dst))
    blocks = max(-(-number // connections.lanes[flow]) for flow, number in steps.items())
    return blocks <= _MOST_RUNS and max(total.values()) * connections.copies <= _MOST_STEPS


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
    if topology is not None and small and len(sketch.links) == joined_pairs(topology):
        return TreePacker(network, topology_fabric(topology))
    return TreePacker(network, routed_fabric(network))


def packing_chunk_counts(
    collective: Collective, sketch: Sketch, topology: Topology | None, most: int = 8
) -> tuple[int, ...]:
    """Return the chunks per rank worth a try: `packing_chunks`, on uneven trees another number.

    Few large chunks come in bursts, so twice as many may be faster; many fill the trees late, so
    half of them may be.

    Raises:
        Infeasible: the links do not join all ranks, or the sketch has relay rules.
    """
    [chunks] = packing_chunks(collective, sketch, topology, most)
    packer = tree_packer(sketch, topology)
    if packer.network.ranks > _MOST_TRIED:
        return (chunks,)
    forest = pack_forest(packer, collective, chunks)
    other = 2 * chunks if chunks <= 2 else -(-chunks // 2)
    uneven = len(set(forest.chunks.values())) > 1 and other <= most
    return (chunks, other) if uneven else (chunks,)


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
    if not collective.rooted and packer.rails() is not None:
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
