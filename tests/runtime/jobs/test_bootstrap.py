"""The meeting point that `tuccl run` opens, and the ranks that come to it through the plugin."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.runtime.nccl.test_nccl_table import nccl_table
from tests.topology.test_probe import GEN4, device, machine
from tuccl.cli import main
from tuccl.errors import InputError
from tuccl.execution import RendezvousServer
from tuccl.runtime import save_table
from tuccl.runtime.jobs import plugin_path, rendezvous_address, rendezvous_server
from tuccl.runtime.jobs.machine_check import changed_machine
from tuccl.runtime.table.store import load_table
from tuccl.runtime.table.text import table_text
from tuccl.selection import Selector
from tuccl.topology import probe_local

HOST = plugin_path("tuner").parent / "tuccl-plugin-host"
RANKS = 4


@pytest.fixture
def table(hand: SimpleNamespace, tmp_path: Path) -> Path:
    """The first choice of its first entry, the ring, has become slow."""
    save_table(nccl_table(hand), tmp_path / "table", hand.mesh(), ())
    selector = Selector(table_text(load_table(tmp_path / "table").lookup))
    selector.add_observed(str(tmp_path / "table"), [(0, 50.0)] * 9 + [(1, 6.0)] * 9)
    return tmp_path / "table"


def choices(folder: Path, ranks: int, more: Mapping[str, str]) -> list[str]:
    """What each rank, a process, is told by the tuner."""
    crew = [
        subprocess.Popen(
            [HOST, "tuner", plugin_path("tuner"), "6", str(RANKS), "1"],
            env={**os.environ, "TUCCL_TABLE": str(folder), **more},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(ranks)
    ]
    for rank in crew:
        assert rank.stdin is not None
        rank.stdin.write("allreduce 1024\n")
        rank.stdin.close()
        rank.stdin = None
    return [rank.communicate(timeout=100)[0].split()[0] for rank in crew]


def test_ranks_that_meet_use_what_was_learned(table: Path) -> None:
    assert choices(table, 1, {}) == ["Ring"]
    with rendezvous_server(("127.0.0.1", 0)) as variables:
        assert choices(table, RANKS, {**variables, "TUCCL_TIMEOUT": "60"}) == ["Tree"] * RANKS


def test_a_rank_that_does_not_come_leaves_the_default_to_all(table: Path) -> None:
    with rendezvous_server(("127.0.0.1", 0)) as variables:
        assert choices(table, RANKS - 1, {**variables, "TUCCL_TIMEOUT": "2"}) == ["-"] * 3
    assert choices(table, 1, {**variables, "TUCCL_TIMEOUT": "1"}) == ["-"]  # closed by now


def test_run_opens_it_and_hands_it_on(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = (
        "import os, socket; at = os.environ['TUCCL_BOOTSTRAP'].split(':'); "
        "socket.create_connection((at[0], int(at[1]))).close(); "
        "assert len(os.environ['TUCCL_TOKEN']) == 32; assert os.environ['TUCCL_EXPLORE'] == '64'"
    )
    words = ["--table", str(table), "--explore", "64", "--", sys.executable, "-c", ask]
    assert main(["run", *words]) == 0
    told = capsys.readouterr().err
    assert "ranks meet at 127.0.0.1:" in told and "export TUCCL_TOKEN" not in told
    none = "import os; assert 'TUCCL_BOOTSTRAP' not in os.environ"
    words = ["--table", str(table), "--bootstrap", "none", "--", sys.executable, "-c", none]
    assert main(["run", *words]) == 0


def test_launchers_hand_it_on_without_showing_the_token(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.fake_nccl_tests import make_fakes

    start = make_fakes(tmp_path / "fakes").launcher("mpiexec")
    show = "import os, sys; sys.stdout.write(os.environ['TUCCL_TOKEN'])"
    words = ["run", "--table", str(table), "--", start, "-n", "1", sys.executable, "-c", show]
    assert main(words) == 0
    assert "-genv TUCCL_TOKEN TOKEN" in capsys.readouterr().err


def test_another_hosts_meeting_point_is_only_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUCCL_TOKEN", "a token for all hosts")
    with rendezvous_server(("192.0.2.7", 4711)) as variables:
        assert variables["TUCCL_BOOTSTRAP"] == "192.0.2.7:4711"


def test_another_hosts_address_wants_its_port_and_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUCCL_TOKEN", raising=False)
    with pytest.raises(InputError, match="TUCCL_TOKEN"), rendezvous_server(("192.0.2.7", 4711)):
        pass


@pytest.mark.parametrize("asked", ["127.0.0.1:0", "127.0.0.1:x", "127.0.0.1:70000", "no host"])
def test_addresses_that_are_none_are_refused(asked: str) -> None:
    with pytest.raises(InputError, match="--bootstrap"):
        rendezvous_address(asked, 1)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=str(port)):
            RendezvousServer("127.0.0.1", port, "long enough a token")


def test_a_probed_host_is_compared_by_signature(tmp_path: Path) -> None:
    """Without a description of the machine `run` probes it, as for the table's topology."""
    machine(tmp_path)
    tuned, _ = probe_local(tmp_path)
    assert not changed_machine(tuned, root=tmp_path)
    gpu = {"kind": "0x030200", "vendor": "0x10de", "device": "0x20b2", **GEN4}
    moved = tmp_path / "moved"
    machine(moved)
    (moved / "sys/bus/pci/devices/0000:81:00.0").unlink()
    device(moved, "pci0000:40/0000:40:01.1/0000:41:03.0", numa_node="0", **gpu)
    assert changed_machine(tuned, root=moved)
    fewer = tmp_path / "fewer"
    machine(fewer)
    (fewer / "sys/bus/pci/devices/0000:81:00.0").unlink()
    assert changed_machine(tuned, root=fewer) == ("3 GPUs on a host before, 2 on this one now",)
