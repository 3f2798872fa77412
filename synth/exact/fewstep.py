"""The few-step method: exact schedules of few steps on one host, mapped to all and put together.

docs/synthesis.md, "Few steps".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tuccl.errors import Infeasible, InputError
from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.host_moves import reversed_sketch
from tuccl.synth.exact.combining import combinations, written
from tuccl.synth.exact.host_waves import broadcast_between, equal_parts, gather_between
from tuccl.synth.exact.rounds import FewSteps, few_steps
from tuccl.synth.exact.solver import Budget
from tuccl.synth.exact.spread import Item, Spread
from tuccl.synth.exact.waves import Wave, estimated_us, spread_waves, sum_waves
from tuccl.synth.model.collective import COLLECTIVES, Collective
from tuccl.synth.model.schedule import Schedule
from tuccl.synth.model.trace import Trace
from tuccl.synth.packing.pair_wires import PairWires, pair_wires
from tuccl.topology import Topology

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


@dataclass(frozen=True)
class _Question:
    """A spreading: `backwards` where the wires and the sketch are the collective's turned round."""

    name: str
    root: int
    chunks_per_rank: int
    chunk_bytes: float
    wires: PairWires
    sketch: Sketch
    budget: Budget | None

    def us(self, waves: Sequence[Wave]) -> float:
        """Return about what the waves take in us."""
        return estimated_us(waves, self.wires, self.sketch, self.chunk_bytes)

    def inside(
        self, wires: PairWires, items: tuple[Item, ...]
    ) -> list[tuple[int, int, int, int]] | None:
        """Return the fewest steps on one host: (step, from place, to place, item); None: not found."""
        if not wires.pairs:
            return []
        spread = Spread(wires, items, min(wires.rates))
        found = _found(spread, spread.fewest_steps or 0, self.budget)
        if found.status != "solved":
            return None
        return [(c.step, *wires.pairs[c.pair], c.item) for c in found.crossings]


def fewstep(
    collective: Collective,
    sketch: Sketch,
    chunks_per_rank: int = 1,
    nbytes: int = 1 << 10,
    topology: Topology | None = None,
    budget: Budget | None = None,
) -> Schedule:
    """Return a schedule of as few steps as pay at `nbytes`, its load the least for so many.

    Args:
        collective: What is to be computed.
        sketch: The pairs that may be used, and their latencies.
        chunks_per_rank: Parts of each rank's share: the more, the fewer bytes on the busiest wire.
        nbytes: Decides how many steps, and which way between hosts, are quickest.
        topology: The wires; without it those that the sketch tells of.
        budget: Seconds, seed and threads of the solver; by default little, and the same answer
            whatever else the machine does.

    Raises:
        Infeasible: the links do not join all ranks, the sketch has relay rules, there is no
            solver, or it found nothing in time.
    """
    wires = pair_wires(sketch, topology)
    trace = Trace(collective, chunks_per_rank, "fewstep")
    chunk_bytes = nbytes / collective.nchunks(chunks_per_rank)
    onward = _Question(
        _FORWARDS.get(collective.name, collective.name),
        *(collective.root, chunks_per_rank, chunk_bytes, wires, sketch, budget),
    )
    back = replace(onward, wires=wires.reverse, sketch=reversed_sketch(sketch))
    if collective.name == "allreduce":
        _allreduce(
            trace, replace(onward, name="allgather"), replace(back, name="allgather"), nbytes
        )
    elif collective.name == "gather":
        waves = _quickest(back)
        last = max(wave.step for wave in waves)
        spread_waves(trace, (w._replace(step=last - w.step, src=w.dst, dst=w.src) for w in waves))
    elif collective.reducing:
        sum_waves(trace, _quickest(back), nbytes)
    else:
        spread_waves(trace, _quickest(onward))
    return trace.schedule(apart=collective.name in _APART)


def _allreduce(trace: Trace, onward: _Question, back: _Question, nbytes: int) -> None:
    """Sum parts and spread the sums, or have groups of ranks sum for themselves if that is quicker."""
    total = trace.collective.nchunks(trace.chunks_per_rank)
    groups = [
        (way.us(onward.wires, onward.sketch, onward.chunk_bytes), number, way)
        for number, way in enumerate(combinations(onward.wires, total, onward.inside))
    ]
    try:
        up, down = _quickest(back), _quickest(onward)
    except Infeasible:
        if not groups:
            raise
    else:
        if not groups or back.us(up) + onward.us(down) <= min(groups)[0]:
            sum_waves(trace, up, nbytes)
            spread_waves(trace, down, 1)
            return
    written(trace, min(groups)[2], nbytes)


def _quickest(ask: _Question) -> list[Wave]:
    """Return the waves that take the least time, by estimate.

    Raises:
        Infeasible: there are none.
    """
    try:
        ways = (waves for waves in _ways(ask) if _keeps_rules(ask, waves))
        found = [(ask.us(waves), number, waves) for number, waves in enumerate(ways)]
    except InputError as missing:
        raise Infeasible(f"fewstep: {missing}") from None
    if not found:
        raise Infeasible(
            f"fewstep: found no {ask.name} of few steps on sketch {ask.sketch.name[:60]}: it joins too "
            "few ranks, or is too large to solve; use packing or greedy"
        )
    return min(found)[2]


def _ways(ask: _Question) -> Iterator[list[Wave]]:
    hosts = equal_parts(ask.wires)
    small = hosts is None or hosts.places == 1
    yield from _at_once(ask, solved=small)
    if hosts is None or small:
        return
    if ask.name == "allgather":
        yield from gather_between(hosts, ask.chunks_per_rank, ask.inside)
    elif ask.name == "broadcast":
        total = ask.chunks_per_rank * ask.wires.ranks
        yield from broadcast_between(hosts, total, ask.root, ask.inside)


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


def _at_once(ask: _Question, *, solved: bool) -> Iterator[list[Wave]]:
    """Yield ways over all wires at once, of the fewest steps and of more; unsolved only of one."""
    best = math.inf
    for pieces in _pieces(ask):
        spread, runs = spread_of(ask.name, ask.root, ask.chunks_per_rank, ask.wires, pieces)
        fewest = spread.fewest_steps
        if fewest is None or (fewest > 1 and not (solved and ask.wires.ranks <= _MOST_WHOLE)):
            continue
        hop_us = min(link.alpha_us for link in ask.sketch.links) + 1.0
        round_us = max(count for _, count in runs) * ask.chunk_bytes / float(spread.unit) / 1e3
        for steps in range(fewest, fewest + 1 + (_MORE_STEPS if solved else 0)):
            if steps * hop_us + float(spread.least_rounds) * round_us >= _WORTH * best:
                break
            found = _found(spread, steps, ask.budget)
            if found.status != "solved":
                continue
            waves = [Wave(c.step, *ask.wires.pairs[c.pair], *runs[c.item]) for c in found.crossings]
            best = min(ask.us(waves), best)
            yield waves


def _pieces(ask: _Question) -> tuple[int, ...]:
    """Return into how many runs the chunks of a root may be cut."""
    return (1, ask.wires.ranks * ask.chunks_per_rank) if ask.name == "broadcast" else (1,)


def spread_of(
    name: str, root: int, chunks_per_rank: int, wires: PairWires, pieces: int = 1
) -> tuple[Spread, list[tuple[int, int]]]:
    """Return what spreads in a collective, and the run of chunks (first, count) of each item.

    Args:
        name: allgather, broadcast, scatter or alltoall; the others are these backwards.
        root: Where there is one.
        chunks_per_rank: Parts of each rank's share.
        wires: The pairs that may be used.
        pieces: Runs that a broadcast's chunks are cut into.
    """
    ranks, c = wires.ranks, chunks_per_rank
    everyone = frozenset(range(ranks))
    if name == "allgather":
        items = [Item(rank, everyone - {rank}) for rank in range(ranks) for _ in range(c)]
    elif name == "scatter":
        items = [Item(root, frozenset({rank}) - {root}) for rank in range(ranks) for _ in range(c)]
    elif name == "alltoall":
        pairs = ((src, dst) for src in range(ranks) for dst in range(ranks) for _ in range(c))
        items = [Item(src, frozenset({dst}) - {src}) for src, dst in pairs]
    else:
        items = [Item(root, everyone - {root})] * pieces
    count = ranks * c // pieces if name == "broadcast" else 1
    unit = min(wires.rates)
    return Spread(wires, tuple(items), unit), [(n * count, count) for n in range(len(items))]


def _found(spread: Spread, steps: int, budget: Budget | None) -> FewSteps:
    if budget is not None:
        return few_steps(spread, steps, budget)
    return _unasked(spread, steps)


@lru_cache(maxsize=64)
def _unasked(spread: Spread, steps: int) -> FewSteps:
    """Return the answer of a short search, once for all sketches and sizes."""
    return few_steps(spread, steps, Budget(seconds=_UNASKED_S, effort=_UNASKED_EFFORT))
