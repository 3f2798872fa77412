"""RDMA's perftest: its tables are read, and a stand-in of it probes a network."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.runtime.probing.loopback import loopback_endpoints
from tuccl.errors import InputError, TucclError
from tuccl.runtime.probing import PerftestProber, perftest
from tuccl.runtime.probing.perftest import read_write_bw, read_write_lat
from tuccl.topology.probing import Endpoint, probe_network

# As perftest 4.5 and 6 print, written down from logs that users published.
LATENCY = """---------------------------------------------------------------------------------------
                    RDMA_Write Latency Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Mtu             : 2048[B]
 Link type       : IB
---------------------------------------------------------------------------------------
 local address: LID 0x01 QPN 0x0215 PSN 0x79fcd6 OUT 0x10 RKey 0x28010100 VAddr 0x0055fa855bd000
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
Conflicting CPU frequency values detected: 2400.000000 != 1873.463000. CPU Frequency is not max.
 2       1000          1.76           6.12         1.79                1.80             0.06            1.88                    6.12
---------------------------------------------------------------------------------------
"""
OLD_LATENCY = """ #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]
      2        1000           1.27          14.87           1.32
"""
RATES = """                    RDMA_Write BW Test
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 2          5000           0.142947            0.012281            0.767588
 65536      5000             47.22              46.58             0.088834
 8388608    5000             197.10             196.92               0.002934
---------------------------------------------------------------------------------------
"""
OLD_RATES = """ #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 1500.000000 != 3300.016000. CPU Frequency is not max.
 65536      560845           0.00               98.02                0.186950
"""


def test_tables_of_perftest_are_read() -> None:
    assert read_write_lat(LATENCY) == 1.79
    assert read_write_lat(OLD_LATENCY) == 1.32
    assert read_write_bw(RATES)[8388608] == pytest.approx(24.615)
    assert list(read_write_bw(RATES)) == [2, 65536, 8388608]
    assert read_write_bw(OLD_RATES) == {65536: pytest.approx(0.09802)}


def test_damaged_tables_are_refused() -> None:
    for bad in ("", "Couldn't connect to 10.0.0.1:18515", RATES, LATENCY.replace("t_typical", "t")):
        with pytest.raises(InputError, match="perftest"):
            read_write_lat(bad)
    for bad in ("", LATENCY, RATES.replace("Gb/sec", "furlongs"), OLD_RATES.replace("98.02", "0")):
        with pytest.raises(InputError, match="ib_write_bw"):
            read_write_bw(bad)
    chance = random.Random(0)
    for text, read in ((LATENCY, read_write_lat), (RATES, read_write_bw)):
        for _ in range(200):
            data = list(text[: chance.randrange(1, len(text))])
            for _ in range(3):
                data[chance.randrange(len(data))] = chance.choice("0.9e- [x\n")
            try:
                read("".join(data))
            except InputError:
                continue


STAND_IN = """#!{shell}
# A server ends at once; a client prints what perftest would.
for word; do last="$word"; done
case "$last" in
  127.*) ;;
  *) exit 0 ;;
esac
[ -z "$PERFTEST_FAILS" ] || {{ echo "Couldn't connect to $last" >&2; exit 1; }}
cat {table}
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A perftest of tables on the PATH, whose large messages run at 24.6 GB/s."""
    rates = RATES.replace("65536 ", "4194304 ").replace("46.58", "196.90")
    for name, table in (("ib_write_lat", LATENCY), ("ib_write_bw", rates)):
        (tmp_path / f"{name}.txt").write_text(table)
        program = tmp_path / name
        program.write_text(STAND_IN.format(shell="/bin/sh", table=tmp_path / f"{name}.txt"))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(perftest, "_BETWEEN_S", 0.01)
    return tmp_path


def test_a_network_is_probed_by_perftest(stand_in: Path) -> None:
    started: list[Sequence[str]] = []

    def on_host(index: int, words: Sequence[str]) -> Sequence[str]:
        started.append(words)
        return words

    ends = loopback_endpoints(4)
    rates = probe_network(PerftestProber(ends, on_host, ["-d", "mlx5_0"]), ends)
    assert [port.out_gbs.value for port in rates.ports] == pytest.approx([24.6] * 4, rel=0.01)
    assert rates.ports[0].latency_us.value == pytest.approx(1.79 / 2)
    assert len(rates.groups) == 1
    assert rates.method == "RDMA writes by perftest"
    assert all(
        words[2] in ("ib_write_lat", "ib_write_bw") and "mlx5_0" in words for words in started
    )


def test_queues_stay_full_however_many_pairs_are_timed(stand_in: Path) -> None:
    """Flows run for 30 s: a few pairs later others take their place."""
    started: list[str] = []

    def on_host(index: int, words: Sequence[str]) -> Sequence[str]:
        started.append(words[2])
        return words

    with PerftestProber(loopback_endpoints(4), on_host).load([(0, 1)]) as load:
        assert len(load.round_trips([(2, 3)] * 20)) == 20
    between = " ".join(started).split("ib_write_bw ib_write_bw")[1:]
    assert sum(part.count("ib_write_lat") for part in between) == 40
    assert all(part.count("ib_write_lat") <= 12 for part in between)


def test_several_addresses_of_a_host_are_refused() -> None:
    ends = [Endpoint("a", "a/nic0", "10.0.0.1", others=(("a/nic1", "10.1.0.1"),))]
    with pytest.raises(InputError, match="host a: 2 addresses"):
        PerftestProber(ends, lambda _, words: words)


def test_a_perftest_that_fails_is_reported(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFTEST_FAILS", "1")
    with pytest.raises(TucclError, match="host lo0: perftest fails: \"Couldn't connect"):
        PerftestProber(loopback_endpoints(2), lambda _, words: words).pair(0, 1)
