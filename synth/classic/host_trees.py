"""Broadcast and reduce of several hosts: on each lane, two trees of hosts share the chunks."""

from __future__ import annotations

from itertools import pairwise

from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.host_links import Lane, lanes_of
from tuccl.synth.classic.local_routes import host_path, host_tree, reversed_sketch, slowest
from tuccl.synth.classic.ring import segment_count, segments
from tuccl.synth.classic.rounds import Rounds, Tree, TreeEdge
from tuccl.synth.model.hierarchy import complementary_trees, compose_tree
from tuccl.synth.model.network import Pair
from tuccl.synth.model.problem import Problem
from tuccl.synth.model.schedule import LoweringHints, Schedule
from tuccl.synth.model.trace import Trace

# Ranks of a host up to which its trees have channels, and sends thread blocks, of their own: of 16
# ranks, some 65 thread blocks.
_MOST_SPLIT = 16
# Messages of all segments, each of which goes to every rank: more take minutes to make.
_MOST_MESSAGES = 1 << 20
# A hop between hosts is into the sender's buffer, over the network, and out of the receiver's.
_STAGES_PER_HOP = 3
# Latencies of a link inside a host that a hop there takes, with the copy on the rank between.
_HOP_LATENCIES = 12


def host_trees(problem: Problem) -> Schedule:
    """Return a schedule that sends the root's array down the trees of all lanes, or sums it up.

    The root deals its array out to the ranks of its host, each of which is the first of a lane.
    A host sends on to two others in one of a lane's two trees, and to none in the other: so it
    sends as much as it receives. What arrives spreads inside the host.

    Raises:
        Infeasible: some host has no link to the next, or a rank of a host cannot be reached.

    Notes:
        Sanders, Speck, Träff 2009 (two-tree broadcast).
    """
    trace = Trace(problem.collective, problem.chunks_per_rank, "hierarchical3")
    rounds = Rounds(trace, problem.nbytes)
    summing, root = problem.collective.reducing, problem.collective.root
    sketch = reversed_sketch(problem.sketch) if summing else problem.sketch
    run = rounds.collect if summing else rounds.spread
    split = sketch.nhosts > 2 and len(sketch.ranks_of(sketch.hosts[root])) <= _MOST_SPLIT
    lanes = lanes_of(sketch)
    most = _MOST_MESSAGES // (sketch.ranks * len(lanes))
    for lane, share in zip(lanes, segments(range(problem.nchunks), len(lanes)), strict=False):
        trees = _crossings(sketch, lane, root)
        parts = segments(share, len(trees))
        relays = _relays(sketch, root, lane, problem.chunk_bytes * len(share))
        for number, (crossings, part) in enumerate(zip(trees, parts, strict=False)):
            channel = number if split else 0
            turns = [_tree(sketch, root, relay, crossings, channel) for relay in relays]
            alpha, beta = slowest(sketch, crossings)
            hops = len(crossings).bit_length() if len(trees) > 1 else len(crossings)
            nbytes = problem.chunk_bytes * len(part) * len(trees)
            count = segment_count(_STAGES_PER_HOP * hops, nbytes, alpha, beta)
            count = min(count, max(1, most // len(trees)))
            size = max(1, len(part) // count)
            for start, chunks in enumerate(segments(part, -(-len(part) // size))):
                run(start, chunks, turns[start % len(turns)])
    rounds.run()
    return trace.schedule(LoweringHints(split_send_recv=split))


def _crossings(sketch: Sketch, lane: Lane, root: int) -> list[list[Pair]]:
    """Return the links between hosts of a lane's two trees, or of a chain where they lack one."""
    home, hosts = sketch.hosts[root], sketch.nhosts
    for shape in (complementary_trees(hosts)[: hosts - 1], [list(pairwise(range(hosts)))]):
        trees = [
            [(lane.exits[(home + a) % hosts], lane.entries[(home + b) % hosts]) for a, b in edges]
            for edges in shape
        ]
        if all(sketch.link(*crossing) for tree in trees for crossing in tree):
            break
    return trees


def _relays(sketch: Sketch, root: int, lane: Lane, nbytes: float) -> list[int]:
    """Return the ranks to which the root sends a lane's segments, `nbytes` in all, in turn.

    They hand them to the rest of the host. On its own lane the root is its own relay if that takes
    it less time than another hop.
    """
    first = lane.exits[sketch.hosts[root]]
    beside = [rank for rank in sketch.ranks_of(sketch.hosts[root]) if rank != root]
    if first != root or not beside:
        return [first]
    alpha, beta = slowest(sketch, ((root, rank) for rank in beside))
    return beside if (len(beside) - 1) * nbytes * beta > _HOP_LATENCIES * alpha else [root]


def _tree(sketch: Sketch, root: int, relay: int, crossings: list[Pair], channel: int) -> Tree:
    """Return the tree from the root over its host, through a relay, and over the other hosts.

    Rounds count up to 0 at the leaves: of what waits for a link, that with most hops to come goes
    first, and sums begin at once.
    """
    path = host_path(sketch, root, relay)

    def inside(rank: int) -> list[Pair]:
        edges = [(a, b) for a, b, _ in host_tree(sketch, relay if rank == root else rank)]
        if rank != root:
            return edges
        return [*pairwise(path), *(edge for edge in edges if edge[1] not in path)]

    edges = [edge[1:] for edge in compose_tree(root, inside, crossings)]
    height = dict.fromkeys(range(sketch.ranks), 0)
    for parent, child in reversed(edges):
        height[parent] = max(height[parent], height[child] + 1)
    return [TreeEdge(-height[child], parent, child, channel) for parent, child in edges]
