"""Ring methods: every link of a ring is busy all the time, which is best for large sizes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import sqrt

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.local_routes import slowest
from tuccl.synth.classic.ring_orders import ring_orders
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import Schedule
from tuccl.synth.model.trace import Trace

RING_COLLECTIVES = frozenset({"allgather", "reduce-scatter", "allreduce", "broadcast", "reduce"})

_Ring = tuple[int, ...]


def ring(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return a schedule on one ring (a chain from or to the root) with all chunks on one channel.

    Raises:
        Infeasible: the sketch has no ring.
    """
    return _scheduled(problem, ring_orders(problem.sketch, 1), "ring")


def rings(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return a schedule on several rings, a channel each, which share each rank's chunks.

    Where only one ring fits, as on a switch, the ranks' parts go round it on two channels by turns:
    a thread block then has half the steps of one that carries all parts.

    Raises:
        Infeasible: the sketch has no ring, or several but each rank's part is a single chunk, or
            one but the collective has a root.
    """
    collective, sketch = problem.collective, problem.sketch
    several = len(ring_orders(sketch, 2)) > 1
    if not several and collective.rooted:
        raise Infeasible(f"rings: only one ring fits sketch {sketch.name[:60]}; use ring")
    if several and problem.chunks_per_rank < 2 and not collective.rooted:
        raise Infeasible("rings: one chunk per rank cannot be shared; use more chunks, or ring")
    shares = problem.chunks_per_rank * (collective.ranks if collective.rooted else 1)
    orders = ring_orders(sketch, shares if several else 1)
    channels_per_ring = 1 if several else 2
    return _scheduled(problem, orders, "rings", channels_per_ring)


def _scheduled(
    problem: Problem, orders: tuple[_Ring, ...], method: str, channels_per_ring: int = 1
) -> Schedule:
    """Each ring has ``channels_per_ring`` channels, which share the ranks' parts."""
    collective = problem.collective
    trace = Trace(collective, problem.chunks_per_rank, method)
    if collective.rooted:
        _chains(trace, orders, problem.sketch, problem.nbytes)
        return trace.schedule()
    for batch in _batches(problem.chunks_per_rank, len(orders)):
        if collective.name != "allgather":
            _reduce_scatter(trace, orders, batch, channels_per_ring)
        if collective.name != "reduce-scatter":
            _allgather(trace, orders, batch, channels_per_ring)
    return trace.schedule()


def _batches(chunks_per_rank: int, rings: int) -> Iterator[list[tuple[int, int]]]:
    """Yield lists of (ring, chunk of each rank's part) that go round at the same time.

    One chunk goes round a ring at a time: were there more in flight than a connection holds, the
    ring would block.
    """
    shares = [
        range(q * chunks_per_rank // rings, (q + 1) * chunks_per_rank // rings)
        for q in range(rings)
    ]
    for batch in range(max(len(share) for share in shares)):
        yield [(q, share[batch]) for q, share in enumerate(shares) if batch < len(share)]


def _reduce_scatter(
    trace: Trace, orders: tuple[_Ring, ...], batch: list[tuple[int, int]], channels_per_ring: int
) -> None:
    """Each part goes round once and ends, summed, with its rank."""
    for step in range(len(orders[0]) - 1):
        for q, k in batch:
            for part, src, dst in _step(orders[q], step + 1):
                channel = q * channels_per_ring + part % channels_per_ring
                trace.reduce(part * trace.chunks_per_rank + k, src, dst, channel)


def _allgather(
    trace: Trace, orders: tuple[_Ring, ...], batch: list[tuple[int, int]], channels_per_ring: int
) -> None:
    """Each part goes round once from its rank."""
    for step in range(len(orders[0]) - 1):
        for q, k in batch:
            for part, src, dst in _step(orders[q], step):
                channel = q * channels_per_ring + part % channels_per_ring
                trace.send(part * trace.chunks_per_rank + k, src, dst, channel)


def _step(ring: _Ring, step: int) -> Iterator[tuple[int, int, int]]:
    """Yield (rank whose part moves, src, dst): ranks send the part of `step` ranks behind."""
    for index, rank in enumerate(ring):
        yield ring[(index - step) % len(ring)], rank, ring[(index + 1) % len(ring)]


def _chains(trace: Trace, orders: tuple[_Ring, ...], sketch: Sketch, nbytes: int) -> None:
    """Send segments down (or up) each ring, cut open at the root, one behind the other."""
    total = trace.collective.nchunks(trace.chunks_per_rank)
    shares = [
        range(q * total // len(orders), (q + 1) * total // len(orders)) for q in range(len(orders))
    ]
    hops = len(orders[0]) - 1
    cuts = []
    for chunks, ring in zip(shares, orders, strict=True):
        count = segment_count(hops, nbytes * len(chunks) / total, *slowest(sketch, pairwise(ring)))
        cuts.append(segments(chunks, count))
    for time in range(max(len(cut) for cut in cuts) + hops - 1):
        for q, cut in enumerate(cuts):
            for hop in range(hops):
                if 0 <= time - hop < len(cut):
                    _hop(trace, orders[q], q, hop, cut[time - hop])


def _hop(trace: Trace, ring: _Ring, channel: int, hop: int, segment: range) -> None:
    root = ring.index(trace.collective.root)
    if trace.collective.name == "broadcast":
        src, dst = ring[(root + hop) % len(ring)], ring[(root + hop + 1) % len(ring)]
        trace.send(segment.start, src, dst, channel, len(segment))
    else:
        src, dst = ring[(root + 1 + hop) % len(ring)], ring[(root + 2 + hop) % len(ring)]
        trace.reduce(segment.start, src, dst, channel, len(segment))


def segment_count(hops: int, nbytes: float, alpha: float, beta: float) -> int:
    """Return how many segments take `nbytes` over a chain of `hops` quickest.

    Notes:
        With m segments the time is (m + hops - 1)(alpha + nbytes beta / m), alpha in us and beta
        in us per byte; it is least at m = sqrt((hops - 1) nbytes beta / alpha).
    """
    return max(1, round(sqrt(max(0, hops - 1) * nbytes * beta / alpha)))


def segments(chunks: range, count: int) -> list[range]:
    """Return `chunks` cut in `count` runs, or as many as there are chunks."""
    count = min(count, len(chunks))
    bounds = [chunks.start + len(chunks) * k // count for k in range(count + 1)]
    return [range(a, b) for a, b in pairwise(bounds)]
