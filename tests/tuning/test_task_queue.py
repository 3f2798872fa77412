"""The queue of a tune's tasks: who may claim one."""

import time
from pathlib import Path

import optuna
import pytest

from tuccl.tuning.studies import task_queue
from tuccl.tuning.studies.task_queue import Claim, Task, TaskQueue

TASK = Task("allgather", 1 << 20, 10)


def claim_on_another_host(queue: TaskQueue, monkeypatch: pytest.MonkeyPatch) -> Claim:
    with monkeypatch.context() as patch:
        patch.setattr(task_queue, "_host", lambda: "another")
        claim = queue.claim()
    assert claim is not None
    return claim


def test_a_task_of_a_silent_host_is_taken_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = optuna.storages.InMemoryStorage()
    theirs, ours = (TaskQueue(storage, "tasks", [TASK], silence_s=0.2) for _ in range(2))
    silent = claim_on_another_host(theirs, monkeypatch)
    assert ours.claim() is None
    time.sleep(0.3)
    claim = ours.claim()
    assert claim is not None
    assert claim.task == TASK
    theirs.complete(silent, b"late", 1.0)  # which wakes up and is too late
    assert ours.states()[TASK].result is None
    ours.complete(claim, b"result", 1.0)
    assert theirs.states()[TASK].result == b"result"
    assert ours.claim() is None


def test_a_host_that_beats_keeps_its_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(task_queue, "_BEAT_S", 0.1)
    storage = optuna.storages.InMemoryStorage()
    theirs, ours = (TaskQueue(storage, "tasks", [TASK], silence_s=0.5) for _ in range(2))
    with theirs.working(claim_on_another_host(theirs, monkeypatch), tmp_path / "mark"):
        for _ in range(10):
            assert ours.claim() is None
            time.sleep(0.1)


def test_an_exception_gives_the_task_back(tmp_path: Path) -> None:
    queue = TaskQueue(optuna.storages.InMemoryStorage(), "tasks", [TASK])
    claim = queue.claim()
    assert claim is not None
    assert queue.claim() is None
    with pytest.raises(KeyboardInterrupt), queue.working(claim, tmp_path / "mark"):
        raise KeyboardInterrupt
    assert queue.claim() is not None
