"""k-synchronous schedules by CP-SAT: which item goes over which pair in which step."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple

from tuccl.synth.few_step.relaxation import Spread, symmetry
from tuccl.synth.model.solver import Budget, Outcome, cp_sat, run_model
from tuccl.synth.model.symmetry import Symmetry

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["Crossing", "FewSteps", "faults", "few_steps"]

# Possible sends beyond which a model takes longer than the answer is worth.
_MOST_SENDS = 60_000

Status = Literal["solved", "impossible", "out of time"]


class Crossing(NamedTuple):
    """An item over a pair in a step, both counted from 0."""

    step: int
    pair: int
    item: int


@dataclass(frozen=True)
class FewSteps:
    """A k-synchronous schedule, or why there is none.

    Attributes:
        status: ``solved``; ``impossible``: proved; ``out of time``: not known.
        steps: Steps asked for.
        rounds: Rounds of each step; empty where nothing was found.
        least_rounds: No schedule of as many steps has fewer rounds in all.
        crossings: By step.
        reproducible: Whether the same call gives the same answer again.
    """

    status: Status
    steps: int
    rounds: tuple[int, ...] = ()
    least_rounds: int = 0
    crossings: tuple[Crossing, ...] = ()
    reproducible: bool = True

    @property
    def best(self) -> bool:
        """Return whether no schedule of as many steps has fewer rounds."""
        return self.status == "solved" and sum(self.rounds) <= self.least_rounds

    @property
    def words(self) -> str:
        """Return what was found and what is proved.

        >>> FewSteps("solved", 2, (1, 2), 3).words
        '2 steps of 3 rounds in all (a round: a chunk over the slowest wire), proved the fewest for 2 steps'
        >>> FewSteps("impossible", 1).words
        'proved: there is no schedule of 1 step'
        """
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        if self.status == "impossible":
            return f"proved: there is no schedule of {steps}"
        if self.status == "out of time":
            return f"out of time for {steps}: found none, and proved nothing"
        proof = f"proved the fewest for {steps}"
        if not self.best:
            proof = f"at least {self.least_rounds} proved"
        rounds = f"{sum(self.rounds)} rounds in all (a round: a chunk over the slowest wire)"
        return f"{steps} of {rounds}, {proof}"


def few_steps(
    spread: Spread, steps: int, budget: Budget | None = None, rounds: int | None = None
) -> FewSteps:
    """Return the schedule of `steps` steps with the fewest rounds found, and what is proved of it.

    First only schedules that look the same from all ranks that are alike are sought, which takes a
    small part of the time; then, where the best of them may not be best, any.

    Args:
        spread: What spreads, and over which wires.
        steps: Messages in a row at most.
        budget: Seconds, seed, threads, and whom to tell; the default is 20 s.
        rounds: Be content with so many, and prove only that there are no fewer than it takes.

    Notes:
        Cai et al., "Synthesizing Optimal Collective Algorithms" (SCCL, PPoPP 2021), section 3.
    """
    least = spread.fewest_steps
    if least is None or steps < least:
        return FewSteps("impossible", steps)
    cp_sat()  # before the clock starts
    budget = budget or Budget()
    fewest = max(steps, math.ceil(spread.least_rounds))
    if rounds is not None and rounds < fewest:
        return FewSteps("impossible", steps, least_rounds=fewest)
    if steps == 1:
        return _direct(spread, rounds)
    answer = FewSteps("out of time", steps, least_rounds=fewest)
    group = symmetry(spread)
    groups = [group] if len(group) == 1 else [group, group.trivial]
    for number, some in enumerate(groups):
        if answer.best or (rounds is not None and answer.status == "solved"):
            break
        search = _Search(spread, some, answer, rounds)
        if search.sends <= _MOST_SENDS:
            answer = search.run(budget, 1 / (len(groups) - number), whole=some is groups[-1])
    return answer


def _direct(spread: Spread, rounds: int | None) -> FewSteps:
    """Return the one schedule of one step: everything goes straight to where it is wanted."""
    crossings = tuple(
        Crossing(0, spread.wires.index[item.source, to], number)
        for number, item in enumerate(spread.items)
        for to in sorted(item.targets)
    )
    loads = Counter(wire for each in crossings for wire in spread.wires.routes[each.pair])
    taken = (load * spread.unit / spread.wires.rates[wire] for wire, load in loads.items())
    needed = max(1, math.ceil(max(taken, default=Fraction(1))))
    if rounds is not None and rounds < needed:
        return FewSteps("impossible", 1, least_rounds=needed)
    return FewSteps("solved", 1, (needed,), needed, tuple(sorted(crossings)))


class _Search:
    """One model: the sends of one of each set of like items, in whole rounds a step."""

    def __init__(
        self, spread: Spread, group: Symmetry, known: FewSteps, rounds: int | None
    ) -> None:
        self.spread, self.group, self.known = spread, group, known
        self.possible = [
            Crossing(step, pair, item)
            for item in group.representatives
            for pair, (src, dst) in enumerate(spread.wires.pairs)
            for step in self._useful_steps(item, src, dst)
        ]
        self.sends = len(self.possible)
        self.most = sum(known.rounds) - 1 if known.rounds else rounds or spread.enough_rounds

    def _useful_steps(self, item: int, src: int, dst: int) -> range:
        """Return the steps in which an item can go from `src` to `dst` and still be of use."""
        wanted, away = self.spread.items[item], self.spread.distances
        if dst == wanted.source or away[wanted.source][src] < 0:
            return range(0)
        ahead = [away[dst][to] for to in wanted.targets if away[dst][to] >= 0]
        return range(away[wanted.source][src], self.known.steps - min(ahead, default=1 << 20))

    def run(self, budget: Budget, share: float, *, whole: bool) -> FewSteps:
        """Return the better of what is known and what is found; `whole` models can disprove."""
        model = _Model(self)
        outcome = run_model(model.model, budget, share, f"{self.known.steps} steps", _in_rounds)
        known = replace(self.known, reproducible=not (budget.clocked or budget.interrupted))
        if outcome.values:
            least = max(known.least_rounds, outcome.bound if whole else 0)
            rounds = tuple(outcome.value(length) for length in model.lengths)
            crossings = _needed(self.spread, sorted(self._crossings(model, outcome)))
            return replace(
                known, status="solved", rounds=rounds, least_rounds=least, crossings=crossings
            )
        if not (outcome.proved and whole):
            return known
        if known.status == "solved":
            return replace(known, least_rounds=sum(known.rounds))
        return replace(known, status="impossible", least_rounds=self.most + 1)

    def _crossings(self, model: _Model, outcome: Outcome) -> Iterator[Crossing]:
        """Yield what the leaders send, and what all that are like them do."""
        for (step, pair, item), sent in zip(self.possible, model.sent, strict=True):
            if outcome.value(sent):
                for pairs, items in zip(self.group.links, self.group.chunks, strict=True):
                    yield Crossing(step, pairs[pair], items[item])


def _needed(spread: Spread, crossings: Sequence[Crossing]) -> tuple[Crossing, ...]:
    """Return the crossings without those that lead to no target."""
    kept = []
    passed_on: set[tuple[int, int]] = set()
    for crossing in reversed(crossings):
        src, dst = spread.wires.pairs[crossing.pair]
        if dst in spread.items[crossing.item].targets or (crossing.item, dst) in passed_on:
            passed_on.add((crossing.item, src))
            kept.append(crossing)
    return tuple(reversed(kept))


class _Model:
    """The constraints: everyone is served once, nothing leaves before it came, wires are not full."""

    def __init__(self, search: _Search) -> None:
        module = cp_sat()
        self.search, self.spread = search, search.spread
        self.model = module.CpModel()
        steps, known = search.known.steps, search.known
        self.total = self.model.new_int_var(known.least_rounds, search.most, "rounds")
        self.lengths = [self.model.new_int_var(1, search.most, f"step {n}") for n in range(steps)]
        self.sent = [self.model.new_bool_var("") for _ in search.possible]
        self.model.add(self.total == sum(self.lengths))
        self._serve()
        self._load()
        self.model.minimize(self.total)

    def _serve(self) -> None:
        """Have each target receive each item once, and pass it on in later steps alone."""
        into: dict[tuple[int, int], list[tuple[int, cp_model.IntVar]]] = defaultdict(list)
        for (step, pair, item), sent in zip(self.search.possible, self.sent, strict=True):
            into[item, self.spread.wires.pairs[pair][1]].append((step, sent))
        for item in self.search.group.representatives:
            for to in sorted(self.spread.items[item].targets - {self.spread.items[item].source}):
                self.model.add_exactly_one(sent for _, sent in into.get((item, to), ()))
        for (item, to), received in into.items():
            if to not in self.spread.items[item].targets:
                self.model.add_at_most_one(sent for _, sent in received)
        for (step, pair, item), sent in zip(self.search.possible, self.sent, strict=True):
            src = self.spread.wires.pairs[pair][0]
            if src != self.spread.items[item].source:
                self.model.add_bool_or(
                    *(came for at, came in into.get((item, src), ()) if at < step), sent.negated()
                )

    def _load(self) -> None:
        """Have no wire carry more in a step than its rounds allow; of like wires, one is looked at."""
        ways, rates = self.spread.wires.routes, self.spread.wires.rates
        first: dict[int, int] = {}
        for moved in self.search.group.links:
            for pair, image in enumerate(moved):
                for wire, other in zip(ways[pair], ways[image], strict=True):
                    first[other] = min(first.get(other, wire), wire)
        loads: dict[tuple[int, int], list[cp_model.IntVar]] = defaultdict(list)
        for (step, pair, _), sent in zip(self.search.possible, self.sent, strict=True):
            for moved in self.search.group.links:
                for wire in ways[moved[pair]]:
                    if first[wire] == wire:
                        loads[step, wire].append(sent)
        for (step, wire), load in loads.items():
            room = rates[wire] / self.spread.unit
            most = room.numerator * self.lengths[step]
            self.model.add(room.denominator * sum(load) <= most)


def _in_rounds(values: Sequence[int], bound: int) -> str:
    """Return in words how far a run is whose variable 0 is a number of rounds."""
    return f"{f'{values[0]} rounds, ' if values else ''}at least {bound}"


def faults(spread: Spread, found: FewSteps) -> str | None:
    """Return what is wrong with a schedule, None if nothing is; looks at no model.

    >>> from tuccl.synth.model.demand import Demand
    >>> from tuccl.synth.model.network import Network
    >>> wires = Network((0, 0), ((0, 1),), ((0,),), (0.0,), (Fraction(25),))
    >>> one = Spread(wires, (Demand(0, frozenset({1})),), Fraction(25))
    >>> faults(one, FewSteps("solved", 1, (1,), 1, (Crossing(0, 0, 0),)))
    >>> faults(one, FewSteps("solved", 1, (1,), 1, ()))
    'item 0 does not reach rank 1'
    """
    has = {(number, item.source): -1 for number, item in enumerate(spread.items)}
    loads: dict[tuple[int, int], int] = defaultdict(int)
    for step, pair, item in sorted(found.crossings):
        src, dst = spread.wires.pairs[pair]
        if has.get((item, src), step) >= step:
            return f"item {item} leaves rank {src} in step {step} before it is there"
        if (item, dst) in has:
            return f"item {item} comes to rank {dst} again in step {step}"
        has[item, dst] = step
        for wire in spread.wires.routes[pair]:
            loads[step, wire] += 1
    for (step, wire), load in loads.items():
        if load > spread.wires.rates[wire] / spread.unit * found.rounds[step]:
            return f"wire {wire} carries {load} items in step {step} of {found.rounds[step]} rounds"
    for number, wanted in enumerate(spread.items):
        for to in sorted(wanted.targets):
            if (number, to) not in has:
                return f"item {number} does not reach rank {to}"
    return None
