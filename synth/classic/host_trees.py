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
# A hop between hosts is into the sender's buffer, over the network, and out of the receiver's.
_STAGES_PER_HOP = 3


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
    split = len(sketch.ranks_of(sketch.hosts[root])) <= _MOST_SPLIT
    lanes = lanes_of(sketch)
    for lane, share in zip(lanes, segments(range(problem.nchunks), len(lanes)), strict=False):
        trees = _crossings(sketch, lane, root)
        parts = segments(share, len(trees))
        for number, (crossings, part) in enumerate(zip(trees, parts, strict=False)):
            channel = number if split else 0
            turns = _turns(sketch, root, lane, crossings, channel)
            hops = max(edge.round for edge in turns[0]) // 2
            alpha, beta = slowest(sketch, crossings)
            pieces = _segments(part, problem.chunk_bytes, hops, alpha, len(trees) * beta)
            for start, chunks in enumerate(pieces):
                run(start, chunks, turns[start % len(turns)])
    rounds.run()
    return trace.schedule(LoweringHints(split_send_recv=split))


def _crossings(sketch: Sketch, lane: Lane, root: int) -> list[list[Pair]]:
    """Return the links between hosts of a lane's two trees, or of a chain where they lack one."""
    home, hosts = sketch.hosts[root], sketch.nhosts
    for shape in (complementary_trees(hosts), [list(pairwise(range(hosts)))]):
        trees = [
            [(lane.exits[(home + a) % hosts], lane.entries[(home + b) % hosts]) for a, b in edges]
            for edges in shape
        ]
        if all(sketch.link(*crossing) for tree in trees for crossing in tree):
            break
    return trees


def _turns(
    sketch: Sketch, root: int, lane: Lane, crossings: list[Pair], channel: int
) -> list[Tree]:
    """Return the trees over all ranks that a lane's segments take in turn.

    The root sends each chunk to one rank of its host, which hands it to the others: on the root's
    own lane, to each rank in turn. Sums of a host are complete before those of others arrive.
    """
    home = sketch.hosts[root]
    beside = [rank for rank in sketch.ranks_of(home) if rank != root] or [root]
    first = lane.exits[home]

    def tree(relay: int) -> Tree:
        path = host_path(sketch, root, relay)

        def inside(rank: int) -> list[Pair]:
            edges = [(a, b) for a, b, _ in host_tree(sketch, relay if rank == root else rank)]
            if rank != root:
                return edges
            return [*pairwise(path), *(edge for edge in edges if edge[1] not in path)]

        return [
            TreeEdge(2 * depth + (sketch.hosts[a] == sketch.hosts[b]), a, b, channel)
            for depth, a, b in compose_tree(root, inside, crossings)
        ]

    return [tree(relay) for relay in (beside if first == root else [first])]


def _segments(
    chunks: range, chunk_bytes: float, hops: int, alpha: float, beta: float
) -> list[range]:
    """Return `chunks` in equal segments that follow one another down a tree."""
    nbytes = chunk_bytes * len(chunks)
    count = segment_count(_STAGES_PER_HOP * hops, nbytes, alpha / _STAGES_PER_HOP, beta)
    size = max(1, len(chunks) // count)
    return segments(chunks, -(-len(chunks) // size))
