"""A job's tables on ranks under PyTorch: equal to Gloo's values, measured beside other kinds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tuccl.errors import TucclError
from tuccl.eval.measure_groups import GLOO, MeasuredCall, calls_of_job, measure_groups
from tuccl.groups.concurrent import KindCall
from tuccl.groups.job import load_job
from tuccl.groups.layout import mesh_groups
from tuccl.topology import keep_gpus, load_profile
from tuccl.tuning import TuneOptions
from tuccl.tuning.job_search import tune_job

pytest.importorskip("torch", reason="no PyTorch: make torch")

MACHINE = keep_gpus(load_profile("v100x4"), range(4))
GROUPS = mesh_groups("dp=2,tp=2", 4)
BESIDE = [("tp", "allgather", "64K")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("measured") / "job"
    calls = [("dp", "allreduce"), ("dp", "alltoall"), ("dp", "reduce-scatter"), ("tp", "allgather")]
    options = TuneOptions(budget=8, methods=("ring", "allpairs", "rings"))
    tune_job(
        *(MACHINE, GROUPS, calls, "256K", options),
        path=place,
        concurrent="all",
        beside=[("dp", "allreduce", "256K"), *BESIDE],
    )
    return place


def test_the_verb_measures_the_calls_of_a_job(folder: Path, tuccl: Tuccl) -> None:
    answer = tuccl("compare", folder, "--emulate", "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert found["label"] == "this machine"
    calls = {(row["call"]["kind"], row["call"]["collective"]) for row in found["measured"]}
    assert calls == {(c.kind, c.collective) for c in calls_of_job(load_job(folder))}
    assert len(calls) == 4
    for row in found["measured"]:
        assert set(row["us"]) == {"tables", GLOO} and len(row["us"][GLOO]) == 5
        assert all(us > 0 for each in row["us"].values() for us in each)
    dp = next(row for row in found["measured"] if row["call"]["kind"] == "dp")
    assert dp["call"]["beside"] == [["tp", "allgather", 65536]] and dp["call"]["repeats"]
    shown = tuccl("compare", folder, "--emulate", "-s", "64K")
    assert "# measured on this machine" in shown.out and "tp:allgather=64K" in shown.out
    refused = tuccl("compare", folder, "--emulate", "--cross", "x")
    assert refused.code == 2 and "measured with --emulate alone" in refused.err


def test_kinds_without_a_table_run_gloo(folder: Path) -> None:
    calls = [MeasuredCall("tp", "allreduce", 1 << 16), MeasuredCall("tp", "allgather", 1 << 18)]
    none, some = measure_groups(GROUPS, {"tables": folder}, calls, None, rounds=1)
    assert none.programs == {"tables": 0.0, GLOO: 0.0}
    chosen = next(e for e in load_job(folder).entries if e.kind == "tp")
    own = load_job(folder).table(chosen).select("allgather", 1 << 18).candidate
    assert some.programs["tables"] == float(own.program is not None)


def test_what_cannot_be_measured_is_reported_by_a_rank(folder: Path) -> None:
    calls = [MeasuredCall("tp", "broadcast", 1 << 16, (KindCall("dp", "allreduce", 64),))]
    with pytest.raises(TucclError, match="broadcast: is not measured here"):
        measure_groups(GROUPS, {"tables": folder}, calls, None, rounds=1)
