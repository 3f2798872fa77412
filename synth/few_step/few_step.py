"""Few-step method: k-synchronous schedules (SCCL) of a machine, or of one host mapped to all.

docs/reference/methods.md, "Few steps".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from tuccl.errors import Infeasible, InputError
from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.local_routes import reversed_sketch
from tuccl.synth.few_step.group_allreduce import add_group_allreduce, group_allreduces
from tuccl.synth.few_step.hierarchy import (
    hierarchical_allgathers,
    hierarchical_alltoalls,
    hierarchical_broadcasts,
)
from tuccl.synth.few_step.instance import Instance
from tuccl.synth.few_step.k_synchronous import KSynchronous, solve_k_synchronous
from tuccl.synth.few_step.sends import (
    RangeSend,
    add_reductions,
    add_sends,
    estimate_us,
    pack_messages,
    step_count,
)
from tuccl.synth.model.collective import COLLECTIVES, Collective
from tuccl.synth.model.demand import Demand, demands_of
from tuccl.synth.model.hierarchy import equal_groups
from tuccl.synth.model.network import Network, sketch_network
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import LoweringHints, Schedule
from tuccl.synth.model.solver import Budget
from tuccl.synth.model.trace import Trace

FEWSTEP_COLLECTIVES = frozenset(COLLECTIVES)
_FORWARDS = {"reduce-scatter": "allgather", "reduce": "broadcast", "gather": "scatter"}
# What gains by thread blocks of their own for receives and sends.
_APART = frozenset({"allgather", "allreduce", "broadcast"})
# Steps beyond the fewest that are tried.
_MORE_STEPS = 2
# Only what might take at most this part of the best time so far is solved.
_WORTH = 0.95
# Of a solve without a budget.
_DEFAULT_S, _DEFAULT_EFFORT = 30.0, 0.5
# Ranks up to which a whole machine of several hosts is solved at once.
_MOST_WHOLE = 64


class _Candidate(NamedTuple):
    """A schedule, and in words what is proved of it."""

    sends: list[RangeSend]
    outcome: str


@dataclass(frozen=True)
class _ForwardProblem:
    """A forward collective; network and sketch are reversed where a collective runs it backwards.

    Attributes:
        steps: Messages in a row that it may have; None: as few as pay.
        refusals: Gathers why there is no schedule of so many steps.
    """

    name: str
    root: int
    chunks_per_rank: int
    chunk_bytes: float
    network: Network
    sketch: Sketch
    budget: Budget | None
    steps: int | None = None
    refusals: list[str] = field(default_factory=list)

    def estimate_us(self, sends: Sequence[RangeSend]) -> float:
        """Return about what the sends take in us."""
        return estimate_us(sends, self.network, self.sketch, self.chunk_bytes)

    def solve_inside(
        self, network: Network, demands: tuple[Demand, ...]
    ) -> list[tuple[int, int, int, int]] | None:
        """Return (step, src, dst, demand) of the fewest steps on one host; None: not solved."""
        if not any(demand.targets for demand in demands):
            return []
        if not network.pairs:
            return None
        instance = Instance(network, demands, min(network.rates))
        solution = _solve(instance, instance.fewest_steps or 0, self.budget)
        if solution.status != "solved":
            return None
        return [(s.step, *network.pairs[s.pair], s.chunk) for s in solution.sends]


def fewstep(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return a schedule of as few steps as pay at `nbytes`, its load the least for so many.

    Args:
        problem: The collective and its links; the size decides how many steps, and which messages
            between hosts, are fastest. The more chunks per rank, the fewer bytes on the busiest
            link.
        options: Steps, and the budget of the solver; by default little, and the same answer
            whatever else the machine does.

    Raises:
        Infeasible: the links do not join all ranks, the sketch has relay rules, there is no
            solver, or it found nothing in time.
    """
    collective, sketch = problem.collective, problem.sketch
    network = sketch_network(sketch, problem.topology)
    trace = Trace(collective, problem.chunks_per_rank, "fewstep")
    forward = _ForwardProblem(
        name=_FORWARDS.get(collective.name, collective.name),
        root=collective.root,
        chunks_per_rank=problem.chunks_per_rank,
        chunk_bytes=problem.chunk_bytes,
        network=network,
        sketch=sketch,
        budget=options.budget,
        steps=options.steps,
    )
    reverse = reversed_sketch(sketch)
    backward = replace(forward, network=network.reverse, sketch=reverse, refusals=[])
    if collective.name == "allreduce":
        outcome = _allreduce(trace, forward, backward, problem.nbytes)
    elif collective.name == "gather":
        sends, outcome = _fastest(backward)
        last = step_count(sends) - 1
        add_sends(trace, (s._replace(step=last - s.step, src=s.dst, dst=s.src) for s in sends))
    elif collective.reducing:
        sends, outcome = _fastest(backward)
        add_reductions(trace, sends, problem.nbytes)
    else:
        sends, outcome = _fastest(forward)
        if collective.name == "alltoall":
            pack_messages(trace, sends, network.hosts)
        add_sends(trace, sends)
    hints = LoweringHints(split_send_recv=collective.name in _APART)
    return trace.schedule(hints, outcome=outcome)


def _allreduce(
    trace: Trace, forward: _ForwardProblem, backward: _ForwardProblem, nbytes: int
) -> str:
    """Add a reduce-scatter and an allgather, or sums within groups of ranks if they are faster.

    Returns in words what is proved.
    """
    total = trace.collective.nchunks(trace.chunks_per_rank)
    most = forward.steps
    if most is not None and most < 2:
        raise Infeasible(
            "fewstep: an allreduce takes 2 steps at least, sums and results; "
            "allpairs does it in one"
        )
    groups = [
        (each.estimate_us(forward.network, forward.sketch, forward.chunk_bytes), number, each)
        for number, each in enumerate(
            group_allreduces(forward.network, total, forward.solve_inside)
        )
        if most is None or each.steps <= most
    ]
    forward, backward = (
        replace(problem, name="allgather", steps=half)
        for problem, half in zip((forward, backward), _halves(most), strict=True)
    )
    try:
        up, down = _fastest(backward), _fastest(forward)
    except Infeasible:
        if not groups:
            raise
    else:
        if (
            not groups
            or backward.estimate_us(up.sends) + forward.estimate_us(down.sends) <= min(groups)[0]
        ):
            add_reductions(trace, up.sends, nbytes)
            add_sends(trace, down.sends, 1)
            return f"sums: {up.outcome}; results: {down.outcome}"
    fastest = min(groups)[2]
    add_group_allreduce(trace, fastest, nbytes)
    return (
        f"{fastest.steps} steps, in groups of ranks that each sum for themselves; nothing is proved"
    )


def _halves(steps: int | None) -> tuple[int | None, int | None]:
    """Return the steps that the results and the sums of an allreduce may have."""
    return (None, None) if steps is None else (steps - steps // 2, steps // 2)


def _fastest(problem: _ForwardProblem) -> _Candidate:
    """Return the candidate that takes the least time, by estimate.

    Raises:
        Infeasible: there is none.
    """
    allowed = (each for each in _candidates(problem) if _keeps_rules(problem, each.sends))
    candidates = [
        (problem.estimate_us(each.sends), number, each)
        for number, each in enumerate(allowed)
        if problem.steps is None or step_count(each.sends) <= problem.steps
    ]
    if not candidates:
        raise Infeasible(_refusal(problem))
    return min(candidates)[2]


def _refusal(problem: _ForwardProblem) -> str:
    """Return why there is no schedule."""
    what = f"{problem.name} on sketch {problem.sketch.name[:60]}"
    if problem.refusals:
        return f"fewstep: {what}: {problem.refusals[-1]}"
    if problem.steps is not None:
        return (
            f"fewstep: {what}: found none of {problem.steps} steps, "
            "which proves nothing; allow more"
        )
    return (
        f"fewstep: found no {what} of few steps: it joins too few ranks, or is too large to solve; "
        "use packing or greedy"
    )


def _candidates(problem: _ForwardProblem) -> Iterator[_Candidate]:
    hosts = equal_groups(problem.network)
    if hosts is None or not hosts.relays or hosts.local_ranks == 1:
        yield from _flat(problem, solved=True)
        return
    yield from _flat(problem, solved=False)
    chunks, solve = problem.chunks_per_rank, problem.solve_inside
    hierarchical: Iterator[list[RangeSend]] = iter(())
    if problem.name == "allgather":
        hierarchical = hierarchical_allgathers(hosts, chunks, solve)
    elif problem.name == "broadcast":
        total = chunks * problem.network.ranks
        hierarchical = hierarchical_broadcasts(hosts, total, problem.root, solve)
    elif problem.name == "alltoall":
        hierarchical = hierarchical_alltoalls(hosts, chunks, solve)
    for sends in hierarchical:
        yield _Candidate(
            sends,
            f"{step_count(sends)} steps: one host solved, and mapped to all "
            f"{len(hosts.members)}; nothing is proved of the whole",
        )


def _keeps_rules(problem: _ForwardProblem, sends: Sequence[RangeSend]) -> bool:
    """Return whether ranks carry off their host only the chunks that the sketch lets them carry.

    A broadcast's chunks have one owner, the root, and are not looked at.
    """
    hosts, relays, c = problem.sketch.hosts, problem.sketch.relays, problem.chunks_per_rank
    if not relays or problem.name not in ("allgather", "alltoall"):
        return True
    for _, src, dst, first, count in sends:
        if hosts[src] == hosts[dst] or not (carried := relays.get(src, ())):
            continue
        each = c * problem.network.ranks if problem.name == "alltoall" else c
        owners = {chunk // each for chunk in range(first, first + count)} - {src, *carried}
        if any(hosts[owner] == hosts[src] for owner in owners):
            return False
    return True


def _flat(problem: _ForwardProblem, *, solved: bool) -> Iterator[_Candidate]:
    """Yield schedules of the whole network, of the fewest steps and of more."""
    best_us = math.inf
    collective = Collective(problem.name, problem.network.ranks, problem.root)
    for pieces in _pieces(problem):
        instance, ranges = instance_of(collective, problem.chunks_per_rank, problem.network, pieces)
        fewest = instance.fewest_steps
        if fewest is None or (fewest > 1 and not (solved and problem.network.ranks <= _MOST_WHOLE)):
            continue
        if problem.steps is not None and problem.steps < fewest:
            problem.refusals.append(solve_k_synchronous(instance, problem.steps).summary)
            continue
        hop_us = min(link.alpha_us for link in problem.sketch.links) + 1.0
        round_us = (
            max(count for _, count in ranges) * problem.chunk_bytes / float(instance.unit) / 1e3
        )
        for steps in _steps_tried(problem, fewest, solved=solved):
            if steps * hop_us + float(instance.least_rounds) * round_us >= _WORTH * best_us:
                break
            solution = _solve(instance, steps, problem.budget)
            if solution.status != "solved":
                if problem.steps is not None:
                    problem.refusals.append(solution.summary)
                continue
            sends = [
                RangeSend(s.step, *problem.network.pairs[s.pair], *ranges[s.chunk])
                for s in solution.sends
            ]
            best_us = min(problem.estimate_us(sends), best_us)
            yield _Candidate(sends, solution.summary)


def _steps_tried(problem: _ForwardProblem, fewest: int, *, solved: bool) -> Sequence[int]:
    """Return the numbers of steps to try: the required one, or the fewest and some more."""
    if not solved:
        return (fewest,)
    return range(fewest, fewest + 1 + _MORE_STEPS) if problem.steps is None else (problem.steps,)


def _pieces(problem: _ForwardProblem) -> tuple[int, ...]:
    """Return into how many ranges the chunks of a root may be cut."""
    chunks = problem.network.ranks * problem.chunks_per_rank
    return (1, chunks) if problem.name == "broadcast" else (1,)


def instance_of(
    collective: Collective, chunks_per_rank: int, network: Network, pieces: int = 1
) -> tuple[Instance, list[tuple[int, int]]]:
    """Return the instance of a collective, and the chunks (first, count) of each demand.

    Args:
        collective: What is to be computed; a reduction is planned backwards (`demands_of`).
        chunks_per_rank: Parts of each rank's share.
        network: The links that may be used.
        pieces: Ranges that a broadcast's chunks are cut into.
    """
    demands = demands_of(collective, chunks_per_rank)
    count = len(demands) // pieces if collective.name == "broadcast" else 1
    instance = Instance(network, tuple(demands[::count]), min(network.rates))
    return instance, [(first, count) for first in range(0, len(demands), count)]


def _solve(instance: Instance, steps: int, budget: Budget | None) -> KSynchronous:
    """Return the answer of a search.

    Raises:
        Infeasible: there is no solver.
    """
    try:
        if budget is not None:
            return solve_k_synchronous(instance, steps, budget)
        return _solve_briefly(instance, steps)
    except InputError as missing:
        raise Infeasible(f"fewstep: {missing}") from None


@lru_cache(maxsize=1024)
def _solve_briefly(instance: Instance, steps: int) -> KSynchronous:
    """Return the answer of a short search, once for all sketches and sizes."""
    budget = Budget(seconds=_DEFAULT_S, effort=_DEFAULT_EFFORT)
    answer = solve_k_synchronous(instance, steps, budget)
    if budget.interrupted:  # whoever set no budget wants no part of an answer
        raise KeyboardInterrupt
    return answer
