"""Workers of a Dask cluster: the table of one process, whatever becomes of them."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tuning.conftest import Stand, evaluations, processes_of, wait_for
from tests.tuning.faulty import Faulty
from tuccl.errors import Unavailable
from tuccl.runtime import load_table
from tuccl.topology import Topology
from tuccl.tuning import TuneOptions, tune
from tuccl.tuning.work import no_progress

pytest.importorskip("distributed")
REPOSITORY = Path(__file__).parents[2]


class Cluster:
    """A scheduler and two workers, each a process of its own."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        scheduler = ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        self.scheduler = self.start("scheduler", *scheduler)
        self.address = self.said("scheduler", r"Scheduler at: *(tcp://\S+)")
        self.workers = [self.add_worker(number) for number in range(2)]
        for number in range(2):
            self.said(f"worker{number}", r"Registered to: *(tcp://\S+)")

    def add_worker(self, number: int) -> subprocess.Popen[bytes]:
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "60"]
        return self.start(
            f"worker{number}", "worker", self.address, *options, "--local-directory", self.logs
        )

    def start(self, name: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
        program = "from distributed.cli import dask_{0}; dask_{0}.main()".format(arguments[0])
        with (self.logs / name).open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-c", program, *arguments[1:]],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            )

    def said(self, name: str, pattern: str) -> str:
        lines: list[str] = []

        def is_said() -> bool:
            lines[:] = re.findall(pattern, (self.logs / name).read_text())
            return bool(lines)

        wait_for(is_said)
        return lines[0]

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster_of_dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("dask"))
    yield cluster
    cluster.end()


def tuned(out: Path, executor: Stand, topology: Topology, **other: object) -> Counter[str]:
    """The evaluations that a tune has stored at its end, each with its count."""
    progress: Any = other.pop("progress", no_progress)
    sizes: Any = other.pop("sizes", [1 << 14])
    options: Any = {"budget": 8, "evaluation_limit": 5.0, **other}
    tune(
        topology,
        ["allgather"],
        sizes,
        lambda _: executor,
        TuneOptions(**options),
        path=out,
        progress=progress,
    )
    return Counter(evaluations(out))


def test_workers_and_one_that_dies_give_the_table_of_one_process(
    cluster_of_dask: Cluster, topology: Topology, tmp_path: Path
) -> None:
    uninterrupted, out = tmp_path / "uninterrupted", tmp_path / "table"
    sizes = [1 << 14, 1 << 16]
    evaluated = tuned(uninterrupted, Stand(topology), topology, sizes=sizes)
    executor = Faulty(topology, "kills parent", tmp_path / "attempts", most=1)
    address = cluster_of_dask.address
    assert tuned(out, executor, topology, sizes=sizes, scheduler=address) == evaluated
    assert load_table(out).lookup == load_table(uninterrupted).lookup
    codes = [worker.poll() for worker in cluster_of_dask.workers]
    assert sorted(codes, key=str) == [-signal.SIGKILL, None]
    assert set(evaluated.values()) == {1}


@pytest.mark.slow
def test_a_candidate_that_crashes_costs_itself_only_and_is_remembered(
    cluster_of_dask: Cluster, topology: Topology, tmp_path: Path
) -> None:
    without, out = tmp_path / "without", tmp_path / "table"
    evaluated = tuned(without, Faulty(topology, "misleads", tmp_path / "ignored"), topology)
    executor = Faulty(topology, "crashes", tmp_path / "attempts")
    address = cluster_of_dask.address
    assert tuned(out, executor, topology, scheduler=address) == evaluated
    assert load_table(out).lookup == load_table(without).lookup
    attempts = executor.attempts.stat().st_size
    assert attempts > 0
    assert tuned(out, executor, topology, scheduler=address, resume=True) == evaluated
    assert executor.attempts.stat().st_size == attempts


def test_an_interrupt_ends_what_workers_do(
    cluster_of_dask: Cluster, topology: Topology, tmp_path: Path
) -> None:
    def interrupt(done: int, total: int, what: str) -> None:
        if executor.attempts.stat().st_size:
            raise KeyboardInterrupt

    executor = Faulty(topology, "dawdles", tmp_path / "attempts")
    address = cluster_of_dask.address
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "t", executor, topology, scheduler=address, budget=80, progress=interrupt)
    workers = [worker.pid for worker in cluster_of_dask.workers]
    session = os.getsid(0)
    wait_for(lambda: not any(processes_of(session, pid) for pid in workers), 10.0)
    assert not (tmp_path / "t").exists()
    assert evaluations(tmp_path / "t")


@pytest.mark.slow
def test_a_tune_goes_on_without_a_scheduler_that_is_lost(
    cluster_of_dask: Cluster, topology: Topology, tmp_path: Path
) -> None:
    def end(done: int, total: int, what: str) -> None:
        if executor.attempts.stat().st_size:
            cluster_of_dask.scheduler.kill()

    uninterrupted, out = tmp_path / "uninterrupted", tmp_path / "table"
    evaluated = tuned(uninterrupted, Stand(topology), topology)
    executor = Faulty(topology, "hangs", tmp_path / "attempts")
    options: Any = {"scheduler": cluster_of_dask.address, "evaluation_limit": 60.0}
    with pytest.raises(Unavailable, match=r"--dask tcp://.*: lost .* go on with --resume"):
        tuned(out, executor, topology, progress=end, **options)
    assert 0 < len(evaluations(out)) < evaluated.total()
    assert tuned(out, Stand(topology), topology, resume=True) == evaluated
    assert load_table(out).lookup == load_table(uninterrupted).lookup
