"""A race of several methods for one collective, timed in turns on the same ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tuccl.errors import InputError, Stuck
from tuccl.execution import RankResult
from tuccl.runtime import Effort

__all__ = ["LONG_US", "Competitor", "RaceResult", "prescreen", "race"]

LONG_US = 5e5  # a run this long is not repeated before the race
_PRESCREEN_US = 3e4  # of timed runs where they are short: their times scatter
_PRESCREEN_RUNS = 2, 20  # at least and at most, besides the one that is checked
_LEAST_ROUNDS = 2


@dataclass(frozen=True)
class Competitor:
    """A method for a collective of one size.

    Attributes:
        owner: "tuccl", a default's name or a peer's.
        name: The method or algorithm.
        run: Takes the checked, warming and timed runs to do; returns each rank's result.
    """

    owner: str
    name: str
    run: Callable[[int, int, int], Sequence[RankResult]]

    def times_us(self, checked: int, warmup: int, timed: int) -> list[float]:
        """Return the time of each timed run in us, that of its slowest rank.

        A call that gets stuck is tried again: it may be the machine's fault.

        Raises:
            InputError: the ranks cannot do it, or elements are wrong.
            Stuck: it got stuck twice.
        """
        try:
            ranks = self.run(checked, warmup, timed)
        except Stuck:
            ranks = self.run(checked, warmup, timed)
        if wrong := sum(rank.wrong for rank in ranks):
            first = next(rank.first_wrong for rank in ranks if rank.wrong)
            raise InputError(f"{wrong} wrong elements; {first}")
        return [max(times) for times in zip(*(r.times_us for r in ranks), strict=True)]


@dataclass(frozen=True)
class RaceResult:
    """The time of a competitor: ``us`` is the median of ``runs`` runs, ``rounds_us`` by round."""

    competitor: Competitor
    us: float
    rounds_us: tuple[float, ...]
    runs: int

    @property
    def spread(self) -> float:
        """The distance of the slowest round from the fastest, as a part of the time."""
        return (max(self.rounds_us) - min(self.rounds_us)) / self.us


def prescreen(
    competitors: Sequence[Competitor], sent_bytes: Callable[[], int | None], least_sent: float
) -> tuple[list[RaceResult], list[str]]:
    """Return the times of all in a few runs, contents checked, and why some have dropped out.

    Args:
        competitors: all methods.
        sent_bytes: what has crossed the network so far, None where that is not known.
        least_sent: what a run must make cross it; less went another path.
    """
    results, notes = [], []
    for competitor in competitors:
        before = sent_bytes()
        try:
            result = _few_runs(competitor)
            after = sent_bytes()
            if None not in (before, after) and after - before < least_sent * result.runs:  # type: ignore[operator]
                raise InputError("went around the network")
        except (InputError, Stuck) as error:
            notes.append(f"{competitor.owner} {competitor.name}: left out: {error}")
        else:
            results.append(result)
    return results, notes


def _few_runs(competitor: Competitor) -> RaceResult:
    times = competitor.times_us(1, 0, 1)
    if times[0] >= LONG_US:
        return RaceResult(competitor, times[0], tuple(times), 1)
    least, most = _PRESCREEN_RUNS
    runs = max(least, min(most, int(_PRESCREEN_US / times[0])))
    times += competitor.times_us(0, 0, runs)
    us = median(times) if runs > least else min(times)  # of few, with the checked one, the best
    return RaceResult(competitor, us, tuple(times), len(times))


def race(
    results: Sequence[RaceResult], effort: Effort, rounds: int = 5
) -> tuple[list[RaceResult], list[str]]:
    """Return the times of competitors that run in turns, round after round, and who dropped out.

    Args:
        results: of `prescreen`, which say how long a run takes.
        effort: runs of a round, and how many warm up before the first; fewer where they take long.
        rounds: how many; fewer, at least two, for one whose runs would take longer than ``effort``
            gives it.
    """
    times: list[list[list[float]]] = [[] for _ in results]
    notes: dict[int, str] = {}
    for turn in range(rounds):
        for n, result in enumerate(results):
            affordable = int(effort.seconds * 1e6 / max(result.us, 1.0))
            if n in notes or turn >= max(_LEAST_ROUNDS, affordable):
                continue
            runs = effort.runs_of(result.us, rounds)
            warmup = min(effort.warmup, runs) if turn == 0 else 0
            try:
                times[n].append(result.competitor.times_us(0, warmup, runs))
            except Stuck as error:
                competitor = result.competitor
                notes[n] = f"{competitor.owner} {competitor.name}: left out: {error}"
    return [
        RaceResult(
            result.competitor,
            median(us for each in times[n] for us in each),
            tuple(median(each) for each in times[n]),
            sum(len(each) for each in times[n]),
        )
        for n, result in enumerate(results)
        if n not in notes
    ], list(notes.values())
