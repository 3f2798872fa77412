"""`tuccl run` with a job's tables: each communicator of NCCL gets the table of its members."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tests.gpu.test_job_communicators import write_job
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

    assert "--scheduler: expected a job's tables of dialect executor" in refused(job, "--scheduler")
    assert "tables of dialect nccl; expected one of executor" in refused(job, "--cuda")
    assert "the ranks of a job's groups have to meet" in refused(job, "--bootstrap", "none")
    other = shutil.copytree(job, folder / "other")
    (other / "members.txt").write_text("tuccl-members 1\n")
    assert "not of this job's tables; tune the job again" in refused(other)
    fork = folder / "fork"
    words = ("-c", "tp:allgather", "-s", "1M", "--budget", "2", "--dialect", "fork")
    layout = ("tune", str(folder / "t.json"), "--layout", "tp=2", "-o", str(fork))
    assert tuccl(*layout, *words).code == 0
    assert "tables of dialect fork; expected one of nccl, executor" in refused(fork)


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


def test_msccl_s_scheduler_has_a_table_for_a_number_of_ranks_that_all_groups_share(
    folder: Path, tuccl: Tuccl
) -> None:
    host = shlex.quote(str(plugin_path("scheduler").with_name("tuccl-plugin-host")))
    plugin = shlex.quote(str(plugin_path("scheduler")))
    script = f"""
        for rank in 0 1 2 3 4 5 6 7; do
            for ranks in 4 2 8; do
                echo allgather 65536 4 sum 0 out-of-place 0 |
                    RANK=$rank WORLD_SIZE=8 {host} scheduler {plugin} 21903 $ranks |
                    sed "s/^/$ranks /"
            done &
        done; wait"""

    def chosen(layout: str, *kinds: tuple[str, int, int]) -> tuple[dict[str, set[str]], str]:
        job = write_job(folder / "-".join([layout, *(kind for kind, *_ in kinds)]), layout, *kinds)
        ran = tuccl("run", "--table", str(job), "--", "sh", "-c", script)
        found: dict[str, set[str]] = {}
        for line in filter(lambda line: line[:2] in ("4 ", "2 ", "8 "), ran.out.splitlines()):
            ranks, path = line.split(" ", 1)
            found.setdefault(ranks, set()).add(Path(path).parts[-3] if path != "-" else path)
        return found, ran.err

    found, said = chosen("tp=4", ("tp", 1, 4), ("dp", 2, 1))
    assert found == {"4": {"tp"}, "2": {"dp"}, "8": {"-"}}, said
    assert "left to NCCL" not in said
    four = ("tp=4,pp=2", ("tp", 1, 4))  # each group of pp is of two ranks
    assert chosen(*four)[0] == {"4": {"tp"}, "2": {"-"}, "8": {"-"}}
    pairs = ("tp", 1, 2), ("dp", 1, 2), ("pp", 2, 1)
    found, said = chosen("tp=2,pp=2", *pairs[:2])
    assert found == {"4": {"-"}, "2": {"-"}, "8": {"-"}}, said
    assert said.count("groups of 2 ranks (some have no table)") == 3  # by rank 0, once a process
    found, said = chosen("tp=2,pp=2", *pairs)
    assert found == {"4": {"-"}, "2": {"-"}, "8": {"-"}}, said
    assert said.count("groups of 2 ranks (their tables differ)") == 3
