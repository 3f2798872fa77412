"""The verb train: rows, files and advice from the command line."""

import json
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tuccl.runtime.workload import read_workload

LAYERS = "name,elements,forward_us,backward_us\n" + "".join(
    f"w{n},{500_000 * (n % 3 + 1)},400,800\n" for n in range(8)
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "layers.csv"
    path.write_text(LAYERS)
    return path


def test_rows_are_kept_and_an_interrupted_run_goes_on(
    tuccl: Tuccl, work: Path, model: Path, tmp_path: Path
) -> None:
    rows, svg, trace = (tmp_path / name for name in ("rows.json", "step.svg", "trace.json"))
    train = ["train", work / "topology.json", "--model", model, "--methods"]
    pictures = ("--picture", svg, "--trace", trace, "--json")
    first = tuccl(*train, "bsp,wfbp", "-o", rows, "--resume", *pictures)
    assert first.code == 0 and "rows.json is not there; this begins anew" in first.err
    assert [row["method"] for row in json.loads(first.out)["rows"]] == ["bsp", "wfbp"]
    assert "simulated" in svg.read_text() and json.loads(trace.read_text())["traceEvents"]
    again = tuccl(*train, "bsp,wfbp,ddp", "-o", rows)
    assert again.code == 2 and "--resume" in again.err
    more = tuccl(*train, "bsp,wfbp,ddp", "-o", rows, "--resume")
    assert more.code == 0 and more.out.count("sim ") == 3 and "anew" not in more.err
    other = tuccl(*train, "ddp", "-o", rows, "--resume", "--batch", 7)
    assert other.code == 2 and "another run" in other.err
    tabled = tuccl(*train, "ddp", "-o", rows, "--resume", "--table", work / "table")
    assert tabled.code == 2 and "it has '--table none', now '--table " in tabled.err


def test_a_table_stands_beside_the_default(tuccl: Tuccl, work: Path, model: Path) -> None:
    train = ["train", work / "topology.json", "--model", model, "--table", work / "table"]
    answer = tuccl(*train, "--methods", "dear", "--json")
    assert answer.code == 0, answer.err
    default, table = json.loads(answer.out)["rows"]
    assert default["by_program"] == 0 and default["backend"] == "default"
    assert table["by_program"] + table["by_default"] == default["by_default"]


def test_advice_names_a_method_and_tunes_exactly_its_calls(
    tuccl: Tuccl, work: Path, model: Path, tmp_path: Path
) -> None:
    calls, out = tmp_path / "calls.json", tmp_path / "table"
    train = ["train", work / "topology.json", "--model", model, "--advise"]
    answer = tuccl(*train, "-o", calls)
    assert answer.code == 0, answer.err
    assert "method: " in answer.out and f"--workload {calls}" in answer.out
    kinds = {(call.collective, call.nbytes) for call in read_workload(calls, 8).calls}
    tuned = tuccl(*train, "--tune", out, "--budget", 6, "--json")
    assert tuned.code == 0, tuned.err
    result = json.loads(tuned.out)
    advice = result["advice"]
    assert {(c["collective"], c["nbytes"]) for c in advice["tune_for"]} == kinds
    assert advice["gain"] >= 1 and advice["row"]["label"][2] == "A2A"
    assert result["tuned"]["row"]["step_us"] <= advice["row"]["step_us"] * 1.0001


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kind", "real"], "expected sim, replay, train"),
        (["--methods", "best"], "expected one of bsp"),
        (["--tune", "x"], "--advise"),
        (["--resume"], "-o FILE"),
        (["--time-limit", "0"], "more than 0"),
        (["--servers", "-1"], "at least 1"),
        (["--batch", "0"], "at least 1 sample"),
        (["--picture", "no/such/x.svg"], "no such folder"),
    ],
)
def test_wrong_options_are_refused(
    tuccl: Tuccl, work: Path, model: Path, options: list[str], message: str
) -> None:
    answer = tuccl("train", work / "topology.json", "--model", model, *options)
    assert answer.code == 2 and message in answer.err and answer.err.count("\n") == 1


def test_sparse_steps_are_priced_by_the_default_and_the_table(
    tuccl: Tuccl, work: Path, model: Path
) -> None:
    train = ["train", work / "topology.json", "--model", model, "--table", work / "table"]
    answer = tuccl(*train, "--ratios", "0.1,0.001", "--json")
    assert answer.code == 0, answer.err
    steps = json.loads(answer.out)["steps"]
    assert [each["by"] for each in steps] == ["default", "default", "table", "table"]
    for each in steps:
        step = each["step"]
        took = {name: step[f"{name}_us"] for name in ("allgather", "allreduce")}
        assert took[step["exchange"]] == min(took.values())
        assert step["regret"] == took[step["by_formula"]] / took[step["exchange"]] - 1
    assert "simulated" in steps[0]["step"]["source"]
    shown = tuccl(*train, "--ratios", "0.1")
    assert shown.code == 0 and shown.out.count("sim ") == 2
    for wrong in ("7", "x", "0"):
        refused = tuccl(*train, "--ratios", wrong)
        assert refused.code == 2 and "ratio" in refused.err
    assert tuccl(*train, "--ratios", "0.1", "--advise").code == 2
