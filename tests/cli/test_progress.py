"""Progress where standard error is no terminal: never silent, never too hopeful."""

import importlib.util
import time

import pytest

from tuccl.cli import progress as progress_module
from tuccl.cli.progress import Progress
from tuccl.cli.verbs import tune


def test_long_work_speaks_early_and_goes_on_speaking(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_module, "_FIRST_LINE_S", 0.02)
    monkeypatch.setattr(progress_module, "_SECONDS_BETWEEN_LINES", 0.04)
    progress = Progress()
    progress.update(1, 9, "greedy on rails")
    with progress:
        deadline = time.monotonic() + 20
        lines: list[str] = []
        while len(lines) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
            lines += capsys.readouterr().err.splitlines()
    assert len(lines) >= 3 and all(line.startswith("1/9 greedy on rails") for line in lines)


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.update(1, 9, "ring")
    assert capsys.readouterr().err == ""


def test_what_takes_long_now_leaves_at_least_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    progress = Progress()
    progress.update(0, 100, "a")
    clock[0] = 98.0
    progress.update(98, 100, "b")
    assert progress._line().endswith("1/s, 2 s left")
    clock[0] = 148.0
    assert progress._line().endswith("50 s left")


def test_the_next_table_of_a_job_has_a_rate_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    progress = Progress()
    progress.update(90, 100, "dp")  # of a study that goes on
    clock[0] = 10.0
    progress.update(0, 100, "tp")
    clock[0] = 20.0
    progress.update(20, 100, "tp")
    assert progress._line() == "20/100 tp, 2/s, 40 s left"


def test_after_an_interrupt_the_last_state_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), Progress() as progress:
        progress.update(3, 9, "allreduce 1M 12.5 us")
        raise KeyboardInterrupt
    assert "3/9 allreduce 1M 12.5 us" in capsys.readouterr().err


def test_a_tune_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not list(tune.few_evaluations(16)) and "--budget 15" in next(tune.few_evaluations(15))
    assert not list(tune.few_evaluations(31, ("ring",)))
    assert "32 give each method" in next(tune.few_evaluations(31, ("ring", "taccl")))
    assert not list(tune.few_evaluations(32, ("taccl",)))
    assert not list(tune.without_solver())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'ortools" in next(tune.without_solver())
