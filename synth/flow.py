"""All-to-all by concurrent flow: every rank's chunk for every other goes where wires have room.

The ways of all chunks are chosen together so that the busiest wire has little to carry; ranks on a
way pass chunks on (docs/packing.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

from tuccl._native import route_parcels
from tuccl.errors import Infeasible, InputError
from tuccl.sketches.sketch import Sketch
from tuccl.synth.bound_graph import Fabric
from tuccl.synth.bounds import alltoall_cut
from tuccl.synth.collective import Collective
from tuccl.synth.forest import ENOUGH
from tuccl.synth.packing import machine_of_sketch
from tuccl.synth.pair_wires import PairWires
from tuccl.synth.schedule import Schedule
from tuccl.synth.trace import Trace
from tuccl.topology import Topology

__all__ = ["FLOW_COLLECTIVES", "flow", "flow_chunks"]

FLOW_COLLECTIVES = frozenset({"alltoall"})
import os
APART = bool(int(os.environ.get("APART","0")))
_MOST_ROUNDS = 60
# Ways chosen over all rounds of one question, which bounds the time spent on it.
_MOST_CHOSEN = 400_000


def flow(
    collective: Collective,
    sketch: Sketch,
    chunks_per_rank: int = 1,
    nbytes: int = 1,
    topology: Topology | None = None,
) -> Schedule:
    """Return the all-to-all with little load on the busiest wire; it is the same at every size.

    Args:
        collective: An all-to-all.
        sketch: The pairs that may be used.
        chunks_per_rank: Parts of what a rank has for another: the more, the closer to the bound.
        nbytes: Not looked at.
        topology: The wires; without it those that the sketch tells of.

    Raises:
        Infeasible: the links do not join all ranks, or the sketch has relay rules.

    Notes:
        Shahrokhi and Matula, The maximum concurrent flow problem, 1990; whole chunks are rerouted
        one by one under prices that rise with what a wire has to carry.
    """
    machine = machine_of_sketch(sketch, topology, "flow")
    routes = _routes(machine.wires, machine.fabric, chunks_per_rank)
    trace = Trace(collective, chunks_per_rank, "flow")
    for move in sorted(_moves(machine.wires, routes, chunks_per_rank)):
        trace.send(move.chunk, move.src, move.dst, count=move.count)
    return trace.schedule(apart=APART)


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


def _span(wires: PairWires, routes: Sequence[Sequence[int]]) -> Fraction:
    """Return the time that the busiest wire needs for one chunk of 1 GB on each route."""
    counts = [0] * len(wires.pairs)
    for route in routes:
        for pair in route:
            counts[pair] += 1
    return wires.span(wires.loads(counts))


@lru_cache(maxsize=16)
def _least_span(fabric: Fabric) -> Fraction:
    """Return the time that cuts and prices prove is needed for one chunk of 1 GB for each pair."""
    try:
        return alltoall_cut(fabric).ratio
    except InputError as why:
        raise Infeasible(f"flow: {why}") from why


@lru_cache(maxsize=16)
def _routes(wires: PairWires, fabric: Fabric, parts: int) -> tuple[tuple[int, ...], ...]:
    """Return the pairs that each chunk takes in turn: `parts` for each ordered pair of ranks.

    Notes:
        No whole number of chunks on a wire of rate b takes less than ceil(b T) / b where the bound
        is T: ways are good enough once they meet that.
    """
    parcels = [pair for _ in range(parts) for pair in permutations(range(wires.ranks), 2)]
    least = _least_span(fabric) * parts
    target = min(math.ceil(rate * least) / rate for rate in set(wires.rates))
    rounds = max(4, min(_MOST_ROUNDS, _MOST_CHOSEN // len(parcels)))
    try:
        found = route_parcels(
            wires.ranks,
            list(wires.pairs),
            [list(way) for way in wires.ways],
            [float(rate) for rate in wires.rates],
            parcels,
            rounds=rounds,
            target=float(target),
        )
    except InputError as why:
        raise Infeasible(f"flow: {why}") from why
    return tuple(tuple(route) for route in found)


class _Move(NamedTuple):
    """A run of chunks over one pair of its way, `left` pairs from the end of the longest."""

    turn: int
    distance: int
    src: int
    dst: int
    chunk: int
    count: int


def _moves(
    wires: PairWires, routes: Sequence[tuple[int, ...]], parts: int
) -> Iterator[_Move]:
    """Yield the sends of all routes, those with a long way before them first in each turn."""
    ends = list(permutations(range(wires.ranks), 2))
    longest = max(map(len, routes))
    for place, (src, dst) in enumerate(ends):
        first = (src * wires.ranks + dst) * parts
        ways = sorted(routes[place :: len(ends)])
        for way in dict.fromkeys(ways):
            count = ways.count(way)
            for turn, pair in enumerate(way):
                # A chunk with far to go leaves first; it arrives in time for each rank's turn.
                yield _Move(
                    turn + longest - len(way),
                    (dst - src) % wires.ranks,
                    *wires.pairs[pair],
                    first,
                    count,
                )
            first += count
