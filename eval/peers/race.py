"""Several ways to do one collective, timed in turns on the same ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tuccl._native import RankResult
from tuccl.errors import InputError, Stuck, TucclError
from tuccl.runtime.executors.measure import Effort

__all__ = ["LONG_US", "Competitor", "RaceResult", "prescreen", "race"]

_PRESCREEN_US = 3e4  # of timed runs where they are short: their times scatter
_PRESCREEN_RUNS = 2, 20  # at least and at most, beside the one that is checked
LONG_US = 5e5  # a run this long is not repeated to be prescreen
_LEAST_ROUNDS = 2


@dataclass(frozen=True)
class Competitor:
    """A way to do a collective of one size.

    Attributes:
        of: Whose it is: "tuccl" or a peer's name.
        name: What it is: a method, an algorithm.
        run: Takes the checked, warming and timed runs to do; returns each rank's result.
    """

    of: str
    name: str
    run: Callable[[int, int, int], Sequence[RankResult]]

    @property
    def label(self) -> str:
        """Whose it is and what."""
        return f"{self.of} {self.name}"


@dataclass(frozen=True)
class RaceResult:
    """What a competitor took: ``us`` is the median of ``runs`` runs, ``rounds_us`` each round's."""

    competitor: Competitor
    us: float
    rounds_us: tuple[float, ...]
    runs: int

    @property
    def spread(self) -> float:
        """How far the rounds lie apart, as a part of the time."""
        return (max(self.rounds_us) - min(self.rounds_us)) / self.us


def prescreen(
    competitors: Sequence[Competitor],
    sent_bytes: Callable[[], int | None],
    least_sent: float,
) -> tuple[list[RaceResult], list[str]]:
    """Return what each takes in a few runs, contents checked, and why some have dropped out.

    Args:
        competitors: all ways.
        sent_bytes: what has crossed the network so far, None where that is not known.
        least_sent: what a run must make cross it; less has gone another way.
    """
    results, notes = [], []
    for competitor in competitors:
        before = sent_bytes()
        try:
            result = _prescreen(competitor)
        except (InputError, Stuck) as error:
            notes.append(f"{competitor.label}: left out: {error}")
            continue
        after = sent_bytes()
        if before is not None and after is not None and after - before < least_sent * result.runs:
            notes.append(f"{competitor.label}: left out: went around the network")
            continue
        results.append(result)
    return results, notes


def _prescreen(competitor: Competitor) -> RaceResult:
    checked = _ran(competitor, 1, 0, 1)
    if wrong := sum(result.wrong for result in checked):
        first = next(result.first_wrong for result in checked if result.wrong)
        raise InputError(f"{wrong} wrong elements; {first}")
    times = _slowest(checked)
    if times[0] >= LONG_US:
        return RaceResult(competitor, times[0], tuple(times), 1)
    least, most = _PRESCREEN_RUNS
    runs = max(least, min(most, int(_PRESCREEN_US / times[0])))
    times += _slowest(_ran(competitor, 0, 0, runs))
    short = runs > least  # of few, the checked one among them, the best counts
    return RaceResult(competitor, median(times) if short else min(times), tuple(times), len(times))


def _ran(competitor: Competitor, *counts: int) -> Sequence[RankResult]:
    """Return a call's results; one that gets stuck is tried again, since it may be the machine's fault."""
    try:
        return competitor.run(*counts)
    except Stuck:
        return competitor.run(*counts)


def race(
    results: Sequence[RaceResult], effort: Effort, rounds: int = 5
) -> tuple[list[RaceResult], list[str]]:
    """Return the times of competitors that run in turns, round after round, and who dropped out.

    Args:
        results: as prescreen, which tells how long a run takes.
        effort: runs of a round, and how many warm up before the first; fewer where they take
            long.
        rounds: how many; fewer, at least two, for one whose runs would take longer than ``effort``
            gives it.
    """
    times: dict[str, list[list[float]]] = {s.competitor.label: [] for s in results}
    notes: dict[str, str] = {}
    for turn in range(rounds):
        for result in results:
            competitor = result.competitor
            affordable = int(effort.seconds * 1e6 / max(result.us, 1.0))
            if competitor.label in notes or turn >= max(_LEAST_ROUNDS, affordable):
                continue
            runs = effort.runs_of(result.us, rounds)
            warmup = min(effort.warmup, runs) if turn == 0 else 0
            try:
                times[competitor.label].append(_slowest(_ran(competitor, 0, warmup, runs)))
            except Stuck as error:
                notes[competitor.label] = f"{competitor.label}: left out: {error}"
    through = [s.competitor for s in results if s.competitor.label not in notes]
    return [_pooled(c, times[c.label]) for c in through], list(notes.values())


def _pooled(competitor: Competitor, rounds: Sequence[Sequence[float]]) -> RaceResult:
    every = [us for own in rounds for us in own]
    return RaceResult(competitor, median(every), tuple(median(own) for own in rounds), len(every))


def _slowest(results: Sequence[RankResult]) -> list[float]:
    if any(len(result.times_us) != len(results[0].times_us) for result in results):
        raise TucclError("ranks have timed different numbers of runs")
    return [max(times) for times in zip(*(r.times_us for r in results), strict=True)]
