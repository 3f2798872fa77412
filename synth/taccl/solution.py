"""The sketch-guided exact method: TACCL's routing, ordering and contiguity on CP-SAT.

A first plan is made greedily; models for one of each set of like sends then improve on it and
bound it from below, until it is proved, time is up, or the user interrupts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuccl.sketches.sketch import Sketch
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.schedule import Proof, Schedule
from tuccl.synth.model.solver import Budget, Outcome, cp_sat, run_model
from tuccl.synth.model.trace import Trace
from tuccl.synth.taccl.batches import BatchModel, grouped_hops
from tuccl.synth.taccl.costs import Costs, sketch_costs
from tuccl.synth.taccl.incumbent import first_hops
from tuccl.synth.taccl.items import items_of
from tuccl.synth.taccl.models import Margins, SendModel
from tuccl.synth.taccl.plan import Hop, Message, Question, makespan, retimed, turned
from tuccl.synth.taccl.symmetry import sketch_symmetry

# Possible sends beyond which building a model alone takes longer than users wait.
_MOST_SENDS = 60_000

__all__ = ["Solution", "exact", "solve"]


@dataclass(frozen=True)
class Solution:
    """A timed plan of messages over the links of a sketch, and what is proved of it.

    Attributes:
        messages: By start.
        proof: Of its time.
        least_us: In less no chunk can be done, alone on its links, in us.
    """

    messages: tuple[Message, ...]
    proof: Proof
    least_us: float = 0.0


def exact(
    collective: Collective,
    sketch: Sketch,
    chunks_per_rank: int = 1,
    nbytes: int = 1 << 20,
    budget: Budget | None = None,
) -> Schedule:
    """Return the best schedule found for `nbytes` on `sketch`, with its time by the sketch in us.

    Args:
        collective: What is to be computed.
        sketch: Links, NICs that they share, relay rules, switches, symmetry.
        chunks_per_rank: Parts that each rank's share is cut into.
        nbytes: Size that the schedule is made for, as nccl-tests counts it.
        budget: Seconds, seed, threads, and whom to tell; the default is 20 s.

    Raises:
        Infeasible: the sketch does not allow the collective; names chunk, rank and rule.
        InputError: OR-Tools is not installed.

    Notes:
        TACCL (NSDI 2023), sections 4 and 5.
    """
    chunk_bytes = max(1, -(-nbytes // collective.nchunks(chunks_per_rank)))
    costs = sketch_costs(sketch, chunk_bytes)
    solution = solve(collective, sketch, costs, chunks_per_rank, budget or Budget())
    return schedule_of(solution, collective, sketch, chunks_per_rank)


def schedule_of(
    solution: Solution, collective: Collective, sketch: Sketch, chunks_per_rank: int
) -> Schedule:
    """Return the schedule of a plan, its transfers in the order in which messages start."""
    trace = Trace(collective, chunks_per_rank, "taccl")
    for message in solution.messages:
        link = sketch.links[message.wire]
        if not message.reduce:
            trace.send_each(message.chunks, link.src, link.dst)
            continue
        for chunk in message.chunks:
            trace.reduce(chunk, link.src, link.dst)
    return replace(trace.schedule(), proof=solution.proof)


def solve(
    collective: Collective, sketch: Sketch, costs: Costs, chunks_per_rank: int, budget: Budget
) -> Solution:
    """Return the best plan found under `costs`, which are those of `sketch`'s links in order.

    A reduction is a spreading on reversed links, run backwards in time; an allreduce is both, each
    chunk being spread as soon as it is summed.

    Raises:
        Infeasible: the sketch does not allow the collective; names chunk, rank and rule.
        InputError: OR-Tools is not installed.
    """
    cp_sat()

    def part(gathers: bool, budget: Budget) -> Solution:
        return _spread(collective, sketch, costs, chunks_per_rank, budget, gathers)

    if collective.name != "allreduce":
        return part(collective.reducing, budget)
    half = replace(budget, seconds=budget.left / 2, started=time.monotonic())
    up = part(True, half)
    budget.interrupted |= half.interrupted
    down = part(False, budget)
    return _joined(up, down, costs)


def _joined(up: Solution, down: Solution, costs: Costs) -> Solution:
    """Return an allreduce: `up`, and `down` behind it as early as its chunks are ready.

    Notes:
        No chunk is spread before it is summed, and none summed in the time it takes to spread: so
        either half's bound, and the least time of a chunk in the other, make a bound of both.
    """
    summed = makespan(up.messages)
    behind = (m._replace(start=m.start + summed, end=m.end + summed) for m in down.messages)
    messages = retimed([*up.messages, *behind], costs)
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


def _spread(
    collective: Collective,
    sketch: Sketch,
    costs: Costs,
    chunks_per_rank: int,
    budget: Budget,
    gathers: bool,
) -> Solution:
    planned = costs.turned() if gathers else costs
    group = sketch_symmetry(collective, sketch, planned, chunks_per_rank)
    items = items_of(collective, sketch, planned, chunks_per_rank, group)
    own_first = sketch.own_chunks_first and not gathers
    search = _Search(Question(planned, items, group, own_first), budget)
    hops = search.run()
    messages = retimed(search.question.messages(hops), planned)
    if makespan(messages) > search.best_time:
        messages = search.question.messages(hops)
    time_us, bound_us = makespan(messages) / 1e3, search.bound / 1e3
    status = "optimal" if time_us <= bound_us else "feasible"
    proof = Proof(
        f"time of {len(messages)} messages, alike under {len(group)} symmetries",
        time_us,
        min(bound_us, time_us),
        "interrupted" if budget.interrupted and status != "optimal" else status,
        not (budget.interrupted or budget.clocked),
    )
    least_us = min(Margins(search.question).reach()) / 1e3
    return Solution(tuple(turned(messages) if gathers else messages), proof, least_us)


class _Search:
    """The stages: each takes the best hops so far and leaves better ones, or a better bound."""

    def __init__(self, question: Question, budget: Budget) -> None:
        self.question, self.budget = question, budget
        self.bound = self.single_bound = 0
        self.hops: list[Hop] = []
        self.best_time = 0
        self.routes: list[list[list[int]]] = []
        self.ordered: list[list[Hop]] = []

    def run(self) -> list[Hop]:
        """Return the best hops found, and leave the bound in `bound`."""
        try:
            self.bound = max(Margins(self.question).reach())
            self._keep(first_hops(self.question), "first plan")
            for stage in self._stages():
                if self.open:
                    stage()
        except KeyboardInterrupt:  # outside a run of the solver; runs see to it themselves
            if not self.hops:
                raise
            self.budget.interrupted = True
        return self.hops

    def _stages(self) -> list[Callable[[], None]]:
        if sum(len(item.wires) for item in self.question.leaders) > _MOST_SENDS:
            self.budget.report(f"more than {_MOST_SENDS} possible sends: only merged, not solved")
            return [self._group]
        if self.question.batches:
            return [self._relax, self._route, self._order, self._polish, self._batch]
        return [self._relax, self._order, self._polish]

    @property
    def open(self) -> bool:
        """Return whether there is anything left to find and time for it."""
        return self.best_time > self.bound and self.budget.left > 0.01

    def _keep(self, hops: Sequence[Hop], what: str) -> None:
        """Take a plan if it is the best so far."""
        if not self.hops or _end(hops) < self.best_time:
            self.hops, self.best_time = list(hops), _end(hops)
            best, bound = self.best_time / 1e3, self.bound / 1e3
            self.budget.report(f"{what}: {best:.2f} us, bound {bound:.2f} us")

    def _run(self, model: SendModel | BatchModel, share: float, what: str) -> Outcome:
        return run_model(model.model, self.budget, share, what)

    def _relax(self) -> None:
        """Bound every plan: wires carry what they must, in no order, messages of any length.

        Without batch wires these are the routes that load wires least (TACCL 5.1).
        """
        model = SendModel(self.question, self.best_time, exclusive=False, shortest_messages=True)
        if not self.question.batches:
            model.hint(self.hops)
        outcome = self._run(model, 0.3 if self.question.batches else 0.5, "bound")
        self.bound = max(self.bound, outcome.bound)
        self.single_bound = self.bound
        if outcome.values:
            self.routes.append(_routes(self.question, model.hops(outcome)))

    def _route(self) -> None:
        """Take the routes that load wires least where every chunk is a message of its own."""
        model = SendModel(self.question, self.best_time, exclusive=False)
        model.hint(self.hops)
        outcome = self._run(model, 0.25, "routing")
        self.single_bound = max(self.single_bound, outcome.bound)
        if outcome.values:
            self.routes.append(_routes(self.question, model.hops(outcome)))

    def _order(self) -> None:
        """Order the sends on the routes found, best (TACCL 5.2)."""
        for routes in reversed(self.routes):
            if not self.open:
                return
            model = SendModel(self.question, 8 * self.best_time, routes=routes)
            outcome = self._run(model, 0.25, "ordering")
            if outcome.values:
                self.ordered.append(model.hops(outcome))
                self._keep(self.ordered[-1], "ordering")

    def _polish(self) -> None:
        """Choose routes and order together, starting from the best plan; chunks go one by one."""
        if self.best_time <= self.single_bound:
            return
        model = SendModel(self.question, self.best_time)
        model.hint(self.hops)
        share = 0.6 if self.question.batches else 1.0
        outcome = self._run(model, share, "routing with ordering")
        if not self.question.batches:
            self.bound = max(self.bound, outcome.bound)
        if outcome.values:
            self._keep(model.hops(outcome), "routing with ordering")

    def _batch(self) -> None:
        """Merge neighbours on wires between hosts into messages (TACCL 5.3)."""
        plans = {tuple(self.hops): None, **{tuple(hops): None for hops in self.ordered}}
        for left, given in zip(range(len(plans), 0, -1), plans, strict=True):
            if self.open:
                self._merge(given, 1 / left)

    def _group(self) -> None:
        """Merge neighbours in equal numbers: all that is done where models would be too large."""
        if self.question.batches:
            self._keep(self._grouped(self.hops), "messages")

    def _grouped(self, given: Sequence[Hop]) -> list[Hop]:
        """Return the best of messages of 1, 2, 4, ... chunks."""
        best = list(given)
        for power in range(1, len(given).bit_length() + 1):
            grouped = grouped_hops(self.question, given, 1 << power)
            if grouped is not None and _end(grouped) < _end(best):
                best = grouped
        return best

    def _merge(self, given: Sequence[Hop], share: float) -> None:
        best = self._grouped(given)
        self._keep(best, "messages")
        model = BatchModel(self.question, given, _end(best))
        model.hint(best)
        outcome = self._run(model, share, "contiguity")
        if outcome.values:
            self._keep(model.hops(outcome), "contiguity")


def _end(hops: Sequence[Hop]) -> int:
    return max(hop.end for hop in hops)


def _routes(question: Question, hops: Sequence[Hop]) -> list[list[int]]:
    routes: list[list[int]] = [[] for _ in question.leaders]
    for hop in hops:
        routes[hop.item].append(hop.wire)
    return routes
