"""A tune for a job: which tasks, how much effort, and what it gains."""

import json
from pathlib import Path

import pytest

from tests.tuning.conftest import Stand
from tuccl.runtime import load_table
from tuccl.runtime.workload import Call, Workload
from tuccl.topology import Topology
from tuccl.tuning import TuneOptions, TuneResult, tune_workload

# A large call that takes nearly all of the time, and small ones; the last no program divides.
JOB = Workload(
    "job",
    (Call("allgather", 3 << 20, 50), Call("allreduce", 1 << 14, 2), Call("allreduce", 1001, 1)),
)


def tuned(out: Path, executor: Stand, topology: Topology, **options: object) -> TuneResult:
    return tune_workload(topology, JOB, lambda _: executor, TuneOptions(**options), path=out).result  # type: ignore[arg-type]


def test_the_gain_is_that_of_all_calls(topology: Topology, tmp_path: Path) -> None:
    executor = Stand(topology)
    result = tuned(tmp_path / "table", executor, topology, budget=24)
    rows = {(row.collective, row.size): row for row in result.tuned}
    assert set(rows) == {("allgather", 3 << 20), ("allreduce", 1 << 14)}
    large, small = rows["allgather", 3 << 20], rows["allreduce", 1 << 14]
    assert large.evaluations > small.evaluations
    gain = result.workload
    assert gain is not None and gain.calls == 53
    indivisible_us = gain.indivisible * gain.default_us
    by_default = 50 * large.default_us + 2 * small.default_us + indivisible_us
    by_table = sum(n * (row.best_us or row.default_us) for n, row in ((50, large), (2, small)))
    assert gain.default_us == pytest.approx(by_default)
    assert gain.tuned_us == pytest.approx(by_table + indivisible_us)
    assert gain.gain == pytest.approx(by_default / (by_table + indivisible_us))
    assert gain.gain > 1.0


def test_a_resumed_tune_for_a_job_ends_in_the_same_table(
    topology: Topology, tmp_path: Path
) -> None:
    whole = tuned(tmp_path / "whole", Stand(topology), topology, budget=18)
    broken = Stand(topology)
    broken.break_after = 15
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "table", broken, topology, budget=18)
    resumed = tuned(tmp_path / "table", Stand(topology), topology, budget=18, resume=True)
    assert resumed.workload == whole.workload
    tables = [json.loads((tmp_path / n / "table.json").read_text()) for n in ("whole", "table")]
    assert tables[0] == tables[1]


def test_under_noise_the_gain_is_measured(topology: Topology, tmp_path: Path) -> None:
    executor = Stand(topology, "mpi", noise=0.02)
    result = tuned(tmp_path / "table", executor, topology, budget=18)
    assert {e.collective for e in load_table(tmp_path / "table").lookup.entries} == {
        "allgather",
        "allreduce",
    }
    gain = result.workload
    assert gain is not None and gain.gain > 0.9
    [large, *_] = sorted(result.tuned, key=lambda row: -row.size)
    assert gain.default_us == pytest.approx(50 * large.default_us, rel=0.2)
