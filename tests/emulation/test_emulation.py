"""Emulated clusters: right rates, small buckets, and nothing of them survives."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.emulation.flows import python, received_mbps
from tuccl.cli import main
from tuccl.emulation import emulation as emulation_module
from tuccl.emulation import netns
from tuccl.emulation.emulation import Emulation, running_emulations, set_rate
from tuccl.emulation.executor import EmulatedExecutor
from tuccl.emulation.running import ROOT
from tuccl.errors import InputError, TucclError, Unavailable
from tuccl.program import Knobs, to_xml
from tuccl.runtime.executors.measure import Effort, Operands
from tuccl.runtime.executors.mpi_find import Mpi, find_mpi
from tuccl.topology import Topology, join, keep_gpus, load_profile, save_topology

MBPS = 1e6
LISTENER = """
import socket
listener = socket.create_server(("", 5002))
print("ready", flush=True)
print(len(listener.accept()[0].recv(10)))
"""
CALLER = """
import socket, sys
socket.create_connection((sys.argv[1], 5002), 5).sendall(b"hello")
"""


@pytest.fixture(scope="module", autouse=True)
def privilege() -> None:
    try:
        netns.check_privilege()
    except Unavailable as missing:
        pytest.skip(str(missing))


def pair(nodes: int = 2, up_gbs: float | None = None) -> Topology:
    """Return hosts of two GPUs and a NIC of 12.5 GB/s: 200 Mb/s at a scale of 0.002."""
    host = keep_gpus(load_profile("ndv2"), [0, 1])
    return join(host, nodes, fabric="clos" if up_gbs else "single", up_gbs=up_gbs)


def names() -> set[str]:
    """Return what of emulations lies about: namespaces and folders."""
    places = (ROOT, Path("/etc/netns"), Path("/dev/shm"))
    return {*netns.spaces(), *(p.name for place in places for p in place.glob("*"))}


def left_by(mark: str, process: int) -> bool:
    """Return whether an emulation's folders or namespaces or its command are still there."""
    left = [name for name in names() if name.startswith((mark, f"tuccl-{mark}"))]
    return bool(left) or Path(f"/proc/{process}").exists()


def left_of(name: str) -> set[str]:
    return {found for found in names() if name in found}


def test_a_wire_carries_its_rate_and_another_when_that_is_changed() -> None:
    with Emulation(pair(), 0.002) as emulation:
        before = emulation.sent_bytes()
        assert received_mbps(emulation, [(0, 1)])[0] == pytest.approx(200, rel=0.1)
        assert emulation.sent_bytes() - before > 1.3 * 200e6 / 8 * 0.8
        set_rate("n0/nic0", "leaf0", 50 * MBPS, emulation.id)
        assert received_mbps(emulation, [(0, 1)])[0] == pytest.approx(50, rel=0.1)
        assert emulation.queues()["n0/nic0", "leaf0"].rate_bps == 50 * MBPS
        assert emulation.queues()["leaf0", "n0/nic0"].rate_bps == 200 * MBPS
        with pytest.raises(InputError, match="no link"):
            set_rate("n0/nic0", "n1/nic0", 50 * MBPS, emulation.id)
        with pytest.raises(InputError, match="expected 1 to"):
            set_rate("n0/nic0", "leaf0", 0, emulation.id)


def test_a_schedule_changes_the_rates_of_all_nics_while_a_command_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Emulation(pair(), 0.002, 1.0) as emulation:
        emulation.set_network(1.25, 8e3)
        assert {queue.rate_bps for queue in emulation.queues().values()} == {20 * MBPS}
        assert {port.nominal_bps for port in emulation.cluster.ports} == {1e10}
        assert {us for row in emulation.latency_matrix for us in row} == {0.0, 8e3}
        with pytest.raises(InputError, match="expected 1 to"):
            emulation.set_network(1e-3, 0.0)
    topology = tmp_path / "t.json"
    save_topology(pair(), topology)
    schedule = ["emulate", "--scale", "0.002", "--schedule"]
    assert main([*schedule, "C1", "--epoch", "0.01", str(topology), "--", "sleep", "1"]) == 0
    told = capsys.readouterr().err
    assert [f"C1, epoch {epoch}:" in told for epoch in (0, 12, 24, 36)] == [True] * 4
    assert "50 ms, 1 Gb/s (nominal)" in told
    assert main([*schedule, "C3", str(topology), "--", "true"]) == 2


def test_hosts_have_one_tcp_and_packets_that_their_buckets_bear() -> None:
    """A packet above its bucket is cut; one as large leaves a late timer no room."""
    asked = ["cat", "/proc/sys/net/ipv4/tcp_congestion_control"]
    for scale in (0.002, 0.01):
        with Emulation(pair(), scale) as emulation:
            said = subprocess.run(
                [*emulation.prefix(1), *asked], capture_output=True, text=True, check=True
            )
            assert said.stdout.split() == ["reno"]
            shown = subprocess.run(
                [*emulation.prefix(1), "ip", "-d", "-j", "link", "show", "dev", "rail0"],
                capture_output=True,
                text=True,
                check=True,
            )
            packet = json.loads(shown.stdout)[0]["gso_max_size"]
            bucket = emulation.queues()["n1/nic0", "leaf0"].burst
            assert 2 * 9000 <= packet <= bucket - 0.2e-3 * 12.5e9 * scale


def test_an_uplink_is_shared() -> None:
    """What two hosts send into a third is together what its switch's uplink carries."""
    with Emulation(pair(3, up_gbs=6.25), 0.002) as emulation:
        assert sum(received_mbps(emulation, [(0, 2), (1, 2)])) == pytest.approx(100, rel=0.15)


def test_buckets_are_small_or_the_emulation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with Emulation(pair()) as emulation:
        assert emulation.cluster.fastest_bps == 1e9
        assert all(0 < queue.burst <= 1 << 16 for queue in emulation.queues().values())
        assert len(emulation.queues()) == 4
        fill_us = [8e6 * queue.burst / queue.rate_bps for queue in emulation.queues().values()]
        assert max(fill_us) <= emulation.refill_us <= 2 * max(fill_us)
        assert emulation.burst_us == pytest.approx(max(fill_us), rel=0.01)
    monkeypatch.setattr(emulation_module, "MOST_BURST", 10_000)
    refused = Emulation(pair(), 0.04)
    with pytest.raises(Unavailable, match="bucket of"):
        refused.__enter__()
    with pytest.raises(TucclError, match="not up"):
        _ = refused.id
    assert not [name for name in names() if name.startswith(f"tuccl-{os.getpid()}-")]


def test_two_emulations_do_not_meet() -> None:
    with Emulation(pair(), 0.002) as one, Emulation(pair(), 0.002) as other:
        assert {one.id, other.id} <= {found.id for found in running_emulations()}
        address = one.cluster.hosts[1].nics[0].address
        assert address == other.cluster.hosts[1].nics[0].address
        with python(one, 1, LISTENER) as listener:
            assert listener.stdout is not None and listener.stdout.readline() == "ready\n"
            with python(other, 0, CALLER, address) as stranger:
                assert stranger.wait(20) != 0  # refused: nobody listens on its own host
            with python(one, 0, CALLER, address) as caller:
                assert caller.wait(20) == 0
            assert listener.stdout.readline() == "5\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_the_owner_the_next_call_finds_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The command's own process, which runs in a namespace, ends too."""
    save_topology(pair(), tmp_path / "t.json")
    inside = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    command = ["emulate", str(tmp_path / "t.json"), "--", sys.executable, "-c", inside]
    with subprocess.Popen(
        [sys.executable, "-m", "tuccl.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as owner:
        assert owner.stdout is not None
        inner = int(owner.stdout.readline())
        mark = f"{owner.pid}-"
        assert [name for name in names() if f"tuccl-{mark}" in name]
        if number == signal.SIGINT:  # as a terminal does
            os.killpg(owner.pid, number)
        else:
            owner.send_signal(number)
        owner.wait(20)
        if number == signal.SIGKILL:
            with Emulation(pair()) as following:
                assert following.id in {found.id for found in running_emulations()}
    until = time.monotonic() + 10  # another test's call may be clearing it just now
    while left_by(mark, inner) and time.monotonic() < until:
        time.sleep(0.02)
    assert not left_by(mark, inner)


def test_what_is_not_a_leftover_is_let_be() -> None:
    """Neither a living owner's cluster nor anyone else's namespace is cleared."""
    foreign = f"tuccl-{os.getpid()}-mine"
    netns.add_space(foreign)
    try:
        with Emulation(pair()) as living, Emulation(pair()) as second:
            assert living.id not in second.cleared
            assert len([n for n in netns.spaces() if living.id in n]) == 3
            name = living.id
        assert foreign in netns.spaces() and not left_of(name)
    finally:
        netns.delete_space(foreign)
    assert foreign not in netns.spaces()


def test_a_step_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TucclError("no such qdisc")

    monkeypatch.setattr(emulation_module, "shape", fail)
    before = {name for name in names() if f"{os.getpid()}-" in name}
    with pytest.raises(TucclError, match="qdisc"):
        Emulation(pair()).__enter__()
    assert {name for name in names() if f"{os.getpid()}-" in name} == before


def test_the_verb_runs_a_command_that_reaches_the_other_hosts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save_topology(pair(), tmp_path / "t.json")
    script = "cat /proc/sys/kernel/hostname; $TUCCL_RSH n1 cat /proc/sys/kernel/hostname; exit 7"
    assert main(["emulate", str(tmp_path / "t.json"), "--", "sh", "-c", script]) == 7
    out, err = capfd.readouterr()
    assert out.split() == ["n0", "n1"] and "all NICs 1000 Mb/s" in err


def test_rates_of_a_running_emulation_are_listed_and_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Emulation(pair(), 0.002) as emulation:
        change = ["--set-rate", "leaf0", "n1/nic0", "60", "--emulation", emulation.id]
        assert main(["emulate", *change]) == 0
        assert emulation.queues()["leaf0", "n1/nic0"].rate_bps == 60 * MBPS
        capsys.readouterr()
        assert main(["emulate", "--list", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)["emulations"]
        [own] = [found for found in told if found["id"] == emulation.id]
        ports = {(port["src"], port["dst"]): port["rate_bps"] for port in own["cluster"]["ports"]}
        assert ports["leaf0", "n1/nic0"] == 60 * MBPS and ports["leaf0", "n0/nic0"] == 200 * MBPS
        assert {(p.src, p.dst): p.rate_bps for p in emulation.cluster.ports} == ports
        assert main(["emulate", "--set-rate", "leaf0", "n1/nic0", "fast"]) == 2
        with pytest.raises(InputError, match="running are"):
            set_rate("leaf0", "n1/nic0", 60 * MBPS, "1-00000000")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["emulate"], "expected a topology"),
        (["emulate", "T"], "no command to run"),
        (["emulate", "T", "--scale", "1", "--", "true"], "options stand before"),
        (["emulate", "--scale", "1", "T", "--", "true"], "can be emulated"),
        (["bench", "x.xml", "T", "-s", "1M", "--on", "loopback", "--emulate"], "use --on mpi"),
        (["bench", "x.xml", "T", "-s", "1M", "--on", "mpi", "--latency", "2"], "add it"),
        (["tune", "T", "-c", "reduce", "-s", "1M", "--emulate", "-o", "x"], "only bench simulates"),
        (["bench", "x.xml", "T", "-s", "1M", "--on", "mpi", "--scale", "1"], "add it"),
    ],
)
def test_bad_calls_take_one_line(
    tmp_path: Path,
    handmade: ModuleType,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    save_topology(pair(), tmp_path / "T")
    (tmp_path / "x.xml").write_text(to_xml(handmade.ring_allreduce(4), "executor"))
    places = {"T": str(tmp_path / "T"), "x.xml": str(tmp_path / "x.xml")}
    assert main([places.get(word, word) for word in arguments]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    try:
        return find_mpi(request.param)
    except Unavailable as missing:
        pytest.skip(f"{missing}; `make mpi` does it")


def test_a_ring_is_right_and_as_slow_as_its_wires(mpi: Mpi, handmade: ModuleType) -> None:
    """A ring of 4 ranks sends 1.5 arrays over each NIC, so it cannot be faster than its rate."""
    nbytes = 1 << 20
    effort = Effort(warmup=1, runs=3, seconds=1)
    with (
        Emulation(pair(), 0.002) as emulation,
        EmulatedExecutor(emulation, mpi, operands=Operands(check=True), effort=effort) as executor,
    ):
        timing = executor.time(handmade.ring_allreduce(4), Knobs(), nbytes)
        inside = [Path(f"/proc/{pid}/ns/net").stat().st_ino for pid in executor.pids]
        assert "2 emulated hosts" in executor.label and "0.002" in executor.label
        assert executor.pause_us == emulation.refill_us
        set_rate("leaf0", "n1/nic0", 1 * MBPS, emulation.id)  # the slowest: its bucket takes 160 ms
        assert 160_000 <= executor.pause_us <= 200_000
        assert 160_000 == pytest.approx(executor.burst_us, rel=0.01)
    assert timing.wrong == 0 and len(set(inside)) == 2 and inside[0] == inside[1]
    least_us = 1.5 * nbytes / (200e6 / 8) * 1e6
    assert 0.9 * least_us < timing.us < 3 * least_us


def test_latency_is_added_to_each_message_and_takes_no_rate(mpi: Mpi, handmade: ModuleType) -> None:
    """Around a ring over two hosts a chunk crosses the network twice; wires stay busy meanwhile."""
    with Emulation(pair(), 0.002) as plain:
        nominal_us = max(route.latency_us for route in plain.cluster.latencies)
    latency_us, nbytes = 50_000.0, 4 << 20
    effort = Effort(warmup=1, runs=1)
    with (
        Emulation(pair(), 0.002, latency_us / nominal_us) as emulation,
        EmulatedExecutor(emulation, mpi, operands=Operands(check=True), effort=effort) as executor,
    ):
        assert "latencies times" in executor.label
        small = executor.time(handmade.ring_allgather(4), Knobs(), 1 << 10)
        large = executor.time(handmade.ring_allgather(4), Knobs(buffer_bytes=1 << 20), nbytes)
    assert small.wrong == large.wrong == 0
    assert small.us >= 2 * latency_us
    messages = 4 * 3 * 2  # passes, steps and slices of a rank: held one by one they would add up
    alone_us = 0.75 * nbytes / (200e6 / 8) * 1e6
    assert alone_us < large.us < alone_us + messages * latency_us


def test_bytes_that_take_other_ways_are_no_measurement(
    mpi: Mpi, handmade: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with an MPI whose shared memory joins the hosts, which are one kernel: no wire moves."""
    monkeypatch.setattr(Emulation, "sent_bytes", lambda _: 0)
    with (
        Emulation(pair(), 0.002) as emulation,
        EmulatedExecutor(emulation, mpi, effort=Effort(1, 1, 0.1)) as executor,
        pytest.raises(TucclError, match="by other means"),
    ):
        executor.time(handmade.ring_allgather(4), Knobs(), 1 << 16)


def test_without_privilege_one_line_offers_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_topology(pair(), tmp_path / "t.json")
    call = ["emulate", str(tmp_path / "t.json"), "--", "true"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(call) == 2
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if name == "tc" else name)
    assert main(call) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all("--on sim" in line for line in lines)
    assert "CAP_NET_ADMIN" in lines[0] and "iproute2" in lines[1]
