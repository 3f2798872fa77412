"""A PostgreSQL server of Debian's, shared by processes that tune."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial

from tests.tuning.conftest import evaluations, wait_for
from tuccl.errors import InputError, Unavailable
from tuccl.runtime import load_table
from tuccl.topology import Topology, save_topology
from tuccl.tuning import TuneOptions, tune
from tuccl.tuning.studies.storages import close_storage, open_url

ROOT: dict[str, Any] = {"user": "nobody", "extra_groups": []} if os.geteuid() == 0 else {}
BUDGET = 8


class Server:
    """A server of its own, on a socket in its folder."""

    def __init__(self, programs: Path, folder: Path) -> None:
        if ROOT:  # as whom PostgreSQL refuses to run
            shutil.chown(folder, ROOT["user"])
        data, self.url = folder / "data", f"postgresql://tuccl@/postgres?host={folder}"
        quiet: Any = {**ROOT, "cwd": folder, "stdout": subprocess.DEVNULL}
        initdb: list[str | Path] = [programs / "initdb", "-D", data, "-A", "trust", "-U", "tuccl"]
        subprocess.run([*initdb, "-N"], check=True, **quiet)
        server: list[str | Path] = [programs / "postgres", "-D", data, "-k", folder]
        server += ["-F", "-c", "listen_addresses="]
        self.process = subprocess.Popen(server, stderr=subprocess.DEVNULL, **quiet)
        ready: list[str | Path] = [programs / "pg_isready", "-q", "-h", folder]
        wait_for(lambda: subprocess.run(ready, check=False).returncode == 0)

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)  # its "fast" shutdown
        self.process.wait(30)


@pytest.fixture
def server() -> Iterator[Server]:
    pytest.importorskip("psycopg", reason="no driver: pip install 'psycopg[binary]'")
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs:
        pytest.skip("no PostgreSQL server: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="tuccl-pg-", ignore_cleanup_errors=True) as folder:
        server = Server(programs[-1].parent, Path(folder))
        yield server
        server.end()


def trials(url: str) -> list[tuple[str, FrozenTrial]]:
    """The trials in a storage, each with the name of its study."""
    storage = open_url(url)
    try:
        studies = storage.get_all_studies()
        return [(s.study_name, t) for s in studies for t in storage.get_all_trials(s._study_id)]
    finally:
        close_storage(storage)


def stored(url: str) -> Counter[str]:
    """The evaluations in a storage: study, point and program, each with its count."""
    each = [(name, trial.user_attrs) for name, trial in trials(url)]
    return Counter(f"{name} {a['point']} {a['program']}" for name, a in each if "point" in a)


def running_pids(url: str) -> set[int]:
    unfinished = [t.user_attrs for _, t in trials(url) if not t.state.is_finished()]
    return {attrs["owner"]["pid"] for attrs in unfinished if "owner" in attrs}


def test_processes_share_the_work_and_take_over_from_one_that_is_killed(
    server: Server, topology: Topology, tmp_path: Path
) -> None:
    save_topology(topology, machine := tmp_path / "machine.json")
    verb: list[str | Path] = [Path(sys.executable).with_name("tuccl"), "tune", machine]
    verb += ["-c", "allgather", "-s", "16K:1M:x8", "--budget", str(4 * BUDGET)]
    subprocess.run([*verb, "-o", tmp_path / "one"], check=True, capture_output=True)
    shared: list[str | Path] = [*verb, "--storage", server.url, "-o"]
    outs = [tmp_path / f"table{number}" for number in range(3)]
    with (tmp_path / "log").open("wb") as log:
        children = [subprocess.Popen([*shared, out], stdout=log, stderr=log) for out in outs]
        try:
            # Whichever is at work, long enough to be seen: the last may find nothing left to do.
            killed = wait_for(lambda: [c for c in children if c.pid in running_pids(server.url)])[0]
            killed.kill()
            codes = [child.wait(120) for child in children]
        finally:
            for child in children:
                child.kill()
                child.wait()
    expected = [-signal.SIGKILL if child is killed else 0 for child in children]
    assert codes == expected, (tmp_path / "log").read_text()
    counts = stored(server.url)
    assert set(counts.values()) == {1}
    assert counts.total() == len(evaluations(tmp_path / "one"))
    unfinished = outs[children.index(killed)]
    subprocess.run([*shared, unfinished, "--workers", "2"], check=True, capture_output=True)
    assert stored(server.url) == counts
    for out in outs:
        assert load_table(out).lookup == load_table(tmp_path / "one").lookup


def test_a_server_that_ends_or_is_not_there_is_reported(
    server: Server, topology: Topology, tmp_path: Path
) -> None:
    def end(done: int, total: int, what: str) -> None:
        if done > 3:
            server.end()

    def call() -> None:
        options = TuneOptions(budget=BUDGET, storage=server.url)
        out = tmp_path / "table"
        tune(topology, ["allgather"], [1 << 14], "sim", options, path=out, progress=end)

    with pytest.raises(Unavailable, match=r"storage postgresql://\.\.\.: fails"):
        call()
    with pytest.raises(InputError, match=r"storage postgresql://\.\.\.: cannot be opened"):
        call()
    assert not (tmp_path / "table").exists()
