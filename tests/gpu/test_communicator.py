"""Communicators from Python, the CPU in a GPU's place: processes of one host, and of several."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.test_rehearsal import LIBRARY
from tests.torch_backend.conftest import write_table
from tuccl.errors import InputError, TucclError, Unavailable
from tuccl.runtime import Communicator, communicator_id
from tuccl.runtime.executors.communicator import group

RANK = Path(__file__).with_name("communicator_rank.py")


@pytest.fixture(autouse=True)
def host_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUCCL_CUDA_LIBRARY", str(LIBRARY))


@pytest.mark.parametrize("hosts", ["aaaa", "aabb", "abcd", "aa", "ab"])
@pytest.mark.parametrize("protocol", ["Simple", "LL"])
def test_calls_of_processes_come_out_right(tmp_path: Path, hosts: str, protocol: str) -> None:
    table = write_table(tmp_path / "table", 2, len(hosts) // 2, protocol)
    unique_id = communicator_id().hex()
    ranks = [
        subprocess.Popen(
            [sys.executable, RANK, unique_id, str(len(hosts)), str(rank), table],
            env={**os.environ, "TUCCL_HOSTID": host},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, host in enumerate(hosts)
    ]
    try:
        texts = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert texts == ["all is right\n"] * len(hosts)


def test_what_cannot_be_joined_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="an id of 3 bytes"):
        Communicator(b"abc", 1, 0)
    with pytest.raises(TucclError, match="the id is none"):
        Communicator(bytes(128), 1, 0)
    with pytest.raises(TucclError, match="rank 2 of 2"):
        Communicator(communicator_id(), 2, 2)
    with pytest.raises(TucclError, match="nowhere"):
        Communicator(communicator_id(), 1, 0, tmp_path / "nowhere")
    monkeypatch.setenv("TUCCL_CALL_TIMEOUT", "10 s")
    with pytest.raises(TucclError, match=r"TUCCL_CALL_TIMEOUT .10 s.: expected a number above 0"):
        Communicator(communicator_id(), 1, 0, tmp_path)
    monkeypatch.setenv("TUCCL_CUDA_LIBRARY", "/nowhere/lib.so")
    with pytest.raises(Unavailable, match="make cuda"):
        communicator_id()
    with pytest.raises(Unavailable, match="make cuda"), group():
        pass
