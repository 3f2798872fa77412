"""Cross traffic of emulated clusters: carried where it shall be, and gone with its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulation.flows import received_mbps
from tuccl.emulation import Emulation, netns
from tuccl.emulation.cross_traffic import EmulatedTraffic
from tuccl.emulation.emulation import running_emulations
from tuccl.emulation.running import ROOT
from tuccl.errors import InputError, TucclError, Unavailable
from tuccl.topology import CrossTraffic, Topology, join, keep_gpus, load_profile
from tuccl.topology.cross_traffic import Source

MBPS = 1e-3 / 8  # in GB/s
SCALE = 0.002  # of 12.5 GB/s: 200 Mb/s


@pytest.fixture(scope="module", autouse=True)
def privilege() -> None:
    try:
        netns.check_privilege()
    except Unavailable as missing:
        pytest.skip(str(missing))


def cluster(nodes: int = 2) -> Topology:
    return join(keep_gpus(load_profile("ndv2"), [0, 1]), nodes)


def sent(emulation: Emulation) -> dict[tuple[str, str], int]:
    return {link: queue.sent for link, queue in emulation.queues().items()}


SOURCES = [
    (Source("n0/nic0", "leaf0", "long", load=0.5, streams=2), {("n0/nic0", "leaf0")}),
    (Source("leaf0", "n0/nic0", "web", load=0.5, mean_bytes=59e3), {("leaf0", "n0/nic0")}),
    (Source("leaf0", "n1/nic0", "burst", gbs=6.25, mean_bytes=59e3), {("leaf0", "n1/nic0")}),
    (
        Source(("n1/nic0", "leaf0"), "n0/nic0", "incast", load=0.5),
        {("n1/nic0", "leaf0"), ("leaf0", "n0/nic0")},
    ),
]


@pytest.mark.parametrize(("source", "loaded"), SOURCES, ids=[s.kind for s, _ in SOURCES])
def test_a_source_loads_its_links_as_it_says(source: Source, loaded: set[tuple[str, str]]) -> None:
    with Emulation(cluster(), SCALE, cross=CrossTraffic((source,))) as emulation:
        before = sent(emulation)
        with EmulatedTraffic(emulation) as traffic:
            time.sleep(0.5)
            traffic.report()
            time.sleep(2.0)
            load = traffic.report()
        after = sent(emulation)
        (one,) = load.sources
        assert one.offered_gbs == pytest.approx(100 * MBPS, rel=0.35)  # 2 s of random flows
        assert load.carried_gbs == pytest.approx(one.offered_gbs, rel=0.1)
        mean_gbs = sum(one.windows_gbs) * 0.01 / load.seconds
        assert mean_gbs == pytest.approx(load.carried_gbs, rel=0.02)
        assert one.left_out == 0
        assert {link for link in after if after[link] - before[link] > 2e6} == loaded


def test_flows_share_a_link_with_the_jobs_own() -> None:
    cross = CrossTraffic((Source("n0/nic0", "leaf0", "long", load=0.8, streams=4),))
    own = [(0, 1)] * 4  # one window of 64 KB is 2.6 ms of the link: less than a busy machine's turn
    with Emulation(cluster(), SCALE, cross=cross) as emulation:
        assert sum(received_mbps(emulation, own)) == pytest.approx(200, rel=0.1)
        with EmulatedTraffic(emulation):
            assert received_mbps(emulation, [(0, 1)])[0] < 130
            assert sum(received_mbps(emulation, [(1, 0)] * 4)) > 150
        assert sum(received_mbps(emulation, own)) == pytest.approx(200, rel=0.1)


def test_the_control_run_sends_as_much_over_no_link_of_the_job() -> None:
    cross = CrossTraffic((Source("leaf0", "n0/nic0", "web", load=0.6, mean_bytes=59e3),))
    with Emulation(cluster(), SCALE, cross=cross) as emulation:
        before = sent(emulation)
        with EmulatedTraffic(emulation, on_control=True) as traffic:
            time.sleep(2.0)
            (one,) = traffic.report().sources
        assert one.carried_gbs > 60 * MBPS
        assert len(one.flow_us) > 100
        assert max(after - before[link] for link, after in sent(emulation).items()) < 1e5


def test_rates_leave_what_their_schedule_says_and_all_in_the_end() -> None:
    source = Source("n0/nic0", "leaf0", "rate", schedule=((0.0, 0.75), (0.5, 0.25)))
    with Emulation(cluster(), SCALE, cross=CrossTraffic((source,))) as emulation:
        link = "n0/nic0", "leaf0"
        with EmulatedTraffic(emulation) as traffic:
            assert emulation.queues()[link].rate_bps == pytest.approx(50e6)
            until = time.monotonic() + 10
            while emulation.queues()[link].rate_bps < 140e6 and time.monotonic() < until:
                time.sleep(0.05)
            assert emulation.queues()[link].rate_bps == pytest.approx(150e6)
            assert traffic.report().sources == ()
        assert {queue.rate_bps for queue in emulation.queues().values()} == {200e6}


def test_small_queues_lose_what_is_beyond_them() -> None:
    cross = CrossTraffic((Source("leaf0", "n0/nic0", "web", load=2.0, mean_bytes=59e3),))
    with Emulation(cluster(), SCALE, cross=cross, queue_bytes=100_000) as emulation:
        with EmulatedTraffic(emulation) as traffic:
            time.sleep(2.0)
            assert traffic.report().sources[0].resent > 10
        assert emulation.queues()["leaf0", "n0/nic0"].dropped > 10
        assert "queues of 100000 bytes" in emulation.label
    with pytest.raises(InputError, match="queue of 10 bytes: expected 65536 to"):
        Emulation(cluster(), SCALE, queue_bytes=10)


def test_ends_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="no node 'leaf7'"):
        Emulation(cluster(), cross=CrossTraffic((Source("leaf7", "n0/nic0", "long"),)))
    with Emulation(cluster(), SCALE) as emulation, pytest.raises(InputError, match="without"):
        EmulatedTraffic(emulation)


def test_traffic_that_died_is_reported() -> None:
    cross = CrossTraffic((Source("leaf0", "n0/nic0", "long", load=0.1),))
    with Emulation(cluster(), SCALE, cross=cross) as emulation, EmulatedTraffic(emulation) as alive:
        for pid in players(emulation):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(TucclError, match="the cross traffic ended"):
            alive.report()


OWNER = """
import sys, time
from tests.emulation.test_cross_traffic import cluster
from tuccl.emulation import Emulation
from tuccl.emulation.cross_traffic import EmulatedTraffic
from tuccl.topology import CrossTraffic
from tuccl.topology.cross_traffic import Source
cross = CrossTraffic((Source("leaf0", "n0/nic0", "web", load=0.5),))
with Emulation(cluster(), 0.002, cross=cross) as emulation, EmulatedTraffic(emulation):
    print(emulation.id, flush=True)
    time.sleep(60)
"""


def players(emulation: Emulation | str) -> list[int]:
    """Return the processes that play an emulation's traffic."""
    name = emulation if isinstance(emulation, str) else emulation.id
    found = subprocess.run(
        ["ip", "netns", "pids", f"tuccl-{name}-fabric"], capture_output=True, text=True, check=False
    )
    return [int(word) for word in found.stdout.split()]


@pytest.fixture
def owner() -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


def test_a_killed_owners_traffic_stops_and_the_next_emulation_clears_the_rest(
    owner: tuple[subprocess.Popen[str], str],
) -> None:
    process, name = owner
    pids = players(name)
    assert len(pids) == 1
    process.kill()
    process.wait()
    until = time.monotonic() + 10
    while players(name) and time.monotonic() < until:
        time.sleep(0.05)
    assert players(name) == []
    with Emulation(cluster(), SCALE) as emulation:
        assert name in emulation.cleared
        assert [each.id for each in running_emulations()].count(emulation.id) == 1
    left = [*ROOT.glob(f"{name}*"), *Path("/run/netns").glob(f"*{name}*")]
    assert left == []
