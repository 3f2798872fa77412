"""NCCL itself between ranks of one GPU (2.30 on): with its tuner's choices, and in its place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.runtime.conftest import mesh, table_of, time_of
from tests.torch_backend.conftest import write_table
from tuccl.groups.job import JobEntry, JobTables, save_job
from tuccl.groups.layout import mesh_groups
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.runtime.table.entry import Candidate, Entry, default_candidate
from tuccl.runtime.table.lookup import LookupTable
from tuccl.runtime.table.store import save_table

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]
RANKS, SIZES = 4, (1 << 16, 1 << 20)  # NCCL leaves channels out that get under 16 KiB
CALLS = [
    *(sys.executable, str(ROOT / "benchmarks" / "nccl_on_one_gpu.py")),
    *("--ranks", str(RANKS), "--sizes", *map(str, SIZES)),
]
RING_LL = NcclKnobs(algorithm="Ring", protocol="LL", channels=2)
TREE_SIMPLE = NcclKnobs(algorithm="Tree", protocol="Simple", channels=1)


def started(table: Path, *command: str, cuda: bool = False, **variables: str) -> str:
    """Return what a command with a table printed, and what NCCL logged."""
    run = (sys.executable, "-m", "tuccl.cli", "run", "--table", str(table))
    here = ("--topology", str(table / "topology.json"))  # ranks that share a GPU
    done = subprocess.run(
        [*run, *here, *["--cuda"] * cuda, "--", *command],
        env={**os.environ, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "TUNING", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if "\nskipped" in "\n" + done.stdout:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def right_sizes(log: str) -> list[int]:
    """Return the sizes of which every element came out right."""
    return [int(size) for size in re.findall(r"^(\d+) [\d.]+ 0$", log, re.MULTILINE)]


def taken(log: str) -> set[tuple[int, str, str, int]]:
    """Return bytes, algorithm, protocol and channels of the calls that NCCL logged."""
    pattern = r"AllReduce: (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{0\.\.(\d+)\}"
    return {(int(n), a, p, int(last) + 1) for n, a, p, last in re.findall(pattern, log)}


def choice_table(ranks: int, knobs: NcclKnobs) -> LookupTable:
    entry = Entry(
        collective="allreduce",
        min_bytes=1,
        max_bytes=None,
        reduction_class="plain",
        candidates=(
            Candidate(name=knobs.name, on="nccl-tests", stats=time_of(1.0), nccl=knobs),
            default_candidate("nccl-tests"),
        ),
    )
    table = table_of(mesh(1, ranks))
    return msgspec.structs.replace(table, dialect="nccl", entries=(entry,))


@pytest.mark.parametrize("knobs", [RING_LL, TREE_SIMPLE])
def test_a_tables_choice_is_what_nccl_runs(tmp_path: Path, knobs: NcclKnobs) -> None:
    save_table(choice_table(RANKS, knobs), tmp_path / "table", mesh(1, RANKS), ())
    log = started(tmp_path / "table", *CALLS)
    assert right_sizes(log) == list(SIZES)
    choice = (knobs.algorithm.upper(), knobs.protocol.upper(), knobs.channels)
    assert taken(log) == {(size, *choice) for size in SIZES}, log[-2000:]


def test_a_tables_programs_run_in_the_place_of_nccl(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table", 1, RANKS, collectives=["allreduce"])
    log = started(table, *CALLS, cuda=True)
    assert right_sizes(log) == list(SIZES)
    assert "calls that the table covers are served" in log
    assert not taken(log)


def test_each_group_of_a_job_has_its_own_table(tmp_path: Path) -> None:
    """PyTorch's DeviceMesh of 2 x 2 ranks: communicators of equal size, told by their members."""
    torch = pytest.importorskip("torch")
    library = os.environ.get("TUCCL_NCCL_LIBRARY")
    if library is None or torch.cuda.device_count() < 1:
        pytest.skip("needs a GPU, and NCCL 2.30 named in TUCCL_NCCL_LIBRARY")
    entries = []
    (tmp_path / "tables").mkdir()
    for kind, knobs in (("dp", TREE_SIMPLE), ("tp", RING_LL)):
        table = save_table(choice_table(2, knobs), tmp_path / "tables" / kind, mesh(1, 2), ())
        entries.append(
            JobEntry(kind=kind, groups=(0, 1), key="", table=kind, checksum=table.checksum)
        )
    save_job(JobTables(tmp_path, mesh_groups("dp=2,tp=2", RANKS), mesh(1, RANKS), tuple(entries)))
    log = started(
        tmp_path,
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)),
        *(str(ROOT / "tests" / "gpu" / "nccl_mesh.py"), "dp=1024", "tp=2048"),
        LD_PRELOAD=library,
        NCCL_MULTI_RANK_GPU_ENABLE="1",
    )
    assert log.count(" is right") == RANKS
    assert taken(log) == {(4096, "TREE", "SIMPLE", 1), (8192, "RING", "LL", 2)}, log[-3000:]
