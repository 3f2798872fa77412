"""Several ways to do one collective, timed in turns on the same ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tuccl._native import RankResult
from tuccl.errors import InputError, Stuck, TucclError
from tuccl.runtime.executors.measure import Effort

__all__ = ["LONG_US", "Contender", "Standing", "contest", "screened"]

_SCREENED_US = 3e4  # of timed runs where they are short: their times scatter
_SCREENED_RUNS = 2, 20  # at least and at most, beside the one that is checked
LONG_US = 5e5  # a run this long is not repeated to be screened
_LEAST_ROUNDS = 2


@dataclass(frozen=True)
class Contender:
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
class Standing:
    """What a contender took: ``us`` is the median of ``runs`` runs, ``rounds_us`` each round's."""

    contender: Contender
    us: float
    rounds_us: tuple[float, ...]
    runs: int

    @property
    def spread(self) -> float:
        """How far the rounds lie apart, as a part of the time."""
        return (max(self.rounds_us) - min(self.rounds_us)) / self.us


def screened(
    contenders: Sequence[Contender],
    sent_bytes: Callable[[], int | None],
    least_sent: float,
) -> tuple[list[Standing], list[str]]:
    """Return what each takes in a few runs, contents checked, and why some have dropped out.

    Args:
        contenders: all ways.
        sent_bytes: what has crossed the network so far, None where that is not known.
        least_sent: what a run must make cross it; less has gone another way.
    """
    standings, notes = [], []
    for contender in contenders:
        before = sent_bytes()
        try:
            standing = _screened(contender)
        except (InputError, Stuck) as error:
            notes.append(f"{contender.label}: left out: {error}")
            continue
        after = sent_bytes()
        if before is not None and after is not None and after - before < least_sent * standing.runs:
            notes.append(f"{contender.label}: left out: went around the network")
            continue
        standings.append(standing)
    return standings, notes


def _screened(contender: Contender) -> Standing:
    checked = _ran(contender, 1, 0, 1)
    if wrong := sum(result.wrong for result in checked):
        first = next(result.first_wrong for result in checked if result.wrong)
        raise InputError(f"{wrong} wrong elements; {first}")
    times = _slowest(checked)
    if times[0] >= LONG_US:
        return Standing(contender, times[0], tuple(times), 1)
    least, most = _SCREENED_RUNS
    runs = max(least, min(most, int(_SCREENED_US / times[0])))
    times += _slowest(_ran(contender, 0, 0, runs))
    short = runs > least  # of few, the checked one among them, the best counts
    return Standing(contender, median(times) if short else min(times), tuple(times), len(times))


def _ran(contender: Contender, *counts: int) -> Sequence[RankResult]:
    """Return a call's results; one that gets stuck is tried again, since it may be the machine's fault."""
    try:
        return contender.run(*counts)
    except Stuck:
        return contender.run(*counts)


def contest(
    standings: Sequence[Standing], effort: Effort, rounds: int = 5
) -> tuple[list[Standing], list[str]]:
    """Return the times of contenders that run in turns, round after round, and who dropped out.

    Args:
        standings: as screened, which tells how long a run takes.
        effort: runs of a round, and how many warm up before the first; fewer where they take
            long.
        rounds: how many; fewer, at least two, for one whose runs would take longer than ``effort``
            gives it.
    """
    times: dict[str, list[list[float]]] = {s.contender.label: [] for s in standings}
    notes: dict[str, str] = {}
    for turn in range(rounds):
        for standing in standings:
            contender = standing.contender
            affordable = int(effort.seconds * 1e6 / max(standing.us, 1.0))
            if contender.label in notes or turn >= max(_LEAST_ROUNDS, affordable):
                continue
            runs = effort.runs_of(standing.us, rounds)
            warmup = min(effort.warmup, runs) if turn == 0 else 0
            try:
                times[contender.label].append(_slowest(_ran(contender, 0, warmup, runs)))
            except Stuck as error:
                notes[contender.label] = f"{contender.label}: left out: {error}"
    through = [s.contender for s in standings if s.contender.label not in notes]
    return [_pooled(c, times[c.label]) for c in through], list(notes.values())


def _pooled(contender: Contender, rounds: Sequence[Sequence[float]]) -> Standing:
    every = [us for own in rounds for us in own]
    return Standing(contender, median(every), tuple(median(own) for own in rounds), len(every))


def _slowest(results: Sequence[RankResult]) -> list[float]:
    if any(len(result.times_us) != len(results[0].times_us) for result in results):
        raise TucclError("ranks have timed different numbers of runs")
    return [max(times) for times in zip(*(r.times_us for r in results), strict=True)]
