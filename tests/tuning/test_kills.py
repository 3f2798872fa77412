"""A tune that is killed at random moments loses no finished evaluation, and can always go on.

So can one whose workers are killed.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.tuning.conftest import evaluations, processes_of, wait_for
from tuccl.runtime import load_table
from tuccl.topology import Topology, save_topology
from tuccl.tuning import study_folder

KILLS = int(os.environ.get("TUCCL_TEST_KILLS", "40"))
LONGEST_S = 3.0  # from the start of a session to its kill


def session(topology: Path, out: Path, workers: int = 1) -> subprocess.Popen[bytes]:
    """Start a tune of two collectives at two sizes, which goes on where the last was killed."""
    program = Path(sys.executable).with_name("tuccl")
    what = ["-c", "allgather,reduce", "-s", "16K:1M:x64", "--budget", "30"]
    what += ["--workers", str(workers), "--resume"]
    return subprocess.Popen(
        [program, "tune", topology, *what, "-o", out],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def is_over(session: int) -> bool:
    """Whether no process of a session is left."""
    return not processes_of(session)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_tune_killed_at_any_moment_goes_on(topology: Topology, tmp_path: Path) -> None:
    save_topology(topology, machine := tmp_path / "machine.json")
    uninterrupted, out, rng = tmp_path / "uninterrupted", tmp_path / "table", random.Random()
    assert session(machine, uninterrupted).wait(60) == 0
    assert evaluations(uninterrupted)
    kills = 0
    stored: list[str] = []
    while kills < KILLS:
        child = session(machine, out)
        time.sleep(rng.uniform(0.0, LONGEST_S))
        child.send_signal(rng.choice([signal.SIGTERM, signal.SIGKILL]))
        code = child.wait(60)
        kills += code != 0
        now = evaluations(out)
        assert now[: len(stored)] == stored, f"kill {kills} lost an evaluation"
        stored = now
        if code == 0:  # it came to its end: the next study starts from nothing
            assert load_table(out).lookup == load_table(uninterrupted).lookup
            shutil.rmtree(out)
            shutil.rmtree(study_folder(out))
            stored = []
    assert session(machine, out).wait(60) == 0
    assert evaluations(out) == evaluations(uninterrupted)
    assert load_table(out).lookup == load_table(uninterrupted).lookup


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_tune_whose_workers_are_killed_at_any_moment_goes_on(
    topology: Topology, tmp_path: Path
) -> None:
    save_topology(topology, machine := tmp_path / "machine.json")
    uninterrupted, out, rng = tmp_path / "uninterrupted", tmp_path / "table", random.Random()
    assert session(machine, uninterrupted).wait(60) == 0
    expected = Counter(evaluations(uninterrupted))
    assert set(expected.values()) == {1}
    kills = 0
    while kills < KILLS:
        child = session(machine, out, workers=2)
        while child.poll() is None:  # a worker or itself
            time.sleep(rng.uniform(0.0, LONGEST_S))
            stored = Counter(evaluations(out))
            with suppress(ProcessLookupError):
                workers = processes_of(child.pid, child.pid)
                os.kill(rng.choice([child.pid, *workers]), signal.SIGKILL)
                kills += 1
            assert stored <= Counter(evaluations(out)) <= expected
        wait_for(partial(is_over, child.pid), 10.0)
        if child.returncode == 0:  # it came to its end: the next study starts from nothing
            assert Counter(evaluations(out)) == expected
            assert load_table(out).lookup == load_table(uninterrupted).lookup
            shutil.rmtree(out)
            shutil.rmtree(study_folder(out))
        else:
            assert child.returncode == -signal.SIGKILL
    assert session(machine, out, workers=2).wait(120) == 0
    assert Counter(evaluations(out)) == expected
    assert load_table(out).lookup == load_table(uninterrupted).lookup
