"""Selection: the first candidate that can run the call, and the reason."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from tuccl._native import Knobs
from tuccl.errors import InputError
from tuccl.runtime.table.selection import explain, select
from tuccl.runtime.table.store import load_table


def test_the_choice_fits_the_call_and_nothing_before_it_does(stored: Path) -> None:
    table = load_table(stored)
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
    table = load_table(stored)
    halves = select(table, "allgather", 1 << 17)
    assert halves.candidate.nchunks == 8
    assert "out of place only" in select(table, "allgather", 1 << 17, in_place=True).reason
    assert select(table, "allgather", 1 << 26).candidate.is_default
    assert "safe only up to" in select(table, "allgather", 1 << 26).reason
    assert "do not divide" in select(table, "allgather", 1030, element_bytes=2).reason


@pytest.mark.parametrize("nbytes", [1, 511, 1 << 30, 1 << 50])
def test_outside_the_tuned_sizes_the_default_runs(stored: Path, nbytes: int) -> None:
    choice = select(load_table(stored), "allgather", nbytes)
    assert choice.candidate.is_default and "outside" in choice.reason


def test_calls_the_table_does_not_know_get_the_default(stored: Path) -> None:
    table = load_table(stored)
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
        select(load_table(stored), collective, nbytes, **call)  # type: ignore[arg-type]


def test_explain_tells_every_size_once_as_select_does(stored: Path) -> None:
    table = load_table(stored)
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
    rows = [r for r in explain(load_table(stored)) if r.placement == "out-of-place"]
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
