"""Silence is held against a process only if it could have spoken."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tuccl.runtime.executors import doubt
from tuccl.runtime.executors.doubt import Doubt, Turns, turns_of

PID = 7


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what sets the turns that are seen from now on."""

    def see(count: int, wants: bool) -> None:
        monkeypatch.setattr(doubt, "turns_of", lambda pid: Turns(count, wants))

    return see


def settled(doubted: Doubt, now: float = 0.0, looks: int = 5) -> bool:
    return [doubted.is_settled(now) for _ in range(looks)][-1]


def test_who_gets_no_processor_is_waited_for(seen: Callable[..., None]) -> None:
    seen(100, True)
    doubted = Doubt([PID], until=60.0)
    seen(103, True)
    assert not settled(doubted)
    seen(150, True)  # has run, and said nothing
    assert settled(doubted)


def test_no_machine_is_waited_for_without_end(seen: Callable[..., None]) -> None:
    seen(100, True)
    doubted = Doubt([PID], until=60.0)
    assert not settled(doubted, now=59.0) and settled(doubted, now=61.0)


def test_who_wants_no_processor_is_not_waited_for(seen: Callable[..., None]) -> None:
    seen(100, False)
    doubted = Doubt([PID], until=math.inf)
    assert not doubted.is_settled(0.0)  # what has come meanwhile is read first
    assert settled(doubted)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process
    process.kill()
    process.wait()


def test_a_stopped_process_wants_nothing(child: subprocess.Popen[bytes]) -> None:
    running = turns_of(child.pid)
    assert running is not None and running.wants
    os.kill(child.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    stopped = turns_of(child.pid)
    assert stopped is not None and not stopped.wants
    assert settled(Doubt([child.pid], until=math.inf))


def test_who_has_ended_is_not_waited_for(child: subprocess.Popen[bytes]) -> None:
    doubted = Doubt([child.pid], until=math.inf)
    child.kill()
    child.wait()
    assert turns_of(child.pid) is None and settled(doubted)
