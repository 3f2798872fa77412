import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuccl.cli.tune_output import saturated_line
from tuccl.tuning import Saturation

Tuccl = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policy")


@pytest.fixture
def policy(tuccl: Tuccl, folder: Path) -> Path:
    path = folder / "policy.json"
    if not path.exists():
        tuccl("probe", "--profile", "v100x4", "-o", folder / "t.json")
        answer = tuccl(
            *("policy", folder / "t.json", "-c", "allgather", "-s", "256M", "--budget", 8),
            *("-o", path, "--json"),
        )
        assert answer.code == 0
        facts = json.loads(answer.out)
        assert facts["machines"] == ["v100x4"]
        assert facts["calls"] == 1
        assert facts["actions"] >= 1
    return path


def test_a_tune_follows_a_policy_and_shows_where_only_sending_less_helps(
    tuccl: Tuccl, policy: Path, tmp_path: Path
) -> None:
    tuccl("probe", "--profile", "v100x4", "--nodes", 2, "-o", tmp_path / "t.json")
    answer = tuccl(
        *("tune", tmp_path / "t.json", "-c", "allgather", "-s", "256M", "--search", "rl"),
        *("--policy", policy, "--budget", 4, "--intensity", 248, "--batch", 8, "--json"),
        *("-o", tmp_path / "table"),
    )
    assert answer.code == 0
    result = json.loads(answer.out)
    assert result["search"] == "rl"
    [row] = result["tuned"]
    best_us = min(row["default_us"], row["best_us"] or row["default_us"])
    for call in result["lossless_saturated"]:
        assert call["of_the_bound"] >= 0.95
        assert call["best_us"] == best_us > 1.1 * call["predicted_us"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--policy", "missing.json"), "missing.json: cannot be read"),
        (("--intensity", 248), "give both or none"),
        (("--intensity", 248, "--batch", 0), "above 0"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    options: tuple[object, ...], complaint: str, tuccl: Tuccl, policy: Path, tmp_path: Path
) -> None:
    answer = tuccl(
        *("tune", policy.parent / "t.json", "-c", "allgather", "-s", "1M", "--budget", 2),
        *(*options, "-o", tmp_path / "table"),
    )
    assert answer.code == 2
    assert complaint in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "table").exists()


def test_a_saturated_call_is_reported_in_a_line() -> None:
    line = saturated_line(Saturation("allreduce", 256 << 20, 2000.0, 0.97, 500.0, 0.0009))
    assert line.startswith("allreduce 256M: lossless_saturated: 2000.0 us is 97% of the bound")
    assert "4.0 times what C2C 0.0009 predicts" in line
