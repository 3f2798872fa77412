"""Times beside cross traffic: slower where the link is shared, refused where the processors are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from tests import programs
from tuccl.cli import main
from tuccl.emulation import CrossExecutor, Emulation, cross_executor, netns
from tuccl.errors import Unavailable
from tuccl.program import Knobs, to_xml
from tuccl.runtime import find_mpi
from tuccl.topology import (
    CrossTraffic,
    Topology,
    join,
    keep_gpus,
    load_profile,
    save_topology,
)
from tuccl.topology.cross_traffic import Source

LOADED = Source("n0/nic0", "leaf0", "long", load=0.8, streams=4)
SIZE = 1 << 19


@pytest.fixture(scope="module", autouse=True)
def privilege() -> None:
    try:
        netns.check_privilege()
        find_mpi()
    except Unavailable as missing:
        pytest.skip(str(missing))


def cluster() -> Topology:
    return join(keep_gpus(load_profile("ndv2"), [0]), 2)


@pytest.fixture
def executor() -> Iterator[CrossExecutor]:
    emulation = Emulation(cluster(), 0.002, cross=CrossTraffic((LOADED,)))
    with emulation, CrossExecutor(emulation, find_mpi()) as found:
        yield found


def test_a_loaded_link_slows_programs_and_says_what_it_carried(
    executor: CrossExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_executor, "_MOST_SLOWED", 100.0)  # whatever else runs here
    timing = executor.time(programs.ring_allreduce(2), Knobs(), SIZE, repeats=1)
    alone_us = executor.idle_us[SIZE, (0.0,)]
    assert timing.us > 1.5 * alone_us
    assert timing.runs == len(timing.samples_us) >= 5
    assert timing.us == pytest.approx(sum(timing.samples_us) / timing.runs)
    (load,) = executor.loads
    assert load.sources[0].offered_gbs == pytest.approx(0.02, rel=0.05)
    assert 0.005 < load.carried_gbs < 0.022
    times = executor.iterate(programs.ring_allreduce(2), Knobs(), SIZE, [0.0, 1e5], runs=3)
    assert median(times) > 1e5
    assert len(executor.loads) == 2


def test_a_point_that_the_processors_slow_is_refused(
    executor: CrossExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_executor, "_MOST_SLOWED", 0.0)  # as if the control run were slow
    monkeypatch.setattr(cross_executor, "_TRIES", 1)
    with pytest.raises(Unavailable, match=r"512K: the cross traffic slows .*processors"):
        executor.time(programs.ring_allreduce(2), Knobs(), SIZE)
    assert executor.loads == []


@pytest.mark.slow
def test_bench_and_emulate_take_a_file_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_executor, "_MOST_SLOWED", 100.0)
    topology, program, cross = (tmp_path / name for name in ("t.json", "p.xml", "c.json"))
    save_topology(cluster(), topology)
    program.write_bytes(to_xml(programs.ring_allreduce(2)).encode())
    source = {"from": "leaf0", "to": "n0/nic0", "kind": "web", "load": 0.5, "mean_bytes": 59e3}
    cross.write_text(json.dumps({"format": "tuccl-cross/1", "sources": [source]}))
    emulated = ["--on", "mpi", "--emulate", "--scale", "0.002", "--cross", str(cross), "--json"]
    bench = ["bench", str(program), str(topology), *emulated]
    assert main([*bench, "-s", "256K"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cross"][0]["sources"][0]["kind"] == "web"
    assert "beside cross traffic (web leaf0 > n0/nic0" in found["label"]
    assert main([*bench, "--iterate", "DenseNet-161", "--iterations", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["samples_us"]) == 3
    assert min(found["samples_us"]) > found["releases_us"][-1] > 4e5
    shared = ["--cross", str(cross), "--queue", "100K"]
    words = ["emulate", "--scale", "0.002", *shared, str(topology), "--", "sleep", "1"]
    assert main(words) == 0
    assert "cross traffic, Mb/s: web" in capsys.readouterr().err
