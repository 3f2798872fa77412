"""The sizes at which a table goes from one entry to the next: where the winner changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, variance

import msgspec

from tuccl.program import Program
from tuccl.runtime import Candidate, Entry, Executor, Timing
from tuccl.runtime.table import entry_preferring, ranges_from_sizes
from tuccl.synth import Collective
from tuccl.topology import Topology
from tuccl.tuning.candidate_times import CandidateTimes
from tuccl.tuning.final_round import placement_samples
from tuccl.tuning.options import TuneOptions

Times = Callable[[Sequence[Candidate], int], Mapping[str, Timing | None]]
"""Return the timing of each candidate at a size in bytes, by its name; None: it cannot run."""
Entries = tuple[Entry, ...]
_ELEMENT_BYTES = 4
_SIGMAS = 2.0
_TOLERANCE, _COARSE_TOLERANCE = 1.03, 1.25  # coarse: with noise, and of ranks beyond
_MOST_RANKS = 32  # whose runs are soon simulated
_FAR = 1.25  # times as slow at both tuned sizes: of more ranks, not timed between them


def entries_of_sizes(
    entries_by_size: Mapping[int, Entries],
    programs: Mapping[str, Program],
    executor: Executor,
    topology: Topology,
    collective: Collective,
    options: TuneOptions,
) -> list[Entry]:
    """Return the entries of one collective with their ranges.

    ``entries_by_size`` holds the entries of each tuned size, rising, the fastest candidates
    first, and ``programs`` theirs by path. Borders lie where the fastest changes
    (`entries_to_borders`), whatever the options put first (`tuccl.runtime.table_preferring`):
    beyond them the default may be faster.
    """
    times = CandidateTimes(executor, topology, collective, options.nccl_version, programs)
    many = topology.ranks > _MOST_RANKS
    tolerance = _COARSE_TOLERANCE if many or not executor.deterministic else _TOLERANCE
    far = _FAR if many and executor.deterministic else math.inf
    entries = entries_to_borders(entries_by_size, times, tolerance, far)
    if options.prefer != "speed":
        entries = [entry_preferring(entry, options.prefer) for entry in entries]
    return entries


def entries_to_borders(
    entries_by_size: Mapping[int, Entries],
    times: Times,
    tolerance: float = _TOLERANCE,
    far: float = math.inf,
) -> list[Entry]:
    """Return the entries of one collective, each up to where another begins to be faster.

    The entries of each tuned size, rising, need no ranges. Between two sizes the first candidates
    of both and the runtime's default are timed at sizes halfway on a log scale, until the size at
    which the fastest changes is known to ``tolerance``; the default gets an entry of its own where
    it is fastest, and is not timed where at both sizes it takes over ``far`` times as long. Both
    placements count alike. Equal candidates, and times within their noise, leave the border in the
    geometric middle of what is not known. The outer ends are those of `ranges_from_sizes`.
    """
    ranges = ranges_from_sizes(list(entries_by_size))
    starts: list[tuple[int, Entries]] = [(ranges[0][0], next(iter(entries_by_size.values())))]
    for (low, at_low), (high, at_high) in pairwise(entries_by_size.items()):
        starts += _Gap(low, high, at_low, at_high, times, tolerance, far).starts()
    highs = [*(start for start, _ in starts[1:]), ranges[-1][1]]
    return [
        msgspec.structs.replace(entry, min_bytes=low, max_bytes=high)
        for (low, entries), high in zip(starts, highs, strict=True)
        for entry in entries
    ]


@dataclass(frozen=True)
class _Score:
    """The sum over placements of a mean log time, with its variance."""

    log_us: float
    variance: float

    def beats(self, other: _Score) -> bool:
        noise = math.sqrt(self.variance + other.variance)
        return other.log_us - self.log_us > max(_SIGMAS * noise, 1e-9)


@dataclass(frozen=True)
class _Gap:
    """Two neighbouring tuned sizes with their entries."""

    low: int
    high: int
    at_low: Entries
    at_high: Entries
    times: Times
    tolerance: float
    far: float

    def starts(self) -> Iterator[tuple[int, Entries]]:
        """The sizes above ``low`` at which other entries begin, the last of them ``at_high``."""
        middle = self._between(self.low, self.high)
        fastest = None if middle is None else self._fastest(middle)
        if middle is None or fastest is None:
            yield _middle(self.low, self.high), self.at_high
        elif _same_firsts(self.at_low, self.at_high) and fastest in (self.at_low, self.at_high):
            yield middle, self.at_high
        else:
            yield from self._changes(self.low, self.at_low, middle, fastest)
            yield from self._changes(middle, fastest, self.high, self.at_high)

    @property
    def _default(self) -> Entries:
        """An entry for all placements with the default alone."""
        [first, *_] = self.at_low
        return (msgspec.structs.replace(first, placement="any", candidates=(first.default,)),)

    @property
    def _default_is_slow(self) -> bool:
        return all(_is_far(entry, self.far) for entry in (*self.at_low, *self.at_high))

    def _changes(
        self, low: int, fastest_low: Entries, high: int, fastest_high: Entries
    ) -> Iterator[tuple[int, Entries]]:
        if fastest_low == fastest_high:
            return
        middle = self._between(low, high) if high > low * self.tolerance else None
        if middle is None:
            yield _middle(low, high), fastest_high
        elif (fastest := self._fastest(middle)) is None:
            yield middle, fastest_high
        else:
            yield from self._changes(low, fastest_low, middle, fastest)
            yield from self._changes(middle, fastest, high, fastest_high)

    def _between(self, low: int, high: int) -> int | None:
        """The size near the geometric middle that all first candidates' chunks divide."""
        chunks = [c.nchunks for entries in (self.at_low, self.at_high) for c in _firsts(entries)]
        unit = math.lcm(*(max(n, 1) for n in chunks)) * _ELEMENT_BYTES
        nbytes = round(math.sqrt(low * high) / unit) * unit
        return nbytes if low < nbytes < high else None

    def _fastest(self, nbytes: int) -> Entries | None:
        """The entries that are fastest at a size; None where noise hides it."""
        choices: dict[tuple[str, ...], Entries] = {}
        every: dict[str, Candidate] = {}
        nearer, farther = self.at_low, self.at_high
        if nbytes > _middle(self.low, self.high):
            nearer, farther = farther, nearer
        default = () if self._default_is_slow else (self._default,)
        for entries in (nearer, farther, *default):
            candidates = _candidates(entries, nbytes)
            choices.setdefault(tuple(c.name for c in candidates), entries)
            every |= {c.name: c for c in candidates}
        if len(choices) == 1:
            return nearer
        scores = _scores(list(choices), self.times(list(every.values()), nbytes))
        best = min(scores, key=lambda names: scores[names].log_us)
        others = (score for names, score in scores.items() if names != best)
        return choices[best] if all(scores[best].beats(other) for other in others) else None


def _is_far(entry: Entry, far: float) -> bool:
    """Return whether the default takes over ``far`` times as long as each other candidate."""
    default, others = entry.default, [c for c in entry.candidates if c.name != entry.default.name]
    return bool(others) and all(
        c.stats is not None
        and default.stats is not None
        and default.stats.median_us > far * c.stats.median_us
        for c in others
    )


def _same_firsts(a: Entries, b: Entries) -> bool:
    return [c.name for c in _firsts(a)] == [c.name for c in _firsts(b)]


def _firsts(entries: Entries) -> tuple[Candidate, ...]:
    """The first candidates out of place and in place."""
    return tuple(
        entry.candidates[0]
        for in_place in (False, True)
        for entry in entries
        if entry.takes(in_place)
    )


def _candidates(entries: Entries, nbytes: int) -> tuple[Candidate, ...]:
    """The candidates that calls of a size get, out of place and in place."""
    return tuple(
        next(c for c in entry.candidates if not c.call_refusal(nbytes, in_place, _ELEMENT_BYTES))
        for in_place in (False, True)
        for entry in entries
        if entry.takes(in_place)
    )


def _scores(
    choices: Sequence[tuple[str, ...]], timings: Mapping[str, Timing | None]
) -> dict[tuple[str, ...], _Score]:
    """The score of each pair of candidates; a placement that one of them does not time counts 0."""
    samples = {
        names: [
            placement_samples(timing, in_place) if (timing := timings[name]) is not None else None
            for name, in_place in zip(names, (False, True), strict=True)
        ]
        for names in choices
    }
    both = [n for n in (0, 1) if all(each[n] != () for each in samples.values())]
    return {names: _score([each[n] for n in both]) for names, each in samples.items()}


def _score(placements: Sequence[tuple[float, ...] | None]) -> _Score:
    log_us = spread = 0.0
    for samples in placements:
        if samples is None:
            return _Score(math.inf, 0.0)
        logs = [math.log(us) for us in samples]
        log_us += fmean(logs)
        spread += variance(logs) / len(logs) if len(logs) > 1 else 0.0
    return _Score(log_us, spread)


def _middle(low: int, high: int) -> int:
    """The geometric middle, above ``low``."""
    return math.isqrt(low * high - 1) + 1
