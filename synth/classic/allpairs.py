"""Direct sends between all pairs: one hop, or two where parts are summed or cut between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations

from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.fan_in import FanIn, LocalSum, prefers_scratch
from tuccl.synth.classic.local_routes import require_links, slowest
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import LoweringHints, Schedule
from tuccl.synth.model.trace import Trace


def allpairs(
    problem: Problem,
    options: Options = DEFAULT_OPTIONS,
    *,
    paired: bool = False,
    unordered: bool = False,
) -> Schedule:
    """Return a schedule of direct sends, in one step or two as is quicker at this size.

    Args:
        problem: The collective, its size and links.
        options: Not looked at.
        paired: Whether each peer has one thread block, which sends before it receives.
        unordered: Whether every rank of an allreduce adds the others' values to its own, in one
            step. Ranks then add in different orders, so results may differ in the last bit. In
            place this spares a wait: nothing is received where the rank's values are still read.

    Raises:
        Infeasible: the sketch lacks the link between a pair that must talk.
    """
    method = "allpairs" + "+paired" * paired + "+any-order" * unordered
    trace = Trace(problem.collective, problem.chunks_per_rank, method)
    if unordered:
        _require_all(trace, problem.sketch)
        _sum_unordered(trace)
    else:
        _BUILD[problem.collective.name](trace, problem.sketch, problem.nbytes)
    return trace.schedule(LoweringHints(sends_first=paired))


def _rounds(ranks: int) -> Iterator[tuple[int, int]]:
    """Yield (src, dst) of all pairs; in each round every rank has one to send to and one from."""
    for distance in range(1, ranks):
        for src in range(ranks):
            yield src, (src + distance) % ranks


def _require_all(trace: Trace, sketch: Sketch) -> None:
    require_links(sketch, permutations(range(sketch.ranks), 2), trace.method)


def _two_steps(trace: Trace, sketch: Sketch, nbytes: int) -> bool:
    """Return whether parts are worth a second step.

    Notes:
        Whole buffers to or from every other rank take alpha + (n - 1) N beta at a port, parts
        2 (alpha + (n - 1) / n N beta). Ports are taken as shared: beta is what a link has alone.
    """
    others = trace.collective.ranks - 1
    alpha, beta = slowest(sketch, _rounds(trace.collective.ranks))
    parts = 2 * nbytes * beta * others / (others + 1)
    return alpha + parts < others * nbytes * beta and _is_complete(sketch)


def _is_complete(sketch: Sketch) -> bool:
    return all(sketch.link(a, b) is not None for a, b in permutations(range(sketch.ranks), 2))


def _share(trace: Trace) -> None:
    """Send every rank's part to all others."""
    c = trace.chunks_per_rank
    for src, dst in _rounds(trace.collective.ranks):
        if trace.holds(src * c, src):
            trace.send(src * c, src, dst, count=c)


def _sum_parts(trace: Trace, nbytes: int) -> None:
    """Sum every rank's part on it."""
    ranks, c = trace.collective.ranks, trace.chunks_per_rank
    # Cut parts are for adding up side by side.
    via_scratch = c > 1 or prefers_scratch(ranks - 1, nbytes / ranks, c)
    fans = [FanIn(trace, rank, rank * c, c, via_scratch=via_scratch) for rank in range(ranks)]
    for src, dst in _rounds(ranks):
        fans[dst].receive(src)
    for fan in fans:
        fan.finish()


def _sum_everywhere(trace: Trace) -> None:
    """Sum everything on every rank by itself."""
    total = trace.collective.nchunks(trace.chunks_per_rank)
    everyone = range(trace.collective.ranks)
    sums = [LocalSum(trace, rank, total, everyone) for rank in everyone]
    for src, dst in sorted(_rounds(trace.collective.ranks), key=lambda pair: pair[0] == 0):
        sums[dst].receive(src)
    for each in sums:
        each.finish()


def _sum_unordered(trace: Trace) -> None:
    """Sum everything on every rank by itself, from its values on."""
    ranks, count = trace.collective.ranks, trace.collective.nchunks(trace.chunks_per_rank)
    sums = [
        LocalSum(trace, rank, count, [(rank - distance) % ranks for distance in range(ranks)])
        for rank in range(ranks)
    ]
    for src, dst in _rounds(ranks):
        sums[dst].receive(src)
    for each in sums:
        each.finish()


def _sum_on_root(trace: Trace) -> None:
    """Sum everything on the root."""
    ranks, root = trace.collective.ranks, trace.collective.root
    fan = FanIn(trace, root, 0, trace.collective.nchunks(trace.chunks_per_rank), via_scratch=True)
    for distance in range(1, ranks):
        fan.receive((root + distance) % ranks)
    fan.finish()


def _allgather(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    _require_all(trace, sketch)
    _share(trace)


def _reduce_scatter(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    _require_all(trace, sketch)
    _sum_parts(trace, nbytes)


def _allreduce(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    _require_all(trace, sketch)
    if _two_steps(trace, sketch, nbytes):
        _sum_parts(trace, nbytes)
        _share(trace)
    else:
        _sum_everywhere(trace)


def _alltoall(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    _require_all(trace, sketch)
    ranks, c = trace.collective.ranks, trace.chunks_per_rank
    for src, dst in _rounds(ranks):
        trace.send((src * ranks + dst) * c, src, dst, count=c)


def _broadcast(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    ranks, root, c = trace.collective.ranks, trace.collective.root, trace.chunks_per_rank
    if not _two_steps(trace, sketch, nbytes):
        require_links(sketch, ((root, r) for r in range(ranks) if r != root), trace.method)
        for distance in range(1, ranks):
            trace.send(0, root, (root + distance) % ranks, count=ranks * c)
        return
    for distance in range(1, ranks):
        part = (root + distance) % ranks
        trace.send(part * c, root, part, count=c)
    for src, dst in _rounds(ranks):
        if dst != root:
            trace.send(src * c, src, dst, count=c)


def _reduce(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    ranks, root, c = trace.collective.ranks, trace.collective.root, trace.chunks_per_rank
    if not _two_steps(trace, sketch, nbytes):
        require_links(sketch, ((r, root) for r in range(ranks) if r != root), trace.method)
        _sum_on_root(trace)
        return
    _sum_parts(trace, nbytes)
    for distance in range(1, ranks):
        part = (root + distance) % ranks
        trace.send(part * c, part, root, count=c)


def _scatter(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    ranks, root, c = trace.collective.ranks, trace.collective.root, trace.chunks_per_rank
    require_links(sketch, ((root, r) for r in range(ranks) if r != root), trace.method)
    for distance in range(1, ranks):
        dst = (root + distance) % ranks
        trace.send(dst * c, root, dst, count=c)


def _gather(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    ranks, root, c = trace.collective.ranks, trace.collective.root, trace.chunks_per_rank
    require_links(sketch, ((r, root) for r in range(ranks) if r != root), trace.method)
    for distance in range(1, ranks):
        src = (root + distance) % ranks
        trace.send(src * c, src, root, count=c)


_BUILD: dict[str, Callable[[Trace, Sketch, int], None]] = {
    "allgather": _allgather,
    "reduce-scatter": _reduce_scatter,
    "allreduce": _allreduce,
    "alltoall": _alltoall,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "scatter": _scatter,
    "gather": _gather,
}
ALLPAIRS_COLLECTIVES = frozenset(_BUILD)
PAIRED_COLLECTIVES = frozenset({"allgather", "reduce-scatter", "allreduce", "alltoall"})
UNORDERED_COLLECTIVES = frozenset({"allreduce"})
