"""The final round: the best points measured again, against the runtime's own default."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import variance
from typing import Literal, cast

import msgspec

from tuccl.program import Program
from tuccl.runtime import (
    Candidate,
    Entry,
    LookupTable,
    ProgramFile,
    Statistics,
    TimedProgram,
    Timing,
    default_candidate,
    program_candidate,
    program_file,
    reduction_class,
)
from tuccl.runtime.table import pareto_set, placements
from tuccl.runtime.table.entry import ROOTED, Source
from tuccl.synth import Collective
from tuccl.tuning.searches.space import Point
from tuccl.tuning.searches.tie_break import is_as_good, tie_break

_FASTEST = 3  # candidates of an entry, whatever SMs they take
_MOST_CANDIDATES = 6  # with those that take fewer
_SIGMAS = 2.0
_TUNED_AT = re.compile(r"tuned at (\d+) bytes")

FileOf = Callable[[Program, str, int], ProgramFile]
"""Return a program's file for a dialect and a root, as `program_file` does."""


@dataclass(frozen=True)
class FinalRound:
    """The candidates of one collective and size, timed against the runtime's default.

    ``nccl`` are those of NCCL's own algorithms with knobs.
    """

    collective: Collective
    nbytes: int
    dialect: str
    default: TimedProgram
    candidates: tuple[TimedProgram, ...]
    nccl: tuple[TimedProgram, ...] = ()

    @property
    def nccl_best_us(self) -> float | None:
        """Return the least time in us of NCCL's own choice and its algorithms with knobs."""
        times_us = [each.timing.us for each in self.nccl]
        return min([self.default.timing.us, *times_us]) if times_us else None


def beats(challenger_us: Sequence[float], default_us: Sequence[float]) -> bool:
    """Return whether the challenger is faster by more than the noise of both.

    >>> beats([9.0], [10.0]), beats([9.0, 12.0, 9.5], [10.0, 11.0, 9.7])
    (True, False)

    Notes:
        The difference of mean log times against two standard errors of it. Single samples, as
        of the simulator, have no noise.
    """
    a, b = [math.log(x) for x in challenger_us], [math.log(x) for x in default_us]
    gain = sum(b) / len(b) - sum(a) / len(a)
    noise = math.sqrt(sum(variance(x) / len(x) for x in (a, b) if len(x) > 1))
    return gain > max(_SIGMAS * noise, 1e-9)


def entries_of(
    final: FinalRound, low: int, high: int | None, file_of: FileOf = program_file
) -> tuple[tuple[Entry, ...], tuple[ProgramFile, ...]]:
    """Return the entries for sizes [low, high), and the files of the programs they name.

    One entry where both placements prefer the same candidates, else one for each. Only candidates
    that beat the default by more than the noise stand before it: the fastest, and of the others
    those that no other beats in time or SMs.
    """
    out_of_place, files_out_of_place = _ranked(final, file_of, in_place=False)
    in_place_ranked, files_in_place = _ranked(final, file_of, in_place=True)
    files = (*files_out_of_place, *files_in_place)
    both = [(out_of_place, "out-of-place"), (in_place_ranked, "in-place")]
    if [c.name for c in out_of_place] == [c.name for c in in_place_ranked]:
        both = [(out_of_place, "any")]
    entries = tuple(_entry(final, low, high, ranked, where) for ranked, where in both)
    return entries, files


def _entry(
    final: FinalRound, low: int, high: int | None, ranked: Sequence[Candidate], placement: str
) -> Entry:
    name = final.collective.name
    return Entry(
        collective=cast("Literal['allgather']", name),
        min_bytes=low,
        max_bytes=high,
        candidates=tuple(ranked),
        reduction_class="plain" if reduction_class(name) == "plain" else "none",
        placement=cast("Literal['any', 'in-place', 'out-of-place']", placement),
        root=final.collective.root if name in ROOTED else None,
    )


@dataclass(frozen=True)
class _Winner:
    """A candidate that beats the default in one placement."""

    us: float
    candidate: Candidate
    point: Point | None = None
    file: ProgramFile | None = None

    @property
    def scenarios_us(self) -> dict[str, float]:
        """The times in us under each scenario."""
        return self.candidate.stats.scenarios_us if self.candidate.stats else {}

    def order(self, best_us: float) -> tuple[bool, bool, bool, int, int, float]:
        """The key to sort by: of equally fast programs those for any placement, then fewer SMs."""
        if self.point is None:
            slower = not is_as_good(self.us, best_us)
            return slower, False, False, 0 if slower else self.candidate.sms, 0, self.us
        slower, changed, _, threads, us = tie_break(self.point, self.us, best_us)
        one_placement = not (self.candidate.in_place and self.candidate.out_of_place)
        sms = 0 if slower else self.candidate.sms
        return slower, changed, one_placement and not slower, sms, threads, us


def _ranked(
    final: FinalRound, file_of: FileOf, *, in_place: bool
) -> tuple[list[Candidate], list[ProgramFile]]:
    """The candidates that beat the default in one placement, fastest first, then the default."""
    default_us = placement_samples(final.default.timing, in_place)
    winners: dict[str, _Winner] = {}
    for timed in final.candidates:
        samples = placement_samples(timed.timing, in_place)
        if samples and default_us and beats(samples, default_us):
            program = _for_placement(timed.program, final.dialect, in_place)
            file = file_of(program, final.dialect, final.collective.root)
            candidate = _candidate(timed, file, samples)
            point = Point.of(timed.choice, timed.knobs) if timed.choice else None
            winner = _Winner(Statistics.of(samples).median_us, candidate, point, file)
            winners.setdefault(candidate.name, winner)
    for each in final.nccl:
        samples = placement_samples(each.timing, in_place)
        if samples and default_us and beats(samples, default_us):
            candidate = _nccl_candidate(each, samples)
            winners[candidate.name] = _Winner(Statistics.of(samples).median_us, candidate)
    best_us = min((winner.us for winner in winners.values()), default=0.0)
    ranked = _fastest_and_pareto(sorted(winners.values(), key=lambda winner: winner.order(best_us)))
    default = default_candidate(
        ranked[0].candidate.on if ranked else _source(final.default.timing),
        Statistics.of(default_us, final.default.timing.scenarios_us) if default_us else None,
        (f"tuned at {final.nbytes} bytes", f"{final.default.name} there"),
        final.default.sms,
    )
    files = [w.file for w in ranked if w.file is not None]
    return [*(w.candidate for w in ranked), default], files


def _fastest_and_pareto(winners: Sequence[_Winner]) -> list[_Winner]:
    """The first, each scenario's best, and as there is room those that none beats in time or SMs.

    In the same order.
    """
    scenarios = winners[0].scenarios_us if winners else {}
    best = [min(winners, key=lambda w: w.scenarios_us.get(name, w.us)) for name in scenarios]
    first = [w for w in winners if w in winners[:_FASTEST] or w in best]
    front = pareto_set(winners[_FASTEST:], lambda winner: (winner.us, winner.candidate.sms))
    fewest = min((winner.candidate.sms for winner in winners[:_FASTEST]), default=0)
    fewer = [w for w in front if w.candidate.sms < fewest and w not in first]
    return [*first, *fewer[: _MOST_CANDIDATES - _FASTEST]]


def _for_placement(program: Program, dialect: str, in_place: bool) -> Program:
    """The form of ``program`` whose file serves the placement in ``dialect``."""
    forms = placements(program, dialect)
    return next(p for p in forms if (p.in_place if in_place else p.out_of_place))


def _candidate(timed: TimedProgram, file: ProgramFile, samples: tuple[float, ...]) -> Candidate:
    assert timed.choice is not None  # a search found it
    candidate = program_candidate(
        file,
        timed.knobs,
        on=_source(timed.timing),
        stats=Statistics.of(samples, timed.timing.scenarios_us),
        choice=timed.choice,
    )
    return msgspec.structs.replace(candidate, sms=timed.timing.sms or candidate.sms)


def _nccl_candidate(timed: TimedProgram, samples: tuple[float, ...]) -> Candidate:
    assert timed.nccl is not None  # it has knobs
    return Candidate(
        name=timed.nccl.name,
        on=_source(timed.timing),
        stats=Statistics.of(samples, timed.timing.scenarios_us),
        nccl=timed.nccl,
        sms=timed.sms,
    )


def _source(timing: Timing) -> Source:
    return cast("Source", timing.on)


def placement_samples(timing: Timing, in_place: bool) -> tuple[float, ...]:
    """Return the samples in us of one placement: its own repeats, else its one time, or none."""
    time_us = timing.time_us_ip if in_place else timing.time_us
    if time_us is None:
        return ()
    if in_place and timing.samples_us_ip:
        return timing.samples_us_ip
    # ``samples_us`` holds the repeats out of place, or in place where there is no other.
    of_placement = in_place == (timing.time_us is None)
    return timing.samples_us if of_placement and timing.samples_us else (time_us,)


def tuned_sizes(table: LookupTable, collective: str, root: int | None = None) -> list[int]:
    """Return the sizes in bytes at which ``table`` was tuned for ``collective``, rising.

    ``root`` matters to the collectives that have one; None: of any root.
    """
    roots = (None, root) if root is not None else {e.root for e in table.entries}
    return sorted(
        {tuned_size(e) for e in table.entries if e.collective == collective and e.root in roots}
    )


def tuned_size(entry: Entry) -> int:
    """Return the size in bytes at which ``entry`` was tuned, as its default candidate notes.

    Where a table of other making has no such note, the geometric middle of the range stands in.
    """
    for note in entry.default.notes:
        if (match := _TUNED_AT.fullmatch(note)) is not None:
            return int(match[1])
    top = entry.max_bytes if entry.max_bytes is not None else 4 * max(entry.min_bytes, 1)
    return max(math.isqrt(max(entry.min_bytes, 1) * top), 1)
