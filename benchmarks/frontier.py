"""Pareto frontier of latency and bandwidth: the fewest rounds a chunk by number of steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from tuccl.synth.few_step.instance import Instance
from tuccl.synth.few_step.k_synchronous import KSynchronous, solve_k_synchronous
from tuccl.synth.model.solver import Budget

__all__ = ["Point", "frontier"]


@dataclass(frozen=True)
class Point:
    """A schedule on the frontier.

    Attributes:
        chunks: Parts of each rank's share.
        schedule: k-synchronous.
    """

    chunks: int
    schedule: KSynchronous

    @property
    def steps(self) -> int:
        """Return its messages in a row, at most."""
        return self.schedule.steps

    @property
    def rounds(self) -> int:
        """Return the rounds of all its steps."""
        return sum(self.schedule.rounds)

    @property
    def cost(self) -> Fraction:
        """Return the rounds for each chunk of a rank: what large sizes take."""
        return Fraction(self.rounds, self.chunks)


def frontier(
    instance_of_chunks: Callable[[int], Instance],
    most_chunks: int,
    budget: Budget,
    least_cost: Fraction = Fraction(0),
) -> Iterator[Point]:
    """Yield the best schedule of the fewest steps, then of more as long as rounds get fewer.

    Ends at `least_cost` rounds a chunk, when time is up, or where more steps do not help.

    Args:
        instance_of_chunks: What spreads with so many chunks a rank.
        most_chunks: Chunks a rank to try.
        budget: Of the whole search.
        least_cost: Rounds a chunk that the tight cut takes.
    """
    fewest = instance_of_chunks(1).fewest_steps
    least_cost = max(least_cost, instance_of_chunks(1).least_rounds)
    best: Point | None = None
    steps = fewest or 0
    while fewest and budget.left > 0 and (best is None or best.cost > least_cost):
        found = _best_of(instance_of_chunks, steps, most_chunks, budget, least_cost, best)
        if found is best:
            return
        best = found
        if best is not None:
            yield _in_fewer_chunks(best, instance_of_chunks, budget)
        steps += 1


def _best_of(
    instance_of_chunks: Callable[[int], Instance],
    steps: int,
    most_chunks: int,
    budget: Budget,
    least_cost: Fraction,
    best: Point | None,
) -> Point | None:
    """Return the point of `steps` steps with the fewest rounds a chunk, else `best`."""
    for chunks in _promising(steps, most_chunks, least_cost):
        least = Fraction(max(steps, math.ceil(chunks * least_cost)), chunks)
        if best is not None and least >= best.cost:
            continue
        # Fewer rounds than these are of no use.
        useful = None if best is None else math.ceil(best.cost * chunks) - 1
        found = solve_k_synchronous(instance_of_chunks(chunks), steps, budget, useful)
        if found.status == "solved" and (
            best is None or Fraction(sum(found.rounds), chunks) < best.cost
        ):
            best = Point(chunks, found)
    return best


def _in_fewer_chunks(
    point: Point, instance_of_chunks: Callable[[int], Instance], budget: Budget
) -> Point:
    """Return a point of the same steps and cost with the fewest chunks found."""
    for chunks in range(1, point.chunks):
        rounds = point.cost * chunks
        if rounds.denominator == 1 and rounds >= point.steps:
            found = solve_k_synchronous(
                instance_of_chunks(chunks), point.steps, budget, int(rounds)
            )
            if found.status == "solved":
                return Point(chunks, found)
    return point


def _promising(steps: int, most_chunks: int, least_cost: Fraction) -> list[int]:
    """Return numbers of chunks by the fewest rounds a chunk that they might take."""
    return sorted(
        range(1, most_chunks + 1),
        key=lambda c: (Fraction(max(steps, math.ceil(c * least_cost)), c), c),
    )
