"""Agents on the loopback device: they time, share, answer only their own run, and leave nothing."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from tests.runtime.probing.loopback import loopback_endpoints, loopback_prober
from tuccl.errors import InputError, TucclError
from tuccl.runtime.probing import AgentProber, agent, agent_words
from tuccl.runtime.probing.agent import ping_times
from tuccl.topology.probing import Endpoint, fit

WORDS = agent_words(sys.executable)


def agents() -> set[str]:
    """Return the processes that are agents."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if WORDS[-1].encode() in words and f"{path.parent.name}" not in found:
            found.add(path.parent.name)
    return found


def test_a_pair_is_timed_and_flows_run_at_the_same_time() -> None:
    before, ends = agents(), loopback_endpoints(2)
    with loopback_prober(ends) as prober:
        times = prober.pair(0, 1)
        assert min(times.round_trips_us) > 0
        for way in (times.forth, times.back):
            by_size: dict[int, list[float]] = {}
            for nbytes, us in way:
                by_size.setdefault(nbytes, []).append(us)
            assert [len(us) for us in by_size.values()] == [5, 5]
            assert fit(by_size).gbs.value > 0.01
        flows = [(0, 1), (1, 0)]
        with prober.load(flows) as load:
            assert all(rate > 0.01 for rate in load.rates())
            assert load.round_trips([(0, 1)])[0] > 0
            load.keep([(1, 0)])
            rates = load.rates()
            assert rates[1] > rates[0]
        assert len(agents() - before) == 2
    assert not agents() - before


def test_an_agent_hangs_up_on_strangers_and_listens_on_its_address_alone() -> None:
    port = agent.Agent(b"t" * agent.TOKEN_BYTES).listen("127.0.0.1")
    with socket.create_connection(("127.0.0.1", port), 5) as line:
        line.sendall(b"x" * agent.TOKEN_BYTES)
        assert line.recv(1) == b""
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", port), 5)


def test_a_host_that_fails_is_named_with_its_reason() -> None:
    ends = loopback_endpoints(2)
    no_route = ("sh", "-c", "echo lo1: no route to host >&2; exit 255")
    with pytest.raises(TucclError, match="host lo1: lo1: no route to host"):
        AgentProber(ends, [WORDS, no_route]).__enter__()
    with pytest.raises(InputError, match="cannot be started"):
        AgentProber(ends, [WORDS, ("/no/such/program",)]).__enter__()
    elsewhere = [ends[0], Endpoint("far", "n", "192.0.2.1")]
    with pytest.raises(TucclError, match="host far: OSError"):
        AgentProber(elsewhere, [WORDS, WORDS]).__enter__()


def test_a_host_that_dies_meanwhile_is_named(tmp_path: Path) -> None:
    before = agents()
    told = ("sh", "-c", 'echo $$ > "$0"; exec "$@"', str(tmp_path / "pid"), *WORDS)
    with AgentProber(loopback_endpoints(2), [WORDS, told]) as prober:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        with pytest.raises(TucclError, match="host lo1"):
            prober.pair(1, 0)
    assert not agents() - before


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo no route >&2; sleep 10 >/dev/null & exit 1", "no route"),
        ('echo no route >&2; sleep 10 2>/dev/null & echo \'{"id": 1, "error": "x"}\'', "lo0: x"),
        ('echo \'{"id": [1], "result": 1}\'; echo no route >&2', "no route"),
        ("echo '{\"id\": 1}'", "bad answer"),
        ('echo \'{"id": 1, "result": "22"}\'', "bad answer"),
    ],
)
def test_a_host_that_answers_with_anything_else_is_reported_at_once(script: str, why: str) -> None:
    """Whatever it leaves behind that holds its output open."""
    began = time.monotonic()
    with pytest.raises(TucclError, match=why):
        AgentProber(
            loopback_endpoints(1), [("sh", "-c", f"read token; read command; {script}")]
        ).__enter__()
    assert time.monotonic() - began < 9  # of the 10 s that what it left behind lives


def test_the_output_of_ping_is_read() -> None:
    text = """PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.
64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.045 ms
64 bytes from 10.0.0.2: icmp_seq=2 ttl=64 time=12 ms
64 bytes from 10.0.0.2: seq=3 ttl=64 time<1 ms

--- 10.0.0.2 ping statistics ---
3 packets transmitted, 3 received, 0% packet loss, time 402ms
rtt min/avg/max/mdev = 0.045/0.047/0.050/0.002 ms
"""
    assert ping_times(text) == [45.0, 12000.0, 1000.0]
    assert ping_times("ping: unknown host") == []


def test_latency_falls_back_to_ping_and_then_to_tcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> list[float]:
        raise PermissionError

    ping = tmp_path / "ping"
    ping.write_text('#!/bin/sh\nfor n in $(seq 20); do echo "seq=$n ttl=64 time=0.05 ms"; done\n')
    ping.chmod(0o755)
    monkeypatch.setattr(agent, "_icmp", forbidden)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    host = agent.Agent(b"t" * agent.TOKEN_BYTES)
    port = host.listen("127.0.0.1")
    assert host.echoes("127.0.0.1", port, "127.0.0.1", 12) == ([50.0] * 12, "ICMP echo")
    ping.write_text("#!/bin/sh\nexit 1\n")
    trips, method = host.echoes("127.0.0.1", port, "127.0.0.1", 5)
    assert (len(trips), method) == (5, "TCP echo")
