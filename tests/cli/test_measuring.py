"""probe --measure of hosts behind a launcher, and of this host's GPUs, by stand-ins on the PATH."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from tests.runtime.probing.test_peer_copies import printed
from tuccl.cli import main
from tuccl.topology import load_profile, load_topology, save_topology

SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
case "$3" in
  "tuccl probe -o -") exec cat {host} ;;
  *) exec sh -c "$3" ;;
esac
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is first on the PATH, with an ssh whose hosts are this one."""
    save_topology(load_profile("ndv2"), tmp_path / "host.json")
    (tmp_path / "ssh").write_text(SSH.format(host=tmp_path / "host.json"))
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_hosts_are_read_and_measured_through_their_launcher(
    tools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tools / "t.json"
    words = ["probe", "--hosts", "me@a,b", "--measure", "--max-pairs", "1", "-o", str(out)]
    assert main([*words, "--addresses", "127.0.0.1,127.0.0.2"]) == 0
    found = load_topology(out)
    assert found.hosts == ("a", "b")
    network = [x for x in found.links if x.kind == "network"]
    assert {x.origin for x in network} == {"measured"}
    assert all(x.bandwidth == x.measured and x.spread_us is not None for x in network)
    assert "1 probes of 2 hosts" in capsys.readouterr().err


def test_hosts_without_an_address_of_use_are_named(
    tools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["probe", "--hosts", "localhost,b", "--measure"]
    for more, why in (
        ([], "resolves to"),
        (["--addresses", "127.0.0.1"], "1 addresses for 2 hosts"),
        (["--addresses", "127.0.0.1,no such host"], "no such host"),
        (["--addresses", "127.0.0.1,127.0.0.2+127.0.0.3"], "1 NICs with a network link, and 2"),
        (["--addresses", "127.0.0.1,127.0.0.2", "--rdma=-d 'mlx"], '--rdma: "-d \'mlx"'),
    ):
        assert main([*words, *more]) == 2
        assert why in capsys.readouterr().err
    assert main(["probe", "--cluster", str(tools / "host.json")]) == 2
    assert "--measure" in capsys.readouterr().err


def test_pairs_of_gpus_are_measured_where_nvcc_is(
    tools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tools / "printed").write_text(printed(45.0, both_gbs=30.0))
    program = f"#!/bin/sh\nexec cat {shlex.quote(str(tools / 'printed'))}\n"
    (tools / "nvcc").write_text(
        f'#!/bin/sh\nprintf "%s" {shlex.quote(program)} > "$3"; chmod +x "$3"'
    )
    (tools / "nvcc").chmod(0o755)
    out = tools / "t.json"
    assert main(["probe", "--profile", "v100x4", "--measure", "-o", str(out)]) == 0
    assert "copies run at 67%" in capsys.readouterr().err
    found = load_topology(out)
    assert {x.origin for x in found.links if x.kind == "nvlink"} == {"measured"}
    assert main(["probe", "--profile", "v100x4", "--measure", "--drift", str(out)]) == 0
    (tools / "printed").write_text(printed(30.0))
    assert main(["probe", "--profile", "v100x4", "--measure", "--drift", str(out)]) == 1
    assert "measured before" in capsys.readouterr().out
    assert main(["probe", "--profile", "dgx-1v", "--measure"]) == 2
    assert "4 GPUs on this host, 8 in" in capsys.readouterr().err
