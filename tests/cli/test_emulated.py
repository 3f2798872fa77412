"""``tune`` and ``compare`` on an emulated cluster, from topology to verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tuccl.emulation import netns
from tuccl.errors import Unavailable
from tuccl.runtime import find_mpi, load_table
from tuccl.topology import join, keep_gpus, load_profile, save_topology


@pytest.fixture(scope="module", autouse=True)
def ground() -> None:
    try:
        netns.check_privilege()
        find_mpi()
    except Unavailable as missing:
        pytest.skip(str(missing))


def test_a_table_is_tuned_on_emulated_wires_and_says_so(tuccl: Tuccl, tmp_path: Path) -> None:
    topology, table = tmp_path / "t.json", tmp_path / "table"
    save_topology(join(keep_gpus(load_profile("ndv2"), [0, 1]), 2), topology)
    emulated = ["--on", "mpi", "--emulate", "--scale", "0.004"]
    search = ["--budget", "8", "--time-limit", "15", "-o", table, "--json"]
    answer = tuccl("tune", topology, "-c", "allgather", "-s", "256K", *emulated, *search)
    assert answer.code == 0, answer.err
    result = json.loads(answer.out)
    assert result["on"] == "mpi" and result["baseline"] == "msccl-default-robust"
    assert "measured" in result["label"] and "all NICs 400 Mb/s" in result["label"]
    stored = load_table(table).lookup
    assert stored.tuned_on == result["label"] and stored.baseline == result["baseline"]
    assert {c.on for c in stored.candidates} == {"mpi"}
    assert not any(c.knobs and c.knobs.protocol == "LL128" for c in stored.candidates)

    told = tuccl("explain", table).out.splitlines()[0]
    assert told == f"# times {result['label']}"
    answer = tuccl("explain", table, "-c", "allgather", "-s", "256K", "--json")
    assert json.loads(answer.out)["tuned_on"] == result["label"]

    answer = tuccl("compare", table, *emulated, "--check", "--json")
    comparison = json.loads(answer.out)
    assert answer.code == (1 if comparison["regressions"] else 0)
    assert comparison["on"] == "mpi" and comparison["notes"] == []
    assert {row["baseline"] for row in comparison["rows"]} == {
        "msccl-default",
        "msccl-default-robust",
    }
    assert all(row["rounds"] >= 5 for row in comparison["rows"])
    assert all(row["wrong"] == 0 for row in comparison["tuned"])
    assert all(0 < row["fraction_of_bound"] <= 1.1 for row in comparison["rows"])

    simulated = json.loads(tuccl("compare", table, "--json").out)
    assert simulated["on"] == "sim" and "tuned elsewhere" in simulated["notes"][0]
    refused = tuccl("tune", topology, "-c", "reduce", "-s", "256K", "--budget", "1", "-o", table)
    assert refused.code == 2 and "name another folder" in refused.err
