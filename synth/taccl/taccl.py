"""TACCL: routing, ordering and contiguity of a sketch's sends, on CP-SAT.

A heuristic makes a first schedule; models for one send of each orbit then improve on it and bound
it from below, until it is proved, time is up, or the user interrupts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuccl.sketches.sketch import Sketch
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options
from tuccl.synth.model.problem import Problem as SynthesisProblem
from tuccl.synth.model.schedule import Proof, Schedule
from tuccl.synth.model.solver import Budget, Outcome, cp_sat, run_model
from tuccl.synth.model.trace import Trace
from tuccl.synth.taccl.chunks import representative_chunks, sketch_symmetry
from tuccl.synth.taccl.contiguity import ContiguityModel, merge_sends
from tuccl.synth.taccl.costs import LinkCosts, sketch_costs
from tuccl.synth.taccl.heuristic_ordering import heuristic_sends
from tuccl.synth.taccl.problem import (
    Problem,
    TimedMessage,
    TimedSend,
    makespan,
    retime,
    reverse_time,
)
from tuccl.synth.taccl.routing import HeadsAndTails, RoutingModel

# Possible sends beyond which building a model alone takes longer than users wait.
_MOST_SENDS = 60_000
# Of the time: for the length of a schedule, where its connections matter too.
_SEARCH_SHARE = 0.7


@dataclass(frozen=True)
class Solution:
    """Timed messages over the links of a sketch, and what is proved of it.

    Attributes:
        messages: By start.
        proof: Of its time.
        least_us: A bound on the time of any one chunk, alone on its links, in us.
    """

    messages: tuple[TimedMessage, ...]
    proof: Proof
    least_us: float = 0.0


def taccl(problem: SynthesisProblem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return the best schedule found for `nbytes` on `sketch`, with its time by the sketch in us.

    Args:
        problem: The collective, its size, and a sketch with its links, NICs that they share, relay
            rules, switches and symmetry.
        options: The budget of the solver: 20 s by default.

    Raises:
        Infeasible: the sketch does not allow the collective; names chunk, rank and rule.
        InputError: OR-Tools is not installed.

    Notes:
        TACCL (NSDI 2023), sections 4 and 5.
    """
    collective, sketch, chunks = problem.collective, problem.sketch, problem.chunks_per_rank
    costs = sketch_costs(sketch, max(1, -(-problem.nbytes // problem.nchunks)))
    solution = solve(collective, sketch, costs, chunks, options.budget or Budget())
    return schedule_of(solution, collective, sketch, chunks)


def schedule_of(
    solution: Solution, collective: Collective, sketch: Sketch, chunks_per_rank: int
) -> Schedule:
    """Return the schedule of a solution, its transfers in the order in which messages start."""
    trace = Trace(collective, chunks_per_rank, "taccl")
    for message in solution.messages:
        link = sketch.links[message.link]
        if not message.reduce:
            trace.send_each(message.chunks, link.src, link.dst)
            continue
        for chunk in message.chunks:
            trace.reduce(chunk, link.src, link.dst)
    return replace(trace.schedule(), proof=solution.proof)


def solve(
    collective: Collective, sketch: Sketch, costs: LinkCosts, chunks_per_rank: int, budget: Budget
) -> Solution:
    """Return the best solution found under `costs`, which are those of `sketch`'s links in order.

    A reduction is a multicast on reversed links, run backwards in time; an allreduce is both, each
    chunk being multicast as soon as it is summed.

    Raises:
        Infeasible: the sketch does not allow the collective; names chunk, rank and rule.
        InputError: OR-Tools is not installed.
    """
    cp_sat()

    def half(reverse: bool, budget: Budget) -> Solution:
        return _half(collective, sketch, costs, chunks_per_rank, budget, reverse)

    if collective.name != "allreduce":
        return half(collective.reducing, budget)
    first = replace(budget, seconds=budget.left / 2, started=time.monotonic())
    up = half(True, first)
    budget.interrupted |= first.interrupted
    down = half(False, budget)
    return _allreduce(up, down, costs)


def _allreduce(up: Solution, down: Solution, costs: LinkCosts) -> Solution:
    """Return an allreduce: `up`, and `down` behind it as early as its chunks are ready.

    Notes:
        No chunk is spread before it is summed, and none summed in the time it takes to spread: so
        either half's bound, and the least time of a chunk in the other, make a bound of both.
    """
    summed = makespan(up.messages)
    behind = (m._replace(start=m.start + summed, end=m.end + summed) for m in down.messages)
    messages = retime([*up.messages, *behind], costs)
    bound = max(up.proof.bound_us + down.least_us, up.least_us + down.proof.bound_us)
    time_us = makespan(messages) / 1e3
    status = "optimal" if time_us <= bound else "feasible"
    interrupted = "interrupted" in (up.proof.status, down.proof.status)
    proof = Proof(
        "time of reduce-scatter and allgather, each chunk spread once summed",
        time_us,
        min(bound, time_us),
        "interrupted" if interrupted else status,
        up.proof.reproducible and down.proof.reproducible,
    )
    return Solution(tuple(messages), proof)


def _half(
    collective: Collective,
    sketch: Sketch,
    costs: LinkCosts,
    chunks_per_rank: int,
    budget: Budget,
    reverse: bool,
) -> Solution:
    planned = costs.reversed() if reverse else costs
    symmetry = sketch_symmetry(collective, sketch, planned, chunks_per_rank)
    chunks = representative_chunks(collective, sketch, planned, chunks_per_rank, symmetry)
    own_chunks_first = sketch.own_chunks_first and not reverse
    connections = next(iter(sketch.switch_strategy), "")  # TACCL reads the first alone
    search = _Search(Problem(planned, chunks, symmetry, own_chunks_first, connections), budget)
    sends = search.run()
    messages = retime(search.problem.messages(sends), planned)
    if makespan(messages) > search.time:
        messages = search.problem.messages(sends)
    time_us, bound_us = makespan(messages) / 1e3, search.bound / 1e3
    status = "optimal" if time_us <= bound_us else "feasible"
    proof = Proof(
        f"time of {len(messages)} messages, the same under {len(symmetry)} symmetries",
        time_us,
        min(bound_us, time_us),
        "interrupted" if budget.interrupted and status != "optimal" else status,
        not (budget.interrupted or budget.clocked),
    )
    least_us = min(HeadsAndTails(search.problem).reach()) / 1e3
    return Solution(tuple(reverse_time(messages) if reverse else messages), proof, least_us)


class _Search:
    """The stages: each takes the best sends so far and leaves better ones, or a better bound."""

    def __init__(self, problem: Problem, budget: Budget) -> None:
        self.problem, self.budget = problem, budget
        self.bound = self.single_bound = 0
        self.sends: list[TimedSend] = []
        self.time = 0
        self.routes: list[list[list[int]]] = []
        self.ordered: list[list[TimedSend]] = []

    def run(self) -> list[TimedSend]:
        """Return the best sends found, and leave the bound in `bound`."""
        try:
            self.bound = max(HeadsAndTails(self.problem).reach())
            self._keep(heuristic_sends(self.problem), "heuristic")
            if sum(len(chunk.links) for chunk in self.problem.chunks) <= _MOST_SENDS:
                self._solve()
            else:
                self.budget.report(
                    f"more than {_MOST_SENDS} possible sends: only merged, not solved"
                )
                if self.problem.merges and self.open:
                    self._merge(self.sends)
        except KeyboardInterrupt:  # outside a run of the solver; runs see to it themselves
            if not self.sends:
                raise
            self.budget.interrupted = True
        return self.sends

    def _solve(self) -> None:
        merges = self.problem.merges
        for stage in (self._relax, *([self._route] if merges else []), self._order, self._polish):
            if self.open:
                stage()
        if self.problem.connections:
            self._connections()
        if merges and self.open:
            self._contiguity()

    @property
    def open(self) -> bool:
        """Return whether there is anything left to find and time for it."""
        return self.time > self.bound and self.budget.left > 0.01

    def _keep(self, sends: Sequence[TimedSend], what: str) -> None:
        """Take a schedule if it is the best so far."""
        if not self.sends or _end(sends) < self.time:
            self.sends, self.time = list(sends), _end(sends)
            time_us, bound_us = self.time / 1e3, self.bound / 1e3
            self.budget.report(f"{what}: {time_us:.2f} us, bound {bound_us:.2f} us")

    def _run(self, model: RoutingModel | ContiguityModel, share: float, what: str) -> Outcome:
        share *= _SEARCH_SHARE if self.problem.connections else 1.0
        return run_model(model.model, self.budget, share, what)

    def _relax(self) -> None:
        """Bound every schedule: links carry what they must, in no order, messages of any length.

        Without contiguous links these are the routes that load links least (TACCL 5.1).
        """
        model = RoutingModel(self.problem, self.time, exclusive=False, shortest_messages=True)
        if not self.problem.merges:
            model.hint(self.sends)
        outcome = self._run(model, 0.3 if self.problem.merges else 0.5, "bound")
        self.bound = max(self.bound, outcome.bound)
        self.single_bound = self.bound
        if outcome.values:
            self.routes.append(_routes(self.problem, model.sends(outcome)))

    def _route(self) -> None:
        """Take the routes that load links least where every chunk is a message of its own."""
        model = RoutingModel(self.problem, self.time, exclusive=False)
        model.hint(self.sends)
        outcome = self._run(model, 0.25, "routing")
        self.single_bound = max(self.single_bound, outcome.bound)
        if outcome.values:
            self.routes.append(_routes(self.problem, model.sends(outcome)))

    def _order(self) -> None:
        """Order the sends on the routes found, best (TACCL 5.2)."""
        for routes in reversed(self.routes):
            if not self.open:
                return
            model = RoutingModel(self.problem, 8 * self.time, routes=routes)
            outcome = self._run(model, 0.25, "ordering")
            if outcome.values:
                self.ordered.append(model.sends(outcome))
                self._keep(self.ordered[-1], "ordering")

    def _polish(self) -> None:
        """Choose routes and order together, from the best schedule on; chunks go one by one."""
        if self.time <= self.single_bound:
            return
        model = RoutingModel(self.problem, self.time)
        model.hint(self.sends)
        share = 0.6 if self.problem.merges else 1.0
        outcome = self._run(model, share, "routing with ordering")
        if not self.problem.merges:
            self.bound = max(self.bound, outcome.bound)
        if outcome.values:
            self._keep(model.sends(outcome), "routing with ordering")

    def _connections(self) -> None:
        """Take few connections inside hosts, or many, in a schedule as short (TACCL 5.1)."""
        model = RoutingModel(self.problem, self.time)
        model.prefer_connections()
        model.hint(self.sends)

        def words(values: Sequence[int], bound: int) -> str:
            return f"bound of this stage {bound}"

        outcome = run_model(
            model.model, self.budget, 1 - _SEARCH_SHARE, "connections inside hosts", words
        )
        if outcome.values:
            self.sends, self.ordered = model.sends(outcome), []
            self.time = _end(self.sends)

    def _contiguity(self) -> None:
        """Merge neighbours on links between hosts into messages (TACCL 5.3)."""
        schedules = list(dict.fromkeys(map(tuple, (self.sends, *self.ordered))))
        for number, sends in enumerate(schedules):
            if not self.open:
                return
            merged = self._merge(sends)
            model = ContiguityModel(self.problem, sends, _end(merged))
            model.hint(merged)
            outcome = self._run(model, 1 / (len(schedules) - number), "contiguity")
            if outcome.values:
                self._keep(model.sends(outcome), "contiguity")

    def _merge(self, sends: Sequence[TimedSend]) -> list[TimedSend]:
        """Return, and keep, the best schedule with messages of 1, 2, 4, ... chunks."""
        sizes = (1 << power for power in range(1, len(sends).bit_length() + 1))
        merged = (merge_sends(self.problem, sends, size) for size in sizes)
        fastest = min([list(sends), *(each for each in merged if each is not None)], key=_end)
        self._keep(fastest, "messages")
        return fastest


def _end(sends: Sequence[TimedSend]) -> int:
    return max(send.end for send in sends)


def _routes(problem: Problem, sends: Sequence[TimedSend]) -> list[list[int]]:
    routes: list[list[int]] = [[] for _ in problem.chunks]
    for send in sends:
        routes[send.chunk].append(send.link)
    return routes
