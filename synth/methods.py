"""The methods that make schedules, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tuccl.errors import Infeasible, InputError
from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.allpairs import (
    ALLPAIRS_COLLECTIVES,
    ANY_ORDER_COLLECTIVES,
    PAIRED_COLLECTIVES,
    allpairs,
    allpairs_any_order,
    allpairs_paired,
    allpairs_paired_any_order,
)
from tuccl.synth.classic.hierarchical import HIERARCHICAL2_COLLECTIVES, hierarchical2
from tuccl.synth.classic.hierarchical3 import HIERARCHICAL3_COLLECTIVES, hierarchical3
from tuccl.synth.classic.hierarchical_rings import (
    HIERARCHICAL_RINGS_COLLECTIVES,
    hierarchical_rings,
)
from tuccl.synth.classic.recursive import RECURSIVE_COLLECTIVES, recursive
from tuccl.synth.classic.ring import RING_COLLECTIVES, ring, rings
from tuccl.synth.few_step.few_step import FEWSTEP_COLLECTIVES, fewstep
from tuccl.synth.greedy.greedy import greedy, greedy_chunks
from tuccl.synth.greedy.problem import Search
from tuccl.synth.model.collective import COLLECTIVES, Collective
from tuccl.synth.model.schedule import Schedule
from tuccl.synth.model.solver import Budget
from tuccl.synth.packing.flow import FLOW_COLLECTIVES, flow, flow_chunks
from tuccl.synth.packing.packing import PACKING_COLLECTIVES, packing, packing_chunks
from tuccl.synth.packing.pipelined import PIPELINED_COLLECTIVES, pipelined, pipelined_chunks
from tuccl.topology import Topology

__all__ = ["EXACT_METHODS", "METHODS", "Method", "searched_methods", "synthesize"]

Build = Callable[[Collective, Sketch, int, int], Schedule]
WiredBuild = Callable[[Collective, Sketch, int, int, Topology | None], Schedule]
SolverBuild = Callable[[Collective, Sketch, int, int, Topology | None, Budget | None], Schedule]
DrawingBuild = Callable[[Collective, Sketch, int, int, Topology | None, Search | None], Schedule]


@dataclass(frozen=True)
class Method:
    """A way to make schedules.

    Attributes:
        name: What users call it.
        collectives: What it can do.
        build: Takes the collective, the sketch, chunks per rank, the size in bytes, and the
            topology where the caller has one.
        chunkings: The chunks per rank worth a try, given the collective, the sketch, the topology
            and the most; None where any will do.
        most_ranks: Above so many ranks no search tries it unasked, since it takes minutes.
        solve: `build` within a budget, for methods that run a solver.
        draw: `build` with seed and starts, for methods that draw.
        one_order: All ranks get equal results: a sum is made once, or by all in one order.
        parts: The chunks per rank that a search tries where ``chunkings`` names none.
    """

    name: str
    collectives: frozenset[str]
    build: WiredBuild
    chunkings: Callable[[Collective, Sketch, Topology | None, int], tuple[int, ...]] | None = None
    most_ranks: int = 256
    solve: SolverBuild | None = None
    draw: DrawingBuild | None = None
    one_order: bool = True
    parts: tuple[int, ...] = (1, 2, 4)


def _wireless(build: Build) -> WiredBuild:
    """Return `build` for callers that have a topology, which it does not look at."""

    def built(
        collective: Collective, sketch: Sketch, parts: int, nbytes: int, topology: Topology | None
    ) -> Schedule:
        return build(collective, sketch, parts, nbytes)

    return built


# Each chunk may be summed in a thread block of its own.
_SUMMED_APART = (1, 2, 4, 8)

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("ring", RING_COLLECTIVES, _wireless(ring)),
        Method("rings", RING_COLLECTIVES, _wireless(rings)),
        Method("recursive", RECURSIVE_COLLECTIVES, _wireless(recursive)),
        Method("allpairs", ALLPAIRS_COLLECTIVES, _wireless(allpairs), parts=_SUMMED_APART),
        Method(
            "allpairs-any-order",
            ANY_ORDER_COLLECTIVES,
            _wireless(allpairs_any_order),
            one_order=False,
            parts=_SUMMED_APART,
        ),
        Method(
            *("allpairs-paired", PAIRED_COLLECTIVES, _wireless(allpairs_paired)),
            parts=_SUMMED_APART,
        ),
        Method(
            "allpairs-paired-any-order",
            ANY_ORDER_COLLECTIVES,
            _wireless(allpairs_paired_any_order),
            one_order=False,
            parts=_SUMMED_APART,
        ),
        Method("hierarchical2", HIERARCHICAL2_COLLECTIVES, _wireless(hierarchical2)),
        Method(
            *("hierarchical-rings", HIERARCHICAL_RINGS_COLLECTIVES, _wireless(hierarchical_rings)),
            parts=(1, 2),
        ),
        Method("hierarchical3", HIERARCHICAL3_COLLECTIVES, _wireless(hierarchical3)),
        Method(
            *("greedy", frozenset(COLLECTIVES), greedy, greedy_chunks), most_ranks=128, draw=greedy
        ),
        Method("packing", PACKING_COLLECTIVES, packing, packing_chunks, most_ranks=1024),
        Method("pipelined", PIPELINED_COLLECTIVES, pipelined, pipelined_chunks),
        Method("flow", FLOW_COLLECTIVES, flow, flow_chunks),
        Method("fewstep", FEWSTEP_COLLECTIVES, fewstep, solve=fewstep),
    )
}


def searched_methods(*, any_order: bool = False) -> tuple[str, ...]:
    """Return the methods that searches try: with ``any_order`` also those without equal results.

    >>> "allpairs-any-order" in searched_methods()
    False
    """
    return tuple(m.name for m in METHODS.values() if m.one_order or any_order)


EXACT_METHODS = ("taccl",)
"""Methods that run a solver for seconds; they do all collectives, but no search tries them unasked."""


def synthesize(
    collective: Collective,
    sketch: Sketch,
    method: str,
    chunks_per_rank: int,
    nbytes: int,
    topology: Topology | None = None,
    budget: Budget | None = None,
    search: Search | None = None,
) -> Schedule:
    """Return the schedule of `method` for `collective` on the links of `sketch`.

    Args:
        collective: What to compute.
        sketch: The links that may be used.
        method: A name in `METHODS` or `EXACT_METHODS`.
        chunks_per_rank: Parts that each rank's part of the whole buffer is cut into.
        nbytes: Bytes of the whole buffer, which decide between variants of a method.
        topology: The machine of the sketch, for methods that look at wires.
        budget: What a method that runs a solver may spend; by default 20 s for an exact one, and
            for others little. The rest take no time.
        search: Seed and starts of a method that draws.

    Raises:
        Infeasible: the method cannot do it under this sketch; the message names the rule.
        InputError: an argument is out of range, or an exact method lacks its solver.
    """
    if method not in METHODS and method not in EXACT_METHODS:
        able = ", ".join((*METHODS, *EXACT_METHODS))
        raise InputError(f"unknown method {method[:40]!r}, expected one of: {able}")
    if collective.ranks != sketch.ranks:
        raise InputError(
            f"{collective.name} over {collective.ranks} ranks on sketch {sketch.name[:60]} of "
            f"{sketch.ranks} ranks: expected the same number"
        )
    if chunks_per_rank < 1 or nbytes < 1:
        raise InputError(
            f"{chunks_per_rank} chunks per rank, {nbytes} bytes: expected at least 1 of each"
        )
    if method in EXACT_METHODS:
        from tuccl.synth.taccl.taccl import taccl

        return taccl(collective, sketch, chunks_per_rank, nbytes, budget)
    if collective.name not in METHODS[method].collectives:
        able = ", ".join(m.name for m in METHODS.values() if collective.name in m.collectives)
        raise Infeasible(f"{method} does not do {collective.name}; these methods do: {able}")
    if topology is not None and topology.ranks != sketch.ranks:
        raise InputError(
            f"sketch {sketch.name[:60]} of {sketch.ranks} ranks on a topology of {topology.ranks}: "
            "expected the same number"
        )
    asked = collective, sketch, chunks_per_rank, nbytes, topology
    if search is not None and (draw := METHODS[method].draw) is not None:
        return draw(*asked, search)
    if budget is not None and (solve := METHODS[method].solve) is not None:
        return solve(*asked, budget)
    return METHODS[method].build(*asked)
