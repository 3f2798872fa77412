"""Trees for every chunk of a collective: packed exactly where that can be, else by rerouting."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from tuccl._native import pack_trees, reroute
from tuccl.errors import Infeasible, InputError
from tuccl.synth.bounds.bound import MOST_ROUTED
from tuccl.synth.bounds.cuts import Cut, allgather_cut, broadcast_cut
from tuccl.synth.bounds.graph import Fabric, routed_fabric
from tuccl.synth.bounds.partitions import allreduce_cut
from tuccl.synth.bounds.tree_duals import priced_trees
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import Network, Pair
from tuccl.synth.packing.hierarchical import (
    MOST_RUNS,
    MOST_RUNS_BOTH_WAYS,
    EqualHosts,
    composed,
    equal_hosts,
)
from tuccl.synth.packing.pair_units import Demand, least_counts, least_span
from tuccl.synth.packing.tree import Growth

__all__ = ["ENOUGH", "Forest", "Machine", "chunked_share", "grown", "least_time"]

# A forest this close to the bound is not looked at again.
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
        up: Trees to the roots; empty where nothing is reduced.
        down: Trees from the roots; empty where nothing is spread.
        span: Time of the busiest wire, in seconds for chunks of 1 GB.
        band: Roots side by side whose chunks go together where their trees are composed, else 0.
        shift: Ranks by which composed trees can be turned without changing; 0: none.
    """

    up: tuple[Growth, ...]
    down: tuple[Growth, ...]
    span: Fraction
    band: int = 0
    shift: int = 0

    @property
    def chain(self) -> int:
        """Return the most messages that wait for each other."""
        return _height(self.up) + _height(self.down)

    def feeds(self, ranks: int) -> list[int]:
        """Return the chunks of each root."""
        feeds = Counter[int]()
        for tree in self.up or self.down:
            feeds[tree.root] += tree.weight
        return [feeds[rank] for rank in range(ranks)]


def _height(trees: Iterable[Growth]) -> int:
    return max((max(tree.depths()) for tree in trees), default=0)


@dataclass(frozen=True)
class Machine:
    """What can carry chunks: pairs with their wires, and the machine with its relays."""

    wires: Network
    fabric: Fabric

    def equal_hosts(self, runs: int = MOST_RUNS) -> EqualHosts | None:
        """Return the hosts where they are many and alike, so that trees are composed."""
        return equal_hosts(self.wires, runs) if self.wires.ranks > _MOST_PACKED else None

    def down(self, feeds: Sequence[int], runs: int = MOST_RUNS) -> tuple[Growth, ...]:
        """Return trees by which `feeds[r]` chunks of each rank r get to all.

        Where they are composed, with `runs` of chunks a connection at most.

        Raises:
            Infeasible: some rank cannot be reached.
        """
        return _grown_down(self.wires, self.fabric, feeds, runs)

    def up(self, feeds: Sequence[int], runs: int = MOST_RUNS) -> tuple[Growth, ...]:
        """Return trees by which the sums of `feeds[r]` chunks get to each rank r, as `down`.

        Raises:
            Infeasible: some rank cannot be reached.
        """
        return _grown_down(self.wires.reverse, self.fabric.reverse, feeds, runs)

    def forest(self, up: tuple[Growth, ...], down: tuple[Growth, ...]) -> Forest:
        """Return the trees with the time that the busiest wire takes."""
        return Forest(up, down, self.wires.busiest_s(self._loads(up, down)))

    def busyness(self, forest: Forest) -> dict[Pair, float]:
        """Return for each pair how busy its busiest wire is; 1 where no wire is busier."""
        loads, wires = self._loads(forest.up, forest.down), self.wires
        share = [float(n / rate / forest.span) for n, rate in zip(loads, wires.rates, strict=True)]
        return {
            pair: max(share[wire] for wire in way)
            for pair, way in zip(wires.pairs, wires.routes, strict=True)
        }

    def _loads(self, up: Iterable[Growth], down: Iterable[Growth]) -> list[int]:
        counts = [0] * len(self.wires.pairs)
        for trees, rising in ((up, True), (down, False)):
            for tree in trees:
                for child, parent in tree.arcs:
                    pair = (child, parent) if rising else (parent, child)
                    counts[self.wires.index[pair]] += tree.weight
        return self.wires.loads(counts)

    def cut(self, collective: Collective) -> Fraction:
        """Return the time per part that the tightest cut takes (`bounds.Cut.ratio`).

        Raises:
            Infeasible: the links do not join all ranks.
        """
        key = collective.name, collective.root
        if key not in self._cuts:
            try:
                tight = max(_cut(whole, collective).ratio for whole in self._graphs)
            except (InputError, ZeroDivisionError):
                raise Infeasible("packing: the links do not join all ranks both ways") from None
            self._cuts[key] = max(tight, self._priced(collective))
        return self._cuts[key]

    def _priced(self, collective: Collective) -> Fraction:
        """Return what prices of wires prove, 0 where none are sought."""
        cut = priced_trees(self.wires, collective)
        return cut.ratio if cut else Fraction(0)

    @property
    def _graphs(self) -> tuple[Fabric, ...]:
        """Return the graphs that tell what no trees can beat."""
        few = self.wires.ranks <= MOST_ROUTED
        return (self.fabric, routed_fabric(self.wires)) if few else (self.fabric,)

    @cached_property
    def _cuts(self) -> dict[tuple[str, int], Fraction]:
        return {}

    def radius(self, root: int, *, up: bool) -> int:
        """Return the messages from (or to) `root` that the farthest rank needs."""
        ahead: dict[int, list[int]] = {}
        for src, dst in (self.wires.reverse if up else self.wires).pairs:
            ahead.setdefault(src, []).append(dst)
        depth = {root: 0}
        waiting = deque([root])
        while waiting:
            rank = waiting.popleft()
            for following in ahead.get(rank, ()):
                if following not in depth:
                    depth[following] = depth[rank] + 1
                    waiting.append(following)
        return max(depth.values())


def _cut(whole: Fabric, collective: Collective) -> Cut:
    if collective.name == "allreduce":
        return allreduce_cut(whole)
    if collective.name in ("reduce", "reduce-scatter"):
        whole = whole.reverse
    return broadcast_cut(whole, collective.root) if collective.rooted else allgather_cut(whole)


def _grown_down(
    wires: Network, fabric: Fabric, feeds: Sequence[int], runs: int
) -> tuple[Growth, ...]:
    """Return trees that give each rank's `feeds` to all: composed for many equal hosts, or packed.

    Raises:
        Infeasible: some rank cannot be reached.
    """
    if wires.ranks > _MOST_PACKED and len(set(feeds)) == 1:
        trees = composed(wires, feeds[0], runs)
        if trees is not None:
            return trees
    demand = Demand(wires, fabric, tuple(feeds))
    found = pack_trees(demand.arcs(least_counts(demand)), list(demand.feeds))
    return tuple(Growth(tree.root, tree.weight, tuple(tree.parent)) for tree in found)


@lru_cache(maxsize=16)
def grown(machine: Machine, collective: Collective, chunks_per_rank: int) -> Forest:
    """Return the trees of every chunk of `collective`, with little on the busiest wire.

    Raises:
        Infeasible: the links do not join all ranks.

    Notes:
        Packed first, with equal roots; where that misses the bound, because roots may be chosen
        (allreduce) or messages have one way only, the chunks are rerouted one by one.
    """
    feeds = _feeds(collective, chunks_per_rank)
    runs = MOST_RUNS_BOTH_WAYS if collective.name == "allreduce" else MOST_RUNS
    up = machine.up(feeds, runs) if collective.reducing else ()
    down = machine.down(feeds, runs) if collective.name not in ("reduce", "reduce-scatter") else ()
    packed = machine.forest(up, down)
    if not collective.rooted and (hosts := machine.equal_hosts(runs)) is not None:
        return replace(packed, band=hosts.band, shift=hosts.shift)
    least = least_time(machine, collective, chunks_per_rank)
    if packed.span * ENOUGH <= least:
        return packed
    other = _rerouted(machine, collective, feeds, least)
    return min((packed, *other), key=lambda forest: (forest.span, forest.chain))


def _feeds(collective: Collective, chunks_per_rank: int) -> list[int]:
    if not collective.rooted:
        return [chunks_per_rank] * collective.ranks
    feeds = [0] * collective.ranks
    feeds[collective.root] = collective.nchunks(chunks_per_rank)
    return feeds


def least_time(machine: Machine, collective: Collective, chunks_per_rank: int) -> Fraction:
    """Return the time that no trees can beat, in seconds for chunks of 1 GB.

    Raises:
        Infeasible: the links do not join all ranks.
    """
    parts = chunks_per_rank
    if collective.rooted or collective.name == "allreduce":
        parts = collective.nchunks(chunks_per_rank)
    return machine.cut(collective) * parts


def chunked_share(machine: Machine, collective: Collective, chunks_per_rank: int) -> Fraction:
    """Return the part of the bound that cuts of whole chunks leave, without making the trees.

    Raises:
        Infeasible: the links do not join all ranks.

    Notes:
        Of an allreduce, the better of its two halves' and what choosing roots could gain.
    """
    feeds = tuple(_feeds(collective, chunks_per_rank))
    least = least_time(machine, collective, chunks_per_rank)
    halves = []
    if collective.reducing:
        halves.append(Demand(machine.wires.reverse, machine.fabric.reverse, feeds))
    if collective.name not in ("reduce", "reduce-scatter"):
        halves.append(Demand(machine.wires, machine.fabric, feeds))
    return min(Fraction(1), least / sum(least_span(half) for half in halves))


def _rerouted(
    machine: Machine, collective: Collective, feeds: list[int], least: Fraction
) -> list[Forest]:
    """Return what rerouting finds, first with shallow trees, then with any; empty if too large."""
    wires = machine.wires
    reduces, spreads = collective.reducing, collective.name not in ("reduce", "reduce-scatter")
    free = reduces and spreads
    total = sum(feeds)
    work = total * (wires.ranks if free else 1) * wires.ranks**2 * (reduces + spreads)
    rounds = min(_MOST_ROUNDS, _MOST_WORK // max(1, work))
    if rounds < 2:
        return []
    roots = [-1] * total if free else [r for r, fed in enumerate(feeds) for _ in range(fed)]
    found = []
    for deepest_up, deepest_down in _depths(machine, set(roots)):
        try:
            journeys = reroute(
                wires.ranks,
                list(wires.pairs),
                [list(way) for way in wires.routes],
                [float(rate) for rate in wires.rates],
                [(root, reduces, spreads) for root in roots],
                rounds=rounds,
                target=float(least),
                deepest_up=deepest_up,
                deepest_down=deepest_down,
            )
        except InputError:
            continue
        found.append(_forest(machine, journeys))
        if found[-1].span * ENOUGH <= least:
            break
    return found


def _depths(machine: Machine, roots: set[int]) -> list[tuple[int, int]]:
    """Return limits to the depth of trees up and down: twice the least for these roots; none."""
    ranks = machine.wires.ranks
    farthest = [(machine.radius(r, up=True), machine.radius(r, up=False)) for r in range(ranks)]
    if roots == {-1}:
        up, down = min(farthest, key=sum)
    else:
        up = max(farthest[root][0] for root in roots)
        down = max(farthest[root][1] for root in roots)
    return [(2 * up, 2 * down), (ranks, ranks)]


def _forest(
    machine: Machine, journeys: Sequence[tuple[int, Sequence[int], Sequence[int]]]
) -> Forest:
    up = Counter((root, tuple(parents)) for root, parents, _ in journeys if parents)
    down = Counter((root, tuple(parents)) for root, _, parents in journeys if parents)
    return machine.forest(_growths(up), _growths(down))


def _growths(trees: Counter[tuple[int, tuple[int, ...]]]) -> tuple[Growth, ...]:
    return tuple(Growth(root, weight, parent) for (root, parent), weight in sorted(trees.items()))
