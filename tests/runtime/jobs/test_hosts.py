"""Hosts read over ssh, Slurm or MPI, whose commands are stand-ins on the PATH."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuccl.errors import InputError
from tuccl.runtime.jobs import (
    HostLauncher,
    allocated_hosts,
    host_command,
    hosts_in_file,
    hosts_of,
    probe_hosts,
)
from tuccl.topology import encode_topology, load_profile, save_topology
from tuccl.topology.smi import smi_matrix

# Each answers with the host's file, or as hosts do that are down, slow or lack tuccl.
ANSWER = """
echo "$host" >> "$FOLDER/asked"
case "$host" in
  down*) echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255 ;;
  bare*) echo "bash: line 1: tuccl: command not found" >&2; exit 127 ;;
  slow*) echo $$ >> "$FOLDER/pids"; sleep 300 & echo $! >> "$FOLDER/pids"; wait ;;
  noisy*) while :; do cat "$FOLDER/noise"; done ;;
  odd*) echo '{"format": "tuccl-topology/1", "name": 1}' ;;
  busy*) touch "$FOLDER/busy/$host"; ls "$FOLDER/busy" | wc -l >> "$FOLDER/most"; sleep 0.2
         rm "$FOLDER/busy/$host"; cat "$FOLDER/new.json" ;;
  *) echo "Welcome to $host"; echo "warning: an idle GPU" >&2; cat "$FOLDER/$host.json" ;;
esac
"""
SSH = """
while [ "$1" != -- ]; do shift; done; host=$2
case "$3" in
  "tuccl probe -o -") ;;
  "nvidia-smi topo -m") cat "$FOLDER/smi"; exit ;;
  *) exit 9 ;;
esac
"""
SRUN = 'for word; do case "$word" in --nodelist=*) host=${word#*=} ;; esac; done'
MPIRUN = """
[ "$1" = --version ] && { echo "mpirun (Open MPI) 5.0.1"; exit 0; }
while [ "$1" != --host ]; do shift; done; host=$2
"""


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of two hosts' topologies; the launchers before all others on the PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "busy").mkdir()
    for name, program in (("ssh", SSH), ("srun", SRUN), ("mpirun", MPIRUN)):
        script = tmp_path / "bin" / name
        script.write_text(f"#!/bin/sh\n{program}\n{ANSWER}")
        script.chmod(0o755)
    save_topology(load_profile("ndv2"), tmp_path / "old.json")
    save_topology(load_profile("dgx-a100"), tmp_path / "new.json")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FOLDER", str(tmp_path))
    return tmp_path


Tuccl = Callable[..., Any]


@pytest.mark.parametrize("launcher", ["ssh", "slurm", "mpi"])
def test_hosts_answer_in_their_order(hosts: Path, launcher: HostLauncher) -> None:
    answers = probe_hosts(["old", "new"], launcher)
    assert list(answers) == ["old", "new"]
    topologies = [answer.topology for answer in answers.values()]
    assert topologies == [load_profile("ndv2"), load_profile("dgx-a100")]
    assert answers["new"].warnings == ("new: an idle GPU",)


def test_the_cluster_of_hosts_is_written(tuccl: Tuccl, hosts: Path) -> None:
    out = hosts / "t.json"
    done = tuccl("probe", "--hosts", "old,new", "-o", out)
    assert done.code == 0, done.err
    assert json.loads(out.read_text())["name"] == "1x V100-SXM2-32GB x8 + 1x A100-SXM4-80GB x8"
    gpus = [n["id"] for n in json.loads(out.read_text())["nodes"] if n["kind"] == "gpu"]
    assert (gpus[0], gpus[8], len(gpus)) == ("old/gpu0", "new/gpu0", 16)
    assert "warning: old: an idle GPU" in done.err
    # Slurm's own list of a job's hosts serves too, and so does a host file.
    (hosts / "machines").write_text("# two\nold slots=8\nnew:8\nnew\n")
    again = tuccl("probe", "--hosts-file", hosts / "machines", "--remote-launcher", "mpi", "--json")
    assert json.loads(again.out)["ranks"] == 16


def test_a_host_that_does_not_answer_is_named(tuccl: Tuccl, hosts: Path) -> None:
    done = tuccl("probe", "--hosts", "old,down1,bare1", "--json")
    assert done.code == 2
    assert "2 of 3 hosts missing" in done.err
    assert "down1: ssh: connect to host down1 port 22: No route to host" in done.err
    assert "--remote-tuccl" in done.err
    done = tuccl("probe", "--hosts", "old,down1,new", "--allow-missing", "--json")
    assert json.loads(done.out)["hosts"] == 2
    assert "warning: down1 is left out: ssh: connect" in done.err
    assert tuccl("probe", "--hosts", "down1,down2", "--allow-missing").code == 2


def test_slow_and_noisy_hosts_are_ended(hosts: Path) -> None:
    (hosts / "noise").write_bytes(b"x" * (1 << 20))
    began = time.monotonic()
    answers = probe_hosts(["slow1", "noisy1", "old"], limit_s=4)
    assert time.monotonic() - began < 120
    assert answers["slow1"].reason == "no answer in 4 s"
    assert "prints more than" in answers["noisy1"].reason
    assert answers["old"].topology is not None
    assert_gone(hosts)


def test_hosts_without_tuccl_answer_by_the_vendors_tool(tuccl: Tuccl, hosts: Path) -> None:
    (hosts / "smi").write_text(smi_matrix(load_profile("dgx-h100")))
    answers = probe_hosts(["a", "b"], tool="nvidia-smi")
    expected = load_profile("dgx-h100")
    for host, answer in answers.items():
        assert answer.topology is not None
        assert (answer.topology.ranks, len(answer.topology.nics_of("n0"))) == (8, 8)
        assert answer.topology.name == host
    done = tuccl(
        "probe", "--hosts", "a,b", "--remote", "nvidia-smi", "--profile", "dgx-h100", "--json"
    )
    assert json.loads(done.out)["ranks"] == 2 * expected.ranks
    with pytest.raises(InputError, match="expected one of tuccl, nvidia-smi, rocm-smi"):
        probe_hosts(["a"], tool="sh")


def test_what_is_no_topology_is_refused(hosts: Path) -> None:
    answers = probe_hosts(["odd1", "old"])
    assert "answers with no topology" in answers["odd1"].reason


def test_an_interrupt_ends_all(hosts: Path) -> None:
    command = [sys.executable, "-m", "tuccl.cli", "probe", "--hosts", "slow1,slow2,slow3"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(pids(hosts)) == 6)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted" in err
    assert_gone(hosts)


def test_at_most_so_many_are_queried_at_once(hosts: Path) -> None:
    answers = probe_hosts([f"busy{n}" for n in range(7)], at_once=3)
    assert all(answer.topology is not None for answer in answers.values())
    assert max(map(int, (hosts / "most").read_text().split())) <= 3


def test_names_of_hosts_are_strict(hosts: Path) -> None:
    assert hosts_of("me@a,node[1-2]") == ("me@a", "node1", "node2")
    for text in ("-oProxyCommand=x", "a;b", "a b", "$(x)", "a,a", ",", "a/b", "node[1-"):
        with pytest.raises(InputError):
            hosts_of(text)
    for program in ("tuccl; rm", "-x", "$HOME/tuccl"):
        with pytest.raises(InputError, match="name or path of tuccl"):
            probe_hosts(["old"], tuccl=program)
    with pytest.raises(InputError, match="only ssh takes"):
        host_command("slurm", "me@a", ["true"])
    with pytest.raises(InputError, match="no name of a host"):
        host_command("ssh", "-x", ["true"])
    (hosts / "machines").write_text("old\n-oProxyCommand=x\n")
    with pytest.raises(InputError, match="machines: '-oProxyCommand=x' is no name"):
        hosts_in_file(str(hosts / "machines"))
    assert not (hosts / "asked").exists()


def test_a_slurm_job_names_its_hosts(hosts: Path) -> None:
    assert allocated_hosts({"SLURM_JOB_NODELIST": "gpu[01-02],x"}) == ("gpu01", "gpu02", "x")
    with pytest.raises(InputError, match="no Slurm job"):
        allocated_hosts({})


def test_standard_output_takes_the_topology(tuccl: Tuccl) -> None:
    done = tuccl("probe", "--profile", "ndv2", "-o", "-")
    assert done.out.encode() == encode_topology(load_profile("ndv2"))


def pids(hosts: Path) -> list[int]:
    file = hosts / "pids"
    return [int(word) for word in file.read_text().split()] if file.exists() else []


def wait_for(condition: object) -> None:
    until = time.monotonic() + 120
    while not condition() and time.monotonic() < until:  # type: ignore[operator]
        time.sleep(0.05)


def assert_gone(hosts: Path) -> None:
    assert pids(hosts)
    states = []
    for pid in pids(hosts):
        stat = Path(f"/proc/{pid}/stat")
        states += [stat.read_text().rpartition(")")[2].split()[0]] if stat.exists() else []
    assert set(states) <= {"Z"}
