"""A job tuned as a whole, from the command line to its table."""

import json
import time
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tuccl.errors import InputError
from tuccl.runtime import load_table, select
from tuccl.runtime.workload import read_workload

CALLS = "collective,bytes,count\nallreduce,1M,40\nallreduce,4,7\nallgather,256K,2\nsend,1M,3\n"


def test_a_job_is_tuned_and_its_gain_printed(tuccl: Tuccl, work: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.csv"
    job.write_text(CALLS)
    out = tmp_path / "table"
    tune = ["tune", work / "topology.json", "--workload", job, "--budget", 18, "-o", out]
    answer = tuccl(*tune)
    assert answer.code == 0, answer.err
    assert "3 send" in answer.err
    assert "the job: 49 calls" in answer.out
    table = load_table(out).lookup
    assert {e.collective for e in table.entries} == {"allreduce", "allgather"}
    assert not select(table, "allreduce", 1 << 20).candidate.is_default
    within = tuccl(*tune[:-1], tmp_path / "other", "-c", "allreduce", "--warm-start", out, "--json")
    result = json.loads(within.out)
    gain = result["workload"]
    assert [(row["collective"], row["size"]) for row in result["tuned"]] == [("allreduce", 1 << 20)]
    assert gain["calls"] == 47 and gain["gain"] > 1.0
    assert gain["gain"] == gain["default_us"] / gain["tuned_us"]
    assert 0.0 < gain["indivisible"] < 0.2
    assert {each["reason"] for each in gain["left_out"]} == {"send", "not requested"}


@pytest.mark.parametrize("words", ["[", "a", "0", ":1", "NCCL INFO ", "a_perf "])
def test_a_hostile_record_is_refused_in_linear_time(words: str, tmp_path: Path) -> None:
    """At quadratic time 1 MB would take a quarter of an hour."""
    record = tmp_path / "record"
    record.write_text(words * (1_000_000 // len(words)))
    start = time.process_time()
    with pytest.raises(InputError):
        read_workload(record, 8)
    assert time.process_time() - start < 10
