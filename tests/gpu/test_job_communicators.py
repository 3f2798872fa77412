"""Communicators of a job's folder: each has the table of its members, through splits too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.gpu.test_rehearsal import LIBRARY
from tests.torch_backend.conftest import machine, write_table
from tuccl.groups.job import JobEntry, JobTables, save_job
from tuccl.groups.layout import megatron_groups
from tuccl.runtime import communicator_id, load_table

RANK = Path(__file__).with_name("split_rank.py")
ROOT = """
import sys
from tuccl.errors import TucclError
from tuccl.runtime import Communicator
try:
    with Communicator(bytes.fromhex(sys.argv[1]), 2, int(sys.argv[2]), sys.argv[3]) as comm:
        print(comm.table.name if comm.table else "none")
except TucclError as error:
    print(error)
"""


@pytest.fixture(autouse=True)
def host_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUCCL_CUDA_LIBRARY", str(LIBRARY))
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def write_job(folder: Path, layout: str, *kinds: tuple[str, int, int]) -> Path:
    """Save a job of two hosts of four GPUs; of a kind: its groups' hosts, and ranks on each."""
    groups, entries = megatron_groups(layout, 8), []
    for kind, hosts, each in kinds:
        place = write_table(
            folder / "tables" / kind, hosts, each, collectives=("allreduce", "allgather")
        )
        entries.append(
            JobEntry(
                kind=kind,
                groups=tuple(range(len(groups.kind(kind).groups))),
                key="",
                table=place.name,
                checksum=load_table(place).lookup.checksum,
            )
        )
    save_job(JobTables(folder, groups, machine(2, 4), tuple(entries)))
    return folder


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job(tmp_path_factory.mktemp("job"), "tp=4", ("tp", 1, 4), ("dp", 2, 1))


def outputs(commands: Sequence[Sequence[str]], **variables: Sequence[str]) -> list[str]:
    """Return what processes print that run at once, each with its own value of each variable."""
    started = [
        subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **{name: values[i] for name, values in variables.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i, command in enumerate(commands)
    ]
    try:
        return [one.communicate(timeout=120)[0].strip() for one in started]
    finally:
        for one in started:
            one.kill()
            one.wait()


@pytest.mark.parametrize("hosts", ["aaaaaaaa", "aaaabbbb"])
def test_splits_use_the_tables_of_their_members(job: Path, hosts: str) -> None:
    unique_id = communicator_id().hex()
    commands = [[str(RANK), unique_id, str(rank), str(job)] for rank in range(8)]
    assert outputs(commands, TUCCL_HOSTID=list(hosts)) == ["all is right"] * 8


def test_a_communicator_of_some_ranks_is_numbered_by_the_launcher(job: Path) -> None:
    def tables(ranks: tuple[str, str], world: str = "8") -> list[str]:
        unique_id = communicator_id().hex()
        commands = [["-c", ROOT, unique_id, str(place), str(job)] for place in (0, 1)]
        return outputs(commands, RANK=list(ranks), WORLD_SIZE=[world] * 2)

    assert tables(("1", "5")) == ["dp", "dp"]
    assert tables(("5", "1")) == ["none", "none"]
    for ranks, world, why in (
        (("", "5"), "8", "the launcher does not say which rank this is"),
        (("1", "1"), "8", "two ranks are rank 1 of the job"),
        (("0", "1"), "2", "of a job of 8 ranks; this one has 2"),
    ):
        assert all(why in text for text in tables(ranks, world)), why
