"""Trees for every chunk of a collective: packed (ForestColl), composed by hosts, or rerouted.

ForestColl (arXiv 2402.06787) packs spanning trees with equal weight at each root, and makes an
allreduce of reversed trees and trees. Where that misses the bound, because roots may be
chosen (allreduce) or messages keep to one route, the chunks are rerouted one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate

from tuccl.errors import Infeasible, InputError
from tuccl.planners import pack_trees, reroute
from tuccl.synth.bounds.bound import MOST_ROUTED, tightest_cut
from tuccl.synth.bounds.graph import Fabric, routed_fabric
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import Network, Pair
from tuccl.synth.packing.edge_capacities import TreeProblem, edge_capacities, least_time_s
from tuccl.synth.packing.hierarchical import Rails, hierarchical_trees, rails_of
from tuccl.synth.packing.tree import Tree

Flow = tuple[bool, int, int]
"""Whether it carries sums, and its sending and its receiving rank."""

# A forest this close to the bound is not improved.
ENOUGH = Fraction(99, 100)
# Work of rerouting (chunks x roots x pairs, rounds included) that is worth a try.
_MOST_WORK = 20_000_000
_MOST_ROUNDS = 60
# Ranks up to which the trees of all ranks are packed at once.
_MOST_PACKED = 64


@dataclass(frozen=True)
class Forest:
    """Trees up which sums go and trees down which results go; both have the same roots.

    Attributes:
        reduction: Trees to the roots; empty where nothing is reduced.
        broadcast: Trees from the roots; empty where nothing is broadcast.
        busiest_s: Time of the busiest resource, in seconds for chunks of 1 GB.
        chunks: Of each flow.
        relay_group: Neighbouring roots whose chunks go together where trees are hierarchical, or 0.
    """

    reduction: tuple[Tree, ...]
    broadcast: tuple[Tree, ...]
    busiest_s: Fraction
    chunks: Counter[Flow] = field(repr=False, compare=False)
    relay_group: int = 0

    @property
    def chain(self) -> int:
        """Return the most messages that wait for each other."""
        return _height(self.reduction) + _height(self.broadcast)

    def of_roots(self, end: int) -> Forest:
        """Return the trees of the roots below ``end``, beside all flows."""
        up, down = (
            tuple(tree for tree in trees if tree.root < end)
            for trees in (self.reduction, self.broadcast)
        )
        return replace(self, reduction=up, broadcast=down)

    def first_chunks(self, ranks: int) -> list[int]:
        """Return the number of the first chunk of each root."""
        chunks = Counter[int]()
        for tree in self.reduction or self.broadcast:
            chunks[tree.root] += tree.weight
        return [0, *accumulate(chunks[root] for root in range(ranks - 1))]


def _chunks(reduction: Iterable[Tree], broadcast: Iterable[Tree]) -> Counter[Flow]:
    chunks = Counter[Flow]()
    for trees, reduces in ((reduction, True), (broadcast, False)):
        for tree in trees:
            for child, parent in tree.arcs:
                flow = (True, child, parent) if reduces else (False, parent, child)
                chunks[flow] += tree.weight
    return chunks


def _height(trees: Iterable[Tree]) -> int:
    return max((max(tree.depths()) for tree in trees), default=0)


@dataclass(frozen=True)
class TreePacker:
    """Trees over the routes of a network.

    Attributes:
        network: The pairs that may carry chunks.
        fabric: The machine with its relays, for cuts that no choice of pairs can beat.
    """

    network: Network
    fabric: Fabric

    def rails(self) -> Rails | None:
        """Return the hosts where they are many and equal, so that trees are hierarchical."""
        return rails_of(self.network) if self.network.ranks > _MOST_PACKED else None

    @cached_property
    def reverse(self) -> TreePacker:
        """Return the packer whose trees, with every arc reversed, are trees to the roots."""
        return TreePacker(self.network.reverse, self.fabric.reverse)

    def problem(self, chunks_per_root: Sequence[int]) -> TreeProblem:
        """Return the problem to bring `chunks_per_root[r]` chunks of each rank r to all."""
        return TreeProblem(self.network, self.fabric, tuple(chunks_per_root))

    def trees(self, chunks_per_root: Sequence[int]) -> tuple[Tree, ...]:
        """Return trees by which `chunks_per_root[r]` chunks of each rank r get to all.

        Raises:
            Infeasible: some rank cannot be reached.
        """
        if self.network.ranks > _MOST_PACKED and len(set(chunks_per_root)) == 1:
            trees = hierarchical_trees(self.network, chunks_per_root[0])
            if trees is not None:
                return trees
        problem = self.problem(chunks_per_root)
        packed = pack_trees(problem.arcs(edge_capacities(problem)), list(chunks_per_root))
        return tuple(Tree(tree.root, tree.weight, tuple(tree.parent)) for tree in packed)

    def forest(self, reduction: tuple[Tree, ...], broadcast: tuple[Tree, ...]) -> Forest:
        """Return the trees with the time that the busiest resource takes."""
        chunks = _chunks(reduction, broadcast)
        return Forest(reduction, broadcast, self.network.busiest_s(self._loads(chunks)), chunks)

    def utilisation(self, forest: Forest) -> dict[Pair, float]:
        """Return for each pair the load of its busiest resource, relative to the busiest of all."""
        loads, network = self._loads(forest.chunks), self.network
        rates, kinds = network.distinct_rates
        shares = {
            (load, kind): float(load / rates[kind] / forest.busiest_s)
            for load, kind in set(zip(loads, kinds, strict=True))
        }
        part = [shares[load, kind] for load, kind in zip(loads, kinds, strict=True)]
        return {
            pair: max(part[resource] for resource in route)
            for pair, route in zip(network.pairs, network.routes, strict=True)
        }

    def _loads(self, chunks: Counter[Flow]) -> list[int]:
        counts = [0] * len(self.network.pairs)
        for (_, src, dst), number in chunks.items():
            counts[self.network.index[src, dst]] += number
        return self.network.loads(counts)

    def bound_s(self, collective: Collective, chunks_per_rank: int) -> Fraction:
        """Return the time that no trees can beat, in seconds for chunks of 1 GB.

        Raises:
            Infeasible: the links do not join all ranks.
        """
        key = collective.name, collective.root
        if key not in self._ratios:
            few = self.network.ranks <= MOST_ROUTED
            graphs = (self.fabric, routed_fabric(self.network)) if few else (self.fabric,)
            try:
                ratios = (tightest_cut(graph, collective).ratio for graph in graphs)
                self._ratios[key] = max(ratios)
            except (InputError, ZeroDivisionError):
                raise Infeasible("packing: the links do not join all ranks both ways") from None
        parts = chunks_per_rank
        if collective.rooted or collective.name == "allreduce":
            parts = collective.nchunks(chunks_per_rank)
        return self._ratios[key] * parts

    @cached_property
    def _ratios(self) -> dict[tuple[str, int], Fraction]:
        return {}


def _broadcasts(collective: Collective) -> bool:
    return collective.name not in ("reduce", "reduce-scatter")


@lru_cache(maxsize=16)
def pack_forest(packer: TreePacker, collective: Collective, chunks_per_rank: int) -> Forest:
    """Return the trees of every chunk of `collective`, with little on the busiest resource.

    Raises:
        Infeasible: the links do not join all ranks.
    """
    chunks_per_root = _chunks_per_root(collective, chunks_per_rank)
    up = packer.reverse.trees(chunks_per_root) if collective.reducing else ()
    down = packer.trees(chunks_per_root) if _broadcasts(collective) else ()
    packed = packer.forest(up, down)
    if not collective.rooted and (rails := packer.rails()) is not None:
        return replace(packed, relay_group=rails.relay_group)
    bound_s = packer.bound_s(collective, chunks_per_rank)
    if packed.busiest_s * ENOUGH <= bound_s:
        return packed
    rerouted = _rerouted(packer, collective, chunks_per_root, bound_s)
    return min((packed, *rerouted), key=lambda forest: (forest.busiest_s, forest.chain))


def _chunks_per_root(collective: Collective, chunks_per_rank: int) -> list[int]:
    if not collective.rooted:
        return [chunks_per_rank] * collective.ranks
    chunks = [0] * collective.ranks
    chunks[collective.root] = collective.nchunks(chunks_per_rank)
    return chunks


def chunked_fraction_of_bound(
    packer: TreePacker, collective: Collective, chunks_per_rank: int
) -> Fraction:
    """Return the part of the bound that cuts of whole chunks leave, without making the trees.

    Raises:
        Infeasible: the links do not join all ranks.

    Notes:
        Of an allreduce, the better of its two halves' and what choosing roots could gain.
    """
    chunks_per_root = _chunks_per_root(collective, chunks_per_rank)
    halves = []
    if collective.reducing:
        halves.append(packer.reverse.problem(chunks_per_root))
    if _broadcasts(collective):
        halves.append(packer.problem(chunks_per_root))
    bound_s = packer.bound_s(collective, chunks_per_rank)
    return min(Fraction(1), bound_s / sum(least_time_s(half) for half in halves))


def _rerouted(
    packer: TreePacker, collective: Collective, chunks_per_root: list[int], bound_s: Fraction
) -> list[Forest]:
    """Return what rerouting finds, first with shallow trees, then with any; empty if too large."""
    ranks, total = packer.network.ranks, sum(chunks_per_root)
    reduces, broadcasts = collective.reducing, _broadcasts(collective)
    any_root = reduces and broadcasts
    work = total * (ranks if any_root else 1) * ranks**2 * (reduces + broadcasts)
    rounds = min(_MOST_ROUNDS, _MOST_WORK // max(1, work))
    if rounds < 2:
        return []
    roots = [-1] * total
    if not any_root:
        roots = [root for root, chunks in enumerate(chunks_per_root) for _ in range(chunks)]
    forests = []
    for reduce_depth, broadcast_depth in _depth_limits(packer, set(roots)):
        try:
            trees = reroute(
                packer.network.native,
                [(root, reduces, broadcasts) for root in roots],
                rounds=rounds,
                target=float(bound_s),
                reduce_depth=reduce_depth,
                broadcast_depth=broadcast_depth,
            )
        except InputError:
            continue
        up = Counter((root, tuple(parents)) for root, parents, _ in trees if parents)
        down = Counter((root, tuple(parents)) for root, _, parents in trees if parents)
        forests.append(packer.forest(_weighted(up), _weighted(down)))
        if forests[-1].busiest_s * ENOUGH <= bound_s:
            break
    return forests


def _depth_limits(packer: TreePacker, roots: set[int]) -> list[tuple[int, int]]:
    """Return limits to the depth of trees up and down: twice the least for these roots; none."""
    ranks = packer.network.ranks
    radii = [
        (max(packer.network.reverse.hops_from(rank)), max(packer.network.hops_from(rank)))
        for rank in range(ranks)
    ]
    if roots == {-1}:
        up, down = min(radii, key=sum)
    else:
        up = max(radii[root][0] for root in roots)
        down = max(radii[root][1] for root in roots)
    return [(2 * up, 2 * down), (ranks, ranks)]


def _weighted(trees: Counter[tuple[int, tuple[int, ...]]]) -> tuple[Tree, ...]:
    return tuple(Tree(root, weight, parent) for (root, parent), weight in sorted(trees.items()))
