"""What starts a timing, in repeats: measured once for a run, and kept for its resumption."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.tuning.conftest import tiny_space
from tuccl.tuning import TuneOptions, tuner
from tuccl.tuning.studies.study import Studies
from tuccl.tuning.tuner import Tuner


class Clock:
    """A clock that only timings advance: by what starts one and by each of its repeats."""

    def __init__(self, start_s: float, each_s: float) -> None:
        self.now = 100.0
        self._start_s, self._each_s = start_s, each_s

    def monotonic(self) -> float:
        return self.now

    def on(self, executor: object, nbytes: int, *, root: int, repeats: int) -> None:
        self.now += self._start_s + repeats * self._each_s


@pytest.mark.parametrize(
    ("full", "start_s", "each_s", "fixed"),
    [(27, 3.0, 1.0, 3), (27, 0.0, 0.5, 0), (9, 60.0, 1.0, 9), (9, 1.0, 0.0, 9), (1, 5.0, 1.0, 0)],
)
def test_the_repeats_that_take_as_long_as_the_start(
    monkeypatch: pytest.MonkeyPatch, full: int, start_s: float, each_s: float, fixed: int
) -> None:
    clock = cast(Any, Clock(start_s, each_s))
    monkeypatch.setattr(tuner, "time", clock)
    executor = cast(Any, SimpleNamespace(full_effort=full))
    programs = cast(Any, SimpleNamespace(collective=SimpleNamespace(root=0)))
    tuned = Tuner(executor, cast(Any, None), programs, cast(Any, None), TuneOptions())
    assert tuned._fixed(1 << 20, clock) == fixed


def test_a_run_that_goes_on_remembers_what_it_measured(tmp_path: Path) -> None:
    def asked(run: str, measured: int, *, resume: bool) -> int:
        studies = Studies(tmp_path / "table", resume=resume)
        study = studies.study(tiny_space(), run, "machine", "allgather", 4096)
        answer = study.remember("fixed", lambda: measured)
        studies.close()
        return answer

    assert asked("descent-0", 5, resume=False) == 5
    assert asked("descent-0", 7, resume=True) == 5
    assert asked("descent-1", 7, resume=True) == 7
