"""A tune that is killed at random moments loses no finished evaluation, and can always go on."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tuning.conftest import evaluations
from tuccl.runtime import open_table
from tuccl.topology import Topology, save_topology
from tuccl.tuning import study_folder

KILLS = int(os.environ.get("TUCCL_TEST_KILLS", "40"))
LONGEST_S = 3.0  # from the start of a session to its kill


def session(topology: Path, out: Path) -> subprocess.Popen[bytes]:
    """Start a tune of two collectives at two sizes, which goes on where the last was killed."""
    what = ["-c", "allgather,reduce", "-s", "16K:1M:x64", "--budget", "30"]
    return subprocess.Popen(
        [Path(sys.executable).with_name("tuccl"), "tune", topology, *what, "--resume", "-o", out],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


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
            assert open_table(out).table == open_table(uninterrupted).table
            shutil.rmtree(out)
            shutil.rmtree(study_folder(out))
            stored = []
    assert session(machine, out).wait(60) == 0
    assert evaluations(out) == evaluations(uninterrupted)
    assert open_table(out).table == open_table(uninterrupted).table
