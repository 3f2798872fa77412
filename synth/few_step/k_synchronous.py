"""k-synchronous schedules (SCCL) by CP-SAT: sends of chunks over pairs, by step."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple

from tuccl.synth.few_step.instance import Instance, instance_symmetry
from tuccl.synth.model.solver import Budget, Outcome, cp_sat, run_model
from tuccl.topology.symmetry import Symmetry

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

# Possible sends beyond which a model takes longer than the answer is worth.
_MOST_SENDS = 60_000

Status = Literal["solved", "impossible", "out of time"]


class StepSend(NamedTuple):
    """A chunk over a pair in a step, both counted from 0."""

    step: int
    pair: int
    chunk: int


@dataclass(frozen=True)
class KSynchronous:
    """A k-synchronous schedule, or why there is none.

    Attributes:
        status: ``solved``; ``impossible``: proved; ``out of time``: not known.
        steps: The steps required.
        rounds: Rounds of each step; empty where it is not solved.
        least_rounds: No schedule of as many steps has fewer rounds in all.
        sends: By step.
        reproducible: Whether the same call gives the same answer again.
    """

    status: Status
    steps: int
    rounds: tuple[int, ...] = ()
    least_rounds: int = 0
    sends: tuple[StepSend, ...] = ()
    reproducible: bool = True

    @property
    def optimal(self) -> bool:
        """Return whether no schedule of as many steps has fewer rounds."""
        return self.status == "solved" and sum(self.rounds) <= self.least_rounds

    @property
    def summary(self) -> str:
        """Return the result in words, with what is proved.

        >>> KSynchronous("solved", 1, (2,), 2).summary
        '1 step of 2 rounds (a round: a chunk over the slowest link), proved the fewest for 1 step'
        >>> KSynchronous("impossible", 1).summary
        'proved: there is no schedule of 1 step'
        """
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        if self.status == "impossible":
            return f"proved: there is no schedule of {steps}"
        if self.status == "out of time":
            return f"out of time for {steps}: found none, and proved nothing"
        proof = f"proved the fewest for {steps}"
        if not self.optimal:
            proof = f"at least {self.least_rounds} proved"
        rounds = f"{sum(self.rounds)} rounds (a round: a chunk over the slowest link)"
        return f"{steps} of {rounds}, {proof}"


def solve_k_synchronous(
    instance: Instance, steps: int, budget: Budget | None = None, rounds: int | None = None
) -> KSynchronous:
    """Return the schedule of `steps` steps with the fewest rounds found, and what is proved of it.

    Symmetric schedules are searched first, which takes a small part of the time; then all, unless
    the best of the symmetric ones is proved optimal.

    Args:
        instance: Demands and the network.
        steps: Messages in a row at most.
        budget: Seconds, seed, threads, and the progress callback; the default is 20 s.
        rounds: The most that are of use: any schedule of so many is the answer.

    Notes:
        Cai et al., "Synthesizing Optimal Collective Algorithms" (SCCL, PPoPP 2021), section 3.
    """
    least = instance.fewest_steps
    if least is None or steps < least:
        return KSynchronous("impossible", steps)
    cp_sat()  # before the clock starts
    budget = budget or Budget()
    fewest = max(steps, math.ceil(instance.least_rounds))
    if rounds is not None and rounds < fewest:
        return KSynchronous("impossible", steps, least_rounds=fewest)
    if steps == 1:
        return _direct(instance, rounds)
    answer = KSynchronous("out of time", steps, least_rounds=fewest)
    symmetry = instance_symmetry(instance)
    groups = [symmetry] if len(symmetry) == 1 else [symmetry, Symmetry(symmetry.graph)]
    for number, group in enumerate(groups):
        if answer.optimal or (rounds is not None and answer.status == "solved"):
            break
        search = _Search(instance, group, answer, rounds)
        if search.size <= _MOST_SENDS:
            answer = search.run(budget, 1 / (len(groups) - number), complete=group is groups[-1])
    return answer


def _direct(instance: Instance, rounds: int | None) -> KSynchronous:
    """Return the one schedule of one step: every chunk goes straight to its targets."""
    sends = tuple(
        StepSend(0, instance.network.index[demand.source, to], chunk)
        for chunk, demand in enumerate(instance.demands)
        for to in sorted(demand.targets)
    )
    loads = Counter(hop for each in sends for hop in instance.network.routes[each.pair])
    taken = (load * instance.unit / instance.network.rates[hop] for hop, load in loads.items())
    needed = max(1, math.ceil(max(taken, default=Fraction(1))))
    if rounds is not None and rounds < needed:
        return KSynchronous("impossible", 1, least_rounds=needed)
    return KSynchronous("solved", 1, (needed,), needed, tuple(sorted(sends)))


class _Search:
    """One model: the sends of a representative of each orbit of chunks."""

    def __init__(
        self, instance: Instance, symmetry: Symmetry, incumbent: KSynchronous, rounds: int | None
    ) -> None:
        self.instance, self.symmetry, self.incumbent = instance, symmetry, incumbent
        self.possible = [
            StepSend(step, pair, chunk)
            for chunk in symmetry.representatives
            for pair, (src, dst) in enumerate(instance.network.pairs)
            for step in self._useful_steps(chunk, src, dst)
        ]
        self.size = len(self.possible)
        self.most = (
            sum(incumbent.rounds) - 1 if incumbent.rounds else rounds or instance.enough_rounds
        )

    def _useful_steps(self, chunk: int, src: int, dst: int) -> range:
        """Return the steps in which a chunk can go from `src` to `dst` and still be of use."""
        demand, distances = self.instance.demands[chunk], self.instance.distances
        if dst == demand.source or src not in distances[demand.source]:
            return range(0)
        ahead = [distances[dst][to] for to in demand.targets if to in distances[dst]]
        return range(
            distances[demand.source][src], self.incumbent.steps - min(ahead, default=1 << 20)
        )

    def run(self, budget: Budget, share: float, *, complete: bool) -> KSynchronous:
        """Return the better of the known schedule and the model's; `complete` ones disprove."""
        model = _Model(self)
        outcome = run_model(model.model, budget, share, f"{self.incumbent.steps} steps", _in_rounds)
        incumbent = replace(self.incumbent, reproducible=not (budget.clocked or budget.interrupted))
        if outcome.values:
            least = max(incumbent.least_rounds, outcome.bound if complete else 0)
            rounds = tuple(outcome.value(length) for length in model.lengths)
            sends = _needed(self.instance, sorted(self._sends(model, outcome)))
            return replace(
                incumbent, status="solved", rounds=rounds, least_rounds=least, sends=sends
            )
        if not (outcome.proved and complete):
            return incumbent
        if incumbent.status == "solved":
            return replace(incumbent, least_rounds=sum(incumbent.rounds))
        return replace(incumbent, status="impossible", least_rounds=self.most + 1)

    def _sends(self, model: _Model, outcome: Outcome) -> Iterator[StepSend]:
        """Yield the sends of representatives, and their images under the symmetry."""
        for (step, pair, chunk), sent in zip(self.possible, model.sent, strict=True):
            if outcome.value(sent):
                for image in self.symmetry.elements:
                    yield StepSend(step, image.links[pair], image.sets[chunk])


def _needed(instance: Instance, sends: Sequence[StepSend]) -> tuple[StepSend, ...]:
    """Return the sends without those that lead to no target."""
    needed = []
    passed_on: set[tuple[int, int]] = set()
    for send in reversed(sends):
        src, dst = instance.network.pairs[send.pair]
        if dst in instance.demands[send.chunk].targets or (send.chunk, dst) in passed_on:
            passed_on.add((send.chunk, src))
            needed.append(send)
    return tuple(reversed(needed))


class _Model:
    """The constraints: targets receive once, sends follow receives, resources have room."""

    def __init__(self, search: _Search) -> None:
        module = cp_sat()
        self.search, self.instance = search, search.instance
        self.model = module.CpModel()
        steps, incumbent = search.incumbent.steps, search.incumbent
        self.total = self.model.new_int_var(incumbent.least_rounds, search.most, "rounds")
        self.lengths = [self.model.new_int_var(1, search.most, f"step {n}") for n in range(steps)]
        self.sent = [self.model.new_bool_var("") for _ in search.possible]
        self.model.add(self.total == sum(self.lengths))
        self._serve()
        self._load()
        self.model.minimize(self.total)

    def _serve(self) -> None:
        """Have each target receive each chunk once, and pass it on in later steps alone."""
        into: dict[tuple[int, int], list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
        for (step, pair, chunk), sent in zip(self.search.possible, self.sent, strict=True):
            into[chunk, self.instance.network.pairs[pair][1]].append((step, sent))
        for chunk in self.search.symmetry.representatives:
            for to in sorted(self.instance.demands[chunk].targets):
                self.model.add_exactly_one(sent for _, sent in into.get((chunk, to), ()))
        for (chunk, to), received in into.items():
            if to not in self.instance.demands[chunk].targets:
                self.model.add_at_most_one(sent for _, sent in received)
        for (step, pair, chunk), sent in zip(self.search.possible, self.sent, strict=True):
            src = self.instance.network.pairs[pair][0]
            if src != self.instance.demands[chunk].source:
                self.model.add_bool_or(
                    *(came for at, came in into.get((chunk, src), ()) if at < step), sent.negated()
                )

    def _load(self) -> None:
        """Have no resource carry more in a step than its rounds allow; one stands for its orbit."""
        routes, rates = self.instance.network.routes, self.instance.network.rates
        symmetry = self.search.symmetry
        first = {min(orbit) for orbit in symmetry.resource_orbits}
        loads: dict[tuple[int, int], list[cp_model.IntVar]] = defaultdict(list)
        for (step, pair, _), sent in zip(self.search.possible, self.sent, strict=True):
            for image in symmetry.elements:
                for hop in routes[image.links[pair]]:
                    if hop in first:
                        loads[step, hop].append(sent)
        for (step, hop), load in loads.items():
            room = rates[hop] / self.instance.unit
            most = room.numerator * self.lengths[step]
            self.model.add(room.denominator * sum(load) <= most)


def _in_rounds(values: Sequence[int], bound: int) -> str:
    """Return in words how far a run is whose variable 0 is a number of rounds."""
    return f"{f'{values[0]} rounds, ' if values else ''}at least {bound}"
