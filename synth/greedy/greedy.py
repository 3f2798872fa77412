"""Greedy synthesis on a time-expanded network, from many starts (Won et al., TACOS, MICRO 2024).

Multicast (allgather, broadcast) matches free routes with chunks; a reduction is a multicast planned
on reversed routes and run backwards in time; chunks with one destination are routed around each
other. The search is native (`link_chunk_matching.cpp`, `unicast_routing.cpp`).
docs/reference/methods.md has the algorithm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from msgspec.structs import replace as replace_fields

from tuccl.errors import Infeasible
from tuccl.planners import GreedyResult, Send, list_schedule, plan_multicast, plan_unicast
from tuccl.sketches.sketch import Sketch
from tuccl.synth.greedy.infeasibility import unreachable, unroutable
from tuccl.synth.greedy.problem import MOST_CONNECTIONS, PlanningProblem
from tuccl.synth.greedy.routes import Routes, no_symmetry
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import Network, sketch_network
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import LoweringHints, Schedule
from tuccl.synth.model.trace import Trace
from tuccl.topology import Topology

_CHUNKS = (1, 2, 4, 6, 8)
# Messages beyond which a program takes long to lower, and has too many steps besides.
_MOST_MESSAGES = 17_000
# Steps that a thread block of a rotated program should have at most (the executor's: 64).
_MOST_STEPS = 60
# Relative time that matchings are charged for each connection when they are compared.
_CONNECTION_COST = 0.005
# Relative time that a matching with more connections than a rank should need must stay below.
_MANY_CONNECTIONS_GAIN = 0.9


def greedy(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return a schedule for the size of `problem`; equal arguments, equal schedule.

    Args:
        problem: The collective, its links and size; without a topology the links name what they
            share.
        options: Seed, starts and threads.

    Raises:
        Infeasible: the sketch does not allow the collective; names the rule, rank and chunk.

    Notes:
        After TACOS (Won et al., MICRO 2024), with resources that routes share. The relay rule names
        the owners whose chunks a sender may carry off its host. Where all chunks are the root's,
        they count as those of the ranks of its host in turn, so that all its NICs work. A sum has
        no single owner: for reductions the rule only says which ranks send at all.
    """
    problem = replace(problem, sketch=_without_idle_senders(problem.sketch))
    network = sketch_network(problem.sketch, problem.topology)
    if problem.topology is None:
        network = _congested(network, problem.sketch)
    routes = Routes(network, no_symmetry(network), tuple(range(len(network.pairs))))
    return _best_matching(PlanningProblem(problem, options, routes)).schedule()


def greedy_chunks(
    collective: Collective, sketch: Sketch, topology: Topology | None, most: int = 8
) -> tuple[int, ...]:
    """Return the chunks per rank (up to `most`) worth a try: few, and as many as are soon planned.

    >>> from tuccl.sketches import full_mesh
    >>> from tuccl.topology import load_profile
    >>> greedy_chunks(Collective("allgather", 8), full_mesh(load_profile("dgx-1v")), None)
    (1, 2, 4, 6, 8)
    """
    phases = 2 if collective.name == "allreduce" else 1
    if collective.name == "alltoall":
        most = min(most, 4)
    messages = collective.ranks * (collective.ranks - 1) * phases
    enough = min(most, max(1, _MOST_MESSAGES // messages))
    return tuple(chunks for chunks in _CHUNKS if chunks <= enough)


def _without_idle_senders(sketch: Sketch) -> Sketch:
    """Return the sketch without links between hosts whose sender may carry nothing out."""
    if not sketch.relays:
        return sketch
    links = (link for link in sketch.links if not link.inter or sketch.relays.get(link.src))
    return replace_fields(sketch, links=tuple(links))


def _congested(network: Network, sketch: Sketch) -> Network:
    """Return the network with links that name no shared resource as slow as when all send."""
    rates = list(network.rates)
    for link, route in zip(sketch.links, network.routes, strict=True):
        if len(route) == 1:
            rates[route[0]] /= 1 + Fraction(link.congestion)
    return replace(network, rates=tuple(rates))


@dataclass(frozen=True)
class _Matching:
    """Sends of one period in order of start, and their estimated time in us."""

    problem: PlanningProblem
    time_us: float
    sends: list[Send]

    @cached_property
    def connections(self) -> int:
        """Return the connections of the rank that has most."""
        return self.problem.routes.connections(send.route for send in self.sends)

    @property
    def cost(self) -> tuple[float, int]:
        """Return the time, to six digits, with what its connections cost, and the sends.

        It sees resources serve one send at a time. The more connections share one, the more
        messages are on their way at once, and the later the first of them arrives.
        """
        time_us = self.time_us * (1 + _CONNECTION_COST * self.connections)
        return float(f"{time_us:.6g}"), len(self.sends)

    def schedule(self) -> Schedule:
        """Return the schedule; of many ranks that of one period, where there are several."""
        problem, routes = self.problem, self.problem.routes
        period = routes.period_ranks if routes.periods > 1 else 0
        trace = Trace(problem.collective, problem.chunks_per_rank, "greedy", period)
        rotated = problem.is_rotated
        channels = self._channels() if rotated else [int(send.reduce) for send in self.sends]
        for send, channel in zip(self.sends, channels, strict=True):
            chunk, src, dst = self._moved(send)
            step = trace.reduce if send.reduce else trace.send
            if problem.collective.groups is not None and trace.holds(chunk, dst):
                continue  # it came for another rank, and is passed on from here
            step(chunk, src, dst, channel, problem.group)
        schedule = trace.schedule(LoweringHints(split_send_recv=True))
        return schedule if rotated else schedule.whole()

    def _moved(self, send: Send) -> tuple[int, int, int]:
        """Return first chunk, source and destination of a send, where the chunk is the period's."""
        routes = self.problem.routes
        src, dst, periods = routes.ends[send.route]
        back, chunk = 0, send.chunk
        if routes.periods > 1:
            back, chunk = divmod(chunk, len(self.problem.sources))
        receiver = (back + periods) % routes.periods
        return (
            chunk * self.problem.group,
            back * routes.period_ranks + src,
            receiver * routes.period_ranks + dst,
        )

    def _channels(self) -> list[int]:
        """Return each send's channel: no thread block has too many steps; sums have their own."""
        loads = Counter((send.route, send.reduce) for send in self.sends)
        needed = {route: -(-load // _MOST_STEPS) for route, load in loads.items()}
        used: Counter[tuple[int, bool]] = Counter()
        channels = []
        for send in self.sends:
            route = send.route, send.reduce
            channels.append(max(needed.values()) * send.reduce + used[route] % needed[route])
            used[route] += 1
        return channels


def _best_matching(problem: PlanningProblem) -> _Matching:
    """Return the fastest matching that needs few connections, unless more are worth it."""
    in_groups = problem.collective.groups is not None
    planner = _plan_unicast if in_groups else _PLANNERS[problem.collective.name]
    matchings: list[_Matching] = []
    reasons: list[Infeasible] = []
    for variant in problem.variants():
        try:
            matchings.append(planner(variant))
        except Infeasible as reason:
            reasons.append(reason)
    if not matchings:
        raise reasons[0]
    fastest = min(matchings, key=lambda matching: matching.cost)
    few = [matching for matching in matchings if matching.connections <= MOST_CONNECTIONS]
    frugal = min(few, key=lambda matching: matching.cost, default=fastest)
    return frugal if frugal.time_us * _MANY_CONNECTIONS_GAIN <= fastest.time_us else fastest


def _multicast(problem: PlanningProblem, *, reverse: bool = False) -> GreedyResult:
    """Return the best of many native multicasts; `reverse` on the reversed routes.

    Raises:
        Infeasible: some chunk cannot reach some rank.
    """
    matching = plan_multicast(
        problem.routes.periodic_network(problem.group_bytes, reverse=reverse),
        problem.sources,
        [] if reverse else problem.relayed_chunks(),
        **problem.search(len(problem.sources) * (problem.routes.network.ranks - 1)),
    )
    if matching.start < 0:
        raise Infeasible(unreachable(problem, matching.chunk, matching.rank, reverse=reverse))
    return matching


def _plan_multicast(problem: PlanningProblem) -> _Matching:
    """Return the matching of an allgather or a broadcast."""
    matching = _multicast(problem)
    return _Matching(problem, matching.time_us, matching.sends)


def _plan_reduction(problem: PlanningProblem) -> _Matching:
    """Return the matching of a reduce-scatter or a reduce: a multicast run backwards."""
    matching = _multicast(problem, reverse=True)
    ends = problem.routes.ends
    sends = [
        Send(problem.renumbered(send.chunk, -ends[send.route].period), send.route, reduce=True)
        for send in sorted(matching.sends, key=lambda send: -send.end_us)
    ]
    return _Matching(problem, matching.time_us, sends)


def _plan_allreduce(problem: PlanningProblem) -> _Matching:
    """Return the matching of an allreduce; each chunk is multicast as soon as it is summed."""
    phases = _plan_reduction(problem), _plan_multicast(problem)
    sends = _with_predecessors(problem, [send for phase in phases for send in phase.sends])
    sends = list_schedule(problem.routes.periodic_network(problem.group_bytes), sends)
    first_tile_us = max(send.end_us for send in sends)
    # Each phase's estimate has its own further tiles; the first ones overlap.
    phases_us = sum(phase.time_us for phase in phases)
    return _Matching(problem, min(first_tile_us, phases_us) if phases_us else first_tile_us, sends)


def _with_predecessors(problem: PlanningProblem, sends: list[Send]) -> list[Send]:
    """Return the sends, each after those that bring its source what it needs of the chunk."""
    arrived: dict[tuple[int, int], list[int]] = {}
    ordered = []
    for number, send in enumerate(sends):
        src, dst, period = problem.routes.ends[send.route]
        after = arrived.get((src, send.chunk), [])
        ordered.append(Send(send.chunk, send.route, send.reduce, after, -float(number)))
        received = dst, problem.renumbered(send.chunk, period)
        # A result replaces the partial sums: they hold nothing up any longer.
        arrived[received] = [*arrived.get(received, ()), number] if send.reduce else [number]
    return ordered


def _plan_unicast(problem: PlanningProblem) -> _Matching:
    """Return the matching of an alltoall, scatter or gather, or in groups: a path for each move.

    Raises:
        Infeasible: some chunk has no path to its destination.
    """
    demands = problem.unicasts()
    matching = plan_unicast(
        problem.routes.periodic_network(problem.group_bytes),
        [ends for _, ends in demands],
        problem.relay_rule,
        **problem.search(8 * len(demands)),
    )
    if matching.start < 0:
        raise Infeasible(unroutable(problem, *demands[matching.chunk][1]))
    return _Matching(
        problem, matching.time_us, [Send(demands[s.chunk][0], s.route) for s in matching.sends]
    )


_PLANNERS: dict[str, Callable[[PlanningProblem], _Matching]] = {
    "allgather": _plan_multicast,
    "broadcast": _plan_multicast,
    "reduce-scatter": _plan_reduction,
    "reduce": _plan_reduction,
    "allreduce": _plan_allreduce,
    "alltoall": _plan_unicast,
    "scatter": _plan_unicast,
    "gather": _plan_unicast,
}
