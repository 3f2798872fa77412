"""The few-step method: exact schedules of few steps on one host, mapped to all and put together.

docs/methods.md, "Few steps".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from tuccl.errors import Infeasible, InputError
from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.host_moves import reversed_sketch
from tuccl.synth.few_step.combining import combinations, written
from tuccl.synth.few_step.host_exchange import exchange_between
from tuccl.synth.few_step.host_waves import broadcast_between, equal_parts, gather_between
from tuccl.synth.few_step.relaxation import Spread
from tuccl.synth.few_step.rounds import FewSteps, few_steps
from tuccl.synth.few_step.waves import (
    Wave,
    bundled,
    estimated_us,
    spread_waves,
    steps_of,
    sum_waves,
)
from tuccl.synth.model.collective import COLLECTIVES, Collective
from tuccl.synth.model.demand import Demand, demands_of
from tuccl.synth.model.network import Network, sketch_network
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import LoweringHints, Schedule
from tuccl.synth.model.solver import Budget
from tuccl.synth.model.trace import Trace

__all__ = ["FEWSTEP_COLLECTIVES", "fewstep", "spread_of"]

FEWSTEP_COLLECTIVES = frozenset(COLLECTIVES)
_FORWARDS = {"reduce-scatter": "allgather", "reduce": "broadcast", "gather": "scatter"}
# What gains by thread blocks of their own for receives and sends.
_APART = frozenset({"allgather", "allreduce", "broadcast"})
# Steps beyond the fewest that are looked at, and what a solve may take that nobody asked for.
_MORE_STEPS = 2
# Only what might take at most this part of the best time so far is solved.
_WORTH = 0.95
_UNASKED_S, _UNASKED_EFFORT = 30.0, 0.5
# Ranks up to which a whole machine of several hosts is solved at once.
_MOST_WHOLE = 64


class _Way(NamedTuple):
    """A way to spread, and in words what is proved of it."""

    waves: list[Wave]
    outcome: str


@dataclass(frozen=True)
class _Question:
    """A spreading, over the wires and the sketch turned round where a collective runs it backwards.

    Attributes:
        steps: Messages in a row that it may have; None: as few as pay.
        refusals: Gathers why there is no way of so many steps.
    """

    name: str
    root: int
    chunks_per_rank: int
    chunk_bytes: float
    wires: Network
    sketch: Sketch
    budget: Budget | None
    steps: int | None = None
    refusals: list[str] = field(default_factory=list)

    def us(self, waves: Sequence[Wave]) -> float:
        """Return about what the waves take in us."""
        return estimated_us(waves, self.wires, self.sketch, self.chunk_bytes)

    def inside(
        self, wires: Network, items: tuple[Demand, ...]
    ) -> list[tuple[int, int, int, int]] | None:
        """Return the fewest steps on one host: (step, from place, to place, item); None: not found."""
        if not any(item.targets - {item.source} for item in items):
            return []
        if not wires.pairs:
            return None
        spread = Spread(wires, items, min(wires.rates))
        found = _found(spread, spread.fewest_steps or 0, self.budget)
        if found.status != "solved":
            return None
        return [(c.step, *wires.pairs[c.pair], c.item) for c in found.crossings]


def fewstep(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return a schedule of as few steps as pay at `nbytes`, its load the least for so many.

    Args:
        problem: The collective and its links; the size decides how many steps, and which way
            between hosts, are quickest. The more chunks per rank, the fewer bytes on the busiest
            link.
        options: Steps, and the budget of the solver; by default little, and the same answer
            whatever else the machine does.

    Raises:
        Infeasible: the links do not join all ranks, the sketch has relay rules, there is no
            solver, or it found nothing in time.
    """
    collective, sketch, nbytes = problem.collective, problem.sketch, problem.nbytes
    wires = sketch_network(sketch, problem.topology)
    trace = Trace(collective, problem.chunks_per_rank, "fewstep")
    onward = _Question(
        _FORWARDS.get(collective.name, collective.name),
        collective.root,
        problem.chunks_per_rank,
        problem.chunk_bytes,
        wires,
        sketch,
        options.budget,
        options.steps,
    )
    back = replace(onward, wires=wires.reverse, sketch=reversed_sketch(sketch))
    if collective.name == "allreduce":
        said = _allreduce(trace, onward, back, nbytes)
    elif collective.name == "gather":
        way = _quickest(back)
        said, last = way.outcome, steps_of(way.waves) - 1
        turned = (w._replace(step=last - w.step, src=w.dst, dst=w.src) for w in way.waves)
        spread_waves(trace, turned)
    elif collective.reducing:
        way = _quickest(back)
        said = way.outcome
        sum_waves(trace, way.waves, nbytes)
    else:
        way = _quickest(onward)
        said = way.outcome
        if collective.name == "alltoall":
            bundled(trace, way.waves, wires.hosts)
        spread_waves(trace, way.waves)
    return trace.schedule(LoweringHints(split_send_recv=collective.name in _APART), outcome=said)


def _allreduce(trace: Trace, onward: _Question, back: _Question, nbytes: int) -> str:
    """Sum parts and spread the sums, or have groups of ranks sum for themselves if that is quicker.

    Returns what is proved.
    """
    total = trace.collective.nchunks(trace.chunks_per_rank)
    most = onward.steps
    if most is not None and most < 2:
        raise Infeasible(
            "fewstep: an allreduce takes 2 steps at least, sums and results; allpairs does it in one"
        )
    groups = [
        (way.us(onward.wires, onward.sketch, onward.chunk_bytes), number, way)
        for number, way in enumerate(combinations(onward.wires, total, onward.inside))
        if most is None or way.steps <= most
    ]
    onward, back = (
        replace(ask, name="allgather", steps=half)
        for ask, half in zip((onward, back), _halves(most), strict=True)
    )
    try:
        up, down = _quickest(back), _quickest(onward)
    except Infeasible:
        if not groups:
            raise
    else:
        if not groups or back.us(up.waves) + onward.us(down.waves) <= min(groups)[0]:
            sum_waves(trace, up.waves, nbytes)
            spread_waves(trace, down.waves, 1)
            return f"sums: {up.outcome}; results: {down.outcome}"
    best = min(groups)[2]
    written(trace, best, nbytes)
    return f"{best.steps} steps, in groups of ranks that each sum for themselves; nothing is proved"


def _halves(steps: int | None) -> tuple[int | None, int | None]:
    """Return the steps that the results and the sums of an allreduce may have."""
    return (None, None) if steps is None else (steps - steps // 2, steps // 2)


def _quickest(ask: _Question) -> _Way:
    """Return the way that takes the least time, by estimate.

    Raises:
        Infeasible: there is none.
    """
    try:
        ways = (way for way in _ways(ask) if _keeps_rules(ask, way.waves))
        found = [
            (ask.us(way.waves), number, way)
            for number, way in enumerate(ways)
            if ask.steps is None or steps_of(way.waves) <= ask.steps
        ]
    except InputError as missing:
        raise Infeasible(f"fewstep: {missing}") from None
    if not found:
        raise Infeasible(_refusal(ask))
    return min(found)[2]


def _refusal(ask: _Question) -> str:
    """Return why there is no way."""
    what = f"{ask.name} on sketch {ask.sketch.name[:60]}"
    if ask.refusals:
        return f"fewstep: {what}: {ask.refusals[-1]}"
    if ask.steps is not None:
        return f"fewstep: {what}: found none of {ask.steps} steps, which proves nothing; allow more"
    return (
        f"fewstep: found no {what} of few steps: it joins too few ranks, or is too large to solve; "
        "use packing or greedy"
    )


def _ways(ask: _Question) -> Iterator[_Way]:
    hosts = equal_parts(ask.wires)
    small = hosts is None or hosts.places == 1
    yield from _at_once(ask, solved=small)
    if hosts is None or small:
        return
    composed: Iterator[list[Wave]] = iter(())
    if ask.name == "allgather":
        composed = gather_between(hosts, ask.chunks_per_rank, ask.inside)
    elif ask.name == "broadcast":
        total = ask.chunks_per_rank * ask.wires.ranks
        composed = broadcast_between(hosts, total, ask.root, ask.inside)
    elif ask.name == "alltoall":
        composed = exchange_between(hosts, ask.chunks_per_rank, ask.inside)
    for waves in composed:
        yield _Way(
            waves,
            f"{steps_of(waves)} steps: one host solved, and mapped to all "
            f"{len(hosts.members)}; nothing is proved of the whole",
        )


def _keeps_rules(ask: _Question, waves: Sequence[Wave]) -> bool:
    """Return whether ranks carry off their host only the chunks that the sketch lets them carry.

    A broadcast's chunks have one owner, the root, and are not looked at.
    """
    hosts, relays, c = ask.sketch.hosts, ask.sketch.relays, ask.chunks_per_rank
    if not relays or ask.name not in ("allgather", "alltoall"):
        return True
    for _, src, dst, first, count in waves:
        if hosts[src] == hosts[dst] or not (carried := relays.get(src, ())):
            continue
        each = c * ask.wires.ranks if ask.name == "alltoall" else c
        owners = {chunk // each for chunk in range(first, first + count)} - {src, *carried}
        if any(hosts[owner] == hosts[src] for owner in owners):
            return False
    return True


def _at_once(ask: _Question, *, solved: bool) -> Iterator[_Way]:
    """Yield ways over all wires at once, of the fewest steps and of more; unsolved only of one."""
    best = math.inf
    for pieces in _pieces(ask):
        spread, runs = spread_of(ask.name, ask.root, ask.chunks_per_rank, ask.wires, pieces)
        fewest = spread.fewest_steps
        if fewest is None or (fewest > 1 and not (solved and ask.wires.ranks <= _MOST_WHOLE)):
            continue
        if ask.steps is not None and ask.steps < fewest:
            ask.refusals.append(few_steps(spread, ask.steps).words)
            continue
        hop_us = min(link.alpha_us for link in ask.sketch.links) + 1.0
        round_us = max(count for _, count in runs) * ask.chunk_bytes / float(spread.unit) / 1e3
        for steps in _steps_tried(ask, fewest, solved=solved):
            if steps * hop_us + float(spread.least_rounds) * round_us >= _WORTH * best:
                break
            found = _found(spread, steps, ask.budget)
            if found.status != "solved":
                if ask.steps is not None:
                    ask.refusals.append(found.words)
                continue
            waves = [Wave(c.step, *ask.wires.pairs[c.pair], *runs[c.item]) for c in found.crossings]
            best = min(ask.us(waves), best)
            yield _Way(waves, found.words)


def _steps_tried(ask: _Question, fewest: int, *, solved: bool) -> Sequence[int]:
    """Return the numbers of steps that are looked at: the one asked for, or the fewest and some more."""
    if not solved:
        return (fewest,)
    return range(fewest, fewest + 1 + _MORE_STEPS) if ask.steps is None else (ask.steps,)


def _pieces(ask: _Question) -> tuple[int, ...]:
    """Return into how many runs the chunks of a root may be cut."""
    return (1, ask.wires.ranks * ask.chunks_per_rank) if ask.name == "broadcast" else (1,)


def spread_of(
    name: str, root: int, chunks_per_rank: int, wires: Network, pieces: int = 1
) -> tuple[Spread, list[tuple[int, int]]]:
    """Return what spreads in a collective, and the run of chunks (first, count) of each item.

    Args:
        name: allgather, broadcast, scatter or alltoall; the others are these backwards.
        root: Where there is one.
        chunks_per_rank: Parts of each rank's share.
        wires: The pairs that may be used.
        pieces: Runs that a broadcast's chunks are cut into.
    """
    demands = demands_of(Collective(name, wires.ranks, root), chunks_per_rank)
    count = len(demands) // pieces if name == "broadcast" else 1
    spread = Spread(wires, tuple(demands[::count]), min(wires.rates))
    return spread, [(first, count) for first in range(0, len(demands), count)]


def _found(spread: Spread, steps: int, budget: Budget | None) -> FewSteps:
    if budget is not None:
        return few_steps(spread, steps, budget)
    return _unasked(spread, steps)


@lru_cache(maxsize=64)
def _unasked(spread: Spread, steps: int) -> FewSteps:
    """Return the answer of a short search, once for all sketches and sizes."""
    return few_steps(spread, steps, Budget(seconds=_UNASKED_S, effort=_UNASKED_EFFORT))
