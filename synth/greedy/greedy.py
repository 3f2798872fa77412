"""The time-expanded greedy method: free links take what is rarest where they lead, many times over.

Spreading (allgather, broadcast) matches free lanes with items; reductions are spreadings planned on
reversed lanes and run backwards in time; items with one destination are routed around each other.
The search is native (`spreading.cpp`, `delivery.cpp`); of many starts the best counts. docs/methods.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace as changed

from tuccl._native import GreedyPlan, Send, deliver_items, spread_items, timetable
from tuccl.errors import Infeasible
from tuccl.sketches.sketch import Sketch
from tuccl.synth.greedy.problem import MOST_CONNECTIONS, MOST_SINGLE, Question, starts_of
from tuccl.synth.greedy.reasons import stranded, undelivered
from tuccl.synth.greedy.rotation import unturned
from tuccl.synth.greedy.routes import Lanes
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import sketch_network
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import LoweringHints, Schedule
from tuccl.synth.model.trace import Trace
from tuccl.topology import Topology

__all__ = ["greedy", "greedy_chunks"]

_CHUNKS = (1, 2, 4, 6, 8)
# Messages beyond which a program takes long to lower, and has too many steps besides.
_MOST_MESSAGES = 17_000
# Steps that a thread block of a program that is turned should have at most (the executor's: 64).
_MOST_STEPS = 60
# What each connection adds to the time that plans are chosen by, as a part of it.
_SHARING = 0.005
# More connections than a GPU should need are worth it where they are so much faster.
_WORTH = 0.9


def greedy(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return a schedule for `nbytes` over the links of `sketch`; equal arguments, equal schedule.

    Args:
        problem: The collective, its links and size; without a topology the links tell what they share.
        options: Seed, starts and threads.

    Raises:
        Infeasible: the sketch does not allow the collective; names the rule, rank and chunk.

    Notes:
        After TACOS (Won et al., MICRO 2024), with wires that lanes share. The relay rule says whose
        chunks a sender may carry off its host. Where all chunks are the root's, they count as those
        of the ranks of its host in turn, so that all its NICs work. A sum has no single owner: for
        reductions the rule only says which ranks send at all.
    """
    asked = _question(problem, options)
    plan = _PLANS[problem.collective.name](asked)
    return _schedule(plan)


def greedy_chunks(
    collective: Collective, sketch: Sketch, topology: Topology | None, most: int = 8
) -> tuple[int, ...]:
    """Return the chunks per rank (up to `most`) worth a try: few, and as many as are soon planned.

    >>> from tuccl.sketches import full_mesh
    >>> from tuccl.topology.reference import cube_mesh
    >>> greedy_chunks(Collective("allgather", 8), full_mesh(cube_mesh()), None)
    (1, 2, 4, 6, 8)
    """
    ways = 2 if collective.name == "allreduce" else 1
    if collective.name == "alltoall":
        most = min(most, 4)
    messages = collective.ranks * (collective.ranks - 1) * ways
    enough = min(most, max(1, _MOST_MESSAGES // messages))
    return tuple(chunks for chunks in _CHUNKS if chunks <= enough)


def _question(problem: Problem, options: Options) -> Question:
    topology = problem.topology
    sketch = _without_idle_senders(problem.sketch)
    wires = sketch_network(sketch, topology)
    alphas = tuple(link.alpha_us for link in sketch.links)
    # Without a topology, what shares a wire unseen is taken to be as slow as in a round of all.
    slowed = tuple(
        1.0 + link.congestion if topology is None and len(way) == 1 else 1.0
        for link, way in zip(sketch.links, wires.routes, strict=True)
    )
    lanes = Lanes(wires, alphas, slowed, unturned(wires), tuple(range(len(wires.pairs))))
    return Question(
        problem.collective,
        sketch,
        wires,
        problem.chunks_per_rank,
        problem.nbytes,
        options,
        slowed,
        lanes,
    )


def _without_idle_senders(sketch: Sketch) -> Sketch:
    """Return the sketch without links between hosts whose sender may carry nothing out."""
    if not sketch.relays:
        return sketch
    links = (link for link in sketch.links if not link.inter or sketch.relays.get(link.src))
    return changed(sketch, links=tuple(links))


class _Move(NamedTuple):
    """An item over a lane, numbered as its sender's block knows it; `up` where it is a sum."""

    item: int
    lane: int
    up: bool


@dataclass(frozen=True)
class _Plan:
    """Moves in order of start, and what they are estimated to take in us."""

    asked: Question
    time_us: float
    moves: list[_Move]

    @cached_property
    def connections(self) -> int:
        """Return the ways in and out of the rank that has most."""
        return self.asked.lanes.connections([move.lane for move in self.moves])


def _best(asked: Question, attempt: Callable[[Question], _Plan]) -> _Plan:
    """Return the plan of the best variant: the fastest that needs few connections, or is worth it."""
    plans: list[_Plan] = []
    reasons: list[Infeasible] = []
    for variant in asked.variants():
        for bundle in variant.bundles:
            try:
                plans.append(attempt(replace(variant, bundle=bundle)))
            except Infeasible as why:
                reasons.append(why)
    if not plans:
        raise reasons[0]
    fastest = min(plans, key=_cost)
    frugal = [plan for plan in plans if plan.connections <= MOST_CONNECTIONS]
    if not frugal:
        return fastest
    best = min(frugal, key=_cost)
    return best if best.time_us * _WORTH <= fastest.time_us else fastest


def _cost(plan: _Plan) -> tuple[float, int]:
    """Return the time, to six digits, with what its connections cost, and the moves.

    Plans see wires serve one message at a time. The more connections share one, the more messages
    are on their way at once, and the later the first of them arrives.
    """
    return float(f"{plan.time_us * (1 + _SHARING * plan.connections):.6g}"), len(plan.moves)


def _spreading(asked: Question, *, backwards: bool = False) -> GreedyPlan:
    """Return the best of many spreadings; `backwards` on the reversed lanes.

    Raises:
        Infeasible: some item cannot reach some rank.
    """
    roads = asked.lanes.roads(asked.item_bytes, backwards=backwards)
    blocks, ranks = asked.lanes.turning.blocks, asked.lanes.turning.ranks
    sends = len(asked.holders) * (blocks * ranks - 1)
    found = spread_items(
        roads,
        asked.holders,
        [] if backwards else asked.leaving(),
        starts=starts_of(asked.options, sends),
        seed=asked.options.seed,
        threads=asked.options.threads,
    )
    if found.start < 0:
        raise Infeasible(stranded(asked, found.item, found.rank, backwards=backwards))
    return found


def _spread(asked: Question) -> _Plan:
    """Return the plan of an allgather or a broadcast."""
    found = _spreading(asked)
    return _Plan(asked, found.time_us, [_Move(s.item, s.lane, False) for s in found.sends])


def _gathered_up(asked: Question) -> _Plan:
    """Return the plan of a reduce-scatter or a reduce: a spreading run backwards."""
    found = _spreading(asked, backwards=True)
    return _Plan(asked, found.time_us, _backwards(asked, found.sends))


def _backwards(asked: Question, sends: Sequence[Send]) -> list[_Move]:
    """Return the sends of a spreading on reversed lanes as sums, in order of their new start."""
    items = len(asked.holders) * asked.lanes.turning.blocks
    ends = asked.lanes.ends
    return [
        _Move((s.item - ends[s.lane][2] * len(asked.holders)) % items, s.lane, True)
        for s in sorted(sends, key=lambda send: -send.end_us)
    ]


def _summed_everywhere(asked: Question) -> _Plan:
    """Return the plan of an allreduce; each chunk is spread as soon as it is summed."""
    up, down = _gathered_up(asked), _spread(asked)
    moves = [*up.moves, *down.moves]
    legs = _legs(asked, moves)
    sends = timetable(asked.lanes.roads(asked.item_bytes), legs)
    first = max(send.end_us for send in sends)
    # Each half's estimate has its own further tiles; the first ones overlap.
    halves = up.time_us + down.time_us
    return _Plan(asked, min(first, halves) if halves else first, [moves[s.item] for s in sends])


def _legs(asked: Question, moves: Sequence[_Move]) -> list[tuple[int, list[int], float]]:
    """Return the moves as legs: each waits for what its sender needs of the item."""
    ends, each = asked.lanes.ends, len(asked.holders)
    items = each * asked.lanes.turning.blocks
    arrived: dict[tuple[int, int], list[int]] = {}
    legs: list[tuple[int, list[int], float]] = []
    for number, move in enumerate(moves):
        tail, head, on = ends[move.lane]
        legs.append((move.lane, list(arrived.get((tail, move.item), ())), -float(number)))
        there = head, (move.item + on * each) % items
        # What a rank reduced before it got the result no longer holds anything up.
        arrived[there] = [*arrived.get(there, ()), number] if move.up else [number]
    return legs


def _delivered(asked: Question) -> _Plan:
    """Return the plan of an alltoall, scatter or gather: each bundle by its own way.

    Raises:
        Infeasible: some item has no way to its target.
    """
    parcels = _parcels(asked)
    relays = asked.sketch.relays
    freights = [(src, dst, place) for _, src, dst, place in parcels]
    found = deliver_items(
        asked.lanes.roads(asked.item_bytes),
        freights,
        [list(relays.get(rank, ())) for rank in range(asked.sketch.ranks)] if relays else [],
        starts=starts_of(asked.options, 8 * len(parcels)),
        seed=asked.options.seed,
        threads=asked.options.threads,
    )
    if found.start < 0:
        raise Infeasible(undelivered(asked, *freights[found.item]))
    moves = [_Move(parcels[send.item][0], send.lane, False) for send in found.sends]
    return _Plan(asked, found.time_us, moves)


def _parcels(asked: Question) -> list[tuple[int, int, int, int]]:
    """Return (item, from, to, the place that relay rules go by) of each bundle that has to move."""
    ranks, root = asked.collective.ranks, asked.collective.root
    if asked.collective.name == "alltoall":
        pairs = [(src, dst) for src in range(ranks) for dst in range(ranks)]
    elif asked.collective.name == "scatter":
        pairs = [(root, dst) for dst in range(ranks)]
    else:
        pairs = [(src, root) for src in range(ranks)]
    parts = asked.chunks_per_rank // asked.bundle
    scatters = asked.collective.name == "scatter"
    return [
        (index * parts + part, src, dst, asked.place(dst) if scatters else src)
        for index, (src, dst) in enumerate(pairs)
        for part in range(parts)
        if src != dst
    ]


def _schedule(plan: _Plan) -> Schedule:
    """Return the plan's schedule: what one block does, for all of them."""
    asked = plan.asked
    trace = Trace(asked.collective, asked.chunks_per_rank, "greedy")
    turned = asked.wires.ranks > MOST_SINGLE and asked.lanes.turning.blocks > 1
    channels = _channels(plan) if turned else [1 if m.up else 0 for m in plan.moves]
    for move, channel in zip(plan.moves, channels, strict=True):
        for chunk, src, dst in _everywhere(asked, move):
            step = trace.reduce if move.up else trace.send
            step(chunk, src, dst, channel, asked.bundle)
    return trace.schedule(
        LoweringHints(split_send_recv=True, rotation=asked.lanes.turning.ranks if turned else 0)
    )


def _everywhere(asked: Question, move: _Move) -> Iterator[tuple[int, int, int]]:
    """Yield the first chunk, sender and receiver of a move of each block."""
    circle = asked.lanes.turning
    tail, head, on = asked.lanes.ends[move.lane]
    each = len(asked.holders)
    back, item = divmod(move.item, each) if circle.blocks > 1 else (0, move.item)
    for block in range(circle.blocks):
        home = (block - back) % circle.blocks
        there = (block + on) % circle.blocks
        yield (
            (home * each + item) * asked.bundle,
            block * circle.ranks + tail,
            there * circle.ranks + head,
        )


def _channels(plan: _Plan) -> list[int]:
    """Return the channel of each move: sums on their own, and no thread block with too many steps."""
    loads = Counter((move.lane, move.up) for move in plan.moves)
    ways = -(-max(loads.values()) // _MOST_STEPS)
    sent: Counter[tuple[int, bool]] = Counter()
    channels = []
    for move in plan.moves:
        lane = move.lane, move.up
        needed = -(-loads[lane] // _MOST_STEPS)
        channels.append(ways * move.up + sent[lane] % needed)
        sent[lane] += 1
    return channels


def _planned(attempt: Callable[[Question], _Plan]) -> Callable[[Question], _Plan]:
    return lambda asked: _best(asked, attempt)


_PLANS: dict[str, Callable[[Question], _Plan]] = {
    "allgather": _planned(_spread),
    "broadcast": _planned(_spread),
    "reduce-scatter": _planned(_gathered_up),
    "reduce": _planned(_gathered_up),
    "allreduce": _planned(_summed_everywhere),
    "alltoall": _planned(_delivered),
    "scatter": _planned(_delivered),
    "gather": _planned(_delivered),
}
