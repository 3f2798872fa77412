"""Recursive doubling and halving, Bruck's exchange and binomial trees: fewest rounds.

For small sizes the number of rounds decides: log2 of the ranks, rounded up, here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.local_routes import require_links, slowest
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import Schedule
from tuccl.synth.model.trace import Trace


class _Send(NamedTuple):
    """The parts of `parts` (ranks' parts of the whole buffer) go from `src` to `dst`."""

    src: int
    dst: int
    parts: tuple[int, ...]


_Rounds = list[list[_Send]]


def recursive(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return a schedule of ceil(log2 ranks) rounds (twice as many for some allreduces).

    Raises:
        Infeasible: the sketch lacks a link that a round needs.
    """
    trace = Trace(problem.collective, problem.chunks_per_rank, "recursive")
    _BUILD[problem.collective.name](trace, problem.sketch, problem.nbytes)
    return trace.schedule()


def _allgather(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    _run(trace, sketch, _doubling(sketch), reducing=False)


def _reduce_scatter(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    _run(trace, sketch, _backwards(_doubling(sketch)), reducing=True)


def _allreduce(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    """Halve and double, or exchange whole buffers, whichever is quicker at this size."""
    rounds = _doubling(sketch)
    pairs = {(s.src, s.dst) for sends in rounds for s in sends}
    alpha, beta = slowest(sketch, pairs)
    ranks = trace.collective.ranks
    power = 1 << (ranks.bit_length() - 1)
    steps = power.bit_length() - 1 + 2 * (power != ranks)
    doubling_us = steps * (alpha + nbytes * beta)
    halving_us = 2 * (len(rounds) * alpha + nbytes * beta * (ranks - 1) / ranks)
    if doubling_us < halving_us and _has_links(sketch, _exchange_pairs(ranks)):
        _exchange_whole(trace)
    else:
        rounds = _in_a_row(rounds, sketch)
        _run(trace, sketch, _backwards(rounds), reducing=True)
        _run(trace, sketch, rounds, reducing=False)


def _doubling(sketch: Sketch) -> _Rounds:
    """Return the rounds of an allgather.

    Partners are at distances that are powers of two where ranks are; else it is Bruck's exchange,
    where a rank always sends to lower ranks and the parts that it has are a run of ranks.
    """
    ranks = sketch.ranks
    if ranks & (ranks - 1):
        return _bruck(ranks)
    have: list[set[int]] = [{rank} for rank in range(ranks)]
    rounds = []
    for distance in _distances(sketch):
        rounds.append([_Send(r, r ^ distance, tuple(sorted(have[r]))) for r in range(ranks)])
        have = [have[r] | have[r ^ distance] for r in range(ranks)]
    return rounds


def _distances(sketch: Sketch) -> list[int]:
    """Return the distances of partners: other hosts first, while there is little to send."""
    ranks = sketch.ranks
    distances = [1 << k for k in range(ranks.bit_length() - 1)]
    inter = [
        d for d in distances if any(sketch.hosts[r] != sketch.hosts[r ^ d] for r in range(ranks))
    ]
    return inter + [d for d in distances if d not in inter]


def _in_a_row(rounds: _Rounds, sketch: Sketch) -> _Rounds:
    """Return the rounds with parts numbered so that each send is one run of chunks: one message.

    An allreduce is free to say which rank sums which part.
    """
    if sketch.ranks & (sketch.ranks - 1):
        return rounds
    bits = [d.bit_length() - 1 for d in _distances(sketch)]
    index = [
        sum((rank >> bit & 1) << k for k, bit in enumerate(bits)) for rank in range(sketch.ranks)
    ]
    return [[_Send(s.src, s.dst, tuple(index[p] for p in s.parts)) for s in r] for r in rounds]


def _bruck(ranks: int) -> _Rounds:
    rounds: _Rounds = []
    distance = 1
    while distance < ranks:
        count = min(distance, ranks - distance)
        rounds.append(
            [
                _Send(
                    (r + distance) % ranks,
                    r,
                    tuple((r + distance + k) % ranks for k in range(count)),
                )
                for r in range(ranks)
            ]
        )
        distance *= 2
    return rounds


def _backwards(rounds: _Rounds) -> _Rounds:
    """Return the rounds of a reduce-scatter: the allgather's, reversed in order and direction."""
    return [[_Send(s.dst, s.src, s.parts) for s in sends] for sends in reversed(rounds)]


def _run(trace: Trace, sketch: Sketch, rounds: _Rounds, *, reducing: bool) -> None:
    require_links(sketch, ((s.src, s.dst) for sends in rounds for s in sends), trace.method)
    transfer = trace.reduce if reducing else trace.send
    c = trace.chunks_per_rank
    for sends in rounds:
        for s in sends:
            for first, count in _runs(s.parts):
                transfer(first * c, s.src, s.dst, count=count * c)


def _runs(parts: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield (first, count) of the runs of numbers in a row."""
    ordered = sorted(parts)
    cuts = [0, *(k + 1 for k, (a, b) in enumerate(pairwise(ordered)) if b != a + 1), len(ordered)]
    yield from ((ordered[a], b - a) for a, b in pairwise(cuts))


def _has_links(sketch: Sketch, pairs: set[tuple[int, int]]) -> bool:
    return all(sketch.link(*pair) is not None for pair in pairs)


def _exchange_pairs(ranks: int) -> set[tuple[int, int]]:
    power = 1 << (ranks.bit_length() - 1)
    pairs = {(r, r ^ (1 << k)) for r in range(power) for k in range(power.bit_length() - 1)}
    pairs |= {(r, r - power) for r in range(power, ranks)}
    return pairs | {(b, a) for a, b in pairs}


def _exchange_whole(trace: Trace) -> None:
    """Exchange sums of everything with partners at doubling distances.

    Ranks beyond a power of two give theirs to a partner first, and get the result from it.
    """
    ranks, total = trace.collective.ranks, trace.collective.nchunks(trace.chunks_per_rank)
    power = 1 << (ranks.bit_length() - 1)
    for extra in range(power, ranks):
        trace.reduce(0, extra, extra - power, count=total)
    distance = 1
    while distance < power:
        for rank in range(power):
            if rank < rank ^ distance:
                last = distance * 2 == power
                trace.exchange(0, rank, rank ^ distance, count=total, last=last)
        distance *= 2
    for extra in range(power, ranks):
        trace.send(0, extra - power, extra, count=total)


def _tree(trace: Trace, sketch: Sketch) -> Iterator[tuple[int, int, range]]:
    """Yield (parent, child, places under the child) of a binomial tree, far children first.

    Places count ranks from the root on, its host first, so that whole hosts hang together.
    """
    order = _from_root(sketch, trace.collective.root)
    distance = 1 << (sketch.ranks - 1).bit_length()
    while distance := distance // 2:
        for place in range(0, sketch.ranks - distance, 2 * distance):
            child = place + distance
            under = range(child, min(child + distance, sketch.ranks))
            yield order[place], order[child], under


def _from_root(sketch: Sketch, root: int) -> list[int]:
    """Return all ranks, the root first, then the rest of its host, then host after host."""
    home = sketch.hosts[root]

    def key(rank: int) -> tuple[int, int]:
        host = (sketch.hosts[rank] - home) % sketch.nhosts
        return host, (rank - root) % sketch.ranks if host == 0 else rank

    return sorted(range(sketch.ranks), key=key)


def _broadcast(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    total = trace.collective.nchunks(trace.chunks_per_rank)
    edges = list(_tree(trace, sketch))
    require_links(sketch, ((a, b) for a, b, _ in edges), trace.method)
    for parent, child, _ in edges:
        trace.send(0, parent, child, count=total)


def _reduce(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    total = trace.collective.nchunks(trace.chunks_per_rank)
    edges = list(_tree(trace, sketch))
    require_links(sketch, ((b, a) for a, b, _ in edges), trace.method)
    for parent, child, _ in reversed(edges):
        trace.reduce(0, child, parent, count=total)


def _scatter(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    order = _from_root(sketch, trace.collective.root)
    sends = [_Send(a, b, tuple(order[p] for p in under)) for a, b, under in _tree(trace, sketch)]
    _run(trace, sketch, [sends], reducing=False)


def _gather(trace: Trace, sketch: Sketch, nbytes: int) -> None:
    order = _from_root(sketch, trace.collective.root)
    sends = [_Send(b, a, tuple(order[p] for p in under)) for a, b, under in _tree(trace, sketch)]
    _run(trace, sketch, [sends[::-1]], reducing=False)


_BUILD: dict[str, Callable[[Trace, Sketch, int], None]] = {
    "allgather": _allgather,
    "reduce-scatter": _reduce_scatter,
    "allreduce": _allreduce,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "scatter": _scatter,
    "gather": _gather,
}
RECURSIVE_COLLECTIVES = frozenset(_BUILD)
