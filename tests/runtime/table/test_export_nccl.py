"""CSV for other tuners: read as they read it, each call gets what the table chooses."""

from __future__ import annotations

import random
import re
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tuccl.errors import InputError
from tuccl.runtime.export.files import export
from tuccl.runtime.export.nccl import csv_lines
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.runtime.table.entry import Candidate, Entry, default_candidate
from tuccl.runtime.table.lookup import LookupTable
from tuccl.runtime.table.selection import select
from tuccl.runtime.table.store import load_table, save_table

NAMES = {
    "tree": "Tree",
    "ring": "Ring",
    "nvls": "NVLS",
    "nvls_tree": "NVLSTree",
    "collnet_chain": "CollnetChain",
}
PROTOCOLS = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}


def nccl_table(hand: SimpleNamespace) -> LookupTable:
    """Two neighbours of one choice, a hole, an odd edge, no end; 8 ranks on 2 hosts."""
    ll = NcclKnobs(algorithm="Ring", protocol="LL")
    tree = NcclKnobs(algorithm="Tree", protocol="LL128", channels=8)
    nvls = NcclKnobs(algorithm="NVLSTree", protocol="Simple", channels=16, chunk_bytes=65536)
    chain = NcclKnobs(algorithm="CollnetChain", protocol="Simple")
    spans = [
        (1000, 4096, ll),
        (4096, 16384, ll),
        (16384, 65536, None),
        (65536, 100001, tree),
        (100001, 1 << 20, nvls),
        (1 << 20, None, chain),
    ]
    entries = []
    for low, high, knobs in spans:
        made = []
        if knobs is not None:
            made = [Candidate(name=knobs.name, on="nccl-tests", nccl=knobs)]
        entries.append(
            Entry(
                collective="allreduce",
                min_bytes=low,
                max_bytes=high,
                reduction_class="plain",
                candidates=(*made, default_candidate("nccl-tests")),
            )
        )
    empty: LookupTable = hand.table_of(hand.mesh(hosts=2, ranks=8))
    return msgspec.structs.replace(empty, dialect="nccl", entries=tuple(entries))


@pytest.fixture
def table(hand: SimpleNamespace, tmp_path: Path) -> Path:
    save_table(nccl_table(hand), tmp_path / "t", hand.mesh(2, 8), ())
    return tmp_path / "t"


def rows(path: Path) -> list[list[str]]:
    """Split as both readers do: commas within brackets do not separate."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return [re.split(r",(?![^\[(]*[\])])", line) for line in lines]


def fields(row: list[str], channels: str) -> tuple[str, str, int]:
    return NAMES[row[0]], PROTOCOLS[row[1]], max(int(channels), 0)


def nvidia(path: Path, nbytes: int) -> tuple[str, str, int] | None:
    """The first line that fits, as NVIDIA's example takes it."""
    for name, low, high, *knobs, channels, nodes, ranks, operations, registered in rows(path):
        assert (nodes, ranks, operations, registered) == ("2", "8", "1", "0")
        assert channels != "-1", "leaves one channel"
        if name == "allreduce" and int(low) <= nbytes <= int(high):
            return fields(knobs, channels)
    return None


def ncclx(path: Path, nbytes: int) -> tuple[tuple[str, str, int], int] | None:
    """The first line that fits, as NCCLX's built-in tuner takes it: 8 columns."""
    for name, span, *knobs, channels, nodes, local, chunk in rows(path):
        assert (len(knobs), nodes, local) == (2, "2", "4")
        low, high = span[1:-1].split(",")
        assert span[0] == "[" and span[-1] == ")"
        share = nbytes // 8
        if name == "allreduce" and int(low) <= share and (not high or share < int(high)):
            return fields(knobs, channels), int(chunk)
    return None


def test_nvidias_example_finds_the_tables_choice(table: Path, tmp_path: Path) -> None:
    exported = export(table, "nccl", tmp_path / "out")
    assert [f.name for f in exported.files] == ["nccl_tuner.csv"]
    loaded, pick = load_table(table).lookup, random.Random(1)
    edges = [e + d for entry in loaded.entries for e in (entry.min_bytes,) for d in (-1, 0, 1)]
    for nbytes in [*edges, 1 << 40, *(int(2 ** pick.uniform(0, 30)) for _ in range(500))]:
        wanted = select(loaded, "allreduce", nbytes, element_bytes=1).candidate.nccl
        found = nvidia(exported.files[0], nbytes)
        said = None if wanted is None else (wanted.algorithm, wanted.protocol, wanted.channels)
        assert found == said
    assert any("one channel" in note for note in exported.notes)
    assert any("chunk of 64K" in note for note in exported.notes)


def test_ncclx_finds_the_tables_choice(table: Path, tmp_path: Path) -> None:
    exported = export(table, "ncclx", tmp_path / "out")
    loaded, pick = load_table(table).lookup, random.Random(2)
    for _ in range(500):
        nbytes = int(2 ** pick.uniform(4, 30)) // 8 * 8
        wanted = select(loaded, "allreduce", nbytes, element_bytes=1).candidate.nccl
        found = ncclx(exported.files[0], nbytes)
        if wanted is None:
            assert found is None
        else:
            knobs = (wanted.algorithm, wanted.protocol, wanted.channels)
            assert found == (knobs, wanted.chunk_bytes)
    assert any("multiples of 8" in note for note in exported.notes)
    assert any("8 columns" in note for note in exported.notes)


def test_neighbours_of_one_choice_are_one_line(hand: SimpleNamespace) -> None:
    lines = csv_lines(nccl_table(hand))
    assert [(line.min_bytes, line.max_bytes) for line in lines][:2] == [
        (1000, 16384),
        (65536, 100001),
    ]


def test_programs_and_choices_go_their_own_ways(table: Path, stored: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nccl, ncclx"):
        export(table, "executor", tmp_path / "out")
    with pytest.raises(InputError, match="executor, rccl, fork"):
        export(stored, "ncclx", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_export_replaces_an_export(table: Path, tmp_path: Path) -> None:
    export(table, "nccl", tmp_path / "out")
    export(table, "ncclx", tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["ncclx_tuner.csv"]
