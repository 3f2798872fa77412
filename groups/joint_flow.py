"""The least time of groups that call at once, by a linear program over the flows of all calls.

It is the multi-commodity flow of TE-CCL (Liu et al., SIGCOMM 2024) without its epochs: bytes are
divided at will, and only rates limit them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

from tuccl.errors import InputError
from tuccl.synth.bounds.cuts import listed
from tuccl.synth.model.linear_program import LinearProgram
from tuccl.synth.model.network import Pair
from tuccl.topology import Topology, merge_nics
from tuccl.topology.paths import find_path
from tuccl.topology.relays import Hop
from tuccl.topology.symmetry import LinkGraph, Symmetry, rotation

FLOW_COLLECTIVES = ("allgather", "reduce-scatter", "alltoall", "allreduce")
# Routes between GPUs that are looked at, and flows on them: GLOP takes seconds for so many.
_MOST_ROUTES = 1 << 15
_MOST_FLOWS = 1 << 14
_TIGHT = 1e-6  # a link's part of the time from which on it counts as full


class Call(NamedTuple):
    """A collective call of a group: its ranks, and the whole array as nccl-tests counts it."""

    members: tuple[int, ...]
    collective: str
    nbytes: int


@dataclass(frozen=True)
class JointFlow:
    """The least time of calls that start together.

    Attributes:
        ns_per_byte: Of the largest array.
        latency_us: Least latency of routes over the links that limit the calls, their mean by how
            much each limits.
        links: The links that limit the calls, in words.
    """

    ns_per_byte: float
    latency_us: float
    links: str

    def time_us(self, nbytes: int) -> float:
        """Return the us that no programs beat where the largest array has ``nbytes``."""
        return self.latency_us + self.ns_per_byte * nbytes / 1e3


def joint_flow(
    topology: Topology, calls: Sequence[Call], *, symmetric: bool = True, relays: bool = False
) -> JointFlow | None:
    """Return the least time of calls that start together, None where no call limits it.

    Members pass on to members what they have, over the route of each pair; links are shared by all
    calls. Calls with a root are left out, which makes the bound no less true.

    >>> from tuccl.topology.shapes import torus
    >>> square, side = torus((2, 2), wrap=False), [Call((0, 1), "allgather", 1 << 30)]
    >>> [joint_flow(square, side, relays=each).ns_per_byte for each in (False, True)]
    [0.01, 0.005]

    Args:
        topology: The whole machine.
        calls: What groups call.
        symmetric: Whether flows that a symmetry takes into each other are one variable: the answer
            is the same, the program smaller.
        relays: Whether every GPU of the machine may pass on, copy and add up what is not its own.
            NCCL and MSCCL cannot do so: only members run a communicator's kernels.

    Raises:
        InputError: OR-Tools is not installed, or the linear program would be too large.

    Notes:
        Trees from all members of a group fit in capacities between its members if a flow of all
        shards gets to each member (Edmonds 1973; ForestColl, arXiv 2402.06787): so it is for an
        allgather, and backwards for a reduce-scatter. Each piece of an all-to-all flows from its
        source to its destination. An allreduce sends each element at least 2 (p - 1) times between
        the p parts of any partition of its group (Harary and Schwenk 1974), so half of what pairs
        exchange, both directions added up, contains spanning trees (Tutte 1961, Nash-Williams
        1961), which are those of an allgather in some direction. As in `tuccl.synth.bound`,
        switches do not reduce or multicast (NVLS, SHARP), and elements are not coded.

        With relays trees join members through any GPUs. That a flow gets to each member is then the
        bidirected cut relaxation of Steiner trees (Wong 1984), necessary but not sufficient. An
        allreduce is assumed to reduce each element along one tree and to spread it along another.
    """
    parts = Counter[tuple[tuple[int, ...], str]]()
    for members, collective, nbytes in calls:
        if collective in FLOW_COLLECTIVES and len(members) > 1:
            parts[tuple(sorted(members)), collective] += nbytes
    if not parts:
        return None
    largest = max(call.nbytes for call in calls)
    demands = [_Demand(*key, part / largest) for key, part in sorted(parts.items())]
    return _solved(topology, tuple(demands), symmetric, relays)


class _Demand(NamedTuple):
    members: tuple[int, ...]
    collective: str
    size: float  # in arrays of the largest call


# A call's number and a pair of its members.
_Use = tuple[int, Pair]


@lru_cache(maxsize=64)
def _solved(
    topology: Topology, demands: tuple[_Demand, ...], symmetric: bool, relays: bool
) -> JointFlow:
    nodes = [range(topology.ranks) if relays else each.members for each in demands]
    pairs = sum(len(each) * (len(each) - 1) for each in nodes)
    if pairs > _MOST_ROUTES:
        raise InputError(f"{pairs} routes between GPUs: no flows are sought on so many")
    family = _Family(topology, demands, symmetric, relays)
    flows = sum(len(nodes[n]) ** 2 for (n, _), *_ in family.members)
    if flows > _MOST_FLOWS:
        raise InputError(f"{flows} flows between GPUs: too many for a linear program")
    return _Flows(family).solution()


class _Family:
    """Calls, the routes between the GPUs that carry them, and what symmetries take into each other.

    Attributes:
        demands: The calls.
        nodes: The GPUs that carry each call: its members, with relays all.
        routes: Of each pair of these.
        members: Members, by call, in sets of equivalent ones.
        uses: Pairs of nodes that a route joins in either direction, likewise.
    """

    def __init__(
        self,
        topology: Topology,
        demands: Sequence[_Demand],
        symmetric: bool = True,
        relays: bool = False,
    ) -> None:
        self.demands = demands
        everyone = tuple(range(topology.ranks))
        self.nodes = [everyone if relays else each.members for each in demands]
        uses = [(n, pair) for n, each in enumerate(self.nodes) for pair in permutations(each, 2)]
        merged = merge_nics(topology)
        found = {pair: find_path(merged, *pair) for _, pair in uses}
        self.routes = {pair: path for pair, path in found.items() if path is not None}
        symmetry = self._symmetry(topology, rotate=symmetric)
        places = ((n, rank) for n, each in enumerate(demands) for rank in each.members)
        self.members = symmetry.orbits(places, lambda to, at: (to.sets[at[0]], to.ranks[at[1]]))
        joined = ((n, p) for n, p in uses if p in self.routes or p[::-1] in self.routes)
        self.uses = symmetry.orbits(joined, lambda to, use: (to.sets[use[0]], to.pair(use[1])))

    def _symmetry(self, topology: Topology, *, rotate: bool) -> Symmetry:
        """Return the rotations that take calls to calls and routes to routes, or the identity."""
        routes, hosts, ranks = self.routes.values(), len(topology.hosts), topology.ranks
        graph = LinkGraph(
            ranks,
            ends=list(self.routes),
            costs=[tuple((hop.bandwidth, hop.latency) for hop in path.hops) for path in routes],
            resources=[[(hop.src, hop.dst) for hop in path.hops] for path in routes],
            sets=[((each.collective, each.size), frozenset(each.members)) for each in self.demands],
        )
        if ranks % hosts or not rotate:
            return Symmetry(graph)
        size = ranks // hosts
        inside = ((offset, size) for offset in range(1, size) if size % offset == 0)
        between = ((size * offset, ranks) for offset in range(1, hosts) if hosts % offset == 0)
        rotations = (rotation(ranks, *turn) for turn in (*inside, *between))
        return Symmetry(graph, tuple(filter(None, map(graph.automorphism, rotations))))


class _Flows:
    """The linear program: the least time in which the loads of all calls fit on the links."""

    def __init__(self, family: _Family) -> None:
        self._family = family
        self._program = LinearProgram()
        self._time = self._program.variable()
        routes = family.routes
        self._load = {use: load for use, load in self._by_orbit().items() if use[1] in routes}
        self._links = self._add_links()
        # Capacities of an allreduce's trees, which take what a pair exchanges in either direction.
        self._tree = self._by_orbit()
        self._add_trees()
        pieces: dict[int, Counter[int]] = defaultdict(Counter)
        for orbit in family.members:
            number, rank = orbit[0]
            if family.demands[number].collective == "alltoall":
                for pair, flow in self._scatter(number, rank).items():
                    pieces[self._load[number, pair]][flow] += len(orbit)
            else:
                self._gather(number, rank)
        uses = Counter(self._load.values())
        for load, flows in pieces.items():
            self._program.at_most(0, {**flows, load: -uses[load]})

    def solution(self) -> JointFlow:
        """Return the least time, and the links that limit it by the dual of the program.

        Notes:
            In time T a link is of use for T less the latency of the routes over it, so what the
            dual weighs links with is added up of their latencies too.
        """
        least, gains = self._program.minimum(self._time)
        latency_us: dict[Hop, float] = {}
        for path in self._family.routes.values():
            for hop in path.hops:
                latency_us[hop] = min(path.latency, latency_us.get(hop, path.latency))
        parts = {row: gains[row] * hops[0].bandwidth for row, hops in self._links.items()}
        full = sorted((row for row in parts if parts[row] > _TIGHT), key=lambda row: -parts[row])
        return JointFlow(
            least,
            sum(parts[row] * min(latency_us[hop] for hop in self._links[row]) for row in full),
            listed([f"{hop.src}>{hop.dst}" for row in full for hop in self._links[row]]),
        )

    def _by_orbit(self) -> dict[_Use, int]:
        """Return a variable for each pair of nodes, one for equivalent pairs."""
        shared = ((uses, self._program.variable()) for uses in self._family.uses)
        return {use: variable for uses, variable in shared for use in uses}

    def _add_links(self) -> dict[int, list[Hop]]:
        """Hold links to their rates; return the links that each row stands for."""
        loads: dict[Hop, Counter[int]] = defaultdict(Counter)
        for (_, pair), load in self._load.items():
            for hop in self._family.routes[pair].hops:
                loads[hop][load] += 1
        alike: dict[tuple[float, frozenset[tuple[int, int]]], list[Hop]] = defaultdict(list)
        for hop, terms in loads.items():
            alike[hop.bandwidth, frozenset(terms.items())].append(hop)
        return {
            self._program.at_most(0, {**dict(terms), self._time: -gbs}): hops
            for (gbs, terms), hops in alike.items()
        }

    def _add_trees(self) -> None:
        """Hold trees to half of what nodes exchange, both directions added up."""
        for (number, (src, dst)), *_ in self._family.uses:
            terms = Counter[int]()
            for use in ((number, (src, dst)), (number, (dst, src))):
                terms[self._tree[use]] += 2
                if use in self._load:
                    terms[self._load[use]] -= 1
            if self._family.demands[number].collective == "allreduce":
                self._program.at_most(0, terms)

    def _gather(self, number: int, sink: int) -> None:
        """Have all shards of a call get to a member within the capacities between members."""
        members, collective, size = self._family.demands[number]
        nodes = self._family.nodes[number]
        capacity = self._tree if collective == "allreduce" else self._load
        flows = {}
        for src, dst in permutations(nodes, 2):
            use = number, (dst, src) if collective == "reduce-scatter" else (src, dst)
            if use in capacity and src != sink:
                flows[src, dst] = self._program.variable()
                self._program.at_most(0, {flows[src, dst]: 1, capacity[use]: -1})
        shard = size / len(members)
        held = dict.fromkeys(members, shard) | {sink: shard - size}
        for node in nodes:
            self._keep(flows, node, held.get(node, 0))

    def _scatter(self, number: int, source: int) -> dict[Pair, int]:
        """Return flows that take a member's pieces of an all-to-all to all others."""
        members, _, size = self._family.demands[number]
        nodes = self._family.nodes[number]
        flows = {
            pair: self._program.variable()
            for pair in permutations(nodes, 2)
            if (number, pair) in self._load and pair[1] != source
        }
        for node in nodes:
            if node != source:
                self._keep(flows, node, -size / len(members) if node in members else 0)
        return flows

    def _keep(self, flows: Mapping[Pair, int], node: int, most: float) -> None:
        """Hold what leaves a GPU, less what comes to it, to a most."""
        terms = {flow: -1 for (_, dst), flow in flows.items() if dst == node}
        terms |= {flow: 1 for (src, _), flow in flows.items() if src == node}
        self._program.at_most(most, terms)
