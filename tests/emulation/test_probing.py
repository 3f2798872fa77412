"""Probing an emulated cluster: its shared uplink is found (rates: benchmarks/probing.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.emulation.test_emulation import names
from tests.topology.model_prober import network
from tuccl.cli import main
from tuccl.emulation import (
    Emulation,
    emulated_endpoints,
    emulated_prober,
    netns,
    unprobed_topology,
)
from tuccl.emulation.probing import probing_scale
from tuccl.errors import Unavailable
from tuccl.topology import load_topology, save_topology
from tuccl.topology.probing import measured_topology, probe_network


@pytest.fixture(autouse=True)
def privilege() -> Iterator[None]:
    try:
        netns.check_privilege()
    except Unavailable as missing:
        pytest.skip(str(missing))
    yield
    assert not [name for name in names() if f"{os.getpid()}-" in name]


def test_the_shared_uplink_is_found_and_measured() -> None:
    truth = network([range(2), range(2, 4)], up_gbs=[1.2])
    scale = probing_scale(truth) / 4
    with Emulation(truth, scale) as emulation, emulated_prober(emulation) as prober:
        rates = probe_network(prober, emulated_endpoints(emulation))
        found = measured_topology(unprobed_topology(emulation), rates)
    assert rates.groups == ((0, 1), (2, 3))
    assert rates.probes <= 4 * 4
    assert {n.id for n in found.nodes if n.kind == "switch"} == {"tor0", "tor1"}
    for link in found.links:
        if link.kind == "network":
            assert link.origin == "measured"
            assert link.measured == link.bandwidth


def test_the_verb_measures_goes_on_from_its_file_and_shows_drift(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth, t, m = network([range(2)]), tmp_path / "t.json", tmp_path / "m.json"
    save_topology(truth, t)
    measure = ["probe", "--measure", "--cluster", str(t), "--scale", "0.02"]
    probes = ["--probes", str(tmp_path / "p.json"), "--max-pairs", "1"]
    assert main([*measure, *probes, "-o", str(m)]) == 0
    found = load_topology(m)
    assert [x.origin for x in found.links if x.kind == "network"] == ["measured"] * 2
    assert not m.with_suffix(".json.probes").exists()
    capsys.readouterr()
    assert main([*measure, *probes, "--drift", str(m)]) == 0
    assert "not repeated" in capsys.readouterr().err
    slower = [replace(x, bandwidth=x.bandwidth / 2) for x in truth.links if x.kind == "network"]
    others = [x for x in truth.links if x.kind != "network"]
    save_topology(replace(truth, links=(*others, *slower)), t)
    assert main([*measure, "--max-pairs", "1", "--drift", str(m)]) == 1
    assert "GB/s measured before" in capsys.readouterr().out
