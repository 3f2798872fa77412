"""The calls of a step on a layout, from the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Tuccl

# Two layers of 12 x 1024 squared parameters, tied: a step of a few small calls.
MODEL: dict[str, Any] = {
    "name": "small",
    "parameters": 2 * 12 * 1024**2 + 32000 * 1024,
    "layers": 2,
    "hidden": 1024,
    "ffn": 4096,
    "vocabulary": 32000,
    "attention": [[1024, 1024]] * 4,
    "key_value": 1024,
    "sequence": 1024,
    "gated": False,
    "tied": True,
}


@pytest.fixture
def machine(tuccl: Tuccl, tmp_path: Path) -> Path:
    path = tmp_path / "t.json"
    tuccl("probe", "--profile", "v100x4", "--nodes", "2", "-o", path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(MODEL))
    return path


def test_a_step_is_the_sum_of_its_calls_and_names_what_to_tune(
    tuccl: Tuccl, machine: Path, model: Path, tmp_path: Path
) -> None:
    step = ["train", machine, "--layout", "tp=4", "--model", model, "--global-batch", 8]
    answer = tuccl(*step, "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    rows = {(row["kind"], row["collective"]): row for row in found["simulated"]}
    assert {call: (row["size"], row["calls"]) for call, row in rows.items()} == {
        ("tp", "allgather"): (2 << 20, 6 * 2 * 4),
        ("tp", "reduce-scatter"): (2 << 20, 4 * 2 * 4),
        ("tp", "allreduce"): (2 << 20, 2 * 4),
        ("dp", "reduce-scatter"): (MODEL["parameters"], 1),  # four bytes of a quarter
        ("dp", "allgather"): (MODEL["parameters"] // 2, 1),
    }
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)
    size = str(MODEL["parameters"])
    alone = tuccl(
        *("groups", machine, "--layout", "tp=4", "-c", "dp:reduce-scatter", "-s", size, "--json")
    )
    [same] = json.loads(alone.out)["simulated"]
    row = rows["dp", "reduce-scatter"]
    assert row["us"] == pytest.approx(same["together_us"], rel=1e-9)
    assert row["step_ms"] == pytest.approx(row["us"] / 1e3)

    words = shlex.split(found["tune"])
    assert words[:2] == ["tuccl", "tune"]
    most = max(rows.values(), key=lambda row: row["step_ms"])
    assert f"{most['kind']}:{most['collective']}" in words[words.index("-c") + 1].split(",")
    job = tmp_path / "job"
    words[words.index("-o") + 1] = str(job)
    tuned = tuccl(*words[1:], "--budget", 4)
    assert tuned.code == 0, tuned.err
    again = tuccl(*step, "--table", job, "--json")
    assert again.code == 0, again.err
    for row in json.loads(again.out)["simulated"]:
        assert row["us"] == pytest.approx(rows[row["kind"], row["collective"]]["us"])
        if row["table_us"] is not None:
            assert row["table_us"] <= row["us"] * 1.0001
    assert {r["kind"] for r in json.loads(again.out)["simulated"] if r["table_us"]} == {"dp"}
    other = tuccl(*step[:3], "tp=2", *step[4:], "--table", job)
    assert other.code == 2 and "other groups" in other.err


def test_the_page_says_that_times_are_simulated_and_what_is_left_out(
    tuccl: Tuccl, machine: Path, model: Path
) -> None:
    answer = tuccl("train", machine, "--layout", "tp=2,pp=2", "--model", model)
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert "simulated" in lines[1] and "one after the other" in lines[1]
    [send] = [line.split() for line in lines if " send " in line]
    assert send == ["pp", "send", "1M", "2", "-", "-", "-", "-"]
    assert any(line.startswith("total ") for line in lines)
    assert "not counted: overlap" in answer.out
    assert lines[-1].startswith("tune what takes most") and "tuccl tune" in lines[-1]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--layout", "tp=3"], "do not divide by 3"),
        (["--layout", "tp=4", "--global-batch", "3"], "multiple of 2"),
        (["--layout", "tp=4", "--methods", "bsp"], "leave out --methods"),
        (["--layout", "tp=4", "--kind", "replay"], "leave out --kind"),
        (["--layout", "tp=4", "--table", "none"], "job.json"),
        (["--layout", "tp=4", "--model", "gpt5"], "expected LLaMA-3-8B"),
        (["--sequence", "4096"], "expected --layout"),
        (["--no-sequence-parallel"], "expected --layout"),
    ],
)
def test_a_step_that_cannot_be_is_refused(
    tuccl: Tuccl, machine: Path, model: Path, options: list[str], reason: str
) -> None:
    answer = tuccl("train", machine, "--model", model, *options)
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert reason in answer.err


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"name": 1}', b"\xff\xfe", json.dumps({**MODEL, "ffn": 8}).encode()]
)
def test_a_file_that_is_no_model_is_refused(
    tuccl: Tuccl, machine: Path, model: Path, content: bytes
) -> None:
    model.write_bytes(content)
    answer = tuccl("train", machine, "--layout", "tp=4", "--model", model)
    assert answer.code == 2 and answer.err.count("\n") == 1
