"""Worker processes: the table of one process, whatever becomes of them."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.tuning.conftest import Stand, evaluations, processes_of, wait_for
from tests.tuning.faulty import Faulty
from tuccl.errors import InputError, Unavailable
from tuccl.runtime import load_table
from tuccl.topology import Topology, save_topology
from tuccl.tuning import TuneOptions, tune
from tuccl.tuning.studies.task_queue import Task, TaskQueue

REPOSITORY = Path(__file__).parents[2]
BUDGET = 8


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers import these tests' executors."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


def tuned(out: Path, executor: Stand, topology: Topology, **other: object) -> Counter[str]:
    """The evaluations that a tune has stored at its end, each with its count."""
    options: Any = {"budget": BUDGET, **other}
    tune(topology, ["allgather"], [1 << 14], lambda _: executor, TuneOptions(**options), path=out)
    return Counter(evaluations(out))


@pytest.mark.parametrize("fault", ["crashes", pytest.param("hangs", marks=pytest.mark.slow)])
def test_workers_and_one_that_dies_give_the_table_of_one_process(
    fault: str, topology: Topology, tmp_path: Path
) -> None:
    uninterrupted, out = tmp_path / "uninterrupted", tmp_path / "table"
    evaluated = tuned(uninterrupted, Stand(topology), topology)
    executor = Faulty(topology, fault, tmp_path / "attempts", most=1)
    assert tuned(out, executor, topology, workers=2, evaluation_limit=1.0) == evaluated
    assert load_table(out).lookup == load_table(uninterrupted).lookup
    assert executor.attempts.stat().st_size == 1
    assert set(evaluated.values()) == {1}


@pytest.mark.parametrize(
    "fault", ["crashes", pytest.param("hangs", marks=pytest.mark.slow), "misleads"]
)
def test_a_faulty_candidate_costs_itself_only_and_is_remembered(
    fault: str, topology: Topology, tmp_path: Path
) -> None:
    without, out = tmp_path / "without", tmp_path / "table"
    evaluated = tuned(without, Faulty(topology, "misleads", tmp_path / "ignored"), topology)
    executor = Faulty(topology, fault, tmp_path / "attempts")
    limited: Any = {"workers": 2, "evaluation_limit": 1.0}
    assert tuned(out, executor, topology, **limited) == evaluated
    assert load_table(out).lookup == load_table(without).lookup
    refused = [e for e in evaluated if not json.loads(e)["samples_us"]]
    each = 1 if fault == "misleads" else 2
    assert executor.attempts.stat().st_size == each * len(refused) > 0
    assert tuned(out, executor, topology, resume=True, **limited) == evaluated
    assert executor.attempts.stat().st_size == each * len(refused)


def verb(machine: Path, out: Path, workers: int) -> list[str | Path]:
    program = Path(sys.executable).with_name("tuccl")
    what = ["-c", "allgather", "-s", "16K:1M:x64", "--budget", str(BUDGET)]
    return [program, "tune", machine, *what, "--workers", str(workers), "-o", out]


@pytest.fixture(scope="module")
def uninterrupted(topology: Topology, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table of one process, beside its machine."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    save_topology(topology, folder / "machine.json")
    call = verb(folder / "machine.json", folder / "table", 1)
    subprocess.run(call, check=True, capture_output=True)
    return folder / "table"


@pytest.mark.parametrize(
    "end", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_an_interrupt_or_a_kill_leaves_a_study_to_go_on_with_and_no_process(
    end: signal.Signals, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "table"
    call = verb(uninterrupted.with_name("machine.json"), out, 2)
    child = subprocess.Popen(call, start_new_session=True, stderr=subprocess.PIPE)
    wait_for(lambda: evaluations(out))
    stored = evaluations(out)
    if end == signal.SIGINT:
        os.killpg(child.pid, end)  # as a terminal does
    else:
        child.send_signal(end)
    _, said = child.communicate(timeout=30)
    assert child.returncode == (130 if end == signal.SIGINT else -end)
    assert b"Traceback" not in said
    wait_for(lambda: not processes_of(child.pid), 10.0)
    assert not out.exists()
    subprocess.run([*call, "--resume"], check=True, capture_output=True)
    assert Counter(evaluations(out)) == Counter(evaluations(uninterrupted))
    assert set(stored) <= set(evaluations(out))
    assert load_table(out).lookup == load_table(uninterrupted).lookup


def test_workers_are_for_simulated_times(topology: Topology, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--workers: real runs"):
        tuned(tmp_path / "table", Stand(topology, "mpi"), topology, workers=2)


def test_an_executor_that_no_worker_can_make_is_refused(topology: Topology, tmp_path: Path) -> None:
    executor = Stand(topology)
    executor.sample = lambda: 0.0  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="--workers: this executor cannot be shared"):
        tuned(tmp_path / "table", executor, topology, workers=2)


@pytest.mark.parametrize("other", [{"scheduler": "head"}, {"scheduler": "tcp://a:1", "workers": 2}])
def test_a_scheduler_that_cannot_be_is_refused(
    other: dict[str, object], topology: Topology, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"--dask head: expected|--workers: the scheduler"):
        tuned(tmp_path / "table", Stand(topology), topology, **other)
    assert not list(tmp_path.iterdir())


def test_a_scheduler_that_is_not_there_is_reported(topology: Topology, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(Unavailable, match=r"--dask tcp://127.0.0.1:9"):
        tuned(tmp_path / "table", Stand(topology), topology, scheduler="tcp://127.0.0.1:9")


def test_without_dask_the_package_is_named(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(Unavailable, match="pip install distributed"):
        tuned(tmp_path / "table", Stand(topology), topology, scheduler="tcp://127.0.0.1:9")


def test_processes_go_on_with_the_collective_that_they_have_programs_of() -> None:
    storage = optuna.storages.InMemoryStorage()
    tasks = [Task(name, 1 << k, 9) for name in ("allreduce", "allgather") for k in (10, 11, 12)]
    first, second = (TaskQueue(storage, "tasks", tasks) for _ in range(2))
    claims = [queue.claim() for queue in (first, second, second, first, second, first)]
    assert [claim and claim.task for claim in claims] == [tasks[n] for n in (0, 3, 4, 1, 5, 2)]
    assert first.claim() is None
