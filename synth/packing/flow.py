"""All-to-all by concurrent flow: every rank's chunk for every other goes where wires have room.

The ways of all chunks are chosen together so that the busiest wire has little to carry; ranks on a
way pass chunks on (docs/methods.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from tuccl._native import route_parcels
from tuccl.errors import Infeasible, InputError
from tuccl.sketches.sketch import Sketch
from tuccl.synth.bounds.bound import alltoall_cut
from tuccl.synth.bounds.graph import Fabric
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import Network, Pair
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import LoweringHints, Schedule
from tuccl.synth.model.trace import Trace
from tuccl.synth.packing.forest import ENOUGH
from tuccl.synth.packing.list_scheduler import Leg, Timetable
from tuccl.synth.packing.packing import machine_of_sketch
from tuccl.synth.packing.pair_units import near
from tuccl.topology import Topology

__all__ = ["FLOW_COLLECTIVES", "flow", "flow_chunks"]

FLOW_COLLECTIVES = frozenset({"alltoall"})
# Thread blocks that a GPU should need at most.
_MOST_BLOCKS = 32
_MOST_ROUNDS = 60
# Ways chosen over all rounds of one question, which bounds the time spent on it.
_MOST_CHOSEN = 400_000


def flow(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return the all-to-all with little load on the busiest wire, whatever the size.

    Args:
        problem: An all-to-all, its links and size, for which messages are ordered; the more
            chunks per rank, the closer to the bound.
        options: Not looked at.

    Raises:
        Infeasible: the links do not join all ranks, or the sketch has relay rules.

    Notes:
        Shahrokhi and Matula, The maximum concurrent flow problem, 1990; whole chunks are rerouted
        one by one under prices that rise with what a wire has to carry.
    """
    chunks_per_rank = problem.chunks_per_rank
    machine = machine_of_sketch(problem.sketch, problem.topology, "flow")
    wires = machine.wires
    runs = list(_runs(wires, _routes(wires, machine.fabric, chunks_per_rank), chunks_per_rank))
    trace = Trace(problem.collective, chunks_per_rank, "flow")
    timetable = Timetable(wires, problem.sketch, problem.chunk_bytes)
    legs, runs_of = _legs(runs)
    for number in timetable.order(legs):
        run = runs_of[number]
        src, dst = wires.pairs[legs[number].pair]
        trace.send(run.first, src, dst, count=run.chunks)
    return trace.schedule(LoweringHints(split_send_recv=True))


def flow_chunks(
    collective: Collective, sketch: Sketch, topology: Topology | None, most: int = 8
) -> tuple[int, ...]:
    """Return the fewest chunks for each pair of ranks that come within 1 % of the bound.

    Where none up to `most` do, those that come closest.

    Raises:
        Infeasible: the links do not join all ranks, or the sketch has relay rules.
    """
    machine = machine_of_sketch(sketch, topology, "flow")
    wires, least = machine.wires, _least_span(machine.fabric)
    found: list[tuple[Fraction, int]] = []
    for chunks in range(1, most + 1):
        if found and chunks * len(wires.hosts) ** 2 * _MOST_ROUNDS > 4 * _MOST_CHOSEN:
            break
        routes = _routes(wires, machine.fabric, chunks)
        share = least * chunks / _span(wires, routes)
        if share >= ENOUGH:
            return (chunks,)
        found.append((-share, chunks))
    return (min(found)[1],)


def _span(wires: Network, routes: Sequence[Sequence[int]]) -> Fraction:
    """Return the time that the busiest wire needs for one chunk of 1 GB on each route."""
    counts = [0] * len(wires.pairs)
    for route in routes:
        for pair in route:
            counts[pair] += 1
    return wires.busiest_s(wires.loads(counts))


@lru_cache(maxsize=16)
def _least_span(fabric: Fabric) -> Fraction:
    """Return the time that cuts and prices prove is needed for one chunk of 1 GB for each pair."""
    try:
        return alltoall_cut(fabric).ratio
    except InputError as why:
        raise Infeasible(f"flow: {why}") from why


@lru_cache(maxsize=16)
def _routes(wires: Network, fabric: Fabric, parts: int) -> tuple[tuple[int, ...], ...]:
    """Return the pairs that each chunk takes in turn: `parts` for each of `_ends`.

    Where that takes more thread blocks than a GPU should need, and pairs inside hosts and between
    equal places of hosts do nearly as well, those alone are used.
    """
    target = _enough(wires, fabric, parts)
    routes = _routed(wires, range(len(wires.pairs)), parts, target)
    if _blocks(wires, routes) <= _MOST_BLOCKS:
        return routes
    few = [place for place, pair in enumerate(wires.pairs) if near(wires.hosts, *pair)]
    try:
        frugal = _routed(wires, few, parts, target)
    except Infeasible:
        return routes
    return frugal if ENOUGH * _span(wires, frugal) <= _span(wires, routes) else routes


def _enough(wires: Network, fabric: Fabric, parts: int) -> Fraction:
    """Return a time that no whole chunks can beat.

    Notes:
        A wire of rate b that is busy for the bound T in full carries b T chunks; where that is not
        whole, one more, or another wire as many.
    """
    least = _least_span(fabric) * parts
    return min(math.ceil(rate * least) / rate for rate in set(wires.rates))


def _blocks(wires: Network, routes: Sequence[Sequence[int]]) -> int:
    """Return the thread blocks of the rank with most connections, one for each way of each."""
    used = {pair for route in routes for pair in route}
    return max(Counter(rank for pair in used for rank in wires.pairs[pair]).values())


def _routed(
    wires: Network, allowed: Sequence[int], parts: int, target: Fraction
) -> tuple[tuple[int, ...], ...]:
    """Return the pairs, out of `allowed`, that each chunk takes in turn.

    Raises:
        Infeasible: they do not join all ranks.
    """
    parcels = _ends(wires.ranks) * parts
    try:
        found = route_parcels(
            wires.ranks,
            [wires.pairs[place] for place in allowed],
            [list(wires.routes[place]) for place in allowed],
            [float(rate) for rate in wires.rates],
            parcels,
            rounds=max(4, min(_MOST_ROUNDS, _MOST_CHOSEN // len(parcels))),
            target=float(target),
        )
    except InputError as why:
        raise Infeasible(f"flow: {why}") from why
    return tuple(tuple(allowed[place] for place in route) for route in found)


def _ends(ranks: int) -> list[Pair]:
    """Return all ordered pairs of ranks, by distance: so equal fabrics fill evenly."""
    everyone = range(ranks)
    return [(src, (src + distance) % ranks) for distance in range(1, ranks) for src in everyone]


class _Run(NamedTuple):
    """Chunks in a row that take the same way."""

    first: int
    chunks: int
    way: tuple[int, ...]


def _runs(wires: Network, routes: Sequence[tuple[int, ...]], parts: int) -> Iterator[_Run]:
    """Yield what each rank has for each other, by the ways that it takes."""
    ends = _ends(wires.ranks)
    for place, (src, dst) in enumerate(ends):
        chunk = (src * wires.ranks + dst) * parts
        for way, count in sorted(Counter(routes[place :: len(ends)]).items()):
            yield _Run(chunk, count, way)
            chunk += count


def _legs(runs: Sequence[_Run]) -> tuple[list[Leg], list[_Run]]:
    """Return the legs of all runs, and the run of each."""
    legs: list[Leg] = []
    runs_of: list[_Run] = []
    for run in runs:
        for turn, pair in enumerate(run.way):
            after = (len(legs) - 1,) if turn else ()
            legs.append(Leg(pair, after, len(run.way) - 1 - turn))
            runs_of.append(run)
    return legs, runs_of
