"""Tables of NCCL's own choices: saved, chosen from, and refused where NCCL has no such thing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tuccl.errors import InputError
from tuccl.runtime.nccl.knobs import ALGORITHMS, NcclKnobs
from tuccl.runtime.table.entry import Candidate, Entry, default_candidate
from tuccl.runtime.table.lookup import LookupTable
from tuccl.runtime.table.selection import select
from tuccl.runtime.table.store import load_table, save_table


def choice(knobs: NcclKnobs, us: float, hand: SimpleNamespace) -> Candidate:
    return Candidate(name=knobs.name, on="nccl-tests", stats=hand.time_of(us), nccl=knobs)


def nccl_entry(collective: str, low: int, high: int | None, *candidates: Candidate) -> Entry:
    reducing = collective in ("allreduce", "reduce", "reduce-scatter")
    return Entry(
        collective=collective,  # type: ignore[arg-type]
        min_bytes=low,
        max_bytes=high,
        reduction_class="plain" if reducing else "none",
        candidates=(*candidates, default_candidate("nccl-tests")),
    )


def nccl_table(hand: SimpleNamespace) -> LookupTable:
    ring = choice(NcclKnobs(algorithm="Ring", protocol="LL", channels=4), 3.0, hand)
    tree = choice(NcclKnobs(algorithm="Tree", protocol="Simple", chunk_bytes=65536), 5.0, hand)
    entries = (
        nccl_entry("allreduce", 512, 65536, ring, tree),
        nccl_entry("allreduce", 65536, None, tree),
        nccl_entry("broadcast", 512, 4096, ring),
    )
    empty: LookupTable = hand.table_of(hand.mesh())
    return msgspec.structs.replace(empty, dialect="nccl", entries=entries)


def test_it_is_saved_and_comes_back(hand: SimpleNamespace, tmp_path: Path) -> None:
    table = nccl_table(hand)
    sealed = save_table(table, tmp_path / "t", hand.mesh(), ())
    assert load_table(tmp_path / "t").lookup == sealed
    lines = (tmp_path / "t" / "table.txt").read_text().splitlines()
    assert "candidate nccl-Ring-LL-c4 nccl/Ring - 0 1 1 0 LL 4 0 0 nccl-tests 1 3.0" in "\n".join(
        lines
    )


def test_a_choice_runs_every_call_of_its_sizes(hand: SimpleNamespace) -> None:
    table = nccl_table(hand)
    for root in range(hand.ranks):
        for nbytes in (512, 1001, 4095):
            chosen = select(table, "broadcast", nbytes, root=root, element_bytes=1).candidate
            assert chosen.nccl is not None and chosen.nccl.algorithm == "Ring"
    assert select(table, "broadcast", 4096).candidate.is_default
    assert select(table, "allgather", 1024).candidate.is_default


def test_hosts_are_the_topologys(hand: SimpleNamespace, tmp_path: Path) -> None:
    wrong = msgspec.structs.replace(nccl_table(hand), hosts=2)
    with pytest.raises(InputError, match="another one"):
        save_table(wrong, tmp_path / "t", hand.mesh(), ())


@pytest.mark.parametrize("collective", sorted(ALGORITHMS))
def test_only_kernels_that_exist(collective: str, hand: SimpleNamespace) -> None:
    every = {a for algorithms in ALGORITHMS.values() for a in algorithms}
    for algorithm in every:
        made = choice(NcclKnobs(algorithm=algorithm, protocol="Simple"), 1.0, hand)
        if algorithm in ALGORITHMS[collective]:
            assert nccl_entry(collective, 0, None, made).candidates[0] is made
        else:
            with pytest.raises(ValueError, match=f"no {algorithm} for {collective}"):
                nccl_entry(collective, 0, None, made)


@pytest.mark.parametrize(
    "bad",
    [
        {"algorithm": "NVLS", "protocol": "LL"},
        {"algorithm": "Ring", "protocol": "LL", "channels": 65},
        {"algorithm": "Ring", "protocol": "LL", "chunk_bytes": -1},
        {"algorithm": "Star", "protocol": "LL"},
    ],
)
def test_impossible_knobs_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises((ValueError, msgspec.ValidationError)):
        msgspec.convert(bad, NcclKnobs)


def test_programs_and_choices_do_not_mix(hand: SimpleNamespace) -> None:
    table = nccl_table(hand)
    program = hand.entry(1 << 10, 1 << 20, hand.candidate(hand.files()["LL"], 1.0))
    for dialect, entry in (("fork", table.entries[0]), ("nccl", program)):
        with pytest.raises(ValueError, match="only"):
            msgspec.structs.replace(table, dialect=dialect, entries=(entry,)).__post_init__()


@pytest.mark.parametrize("odd", [{"placement": "in-place"}, {"datatype_class": "4-byte"}])
def test_tuners_do_not_know_placement_or_datatype(
    hand: SimpleNamespace, odd: dict[str, str]
) -> None:
    table = nccl_table(hand)
    entry = msgspec.structs.replace(table.entries[0], **odd)
    with pytest.raises(ValueError, match="get no placement"):
        msgspec.structs.replace(table, entries=(entry,)).__post_init__()
