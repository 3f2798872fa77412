"""Hierarchical methods: trees inside hosts, composed with links between hosts.

The links between hosts are slow and few, so every chunk crosses to each other host once and spreads
there. Methods differ in the tree inside a host (shallow, or a ring) and in the path between hosts:

- `hierarchical2`: shallow trees; from the owner's host straight to each other host.
- `hierarchical3`: shallow trees; from host to host, on a lane for each NIC (a broadcast or reduce
  on two trees of hosts). What differs by rank (alltoall, scatter, gather) goes from one rank of a
  host, in turn, to its rail's on another.
- `hierarchical_rings`: rings; straight from the owner to its local rank on each other host.

Sums are the same trees run backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.host_alltoall import host_alltoall
from tuccl.synth.classic.host_links import HostLinks, Lane, lanes_of
from tuccl.synth.classic.host_scatter import host_gather, host_scatter
from tuccl.synth.classic.host_trees import host_trees
from tuccl.synth.classic.local_routes import (
    equal_hosts,
    host_path,
    host_tree,
    require_links,
    reversed_sketch,
    slowest,
)
from tuccl.synth.classic.rail_alltoall import (
    host_pair_alltoall,
    rail_alltoall,
)
from tuccl.synth.classic.ring import segment_count, segments
from tuccl.synth.classic.ring_orders import host_ring
from tuccl.synth.classic.rounds import Rounds, Tree, TreeEdge
from tuccl.synth.model.hierarchy import compose_tree
from tuccl.synth.model.network import Pair
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import Schedule
from tuccl.synth.model.trace import Trace

HIERARCHICAL_RINGS_COLLECTIVES = frozenset({"allgather", "reduce-scatter", "allreduce"})
HIERARCHICAL2_COLLECTIVES = HIERARCHICAL_RINGS_COLLECTIVES | {"broadcast", "reduce", "alltoall"}
HIERARCHICAL3_COLLECTIVES = HIERARCHICAL2_COLLECTIVES | {"scatter", "gather"}

_OF_EQUAL_HOSTS = HIERARCHICAL3_COLLECTIVES & {"alltoall", "scatter", "gather"}
# Local ranks with channels of their own: three each, which make some 26 thread blocks a GPU.
_RING_CHANNELS = 8


def hierarchical2(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return a schedule in which chunks go straight to each host that needs them.

    Raises:
        Infeasible: there is one host only, or no link may carry some chunk where it must go.
    """
    _require_hosts(problem.sketch, "hierarchical2")
    name = problem.collective.name
    if name == "alltoall" and (schedule := rail_alltoall(problem)) is not None:
        return schedule
    trace = Trace(problem.collective, problem.chunks_per_rank, "hierarchical2")
    if name == "alltoall":
        host_alltoall(trace, problem.sketch)
    elif problem.collective.rooted:
        _root_segments(trace, problem)
    else:
        _owner_parts(trace, problem, partial(_owner_trees, around=False))
    return trace.schedule()


def hierarchical3(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return a schedule that passes chunks from host to host, or each host's by one rank.

    Raises:
        Infeasible: there is one host only, the links between hosts make no lane, or
            `hierarchical2` does the same; for an alltoall, a scatter or a gather, hosts differ.
    """
    name = problem.collective.name
    _require_hosts(problem.sketch, "hierarchical3")
    if name in _OF_EQUAL_HOSTS:
        return _between_equal_hosts(problem)
    if name in ("broadcast", "reduce"):
        return host_trees(problem)
    trace = Trace(problem.collective, problem.chunks_per_rank, "hierarchical3")
    if name == "allreduce":
        lanes = _Lanes(trace, problem)
        _lane_allreduce(lanes)
        lanes.run()
    elif problem.sketch.nhosts == 2:
        raise Infeasible(f"hierarchical3: {name} over two hosts is what hierarchical2 does")
    else:
        _owner_parts(trace, problem, partial(_owner_trees, around=True))
    return trace.schedule()


def _between_equal_hosts(problem: Problem) -> Schedule:
    """Return the schedule of an alltoall, a scatter or a gather of `hierarchical3`."""
    name, sketch = problem.collective.name, problem.sketch
    if not equal_hosts(sketch):
        raise Infeasible(f"hierarchical3: {name} needs equal hosts; use greedy")
    if name == "alltoall":
        schedule = host_pair_alltoall(problem)
    else:
        trace = Trace(problem.collective, problem.chunks_per_rank, "hierarchical3")
        move = host_scatter if name == "scatter" else host_gather
        move(trace, sketch, problem.collective.root)
        schedule = trace.schedule()
    require_links(sketch, sorted(schedule.sent), "hierarchical3")
    return schedule


def hierarchical_rings(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return a schedule whose parts go round inside hosts, and between equal local ranks of hosts.

    Every part goes round each host's ring on a channel of its own as far as there are any, so a
    thread block receives, adds and sends on in one step, and touches each byte once. Parts of ranks
    of the ring's own host come back by the channel they came by; others come back later, so that
    one channel would have them wait for each other. Chains are as long as a host is large: this is
    for large sizes.

    Raises:
        Infeasible: there is one host only, hosts differ in size, have no ring of the same order, or
            a link between the ranks of one local rank on two hosts is missing.
    """
    _require_hosts(problem.sketch, "hierarchical-rings")
    rings = _host_rings(problem.sketch)
    trace = Trace(problem.collective, problem.chunks_per_rank, "hierarchical-rings")

    def trees(sketch: Sketch, *, summing: bool) -> dict[int, Tree]:
        return _ring_trees(rings, summing=summing)

    _owner_parts(trace, problem, trees, chunks_at_once=1)
    return trace.schedule()


def _require_hosts(sketch: Sketch, method: str) -> None:
    if sketch.nhosts < 2:
        raise Infeasible(f"{method}: sketch {sketch.name[:60]} has one host; use allpairs or ring")


def _host_edges(sketch: Sketch, root: int, start: int = 0) -> list[TreeEdge]:
    """Return the shallow tree from `root` to its host, which has the chunk in round `start`."""
    return [
        TreeEdge(start + depth, parent, child) for parent, child, depth in host_tree(sketch, root)
    ]


def _owner_parts(
    trace: Trace,
    problem: Problem,
    trees: Callable[..., dict[int, Tree]],
    chunks_at_once: int | None = None,
) -> None:
    """Sum each rank's part on it, and spread it, as the collective requires.

    Args:
        trace: Takes the transfers.
        problem: An allgather, a reduce-scatter or an allreduce.
        trees: Called with a sketch and ``summing``, returns each owner's tree.
        chunks_at_once: Chunks of a part that follow one another through the trees; None: all.
    """
    each = problem.chunks_per_rank
    name, sketch = problem.collective.name, problem.sketch
    up = trees(reversed_sketch(sketch), summing=True) if name != "allgather" else {}
    down = trees(sketch, summing=False) if name != "reduce-scatter" else {}
    for first in range(0, each, chunks_at_once or each):
        for owners, run in ((up, Rounds.collect), (down, Rounds.spread)):
            rounds = Rounds(trace, problem.nbytes)
            for start, k in enumerate(range(first, min(first + (chunks_at_once or each), each))):
                for owner, tree in owners.items():
                    run(rounds, start, range(owner * each + k, owner * each + k + 1), tree)
            rounds.run()


def _owner_trees(sketch: Sketch, *, around: bool, summing: bool = False) -> dict[int, Tree]:
    """Return the tree from each rank to all others.

    Chunks cross from the owner's host to each other one, or with `around` from host to host.
    """
    links = HostLinks(sketch)
    return {owner: _owner_tree(sketch, links, owner, around) for owner in range(sketch.ranks)}


def _owner_tree(sketch: Sketch, links: HostLinks, owner: int, around: bool) -> list[TreeEdge]:
    home = sketch.hosts[owner]

    def inside(rank: int) -> list[Pair]:
        return [(parent, child) for parent, child, _ in host_tree(sketch, rank)]

    def crossings() -> Iterator[Pair]:
        landed = owner
        for ahead in range(1, sketch.nhosts):
            link = links.choose(owner, landed if around else owner, (home + ahead) % sketch.nhosts)
            landed = link.dst
            yield link.src, link.dst

    return [TreeEdge(*edge) for edge in compose_tree(owner, inside, crossings())]


def _root_segments(trace: Trace, problem: Problem) -> None:
    """Send (or sum) the root's whole buffer along its tree, in segments one behind the other."""
    summing = problem.collective.reducing
    sketch = reversed_sketch(problem.sketch) if summing else problem.sketch
    tree = _owner_tree(sketch, HostLinks(sketch), problem.collective.root, around=False)
    alpha, beta = slowest(sketch, ((edge.parent, edge.child) for edge in tree))
    count = segment_count(max(edge.round for edge in tree), problem.nbytes, alpha, beta)
    rounds = Rounds(trace, problem.nbytes)
    for start, chunks in enumerate(segments(range(problem.nchunks), count)):
        (rounds.collect if summing else rounds.spread)(start, chunks, tree)
    rounds.run()


def _host_rings(sketch: Sketch) -> list[tuple[int, ...]]:
    """Return each host's ranks in the order of its ring, the same local ranks one after another."""
    members = [sketch.ranks_of(host) for host in range(sketch.nhosts)]
    sizes = sorted({len(ranks) for ranks in members})
    if sizes[0] < 2 or len(sizes) > 1:
        raise Infeasible(
            f"hierarchical-rings: hosts of {' and '.join(map(str, sizes))} ranks, expected 2 or "
            "more on each and as many on all; use hierarchical2"
        )
    order = [members[0].index(rank) for rank in host_ring(sketch, 0)]
    rings = [tuple(ranks[local_rank] for local_rank in order) for ranks in members]
    around = [pair for ring in rings for pair in pairwise((*ring, ring[0]))]
    across = [(a, b) for ranks in zip(*rings, strict=True) for a in ranks for b in ranks if a != b]
    require_links(sketch, (*around, *across), "hierarchical-rings")
    return rings


def _ring_trees(rings: list[tuple[int, ...]], *, summing: bool) -> dict[int, Tree]:
    """Return the tree of each owner: to its index on every ring, then round each ring."""
    size, nhosts = len(rings[0]), len(rings)
    onward = -1 if summing else 1  # links are used in the ring's direction in both cases

    def tree(home: int, index: int) -> Iterator[TreeEdge]:
        channel = index % _RING_CHANNELS
        other = channel + (1 if summing else 2) * _RING_CHANNELS
        channels = [channel if host == home else other for host in range(nhosts)]
        for ahead in range(1, nhosts):
            host = (home + ahead) % nhosts
            when = nhosts - ahead if summing else ahead
            yield TreeEdge(when, rings[home][index], rings[host][index], channels[host])
        for step in range(size - 1):
            parent = (index + onward * step) % size
            child = (parent + onward) % size
            for host, ring in enumerate(rings):
                yield TreeEdge(nhosts + step, ring[parent], ring[child], channels[host])

    return {
        rings[home][index]: list(tree(home, index))
        for index in range(size)
        for home in range(nhosts)
    }


class _Lanes(Rounds):
    """Rounds of transfers over lanes; each lane has its share of the chunks, so all NICs work."""

    def __init__(self, trace: Trace, problem: Problem) -> None:
        super().__init__(trace, problem.nbytes)
        self.sketch = problem.sketch
        self.reversed = reversed_sketch(problem.sketch)
        self.hosts = problem.sketch.nhosts
        self.nchunks = problem.nchunks
        self.lanes = lanes_of(problem.sketch)

    def shares(self, blocks: int) -> Iterator[tuple[int, Lane, range]]:
        """Yield the chunks of each block and lane; those of a block follow one another."""
        count = len(self.lanes)
        for number, part in enumerate(segments(range(self.nchunks), blocks * count)):
            yield number // count, self.lanes[number % count], part

    def collect_on(
        self,
        start: int,
        lane: Lane,
        chunks: range,
        block: int | None = None,
        *,
        via_scratch: bool = False,
    ) -> int:
        """Sum `chunks` over each host on its rank of `lane`; return the round after the last."""
        return max(
            self.collect(
                start,
                chunks,
                _host_edges(self.reversed, rank),
                via_scratch=via_scratch,
                turn=self._steps(block, host),
            )
            for host, rank in enumerate(lane.entries)
        )

    def spread_from(
        self, start: int, lane: Lane, host: int, chunks: range, block: int | None = None
    ) -> None:
        """Send `chunks` to all of the host."""
        edges = _host_edges(self.sketch, lane.entries[host])
        self.spread(start - 1, chunks, edges, self._steps(block, host))

    def cross(
        self, when: int, lane: Lane, host: int, chunks: range, block: int, *, adding: bool
    ) -> None:
        """Send `chunks` from `host` to the next on `lane`, to be added there where `adding`."""
        src, dst = lane.exits[host], lane.entries[(host + 1) % self.hosts]
        turn = self._steps(block, host)
        self.walk(when, chunks, host_path(self.sketch, lane.entries[host], src), turn)
        if adding:
            self.add(when, chunks, dst, [src], turn=turn)
        else:
            self.send(when, chunks, src, dst, turn=turn)

    def _steps(self, block: int | None, host: int) -> int:
        """Return how many steps after the first the sums of `block` come to `host`; None: 0."""
        return 0 if block is None else (host - block - 1) % self.hosts


def _lane_allreduce(lanes: _Lanes) -> None:
    exchange = lanes.hosts == 2 and all(lane.entries == lane.exits for lane in lanes.lanes)
    for block, lane, chunks in lanes.shares(1 if exchange else lanes.hosts):
        for start, piece in enumerate(segments(chunks, lanes.trace.chunks_per_rank)):
            if exchange:
                _exchange_sums(lanes, lane, start, piece)
            else:
                _go_round(lanes, lane, start, piece, block)


def _exchange_sums(lanes: _Lanes, lane: Lane, start: int, chunks: range) -> None:
    """Sum on both hosts, exchange the sums, spread: one hop between hosts.

    Every rank of a host sums a part, and all parts set out at once: chains of additions would leave
    the links between hosts idle first, which costs more than touching bytes again.
    """
    one, other = lane.entries
    done = lanes.collect_on(start, lane, chunks, via_scratch=True)
    exchange = partial(lanes.trace.exchange, chunks.start, one, other, count=len(chunks), last=True)
    lanes.at(done, exchange)
    for host in range(lanes.hosts):
        lanes.spread_from(done + 1, lane, host, chunks)


def _go_round(lanes: _Lanes, lane: Lane, start: int, chunks: range, block: int) -> None:
    """Sum `chunks` from host to host, ending on host `block`, then send them round again."""
    hosts = lanes.hosts
    done = lanes.collect_on(start, lane, chunks, block)
    for step in range(hosts - 1):
        lanes.cross(done + step, lane, (block + 1 + step) % hosts, chunks, block, adding=True)
    done += hosts - 1
    for step in range(hosts):
        host = (block + step) % hosts
        lanes.spread_from(done + step, lane, host, chunks, block)
        if step < hosts - 1:
            lanes.cross(done + step, lane, host, chunks, block, adding=False)
