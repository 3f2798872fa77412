"""`tuccl run` with a job's tables: each communicator of NCCL gets the table of its members."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tuccl.cli import main
from tuccl.groups.job import load_job
from tuccl.runtime.jobs.plugins import plugin_path
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.topology import encode_topology, load_profile


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run")
    (place / "t.json").write_bytes(encode_topology(load_profile("v100x4")))
    return place


@pytest.fixture(scope="module")
def job(folder: Path) -> Path:
    layout = ["tune", str(folder / "t.json"), "--layout", "tp=2", "-o", str(folder / "job")]
    for call, nbytes in (("dp:allreduce", "1M"), ("tp:allreduce", "64K")):
        assert main([*layout, "--dialect", "nccl", "-c", call, "-s", nbytes]) == 0
    return folder / "job"


def test_members_of_two_kinds_get_their_own_choices(job: Path, tuccl: Tuccl) -> None:
    """The plugin itself, asked as NCCL asks it, by processes of a tp and of a dp group."""
    host = shlex.quote(str(plugin_path("tuner").with_name("tuccl-plugin-host")))
    plugin = shlex.quote(str(plugin_path("tuner")))
    script = f"""
        for rank in $@; do
            printf 'allreduce 65536 1 0\\nallreduce 1048576 1 0\\n' |
                RANK=$rank {host} tuner {plugin} 6 2 1 &
        done; wait"""
    tables = {e.kind: load_job(job).table(e) for e in load_job(job).entries}
    sizes = {"tp": 1 << 16, "dp": 1 << 20}
    best = {k: tables[k].select("allreduce", size).candidate.nccl for k, size in sizes.items()}
    alone = "- - 0 0"
    for members, answers in (
        ("0 1", [_answer(best["tp"]), alone]),
        ("1 3", [alone, _answer(best["dp"])]),
        ("0 3", [alone, alone]),
    ):
        ran = tuccl(
            *("run", "--table", str(job), "--topology", str(job / "topology.json"), "--"),
            *("sh", "-c", script, "sh", *members.split()),
        )
        lines = ran.out.splitlines()
        assert sorted(lines) == sorted(answers * 2), ran.out + ran.err


def _answer(knobs: NcclKnobs | None) -> str:
    assert knobs is not None
    return f"{knobs.algorithm} {knobs.protocol} {knobs.channels} {knobs.chunk_bytes}"


def test_what_cannot_be_run_is_reported(job: Path, folder: Path, tuccl: Tuccl) -> None:
    def refused(table: Path, *options: str) -> str:
        ran = tuccl("run", "--table", str(table), *options, "--", "true")
        assert ran.code == 2 and ran.err.count("\n") == 1, ran
        return ran.err

    assert "--scheduler: not with a job's tables" in refused(job, "--scheduler")
    assert "dialect nccl; NCCL's tuner loads" in refused(job, "--cuda")
    assert "the ranks of a job's groups have to meet" in refused(job, "--bootstrap", "none")
    other = shutil.copytree(job, folder / "other")
    (other / "members.txt").write_text("tuccl-members 1\n")
    assert "not of this job's tables; tune the job again" in refused(other)
    programs = folder / "programs"
    layout = ("tune", str(folder / "t.json"), "--layout", "tp=2", "--budget", "2")
    assert tuccl(*layout, "-c", "tp:allgather", "-s", "1M", "-o", str(programs)).code == 0
    assert "loads a job's tables of dialect nccl" in refused(programs)


def test_programs_run_in_nccl_s_place(
    folder: Path, tuccl: Tuccl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library itself is tested in C++: here, what `run` hands to CMD."""
    for name in ("libtuccl-cuda.so", "libnccl-tuccl.so"):
        (folder / name).touch()
    monkeypatch.setenv("TUCCL_CUDA_LIBRARY", str(folder / "libtuccl-cuda.so"))
    job = folder / "cuda-job"
    layout = ("tune", str(folder / "t.json"), "--layout", "tp=2", "--budget", "2")
    assert tuccl(*layout, "-c", "tp:allgather", "-s", "1M", "-o", str(job)).code == 0
    show = 'echo "$LD_PRELOAD $TUCCL_TABLE ${TUCCL_BOOTSTRAP:+meet}"'
    ran = tuccl("run", "--table", str(job), "--cuda", "--", "sh", "-c", show)
    assert ran.code == 0
    assert f"{folder / 'libnccl-tuccl.so'} {job} meet" in ran.out.splitlines()
