"""What reaches what between ranks that are isolated, and what libraries really do there."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tuccl.errors import InputError, TucclError, Unavailable
from tuccl.runtime.executors.mpi_find import Mpi, find_mpi
from tuccl.runtime.executors.mpi_launch import Launch
from tuccl.runtime.probing import RankPair, probe_transports
from tuccl.topology import load_topology

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")

APART = {
    "nothing": [],
    "hostname": ["unshare", "-u", "sh", "-c", 'hostname cell; exec "$@"', "sh"],
    "shm": ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev/shm; exec "$@"', "sh"],
    "pid": ["unshare", "-p", "-f", "--mount-proc"],
    "user": ["unshare", "-U", "-r"],
    "network": ["unshare", "-n"],
}
HANGS_S = 8.0
PROGRAM = r"""
#include <mpi.h>
#include <string.h>
static char bytes[1 << 22];
int main(int argc, char** argv) {
  int rank, i;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) memset(bytes, 7, sizeof bytes);
  for (i = 0; i < 4; ++i)
    if (rank == 0) MPI_Send(bytes, sizeof bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    else MPI_Recv(bytes, sizeof bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  i = bytes[sizeof bytes - 1] == 7 ? 0 : 1;
  MPI_Finalize();
  return i;
}
"""


def beside_one_here(apart: str) -> RankPair:
    """A rank here and one that is isolated."""
    [pair] = probe_transports([[], APART[apart]]).pairs
    return pair


def names(pair: RankPair) -> dict[str, str]:
    return {transport.library: transport.name for transport in pair.transports}


@pytest.mark.parametrize(
    ("apart", "nccl", "own", "torch"),
    [
        ("nothing", "P2P or SHM", "shared memory", "Unix sockets"),
        ("hostname", "NET/Socket", "shared memory", "Unix sockets"),
        ("shm", "NET/Socket", "shared memory", "Unix sockets"),
        ("pid", "P2P or SHM", "TCP", "Unix sockets"),
        ("user", "P2P or SHM", "none", "Unix sockets"),
        ("network", "P2P or SHM", "shared memory", "none"),
    ],
)
def test_each_isolation_changes_what_it_should(apart: str, nccl: str, own: str, torch: str) -> None:
    pair = beside_one_here(apart)
    found = names(pair)
    assert (found["NCCL"], found["tuccl"], found["tuccl.torch"]) == (nccl, own, torch)
    assert bool(pair.facts.cma) == (apart in ("pid", "user"))
    assert bool(pair.facts.tcp) == (apart == "network")
    assert found["Gloo"] == ("none" if apart == "network" else "TCP")
    for transport in pair.transports:
        assert transport.why
        assert transport.change or transport.name != "none" or apart == "network"


@pytest.mark.parametrize(
    ("variables", "nccl"),
    [
        ({"NCCL_SHM_DISABLE": "1"}, "P2P"),
        ({"NCCL_P2P_DISABLE": "1"}, "SHM"),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, "NET/Socket"),
        ({"NCCL_HOSTID": "other"}, "NET/Socket"),
    ],
)
def test_variables_of_one_rank_decide_too(variables: dict[str, str], nccl: str) -> None:
    [pair] = probe_transports([[], []], [{}, variables]).pairs
    assert names(pair)["NCCL"] == nccl


@pytest.fixture(params=["openmpi", "mpich"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    try:
        return find_mpi(request.param)
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture
def program(mpi: Mpi, tmp_path: Path) -> Path:
    (tmp_path / "send.c").write_text(PROGRAM)
    subprocess.run([mpi.mpicc, "send.c", "-o", "send"], cwd=tmp_path, check=True)
    return tmp_path / "send"


def ends_well(mpi: Mpi, program: Path, apart: str) -> bool:
    """Whether 4 MiB messages of rank 0 arrive at an isolated rank 1."""
    options = ["--oversubscribe"] if mpi.family == "openmpi" else []
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    launch = Launch((mpi.mpiexec, *options), ((), tuple(APART[apart])))
    # In a /dev/shm of its own, where a failed MPI_Init leaves its files.
    with subprocess.Popen(
        [*APART["shm"], *launch.command(2, [str(program)])],
        env={**os.environ, **as_root},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as job:
        try:
            return job.wait(HANGS_S) == 0
        except subprocess.TimeoutExpired:
            job.terminate()
            return False


@pytest.mark.parametrize("apart", ["nothing", "hostname", "shm", "pid", "user"])
def test_an_mpi_sends_where_it_is_said_to(mpi: Mpi, program: Path, apart: str) -> None:
    library = {"openmpi": "Open MPI", "mpich": "MPICH"}[mpi.family]
    assert ends_well(mpi, program, apart) == (names(beside_one_here(apart))[library] != "none")


def test_running_ranks_are_entered(tuccl: Tuccl) -> None:
    with (
        subprocess.Popen(["sleep", "60"]) as here,
        subprocess.Popen(
            [*APART["hostname"], "sleep", "60"], env={**os.environ, "NCCL_HOSTID": "one"}
        ) as apart,
    ):
        try:
            time.sleep(0.5)
            answer = tuccl("doctor", "--transports", "--pids", f"{here.pid},{apart.pid}", "--json")
            assert answer.code == 0
            found = json.loads(answer.out)
            assert found["ranks"][1]["hostname"] == "cell"
            assert found["ranks"][1]["environment"]["NCCL_HOSTID"] == "one"
            nccl = found["pairs"][0]["transports"][0]
            assert nccl["name"] == "NET/Socket" and "NCCL_HOSTID" in nccl["change"]
        finally:
            here.kill()
            apart.kill()


def test_the_text_names_ranks_once_where_pairs_are_alike(tuccl: Tuccl) -> None:
    answer = tuccl("doctor", "--transports", "--ranks", "3")
    assert answer.code == 0
    assert "ranks 0-1, 0-2, 1-2: CMA, TCP" in answer.out
    assert answer.out.count("Gloo") == 1
    answer = tuccl("doctor", "--transports", "--enter", "", "--enter", "unshare -n")
    assert answer.code == 1
    assert "no TCP" in answer.out


def test_what_cannot_be_entered_is_said_in_a_line(tuccl: Tuccl) -> None:
    for words, why in (
        (["--ranks", "1"], "1 ranks: expected 2 to 32"),
        (["--pids", "12,x"], "expected numbers of processes"),
        (["--pids", "999999999,1"], "process 999999999"),
        (["--enter", "false", "--enter", ""], "of rank 0"),
        (["--enter", "no-such-program", "--enter", ""], "cannot be started"),
        (["--enter", "'", "--enter", ""], "--enter"),
    ):
        answer = tuccl("doctor", "--transports", *words)
        assert answer.code == 2, words
        assert why in answer.err and answer.err.count("\n") == 1


def test_a_rank_that_is_gone_is_named() -> None:
    with pytest.raises(TucclError, match="rank 1"):
        probe_transports([[], ["sh", "-c", "exit 3", "sh"]])
    with pytest.raises(InputError, match="expected 2"):
        probe_transports([[]])


def test_ranks_that_share_no_memory_become_hosts(tuccl: Tuccl, tmp_path: Path) -> None:
    shm = "unshare -m sh -c 'mount -t tmpfs none /dev/shm; exec \"$@\"' sh"
    answer = tuccl("doctor", "--transports", "--json", *("--enter", "") * 3, "--enter", shm)
    (tmp_path / "ranks.json").write_text(answer.out)
    host, cells = tmp_path / "host.json", tmp_path / "cells.json"
    assert tuccl("probe", "--profile", "v100x4", "-o", host).code == 0
    split = ("probe", "--from", host, "--cells", tmp_path / "ranks.json")
    assert tuccl(*split, "-o", cells).code == 0
    topology = load_topology(cells)
    assert [topology.gpus_of(each) for each in topology.hosts] == [(0, 1, 2), (3,)]
    assert {link.origin for link in topology.links if link.kind == "network"} == {"measured"}
    (tmp_path / "ranks.json").write_text('{"ranks": [], "pairs": 3}')
    answer = tuccl(*split)
    assert answer.code == 2 and "tuccl doctor --transports --json" in answer.err
