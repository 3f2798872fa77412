"""A tune that is killed at random moments loses no finished evaluation, and can always go on."""

import multiprocessing
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.tuning.conftest import evaluations
from tuccl.runtime import SimExecutor, open_table
from tuccl.topology import Topology
from tuccl.tuning import TuneOptions, study_folder, tune

KILLS = int(os.environ.get("TUCCL_TEST_KILLS", "40"))
LONGEST_S = 3.0  # from the start of a session to its kill


def session(topology: Topology, out: Path) -> None:
    """Tune two collectives at two sizes, going on where the session before was killed."""
    executor = SimExecutor(topology)
    sizes = [1 << 14, 1 << 20]
    tune(
        executor, topology, ["allgather", "reduce"], sizes, out, TuneOptions(budget=30, resume=True)
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_tune_killed_at_any_moment_goes_on(topology: Topology, tmp_path: Path) -> None:
    session(topology, tmp_path / "uninterrupted")
    assert evaluations(tmp_path / "uninterrupted")
    out, rng = tmp_path / "table", random.Random()
    kills = 0
    stored: list[str] = []
    while kills < KILLS:
        child = multiprocessing.get_context("fork").Process(target=session, args=(topology, out))
        child.start()
        time.sleep(rng.uniform(0.0, LONGEST_S))
        os.kill(child.pid or 0, rng.choice([signal.SIGTERM, signal.SIGKILL]))
        child.join(60)
        assert child.exitcode is not None and child.exitcode <= 0
        kills += child.exitcode < 0
        now = evaluations(out)
        assert now[: len(stored)] == stored, f"kill {kills} lost an evaluation"
        stored = now
        if child.exitcode == 0:  # it came to its end: the next study starts from nothing
            assert open_table(out).table == open_table(tmp_path / "uninterrupted").table
            shutil.rmtree(out)
            shutil.rmtree(study_folder(out))
            stored = []
    session(topology, out)
    assert evaluations(out) == evaluations(tmp_path / "uninterrupted")
    assert open_table(out).table == open_table(tmp_path / "uninterrupted").table
