"""Probing an emulated cluster: its shared uplink is found, with its rate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.emulation.test_emulation import names
from tests.topology.model_prober import network
from tuccl.emulation import Emulation, emulated_endpoints, emulated_prober, netns, probing_scale
from tuccl.errors import Unavailable
from tuccl.topology.probing import measured_topology, probe_network


@pytest.fixture(autouse=True)
def privilege() -> Iterator[None]:
    try:
        netns.check_privilege()
    except Unavailable as missing:
        pytest.skip(str(missing))
    before = names()
    yield
    assert names() <= before


def test_rates_and_the_shared_uplink_are_found() -> None:
    truth = network([range(2), range(2, 4)], up_gbs=[1.2])
    scale = probing_scale(truth) / 4
    with Emulation(truth, scale) as emulation, emulated_prober(emulation) as prober:
        rates = probe_network(prober, emulated_endpoints(emulation))
        found = measured_topology(emulation.topology, rates)
        emulated = emulation.topology
    assert rates.groups == ((0, 1), (2, 3))
    assert rates.probes <= 4 * 4
    assert {n.id for n in found.nodes} >= {n.id for n in truth.nodes if n.kind != "switch"}
    gbs = {ends: x.bandwidth for x in emulated.links for ends in x.directions()}
    for link in found.links:
        if link.kind == "network":
            assert link.origin == "measured"
            is_port = link.src.endswith("nic0")
            true = gbs[("h0/nic0", "s0") if is_port else ("s0", "s1")]
            assert link.bandwidth == pytest.approx(true, rel=0.1)
