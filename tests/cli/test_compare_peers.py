"""``compare --peers``: a table's choice, the defaults and another library in one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tuccl.errors import Unavailable
from tuccl.runtime import find_mpi
from tuccl.topology import keep_gpus, load_profile, save_topology


@pytest.fixture
def table(tuccl: Tuccl, tmp_path: Path) -> Path:
    topology, folder = tmp_path / "t.json", tmp_path / "table"
    save_topology(keep_gpus(load_profile("ndv2"), range(3)), topology)
    search = ["--budget", "4", "--on", "sim", "-o", folder]
    assert tuccl("tune", topology, "-c", "allgather,reduce", "-s", "4K:32K:x8", *search).code == 0
    return folder


def test_peers_stand_beside_what_the_table_picks(tuccl: Tuccl, table: Path, tmp_path: Path) -> None:
    try:
        find_mpi("openmpi")
    except Unavailable as missing:
        pytest.skip(f"{missing}; `make mpi` does it")
    page = tmp_path / "report.html"
    asked = ["--on", "mpi", "--mpi", "openmpi", "--peers", "openmpi", "--report", page]
    answer = tuccl("compare", table, *asked, "--json")
    assert answer.code in (0, 1), answer.err
    comparison = json.loads(answer.out)
    assert answer.code == (1 if comparison["regressions"] else 0)
    rows = comparison["peer_rows"]
    assert list(comparison["peers"]) == ["openmpi"]
    sizes = [row["size"] for row in comparison["tuned"] if row["collective"] == "allgather"]
    assert len(sizes) == 2
    for peer in ("openmpi", "msccl-default", "msccl-default-robust"):
        assert [row["size"] for row in rows if row["peer"] == peer] == sizes
    assert all(row["speedup"] == row["peer_us"] / row["time_us"] for row in rows)
    assert {(row["collective"], row["root"]) for row in rows} == {("allgather", -1)}
    assert "reduce: no peer is asked for it" in comparison["notes"]
    text = page.read_text()
    assert "Compared with other libraries" in text and "openmpi" in text


def test_peers_need_real_ranks_and_known_names(tuccl: Tuccl, table: Path) -> None:
    answer = tuccl("compare", table, "--peers", "gloo")
    assert answer.code == 2 and "--on mpi" in answer.err
    answer = tuccl("compare", table, "--on", "mpi", "--peers", "nccl")
    assert answer.code == 2 and "gloo,openmpi,mpich" in answer.err
