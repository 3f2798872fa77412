"""The sketch-guided method: routes found greedily over time-expanded links.

Spreading (allgather, broadcast) matches free links with the chunks rarest at their far end
(`tuccl.synth.greedy.spreading`); reductions are spreadings planned on reversed links and run backwards in
time; chunks with one destination are routed around each other (`tuccl.synth.greedy.routing`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from tuccl.errors import InputError
from tuccl.sketches.sketch import Sketch
from tuccl.synth.greedy.lanes import Lanes, Send, estimate_us
from tuccl.synth.greedy.routing import Parcel, Step, route, timed
from tuccl.synth.greedy.spreading import spread
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.schedule import Schedule
from tuccl.synth.model.trace import Trace

__all__ = ["greedy"]

# Sends planned over all restarts of one question, which bounds the time spent on it.
_MOST_PLANNED = 8_000
_MOST_RESTARTS = 16


def greedy(
    collective: Collective, sketch: Sketch, chunks_per_rank: int = 1, nbytes: int = 1 << 20
) -> Schedule:
    """Return a schedule for `nbytes` over the links of `sketch`; equal arguments, equal schedule.

    Args:
        collective: What is to be computed.
        sketch: Links, NICs that they share, and relay rules.
        chunks_per_rank: Parts that each rank's share is cut into.
        nbytes: Size that the schedule is made for, as nccl-tests counts it.

    Raises:
        Infeasible: the sketch does not allow the collective; names the rule, rank and chunk.
        InputError: the collective and the sketch differ in ranks.

    Notes:
        A chunk enters each host once. The relay rule says whose chunks a sender may carry off its
        host. Where all chunks are the root's, they count as those of the ranks of its host in
        turn, so that all its NICs work. A sum has no single owner: for reductions the rule only
        says which ranks send at all.
    """
    if collective.ranks != sketch.ranks:
        raise InputError(
            f"{collective.name} of {collective.ranks} ranks on a sketch of {sketch.ranks}: "
            "the numbers must agree"
        )
    plan = _PLANS.get(collective.name)
    if plan is None:
        raise InputError(
            f"collective {collective.name[:40]!r}: expected one of {', '.join(_PLANS)}"
        )
    trace = Trace(collective, chunks_per_rank, "greedy")
    plan(trace, _Question(collective, _without_idle_senders(sketch), chunks_per_rank, nbytes))
    return trace.schedule()


def _without_idle_senders(sketch: Sketch) -> Sketch:
    """Return the sketch without links between hosts whose sender may carry nothing out."""
    if not sketch.relays:
        return sketch
    links = (link for link in sketch.links if not link.inter or sketch.relays.get(link.src))
    return replace(sketch, links=tuple(links))


class _Question(NamedTuple):
    """What is to be planned: chunks may travel one by one or in bundles of neighbours."""

    collective: Collective
    sketch: Sketch
    chunks_per_rank: int
    nbytes: int

    @property
    def bundles(self) -> list[int]:
        """Return the sizes of bundles to try; the chunks of a bundle start and end alike."""
        sizes = {1, self.chunks_per_rank}
        if self.collective.name in ("broadcast", "reduce"):
            sizes.add(self.collective.nchunks(self.chunks_per_rank))
        return sorted(sizes)

    def place(self, rank: int) -> int:
        """Return the rank of the root's host at the same place as `rank` on its own host."""
        hosts, root = self.sketch.hosts, self.collective.root
        at_root = self.sketch.ranks_of(hosts[root])
        place = self.sketch.ranks_of(hosts[rank]).index(rank)
        return at_root[place % len(at_root)]

    def carried(self, bundle: int) -> dict[int, int]:
        """Return the bundles, one bit each, that each sender may take off its host."""
        nchunks = self.collective.nchunks(self.chunks_per_rank)
        owners = [n * bundle // self.chunks_per_rank for n in range(nchunks // bundle)]
        if self.collective.name == "broadcast":
            owners = [self.place(owner) for owner in owners]
        return {
            sender: sum(1 << n for n, owner in enumerate(owners) if owner in ranks)
            for sender, ranks in self.sketch.relays.items()
        }

    def lanes(self, bundle: int, backwards: bool = False) -> Lanes:
        """Return the lanes for bundles of `bundle` chunks."""
        nchunks = self.collective.nchunks(self.chunks_per_rank)
        chunk_bytes = max(1, -(-self.nbytes // nchunks))
        return Lanes(self.sketch, bundle * chunk_bytes, backwards)

    def holders(self, bundle: int) -> list[int]:
        """Return the rank that has, or is to have, each bundle: its root or its owner."""
        numbers = range(self.collective.nchunks(self.chunks_per_rank) // bundle)
        if self.collective.name in ("broadcast", "reduce"):
            return [self.collective.root for _ in numbers]
        return [number * bundle // self.chunks_per_rank for number in numbers]


class _Plan(NamedTuple):
    """Sends of bundles of `bundle` chunks, and what they are estimated to take in us."""

    estimate: float
    bundle: int
    sends: list[Send]


def _best(lanes: Lanes, bundle: int, sends: int, attempt: Callable[[int], list[Send]]) -> _Plan:
    """Return the attempt that the estimate likes best."""
    restarts = max(1, min(_MOST_RESTARTS, _MOST_PLANNED // max(1, sends)))
    attempts = (attempt(number) for number in range(restarts))
    plans = (_Plan(estimate_us(lanes, sends), bundle, sends) for sends in attempts)
    return min(plans, key=lambda plan: plan.estimate)


def _spreading(question: _Question, bundle: int, backwards: bool = False) -> _Plan:
    """Return the best of several spreadings of bundles; `backwards` on the reversed links."""
    sketch = question.sketch
    lanes, holders = question.lanes(bundle, backwards), question.holders(bundle)
    carried = {} if backwards else question.carried(bundle)

    def attempt(number: int) -> list[Send]:
        rng = Random(f"{sketch.digest} {backwards} {bundle} {number}")
        return spread(lanes, holders, carried, rng, patient=number % 2 == 0)

    return _best(lanes, bundle, len(holders) * (sketch.ranks - 1), attempt)


def _spread(trace: Trace, question: _Question) -> None:
    """Trace an allgather or a broadcast."""
    plans = (_spreading(question, bundle) for bundle in question.bundles)
    _emit(trace.send, question.sketch, min(plans, key=lambda plan: plan.estimate))


def _gather_up(trace: Trace, question: _Question) -> None:
    """Trace a reduce-scatter or a reduce: a spreading run backwards, copies become reductions."""
    plans = (_spreading(question, bundle, backwards=True) for bundle in question.bundles)
    best = min(plans, key=lambda plan: plan.estimate)
    _emit(trace.reduce, question.sketch, best._replace(sends=_backwards(best.sends)))


def _emit(move: Callable[..., None], sketch: Sketch, plan: _Plan) -> None:
    for send in plan.sends:
        link = sketch.links[send.lane]
        move(send.number * plan.bundle, link.src, link.dst, count=plan.bundle)


def _backwards(sends: Sequence[Send]) -> list[Send]:
    """Return the sends with time reversed, in order of their new start."""
    last = max((send.end for send in sends), default=0.0)
    turned = (Send(s.number, s.lane, last - s.end, last - s.start) for s in sends)
    return sorted(turned, key=lambda send: send.start)


def _allreduce(trace: Trace, question: _Question) -> None:
    """Trace a reduce-scatter and an allgather; each chunk is spread as soon as it is summed."""
    plans = (
        (_spreading(question, bundle, backwards=True), _spreading(question, bundle))
        for bundle in question.bundles
    )
    gathering, spreading = min(plans, key=lambda both: both[0].estimate + both[1].estimate)
    up, down, bundle = _backwards(gathering.sends), spreading.sends, spreading.bundle
    sketch = question.sketch
    steps = _both_ways(sketch, up, down)
    middle = max((send.end for send in up), default=0.0)
    priority = [send.start for send in up] + [middle + send.start for send in down]
    numbered = [step._replace(number=index) for index, step in enumerate(steps)]
    for send in timed(question.lanes(bundle), numbered, priority):
        link = sketch.links[send.lane]
        move = trace.reduce if send.number < len(up) else trace.send
        move(steps[send.number].number * bundle, link.src, link.dst, count=bundle)


def _both_ways(sketch: Sketch, up: Sequence[Send], down: Sequence[Send]) -> list[Step]:
    """Return the steps of both halves; each waits for what its sender needs of the chunk."""
    arrived: dict[tuple[int, int], tuple[int, ...]] = {}
    steps: list[Step] = []
    for send in up:
        link = sketch.links[send.lane]
        steps.append(Step(send.number, send.lane, arrived.get((send.number, link.src), ())))
        place = send.number, link.dst
        arrived[place] = (*arrived.get(place, ()), len(steps) - 1)
    for send in down:
        link = sketch.links[send.lane]
        steps.append(Step(send.number, send.lane, arrived.get((send.number, link.src), ())))
        # What a rank reduced before it got the result no longer holds anything up.
        arrived[send.number, link.dst] = (len(steps) - 1,)
    return steps


def _parcels(question: _Question, bundle: int) -> dict[int, Parcel]:
    """Return where each bundle that has to move comes from and goes to."""
    ranks, root = question.collective.ranks, question.collective.root
    if question.collective.name == "alltoall":
        pairs = [(src, dst) for src in range(ranks) for dst in range(ranks)]
    elif question.collective.name == "scatter":
        pairs = [(root, dst) for dst in range(ranks)]
    else:
        pairs = [(src, root) for src in range(ranks)]
    parts = question.chunks_per_rank // bundle
    scatters = question.collective.name == "scatter"
    return {
        index * parts + part: Parcel(src, dst, question.place(dst) if scatters else src)
        for index, (src, dst) in enumerate(pairs)
        for part in range(parts)
        if src != dst
    }


def _deliver(trace: Trace, question: _Question) -> None:
    """Trace an alltoall, scatter or gather: each bundle by its own route."""
    plans = (_delivery(question, bundle) for bundle in question.bundles)
    _emit(trace.send, question.sketch, min(plans, key=lambda plan: plan.estimate))


def _delivery(question: _Question, bundle: int) -> _Plan:
    parcels, lanes = _parcels(question, bundle), question.lanes(bundle)
    sketch = question.sketch

    def attempt(number: int) -> list[Send]:
        rng = Random(f"{sketch.digest} {question.collective.name} {bundle} {number}")
        ways = route(lanes, list(parcels.values()), sketch.relays, rng)
        return _timed_ways(lanes, dict(zip(parcels, ways, strict=True)), rng)

    return _best(lanes, bundle, len(parcels), attempt)


def _timed_ways(lanes: Lanes, ways: Mapping[int, Sequence[int]], rng: Random) -> list[Send]:
    """Return the sends along the ways; those with most of their way before them go first."""
    steps: list[Step] = []
    priority: list[float] = []
    for chunk, way in ways.items():
        left = sum(lanes.lanes[number].travel for number in way)
        for place, number in enumerate(way):
            steps.append(Step(chunk, number, (len(steps) - 1,) if place else ()))
            priority.append(-left + 1e-6 * rng.random())
            left -= lanes.lanes[number].travel
    return timed(lanes, steps, priority)


_PLANS: dict[str, Callable[[Trace, _Question], None]] = {
    "allgather": _spread,
    "broadcast": _spread,
    "reduce-scatter": _gather_up,
    "reduce": _gather_up,
    "allreduce": _allreduce,
    "alltoall": _deliver,
    "scatter": _deliver,
    "gather": _deliver,
}
