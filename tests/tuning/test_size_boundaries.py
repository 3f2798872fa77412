"""Borders between entries, against times that are formulas."""

import math
import random
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
import pytest

from tuccl.runtime import Candidate, Entry, Statistics, Timing, default_candidate
from tuccl.runtime.table import check_entries
from tuccl.runtime.table.entry import KnobValues
from tuccl.tuning.size_boundaries import entries_to_borders

KNOBS = KnobValues(protocol="LL", channels=1, threads=512, buffer_bytes=1 << 19)
LOW, HIGH = 1 << 14, 1 << 22


def candidate(
    name: str, most: int = 0, nchunks: int = 4, in_place: bool = True, out_of_place: bool = True
) -> Candidate:
    return Candidate(
        name=name,
        on="sim",
        stats=Statistics.of((1.0,)),
        program=f"algorithms/{name}.xml",
        sha256="0" * 64,
        nchunks=nchunks,
        max_safe_bytes=most,
        in_place=in_place,
        out_of_place=out_of_place,
        knobs=KNOBS,
    )


def entry(*candidates: Candidate, placement: str = "any", note: str = "") -> Entry:
    default = default_candidate("sim", notes=(note,) if note else ())
    return Entry(
        collective="allgather",
        min_bytes=0,
        max_bytes=1,
        candidates=(*candidates, default),
        reduction_class="none",
        placement=placement,  # type: ignore[arg-type]
    )


class Clock:
    """Times by formula: latency in us and bytes a us of each name, out of place and in place."""

    def __init__(
        self,
        rates: Mapping[str, tuple[float, float]],
        in_place: float = 1.0,
        noise: float = 0.0,
        samples: int = 5,
    ) -> None:
        self.rates = rates
        self.calls = 0
        self._in_place = in_place
        self._noise = noise
        self._samples = samples
        self._rng = random.Random(5)

    def us(self, name: str, nbytes: int) -> float:
        latency, rate = self.rates[name]
        return latency + nbytes / rate

    def __call__(self, candidates: Sequence[Candidate], nbytes: int) -> dict[str, Timing | None]:
        self.calls += len(candidates)
        assert all(c.call_refusal(nbytes, False, 4) is None for c in candidates if c.out_of_place)
        return {c.name: self._timing(self.us(c.name, nbytes)) for c in candidates}

    def _timing(self, us: float) -> Timing:
        if not self._noise:
            return Timing(us, self._in_place * us, (us,), "sim")
        out, within = (
            tuple(us * math.exp(self._rng.gauss(0.0, self._noise)) for _ in range(self._samples))
            for _ in range(2)
        )
        return Timing(out[0], within[0], out, "mpi", samples_us_ip=within)


def chosen(entries: Sequence[Entry], nbytes: int) -> str:
    [found] = [e for e in entries if e.covers(nbytes) and e.takes(False)]
    return next(c.name for c in found.candidates if c.refusal(nbytes, False) is None)


def crossing(clock: Clock, a: str, b: str) -> float:
    (la, ra), (lb, rb) = clock.rates[a], clock.rates[b]
    return (lb - la) / (1 / ra - 1 / rb)


def test_a_border_lies_where_the_winner_changes() -> None:
    clock = Clock({"a": (5.0, 1000.0), "b": (50.0, 10000.0), "default": (60.0, 900.0)})
    entries = entries_to_borders(
        {LOW: (entry(candidate("a")),), HIGH: (entry(candidate("b")),)}, clock
    )
    check_entries(entries)
    [border] = [e.min_bytes for e in entries[1:]]
    assert border == pytest.approx(crossing(clock, "a", "b"), rel=0.03)
    assert (entries[0].min_bytes, entries[-1].max_bytes) == (LOW // 16, HIGH * 16)
    assert clock.calls < 30


class Dip(Clock):
    """The default is fastest from 64K to 512K, where it is given another protocol."""

    def us(self, name: str, nbytes: int) -> float:
        dips = name == "default" and 1 << 16 <= nbytes < 1 << 19
        return super().us(name, nbytes) * (0.1 if dips else 1.0)


@pytest.mark.parametrize("at_high", ["a", "b"])
def test_the_default_gets_the_sizes_at_which_it_is_fastest(at_high: str) -> None:
    clock = Dip({"a": (5.0, 1000.0), "b": (4.0, 1500.0), "default": (9.0, 500.0)})
    tuned = {LOW: (entry(candidate("a")),), HIGH: (entry(candidate(at_high)),)}
    entries = entries_to_borders(tuned, clock)
    check_entries(entries)
    of_default = [e for e in entries if e.candidates[0].is_default]
    assert of_default[0].min_bytes == pytest.approx(1 << 16, rel=0.04)
    assert of_default[-1].max_bytes == pytest.approx(1 << 19, rel=0.04)
    assert all(len(e.candidates) == 1 for e in of_default)
    assert [chosen(entries, n) for n in (LOW, HIGH)] == ["a", at_high]


def test_equal_winners_meet_in_the_middle_and_take_few_timings() -> None:
    clock = Clock({"a": (5.0, 1000.0), "default": (60.0, 900.0)})
    tuned = {n: (entry(candidate("a"), note=f"tuned at {n} bytes"),) for n in (LOW, HIGH)}
    entries = entries_to_borders(tuned, clock)
    assert [e.min_bytes for e in entries] == [LOW // 16, 1 << 18]
    assert clock.calls == 2
    assert [e.default.notes for e in entries] == [e.default.notes for (e,) in tuned.values()]
    nothing = Clock({})
    entries_to_borders({LOW: (entry(),), HIGH: (entry(),)}, nothing)
    assert nothing.calls == 0


def test_a_program_is_not_chosen_where_it_is_unsafe() -> None:
    clock = Clock({"a": (5.0, 10000.0), "b": (50.0, 9000.0), "default": (90.0, 900.0)})
    most = 300_000
    tuned = {LOW: (entry(candidate("a", most)),), HIGH: (entry(candidate("b")),)}
    entries = entries_to_borders(tuned, clock)
    assert chosen(entries, most - 20_000) == "a"
    assert chosen(entries, most + 20_000) == "b"


def test_sizes_that_are_timed_divide_by_the_chunks() -> None:
    """The clock asserts it; where no size between does, the middle is the border."""
    clock = Clock({"a": (5.0, 1000.0), "b": (50.0, 10000.0), "default": (60.0, 900.0)})
    tuned = {
        LOW: (entry(candidate("a", nchunks=7 * 64)),),
        HIGH: (entry(candidate("b", nchunks=5 * 64)),),
    }
    entries = entries_to_borders(tuned, clock)
    assert entries[1].min_bytes == pytest.approx(crossing(clock, "a", "b"), rel=0.1)
    tuned = {
        LOW: (entry(candidate("a", nchunks=1 << 20)),),
        HIGH: (entry(candidate("b", nchunks=3)),),
    }
    assert entries_to_borders(tuned, Clock({}))[1].min_bytes == 1 << 18


def test_both_placements_count_alike() -> None:
    """In place b is as fast as a, so that their common border moves by nothing but its half."""
    rates = {
        "a": (5.0, 1000.0),
        "b": (50.0, 10000.0),
        "inside": (1.0, 1000.0),
        "default": (60.0, 90.0),
    }
    clock = Clock(rates)
    low = (
        entry(candidate("a"), placement="out-of-place"),
        entry(candidate("inside", out_of_place=False), placement="in-place"),
    )
    entries = entries_to_borders({LOW: low, HIGH: (entry(candidate("b")),)}, clock)
    check_entries(entries)
    assert [e.placement for e in entries] == ["out-of-place", "in-place", "any"]
    border = entries[-1].min_bytes
    ratio = clock.us("a", border) * clock.us("inside", border) / clock.us("b", border) ** 2
    assert ratio == pytest.approx(1.0, abs=0.06)


def test_times_within_their_noise_end_the_search_early() -> None:
    clock = Clock({"a": (5.0, 1000.0), "b": (5.1, 1001.0), "default": (90.0, 500.0)}, noise=0.1)
    tuned = {LOW: (entry(candidate("a")),), HIGH: (entry(candidate("b")),)}
    entries = entries_to_borders(tuned, clock)
    assert clock.calls <= 9
    assert LOW < entries[1].min_bytes < HIGH
    sure = Clock({"a": (5.0, 1000.0), "b": (50.0, 10000.0), "default": (90.0, 500.0)}, noise=0.02)
    [border] = [e.min_bytes for e in entries_to_borders(tuned, sure)[1:]]
    assert border == pytest.approx(crossing(sure, "a", "b"), rel=0.25)


def test_what_cannot_run_leaves_the_border_in_the_middle() -> None:
    tuned = {LOW: (entry(candidate("a")),), HIGH: (entry(candidate("b")),)}

    def nothing(candidates: Sequence[Candidate], nbytes: int) -> dict[str, Timing | None]:
        return dict.fromkeys((c.name for c in candidates), None)

    entries = entries_to_borders(tuned, nothing)
    assert [e.min_bytes for e in entries] == [LOW // 16, 1 << 18]


def test_ranges_of_many_sizes_meet() -> None:
    names = ["a", "b", "a", "b", "b"]
    clock = Clock({"a": (5.0, 1000.0), "b": (50.0, 10000.0), "default": (60.0, 900.0)})
    sizes = [LOW << 2 * n for n in range(5)]
    tuned = {n: (entry(candidate(name)),) for n, name in zip(sizes, names, strict=True)}
    entries = entries_to_borders(tuned, clock)
    check_entries(entries)
    assert all(a.max_bytes == b.min_bytes for a, b in pairwise(entries))
    assert [chosen(entries, n) for n in sizes] == names


def test_more_samples_find_a_border_within_the_noise() -> None:
    rates = {"a": (5.0, 1000.0), "b": (80.0, 1100.0), "default": (900.0, 500.0)}
    tuned = {LOW: (entry(candidate("a")),), HIGH: (entry(candidate("b")),)}
    few, many = (Clock(rates, noise=0.08, samples=samples) for samples in (5, 4000))
    at_few, at_many = (entries_to_borders(tuned, clock)[1].min_bytes for clock in (few, many))
    border = crossing(many, "a", "b")
    assert at_many == pytest.approx(border, rel=0.1)
    assert abs(at_few - border) > abs(at_many - border)


@pytest.mark.parametrize("ratio", [1.2, 1.3])
def test_a_default_that_is_far_at_both_sizes_is_not_timed_between_them(ratio: float) -> None:
    clock = Clock({"a": (1.0, 1e3), "b": (5.0, 4e3), "default": (30.0, 1e3)})
    timed: set[str] = set()

    def times(candidates: Sequence[Candidate], nbytes: int) -> dict[str, Timing | None]:
        timed.update(c.name for c in candidates)
        return clock(candidates, nbytes)

    default = default_candidate("sim", Statistics.of((ratio,)))
    sizes = {
        size: (
            msgspec.structs.replace(entry(candidate(name)), candidates=(candidate(name), default)),
        )
        for size, name in ((LOW, "a"), (HIGH, "b"))
    }
    near = entries_to_borders(sizes, times)
    assert timed == {"a", "b", "default"}
    timed.clear()
    far = entries_to_borders(sizes, times, far=1.25)
    assert timed == ({"a", "b"} if ratio > 1.25 else {"a", "b", "default"})
    assert [(e.min_bytes, e.candidates) for e in far] == [(e.min_bytes, e.candidates) for e in near]
