"""Selection: the first candidate that can run the call, and the reason."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.conftest import candidate, entry, mesh, ring_allgather, table_of
from tuccl.errors import InputError
from tuccl.program import Knobs
from tuccl.runtime.table import Candidate, Entry, entry_preferring, pareto_set, program_file
from tuccl.runtime.table.selection import explain, select
from tuccl.runtime.table.store import load_table


def test_the_choice_fits_the_call_and_nothing_before_it_does(stored: Path) -> None:
    table = load_table(stored).lookup
    pick = random.Random(5)
    seen = set()
    for _ in range(2000):
        nbytes, in_place = int(2 ** pick.uniform(0, 32)), pick.random() < 0.5
        nbytes = nbytes // 64 * 64 if pick.random() < 0.8 else nbytes
        element_bytes = pick.choice([1, 2, 4, 8])
        choice = select(table, "allgather", nbytes, in_place=in_place, element_bytes=element_bytes)
        seen.add(choice.candidate.name)
        assert choice.reason and "\n" not in choice.reason
        if choice.entry is None:
            assert choice.candidate.is_default
            assert not any(e.covers(nbytes) for e in table.entries)
            continue
        assert choice.entry.covers(nbytes)
        place = choice.entry.candidates.index(choice.candidate)
        ahead = choice.entry.candidates[:place]
        assert choice.candidate.call_refusal(nbytes, in_place, element_bytes) is None
        assert all(c.call_refusal(nbytes, in_place, element_bytes) for c in ahead)
    assert len(seen) == len({c.name for c in table.candidates})


def test_what_a_candidate_cannot_run_it_does_not_get(stored: Path) -> None:
    table = load_table(stored).lookup
    halves = select(table, "allgather", 1 << 17)
    assert halves.candidate.nchunks == 8
    assert "out of place only" in select(table, "allgather", 1 << 17, in_place=True).reason
    assert select(table, "allgather", 1 << 26).candidate.is_default
    assert "safe only up to" in select(table, "allgather", 1 << 26).reason
    assert "do not divide" in select(table, "allgather", 1030, element_bytes=2).reason


@pytest.mark.parametrize("nbytes", [1, 511, 1 << 30, 1 << 50])
def test_outside_the_tuned_sizes_the_default_runs(stored: Path, nbytes: int) -> None:
    choice = select(load_table(stored).lookup, "allgather", nbytes)
    assert choice.candidate.is_default and "outside" in choice.reason


def test_calls_the_table_does_not_know_get_the_default(stored: Path) -> None:
    table = load_table(stored).lookup
    assert "no entry" in select(table, "alltoall", 4096).reason
    assert select(table, "broadcast", 4096, root=3).candidate.is_default
    assert "avg" in select(table, "allreduce", 4096, reduction="avg").reason


@pytest.mark.parametrize(
    ("collective", "nbytes", "call"),
    [
        ("all-gather", 1024, {}),
        ("allgather", -1, {}),
        ("broadcast", 1024, {"root": 4}),
        ("allgather", 1024, {"element_bytes": 3}),
    ],
)
def test_calls_that_cannot_be_are_refused(
    stored: Path, collective: str, nbytes: int, call: dict[str, int]
) -> None:
    with pytest.raises(InputError):
        select(load_table(stored).lookup, collective, nbytes, **call)  # type: ignore[arg-type]


def test_explain_shows_every_size_once_as_select_does(stored: Path) -> None:
    table = load_table(stored).lookup
    rows = explain(table)
    pick = random.Random(6)
    for _ in range(500):
        nbytes, in_place = int(2 ** pick.uniform(9, 30)) // 64 * 64, pick.random() < 0.5
        placement = "in-place" if in_place else "out-of-place"
        [row] = [
            r
            for r in rows
            if r.placement == placement
            and r.min_bytes <= nbytes < (r.max_bytes if r.max_bytes is not None else 1 << 62)
        ]
        chosen = select(table, "allgather", nbytes, in_place=in_place).candidate
        assert row.chosen == chosen and row.candidate == chosen.name


def test_explain_marks_exactly_the_switch_points(stored: Path) -> None:
    rows = [r for r in explain(load_table(stored).lookup) if r.placement == "out-of-place"]
    for below, row in pairwise(rows):
        assert row.switches == (below.candidate != row.candidate)
    assert not rows[0].switches
    assert all(r.gain == 1 for r in rows if r.chosen.is_default)
    assert all(r.gain is not None and r.gain > 1 for r in rows if not r.chosen.is_default)


def test_an_empty_table_always_says_default(hand: SimpleNamespace) -> None:
    table = hand.table_of(hand.mesh())
    assert select(table, "allreduce", 1 << 20).candidate.is_default
    assert explain(table) == ()


def test_explain_says_what_is_not_honoured(hand: SimpleNamespace) -> None:
    simple = hand.files()["Simple"]
    made = [hand.candidate(simple, 1.0, Knobs("Simple", 1, 256, b << 20)) for b in (1, 2)]
    rows = explain(
        hand.table_of(
            hand.mesh(),
            hand.entry(512, 4096, made[0]),
            hand.entry(4096, 8192, made[1]),
            hand.entry(8192, 16384),
        )
    )
    for row in rows:
        lost = ("256 threads" in row.not_honoured, "buffer" in row.not_honoured)
        assert lost == ((False, False) if row.candidate == "default" else (True, True))


def costs(us: float, sms: int, name: str) -> Candidate:
    file = program_file(ring_allgather())
    return msgspec.structs.replace(candidate(file, us), name=name, sms=sms)


def names(entry: Entry) -> list[str]:
    return [c.name for c in entry.candidates]


def test_prefer_sms_takes_the_fewest_among_the_fast() -> None:
    some = (costs(5.0, 16, "fast"), costs(5.5, 4, "small"), costs(9.0, 1, "slow"))
    tuned = entry(512, None, *some)
    assert names(entry_preferring(tuned, "sms")) == ["small", "fast", "slow", "default"]
    assert names(entry_preferring(entry_preferring(tuned, "sms"), "speed")) == names(tuned)


def test_prefer_sms_takes_the_default_where_that_needs_fewest_or_is_faster() -> None:
    tuned = entry(512, None, costs(9.5, 16, "fast"), costs(10.1, 1, "slow"))
    assert names(entry_preferring(tuned, "sms")) == ["fast", "default", "slow"]
    default = msgspec.structs.replace(tuned.default, sms=2)
    known = msgspec.structs.replace(tuned, candidates=(*tuned.candidates[:2], default))
    assert names(entry_preferring(known, "sms")) == ["default", "fast", "slow"]
    table = table_of(mesh(), entry_preferring(known, "sms"))
    assert "fewest SMs" in select(table, "allgather", 1024).reason


def test_select_follows_the_preference_and_refuses_others() -> None:
    table = table_of(mesh(), entry(512, None, costs(5.0, 16, "fast"), costs(5.5, 4, "small")))
    chosen = [select(table, "allgather", 1024, prefer=p).candidate.name for p in ("speed", "sms")]
    assert chosen == ["fast", "small"]
    with pytest.raises(InputError, match="expected speed or sms"):
        select(table, "allgather", 1024, prefer="size")


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_nothing_beats_a_member_of_the_pareto_set(items: list[tuple[int, int]]) -> None:
    front = pareto_set(items, lambda item: item)

    def beats(a: tuple[int, int], b: tuple[int, int]) -> bool:
        return a != b and a[0] <= b[0] and a[1] <= b[1]

    assert not any(beats(a, b) for a in items for b in front)
    assert all(item in front or any(beats(a, item) for a in front) for item in items)
