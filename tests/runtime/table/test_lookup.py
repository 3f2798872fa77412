"""Entries of a table: one for each call, none in doubt."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuccl.program import Knobs
from tuccl.runtime.table.entry import Candidate, Entry, KnobValues, Statistics, default_candidate
from tuccl.runtime.table.lookup import LookupTable, check_entries, ranges_from_sizes

SIZES = st.lists(st.integers(1, 1 << 40), min_size=1, max_size=30, unique=True).map(sorted)


def bare(min_bytes: int, max_bytes: int | None, **fields: object) -> Entry:
    document = {
        "collective": "allgather",
        "reduction_class": "none",
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "candidates": (default_candidate("sim"),),
    } | fields
    return Entry(**document)  # type: ignore[arg-type]


@given(SIZES)
def test_ranges_hold_their_size_and_meet(sizes: list[int]) -> None:
    ranges = ranges_from_sizes(sizes)
    assert len(ranges) == len(sizes)
    for size, (low, high) in zip(sizes, ranges, strict=True):
        assert high is not None and low <= size < high
    for (_, end), (start, _) in itertools.pairwise(ranges):
        assert end == start
    check_entries([bare(low, high) for low, high in ranges])


@given(SIZES.filter(lambda sizes: len(sizes) > 1))
def test_neighbours_meet_halfway_on_a_logarithmic_scale(sizes: list[int]) -> None:
    for (size, following), (_, end) in zip(
        itertools.pairwise(sizes), ranges_from_sizes(sizes)[:-1], strict=True
    ):
        assert end is not None
        assert (end - 1) ** 2 < size * following <= end**2


@pytest.mark.parametrize("sizes", [[], [0], [4, 4], [8, 4], [-1, 2]])
def test_sizes_must_rise(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="sizes"):
        ranges_from_sizes(sizes)


@pytest.mark.parametrize(
    ("ranges", "problem"),
    [
        ([(0, 10), (9, 20)], "overlap"),
        ([(0, 10), (11, 20)], "gap"),
        ([(0, None), (10, 20)], "overlap"),
        ([(0, 10), (0, 10)], "overlap"),
        ([(5, 10), (0, 4)], "gap"),
    ],
)
def test_overlaps_and_gaps_are_refused(ranges: list[tuple[int, int | None]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check_entries([bare(*r) for r in ranges])


def test_keys_are_distinguished() -> None:
    check_entries([bare(0, 10, placement="in-place"), bare(5, 20, placement="out-of-place")])
    check_entries([bare(0, 10, datatype_class="4-byte"), bare(5, 20, datatype_class="2-byte")])
    rooted = {"collective": "broadcast"}
    check_entries([bare(0, 10, **rooted, root=0), bare(5, 20, **rooted, root=1)])
    with pytest.raises(ValueError, match="overlap"):
        check_entries([bare(0, 10, placement="in-place"), bare(5, 20)])
    with pytest.raises(ValueError, match="overlap"):
        check_entries([bare(0, 10, datatype_class="4-byte"), bare(5, 20)])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"candidates": ()}, "default"),
        ({"candidates": (default_candidate("sim"),) * 2}, "default"),
        ({"reduction_class": "plain"}, "reduction"),
        ({"root": 0}, "root"),
        ({"min_bytes": -1}, "range"),
        ({"max_bytes": 0}, "range"),
        ({"max_bytes": 1 << 70}, "below"),
    ],
)
def test_bad_entries_are_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        bare(0, 10) if not fields else bare(**({"min_bytes": 0, "max_bytes": 10} | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": "two words"}, "name"),
        ({"name": "default"}, "without a program"),
        ({"program": None}, "without a program"),
        ({"sha256": "xyz"}, "sha256"),
        ({"nchunks": 0}, "nchunks"),
        ({"in_place": False, "out_of_place": False}, "must run"),
    ],
)
def test_bad_candidates_are_refused(
    hand: SimpleNamespace, fields: dict[str, object], says: str
) -> None:
    document = msgspec.to_builtins(hand.candidate(hand.files()["LL"], 1.0))
    assert msgspec.convert(document, Candidate).nchunks == hand.ranks
    with pytest.raises(msgspec.ValidationError, match=says):
        msgspec.convert(document | fields, Candidate)


@pytest.mark.parametrize(
    "values",
    [
        ("Simple", 1, 33, 1 << 22),
        ("LL", 1, 640, 1 << 19),
        ("LL", 1, 512, 1),
        ("LL", -1, 512, 1 << 19),
        ("LL", 1 << 40, 512, 1 << 19),
        ("LL", 1, 512, 1 << 63),
    ],
)
def test_illegal_knobs_are_refused(values: tuple[str, int, int, int]) -> None:
    names = ("protocol", "channels", "threads", "buffer_bytes")
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(dict(zip(names, values, strict=True)), KnobValues)


def test_knobs_come_back() -> None:
    for knobs in (Knobs("LL128"), Knobs("Simple", 4, 256, 1 << 20)):
        assert KnobValues.of(knobs).knobs == knobs


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=50))
def test_statistics_are_samples_in_order(samples: list[float]) -> None:
    stats = Statistics.of(tuple(samples))
    assert stats.count == len(samples)
    assert {stats.p10_us, stats.median_us, stats.p99_us} <= set(samples)
    assert stats.p10_us <= stats.median_us <= stats.p99_us
    assert sum(s <= stats.median_us for s in samples) * 2 >= len(samples)


@pytest.mark.parametrize("time_us", [float("nan"), float("inf"), -1.0])
def test_times_are_times(time_us: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Statistics.of((time_us,))


def test_only_nccls_own_choices_are_for_every_root() -> None:
    entry = bare(0, None, collective="broadcast")
    table = {"name": "t", "signature": "0" * 16, "ranks": 2, "entries": (entry,)}
    LookupTable(**table, dialect="nccl")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="root of broadcast"):
        LookupTable(**table)  # type: ignore[arg-type]


def test_a_root_must_be_a_rank() -> None:
    rooted = bare(0, 10, collective="broadcast", root=4)
    with pytest.raises(ValueError, match="root 4"):
        LookupTable(name="t", signature="0" * 16, ranks=4, entries=(rooted,))


def test_one_file_has_one_checksum(hand: SimpleNamespace) -> None:
    first = hand.candidate(hand.files()["LL"], 1.0)
    second = msgspec.structs.replace(first, sha256="0" * 64)
    entries = (hand.entry(0, 10, first), hand.entry(10, 20, second))
    with pytest.raises(ValueError, match="checksums"):
        LookupTable(name="t", signature="0" * 16, ranks=4, entries=entries)
