"""Tables for the backend, and jobs of several processes on loopback."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tuccl.program import Knobs
from tuccl.runtime import (
    LookupTable,
    Statistics,
    default_candidate,
    program_candidate,
    program_file,
    reduction_class,
    save_table,
)
from tuccl.runtime.table.entry import Entry
from tuccl.sketches import full_mesh
from tuccl.synth import COLLECTIVES, Collective, Problem, ScheduleChoice, lower, make_schedule
from tuccl.synth.model.collective import ROOTED
from tuccl.topology import Topology, join, keep_gpus, load_profile, signature

LIMIT_S = 90
ROOT = Path(__file__).resolve().parents[2]

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


def machine(hosts: int, each: int) -> Topology:
    host = keep_gpus(load_profile("ndv4"), range(each))
    return join(host, hosts) if hosts > 1 else host


def write_table(
    folder: Path,
    hosts: int,
    each: int,
    protocol: str = "Simple",
    largest: int = 1 << 30,
    collectives: Iterable[str] = COLLECTIVES,
    method: str = "greedy",
) -> Path:
    """Save a table with one program for each collective and root, for 1 to ``largest`` bytes."""
    topology = machine(hosts, each)
    sketch = full_mesh(topology)
    time = Statistics.of((1.0,))
    entries, files = [], []
    for name in collectives:
        for root in range(topology.ranks) if name in ROOTED else [None]:
            asked = Collective(name, topology.ranks, root=root or 0)
            made = lower(make_schedule(Problem(asked, sketch, 2, 1 << 20), method))
            file = program_file(made, root=root or 0)
            knobs = Knobs(protocol, buffer_bytes=1 << 16)
            file = program_file(made.replace(protocol=protocol), root=root or 0)
            chosen = program_candidate(
                file, knobs, on="mpi", stats=time, choice=ScheduleChoice("", method, 0)
            )
            entries.append(
                Entry(
                    collective=name,  # type: ignore[arg-type]
                    reduction_class=reduction_class(name),  # type: ignore[arg-type]
                    min_bytes=1,
                    max_bytes=largest,
                    candidates=(chosen, default_candidate("mpi", Statistics.of((2.0,)))),
                    root=root,
                )
            )
            files.append(file)
    table = LookupTable(
        name="for tests",
        signature=signature(topology),
        ranks=topology.ranks,
        hosts=len(topology.hosts),
        entries=tuple(entries),
    )
    save_table(table, folder, topology, files)
    return folder


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a maker of tables: hosts, ranks a host, protocol."""
    made: dict[object, Path] = {}

    def table_of(hosts: int, each: int, protocol: str = "Simple", **more: object) -> Path:
        key = (hosts, each, protocol, str(more))
        if key not in made:
            folder = tmp_path_factory.mktemp("tables") / "table"
            made[key] = write_table(folder, hosts, each, protocol, **more)  # type: ignore[arg-type]
        return made[key]

    return table_of


Outcome = tuple[int, str]


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., list[Outcome]]:
    """Return a runner of jobs (ranks.py) on several ranks: exit codes and outputs by rank."""

    starts = itertools.count()

    def run(names: str, ranks: int, *tables: Path, **settings: str) -> list[Outcome]:
        environment = {
            **{name: value for name, value in os.environ.items() if name != "RANK"},
            **settings,
            "WORLD_SIZE": str(ranks),
            "STORE": str(tmp_path / f"store{next(starts)}"),
            "LOGS": str(tmp_path),
            "TUCCL_TABLE": os.pathsep.join(map(str, tables)),
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.torch_backend", names],
            check=False,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        codes = [int(code) for code in done.stdout.split()]
        assert len(codes) == ranks, done.stdout + done.stderr
        return [(code, (tmp_path / f"{rank}.log").read_text()) for rank, code in enumerate(codes)]

    return run
