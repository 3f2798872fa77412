"""Two-level methods: every chunk crosses to each other host once, and spreads there.

What is shared most, the way between hosts, carries least. `hierarchical2` goes from the owner's
host to each other host directly; `hierarchical3` (`tuccl.synth.classic.hierarchical3`) passes from host to
host on lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.synth.classic.host_moves import (
    Gateways,
    Piece,
    reversed_sketch,
    run_down,
    run_up,
    spread_moves,
)
from tuccl.synth.classic.local_routes import host_path, slowest
from tuccl.synth.classic.ring import segment_count, segments
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import Schedule
from tuccl.synth.model.trace import Trace

__all__ = ["HIERARCHICAL2_COLLECTIVES", "hierarchical2", "part_pieces", "require_hosts"]


def hierarchical2(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return a schedule in which chunks go straight to each host that needs them.

    Raises:
        Infeasible: there is one host only, or no link may carry some chunk where it must go.
    """
    require_hosts(problem.sketch, "hierarchical2")
    trace = Trace(problem.collective, problem.chunks_per_rank, "hierarchical2")
    _BUILD[problem.collective.name](trace, problem.sketch, problem.nbytes)
    return trace.schedule()


def require_hosts(sketch: Sketch, method: str) -> None:
    """Do nothing if there are several hosts.

    Raises:
        Infeasible: there is one.
    """
    if sketch.nhosts < 2:
        raise Infeasible(f"{method}: sketch {sketch.name[:60]} has one host; use allpairs or ring")


def part_pieces(sketch: Sketch, chunks_per_rank: int, *, around: bool) -> list[Piece]:
    """Return how each rank's part spreads, one chunk behind the other."""
    gateways = Gateways(sketch)
    ways = [spread_moves(sketch, gateways, owner, around=around) for owner in range(sketch.ranks)]
    return [
        Piece(owner * chunks_per_rank + k, 1, k, way)
        for k in range(chunks_per_rank)
        for owner, way in enumerate(ways)
    ]


def _allgather(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    run_down(trace, part_pieces(sketch, trace.chunks_per_rank, around=False))


def _reduce_scatter(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    back = reversed_sketch(sketch)
    run_up(trace, part_pieces(back, trace.chunks_per_rank, around=False), nbytes)


def _allreduce(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    _reduce_scatter(trace, sketch, nbytes)
    _allgather(trace, sketch, nbytes)


def _whole_pieces(trace: Trace, sketch: Sketch, nbytes: int) -> list[Piece]:
    """Return how the root's whole buffer spreads, in segments one behind the other."""
    root = trace.collective.root
    way = spread_moves(sketch, Gateways(sketch), root, around=False)
    chunks = range(trace.collective.nchunks(trace.chunks_per_rank))
    rounds = max(move.time for move in way)
    alpha, beta = slowest(sketch, ((move.src, move.dst) for move in way))
    cut = segments(chunks, segment_count(rounds, nbytes, alpha, beta))
    return [Piece(part.start, len(part), k, way) for k, part in enumerate(cut)]


def _broadcast(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    run_down(trace, _whole_pieces(trace, sketch, nbytes))


def _reduce(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    run_up(trace, _whole_pieces(trace, reversed_sketch(sketch), nbytes), nbytes)


class _Bundle(NamedTuple):
    """Chunks of `sources`, all of one host, that go to `dst` by one link."""

    sources: tuple[int, ...]
    dst: int
    link: LogicalLink

    def chunks(self, trace: Trace, sources: Iterable[int] | None = None) -> list[int]:
        """Return the numbers of the chunks (of `sources` only, if given)."""
        c, ranks = trace.chunks_per_rank, trace.collective.ranks
        return [
            (src * ranks + self.dst) * c + k
            for src in (self.sources if sources is None else sources)
            for k in range(c)
        ]


def _alltoall(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    """Gather what goes to one rank of another host on one rank of this one; send it as one.

    The gathering rank has the destination's place in its host, where links allow.
    """
    bundles = _bundles(sketch)
    for bundle in bundles:
        for src in bundle.sources:
            if src == bundle.link.src:  # beside the others', so that all go as one
                trace.send_each(bundle.chunks(trace, [src]), src, src)
            else:
                _walk(trace, bundle.chunks(trace, [src]), host_path(sketch, src, bundle.link.src))
    for src, dst in _neighbours(sketch):
        first = (src * sketch.ranks + dst) * trace.chunks_per_rank
        chunks = range(first, first + trace.chunks_per_rank)
        _walk(trace, chunks, host_path(sketch, src, dst))
    for bundle in bundles:
        trace.send_each(bundle.chunks(trace), bundle.link.src, bundle.link.dst)
    for bundle in bundles:
        _walk(trace, bundle.chunks(trace), host_path(sketch, bundle.link.dst, bundle.dst))


def _bundles(sketch: Sketch) -> list[_Bundle]:
    """Return what crosses hosts, dealt out so that ranks do not all wait for one."""
    gateways = Gateways(sketch)
    found = []
    for ahead in range(1, sketch.nhosts):
        for host in range(sketch.nhosts):
            for dst in sketch.ranks_of((host + ahead) % sketch.nhosts):
                for sources in _same_rule(sketch, sketch.ranks_of(host)):
                    link = gateways.choose(sources[0], sources[0], sketch.hosts[dst], dst)
                    found.append(_Bundle(sources, dst, link))
    return found


def _same_rule(sketch: Sketch, members: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return `members` grouped by which senders the relay rule lets carry their chunks."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank in members:
        ruled = tuple(s for s, carried in sorted(sketch.relays.items()) if carried)
        carriers = tuple(s for s in ruled if rank in sketch.relays[s] or rank == s)
        groups.setdefault(carriers, []).append(rank)
    return [tuple(group) for group in groups.values()]


def _neighbours(sketch: Sketch) -> Iterator[tuple[int, int]]:
    """Yield (src, dst) of all pairs inside hosts, by distance."""
    for distance in range(1, sketch.ranks):
        for src in range(sketch.ranks):
            dst = (src + distance) % sketch.ranks
            if sketch.hosts[src] == sketch.hosts[dst]:
                yield src, dst


def _walk(trace: Trace, chunks: Sequence[int], way: tuple[int, ...]) -> None:
    for src, dst in pairwise(way):
        trace.send_each(chunks, src, dst)


_BUILD: dict[str, Callable[[Trace, Sketch, int], None]] = {
    "allgather": _allgather,
    "reduce-scatter": _reduce_scatter,
    "allreduce": _allreduce,
    "alltoall": _alltoall,
    "broadcast": _broadcast,
    "reduce": _reduce,
}
HIERARCHICAL2_COLLECTIVES = frozenset(_BUILD)
