"""The throughput method: weighted spanning trees packed into the machine's wires.

Every chunk travels down a tree of ranks (or its partial sums up one); the trees are packed so that
the busiest wire has the least to carry that cuts allow (docs/methods.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import Sketch
from tuccl.synth.bounds.graph import fabric, routed_fabric
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import Pair, sketch_network
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import LoweringHints, Schedule
from tuccl.synth.model.trace import Trace
from tuccl.synth.packing.forest import (
    ENOUGH,
    Forest,
    Machine,
    chunked_share,
    grown,
    least_time,
)
from tuccl.synth.packing.tree import Growth
from tuccl.synth.packing.tree_runs import Run, merged_runs, single_runs
from tuccl.topology import Topology, all_paths

__all__ = ["PACKING_COLLECTIVES", "packing", "packing_chunks"]

PACKING_COLLECTIVES = frozenset({"allgather", "reduce-scatter", "allreduce", "broadcast", "reduce"})
# Thread blocks that a GPU should need at most; sums and results share theirs rather than need more.
_MOST_BLOCKS = 32
_CHUNKS_OF_CHOSEN_ROOTS = 48
# Ranks up to which trees are made for each number of chunks, to see which is best.
_MOST_TRIED = 12
# Ranks up to which a sketch may be the whole mesh, whose pairs take long to look at.
_MOST_MESHED = 512
_Lane = tuple[int, int, int]  # channel, sending and receiving rank


def packing(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return the schedule with the least load on the busiest wire; it is the same at every size.

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
    machine = machine_of_sketch(problem.sketch, problem.topology)
    forest = grown(machine, collective, chunks_per_rank)
    trace = Trace(collective, chunks_per_rank, "packing")
    feeds = forest.feeds(collective.ranks)
    firsts = [sum(feeds[:rank]) for rank in range(collective.ranks)]
    # Sums take the way of results backwards, turn by turn: in any other order blocks wait.
    for run in sorted(_runs(forest, forest.up, firsts), reverse=True):
        trace.reduce(run.first, run.child, run.parent, 0, run.weight)
    blocks = _blocks(machine, forest)
    for run in sorted(_runs(forest, forest.down, firsts)):
        trace.send(run.first, run.parent, run.child, blocks.of_result(run), run.weight)
    return trace.schedule(
        LoweringHints(split_send_recv=True, shared_threadblocks=blocks.turns, rotation=forest.shift)
    )


def _runs(forest: Forest, trees: Sequence[Growth], firsts: Sequence[int]) -> Iterator[Run]:
    if forest.band:
        return merged_runs(trees, firsts, forest.band)
    return single_runs(trees, firsts)


@lru_cache(maxsize=8)
def machine_of_sketch(
    sketch: Sketch, topology: Topology | None, method: str = "packing"
) -> Machine:
    """Return the wires that the pairs of `sketch` may use.

    Raises:
        Infeasible: the sketch has relay rules.
    """
    if any(
        set(carried) != set(_host_mates(sketch, rank)) for rank, carried in sketch.relays.items()
    ):
        raise Infeasible(
            f"{method}: sketch {sketch.name[:60]} rules which rank carries whose chunks; {method} "
            "decides that itself: use a sketch without relay rules"
        )
    wires = sketch_network(sketch, topology)
    small = sketch.ranks <= _MOST_MESHED
    whole = small and topology is not None and len(sketch.links) == _most_links(topology)
    return Machine(wires, fabric(topology) if whole and topology else routed_fabric(wires))


def _host_mates(sketch: Sketch, rank: int) -> tuple[int, ...]:
    return sketch.ranks_of(sketch.hosts[rank])


def _most_links(topology: Topology) -> int:
    return len(all_paths(topology))


@dataclass(frozen=True)
class _Blocks:
    """Which thread blocks a forest gets.

    Attributes:
        down: Channel of the results; 0, that of the sums, where they share thread blocks.
        turns: Connections that share the thread block of the way back.
        beside: Pairs whose results go on the channel of the sums, which do not use the pair.
    """

    down: int
    turns: frozenset[_Lane]
    beside: frozenset[Pair] = frozenset()

    def of_result(self, run: Run) -> int:
        """Return the channel on which a result goes on."""
        return 0 if (run.parent, run.child) in self.beside else self.down


def _blocks(machine: Machine, forest: Forest) -> _Blocks:
    """Return thread blocks for each way of each connection, if need be fewer for idle ones.

    A block that serves two connections holds up both, so those with the most idle wires share
    first; only if that is not enough, results go by the blocks of the sums.
    """
    rising = {arc for tree in forest.up for arc in tree.arcs}
    falling = {(parent, child) for tree in forest.down for child, parent in tree.arcs}
    beside = _beside(machine, rising, falling) if forest.band else frozenset[Pair]()
    up = {(0, *pair) for pair in rising}
    down = {(int(pair not in beside), *pair) for pair in falling}
    blocks = Counter(rank for _, *ends in up | down for rank in ends)
    busy = machine.busyness(forest)
    turns: set[_Lane] = set()

    def idlest(lane: _Lane) -> tuple[float, int, _Lane]:
        # In the order of src ^ dst every rank of a host gives up as many blocks as the others.
        return round(busy[lane[1:]], 2), lane[1] ^ lane[2], lane

    both_ways = [lane for lane in up | down if lane[1] < lane[2] and _back(lane) in up | down]
    ranks = machine.wires.ranks
    for alike in _alike(sorted(both_ways, key=idlest), forest.shift, ranks):
        if max(blocks[rank] for lane in alike for rank in lane[1:]) > _MOST_BLOCKS:
            turns.update(*((lane, _back(lane)) for lane in alike))
            blocks.subtract(rank for lane in alike for rank in lane[1:])
    if max(blocks.values()) > _MOST_BLOCKS and not forest.shift:
        return _Blocks(0, frozenset())
    return _Blocks(1 if up else 0, frozenset(turns), beside)


def _beside(machine: Machine, rising: set[Pair], falling: set[Pair]) -> frozenset[Pair]:
    """Return the pairs between hosts that results take and sums do not: their channel is free.

    There a result and the sum that came back on the same way may share a thread block.
    """
    hosts = machine.wires.hosts
    return frozenset(
        pair for pair in falling - rising if rising and hosts[pair[0]] != hosts[pair[1]]
    )


def _back(lane: _Lane) -> _Lane:
    return lane[0], lane[2], lane[1]


def _alike(lanes: Sequence[_Lane], shift: int, ranks: int) -> list[list[_Lane]]:
    """Return the lanes in order, together where turning ranks by `shift` takes one to another."""
    groups: dict[_Lane, list[_Lane]] = {}
    for lane in lanes:
        channel, src, dst = lane
        ahead = (dst - src) % ranks
        if not shift:
            groups[lane] = [lane]
        elif ahead < ranks - ahead:
            groups.setdefault((channel, src % shift, ahead), []).append(lane)
        else:
            groups.setdefault((channel, dst % shift, ranks - ahead), []).append(lane)
    return list(groups.values())


def packing_chunks(
    collective: Collective, sketch: Sketch, topology: Topology | None, most: int = 8
) -> tuple[int, ...]:
    """Return the fewest chunks per rank (up to `most`) that come within 1 % of the bound.

    Where none does, those that come closest; for an allreduce, whose roots are then chosen chunk by
    chunk, many.

    Raises:
        Infeasible: the links do not join all ranks, or the sketch has relay rules.
    """
    machine = machine_of_sketch(sketch, topology)
    if not collective.rooted and machine.equal_hosts() is not None:
        return (1,)
    if machine.wires.ranks <= _MOST_TRIED:
        return (_best_chunks(machine, collective, most),)
    found: list[tuple[Fraction, int]] = []
    for chunks in range(1, most + 1):
        share = chunked_share(machine, collective, chunks)
        found.append((-share, chunks))
        if share >= ENOUGH:
            return (chunks,)
    if collective.name == "allreduce":
        return (max(1, min(most, _CHUNKS_OF_CHOSEN_ROOTS // collective.ranks)),)
    return (min(found)[1],)


def _best_chunks(machine: Machine, collective: Collective, most: int) -> int:
    """Return the fewest chunks whose trees, which are made to see, come within 1 % of the best."""
    best, chosen = Fraction(0), 1
    for chunks in range(1, most + 1):
        free = collective.name == "allreduce"  # with roots of choice it may gain more than promised
        if not free and chunked_share(machine, collective, chunks) * ENOUGH <= best:
            continue
        least = least_time(machine, collective, chunks)
        share = least / grown(machine, collective, chunks).span
        if share * ENOUGH > best:
            best, chosen = share, chunks
        if best >= ENOUGH:
            break
    return chosen
