"""The throughput method: weighted spanning trees packed into the machine's wires.

Every chunk travels down a tree of ranks (or its partial sums up one); the trees are packed so that
the busiest wire has the least to carry that cuts allow (docs/synthesis.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from tuccl._native import Tree, pack_trees
from tuccl.errors import Infeasible
from tuccl.sketches.sketch import Sketch
from tuccl.synth.bound_graph import Fabric, Wire, fabric
from tuccl.synth.collective import Collective
from tuccl.synth.pair_units import Demand, least_counts
from tuccl.synth.pair_wires import PairWires, pair_wires
from tuccl.synth.schedule import Schedule
from tuccl.synth.trace import Trace
from tuccl.topology import Topology

__all__ = ["PACKING_COLLECTIVES", "packing"]


def packing(
    collective: Collective,
    sketch: Sketch,
    chunks_per_rank: int = 1,
    nbytes: int = 1,
    topology: Topology | None = None,
) -> Schedule:
    """Return the schedule with the least load on the busiest wire; it is the same at every size.

    Args:
        collective: What is to be computed.
        sketch: The pairs that may be used.
        chunks_per_rank: Parts of each rank's share: the more, the closer to the bound.
        nbytes: Not looked at.
        topology: The wires; without it those that the sketch tells of.

    Raises:
        Infeasible: the links do not join all ranks, or the sketch has relay rules.

    Notes:
        Edmonds 1973; Bang-Jensen, Frank and Jackson 1995; Zhao et al., arXiv 2402.06787.
    """
    if any(set(sketch.relays.get(rank, ())) != set(sketch.relays) for rank in sketch.relays):
        raise Infeasible(
            f"packing: sketch {sketch.name[:60]} rules which rank carries whose chunks; packing "
            "decides that itself: use a sketch without relay rules"
        )
    wires = pair_wires(sketch, topology)
    whole = fabric(topology) if topology is not None else _bare_fabric(wires)
    trace = Trace(collective, chunks_per_rank, "packing")
    _PLANS[collective.name](trace, _Machine(wires, whole))
    return trace.schedule()


class _Machine(NamedTuple):
    """What can carry chunks: pairs with their wires, and the machine with its relays."""

    wires: PairWires
    fabric: Fabric

    def down(self, feeds: Sequence[int]) -> list[Tree]:
        """Return trees by which `feeds[r]` chunks of each rank r get to all."""
        return _packed(Demand(self.wires, self.fabric, tuple(feeds)))

    def up(self, feeds: Sequence[int]) -> list[Tree]:
        """Return trees by which the sums of `feeds[r]` chunks get to each rank r."""
        return _packed(Demand(self.wires.reverse, self.fabric.reverse, tuple(feeds)))


def _packed(demand: Demand) -> list[Tree]:
    return pack_trees(demand.arcs(least_counts(demand)), list(demand.feeds))


def _bare_fabric(wires: PairWires) -> Fabric:
    """Return the pairs as wires of their own; what pairs share is left out."""
    own = (
        Wire(src, dst, min(wires.rates[wire] for wire in way), 0.0)
        for (src, dst), way in zip(wires.pairs, wires.ways, strict=True)
    )
    names = tuple(f"rank {rank}" for rank in range(wires.ranks))
    return Fabric(names, tuple(str(host) for host in wires.hosts), tuple(own))


class _Move(NamedTuple):
    """A run of chunks over one arc of a tree, `depth` arcs from the root."""

    depth: int
    turn: int
    parent: int
    child: int
    first: int
    count: int


def _moves(trees: Sequence[Tree], firsts: Sequence[int]) -> Iterator[_Move]:
    """Yield the arcs of all trees; `firsts[r]` is the first chunk whose root is rank r."""
    following = list(firsts)
    for turn, tree in enumerate(trees):
        depth = {tree.root: 0}
        for child in tree.order[1:]:
            parent = tree.parent[child]
            depth[child] = depth[parent] + 1
            yield _Move(depth[child], turn, parent, child, following[tree.root], tree.weight)
        following[tree.root] += tree.weight


def _spread(trace: Trace, trees: Sequence[Tree], firsts: Sequence[int], channel: int = 0) -> None:
    """Trace the chunks' ways down, the shallow arcs of all trees first."""
    for move in sorted(_moves(trees, firsts)):
        trace.send(move.first, move.parent, move.child, channel, move.count)


def _gather(trace: Trace, trees: Sequence[Tree], firsts: Sequence[int], channel: int = 0) -> None:
    """Trace the sums' ways up, the deep arcs of all trees first."""
    for move in sorted(_moves(trees, firsts), key=lambda move: (-move.depth, *move)):
        trace.reduce(move.first, move.child, move.parent, channel, move.count)


def _firsts(feeds: Sequence[int]) -> list[int]:
    return [sum(feeds[:rank]) for rank in range(len(feeds))]


def _even(trace: Trace) -> list[int]:
    return [trace.chunks_per_rank] * trace.collective.ranks


def _rooted(trace: Trace) -> list[int]:
    feeds = [0] * trace.collective.ranks
    feeds[trace.collective.root] = trace.collective.nchunks(trace.chunks_per_rank)
    return feeds


def _down(feeds_of: Callable[[Trace], list[int]]) -> Callable[[Trace, _Machine], None]:
    def plan(trace: Trace, machine: _Machine) -> None:
        feeds = feeds_of(trace)
        _spread(trace, machine.down(feeds), _firsts(feeds))

    return plan


def _up(feeds_of: Callable[[Trace], list[int]]) -> Callable[[Trace, _Machine], None]:
    def plan(trace: Trace, machine: _Machine) -> None:
        feeds = feeds_of(trace)
        _gather(trace, machine.up(feeds), _firsts(feeds))

    return plan


def _allreduce(trace: Trace, machine: _Machine) -> None:
    feeds = _even(trace)
    firsts = _firsts(feeds)
    _gather(trace, machine.up(feeds), firsts)
    _spread(trace, machine.down(feeds), firsts, channel=1)


_PLANS: dict[str, Callable[[Trace, _Machine], None]] = {
    "allgather": _down(_even),
    "reduce-scatter": _up(_even),
    "broadcast": _down(_rooted),
    "reduce": _up(_rooted),
    "allreduce": _allreduce,
}
PACKING_COLLECTIVES = frozenset(_PLANS)
