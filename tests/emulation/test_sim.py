"""The simulator on an emulated network: rates scaled, cores shared, messages without flags."""

from __future__ import annotations

from types import ModuleType

import pytest

from tuccl.emulation import as_run_on_cpus, emulated_cluster, emulated_network, emulated_topology
from tuccl.emulation.sim_executor import EmulatedSimExecutor
from tuccl.errors import InputError
from tuccl.program import Knobs
from tuccl.runtime import SimExecutor
from tuccl.simulation import ProtocolCosts
from tuccl.topology import Topology, join, keep_gpus, load_machine, load_profile, signature

LARGE = 64 << 20


def pair(nodes: int = 2) -> Topology:
    return join(keep_gpus(load_profile("ndv2"), [0, 1]), nodes)


def test_the_ground_is_the_topology_with_other_rates() -> None:
    t = pair()
    emulated = emulated_topology(t, emulated_cluster(t, 0.002), latency_scale=7)
    wires = [link for link in emulated.links if link.kind == "network"]
    assert len(wires) == 4 and {link.bandwidth for link in wires} == {0.025}
    nominal = next(link for link in t.links if link.kind == "network")
    assert {link.latency for link in wires} == {7 * nominal.latency}
    assert [n.id for n in emulated.nodes] == [n.id for n in t.nodes]
    assert signature(emulated) != signature(t)  # nominal rates enter it: a table is for t


def test_all_bytes_share_the_cores_and_only_the_networks_share_tcp() -> None:
    t = pair()
    network = emulated_network(emulated_topology(t, emulated_cluster(t)), cores=2)
    names = [resource.name for resource in network.resources]
    for route in network.routes:
        used = {names[place] for place in route.resources}
        inside = route.src // 2 == route.dst // 2
        assert used >= {"cores"} and ("tcp" in used) != inside
        assert any(">" in name for name in used) != inside
    with pytest.raises(InputError, match="can be emulated"):
        EmulatedSimExecutor(t, 1e-9)


@pytest.mark.parametrize("protocol", ["Simple", "LL", "LL128"])
def test_a_large_call_takes_its_bytes_over_the_slowest_wire(
    handmade: ModuleType, protocol: str
) -> None:
    """A ring of 4 sends 1.5 arrays over each NIC; no protocol adds flags to them."""
    program = handmade.ring_allreduce(4).replace(protocol=protocol)
    least_us = 1.5 * LARGE / (200e6 / 8) * 1e6
    slow = EmulatedSimExecutor(pair(), 0.002).time(program, Knobs(protocol), LARGE).us
    assert least_us < slow < 1.25 * least_us
    searched = EmulatedSimExecutor(pair(), 0.002).time_against(9e9, program, Knobs(protocol), LARGE)
    assert searched.us == slow
    twice = EmulatedSimExecutor(pair(), 0.004).time(program, Knobs(protocol), LARGE).us
    assert 1.6 * twice < slow < 2.0 * twice


def test_more_ranks_on_the_same_cores_are_slower(handmade: ModuleType) -> None:
    """Fast wires: what eight hosts of two ranks move is more than four cores, then two, can."""
    program = handmade.direct_alltoall(16)
    times = [
        EmulatedSimExecutor(pair(8), 0.04, cores=cores).time(program, Knobs(), LARGE).us
        for cores in (1, 2, 16)
    ]
    assert times[0] > times[1] > times[2]


def test_latency_scales_with_its_factor(handmade: ModuleType) -> None:
    program = handmade.ring_allgather(4)
    near, far = (
        EmulatedSimExecutor(pair(), 0.002, factor).time(program, Knobs(), 1024).us
        for factor in (1.0, 20_000.0)
    )
    assert far > near + 2 * 19_000.0  # two crossings of at least a nominal microsecond


def test_eager_messages_keep_their_payload_and_their_window(handmade: ModuleType) -> None:
    program = handmade.ring_allgather(4).replace(protocol="LL")
    ran = as_run_on_cpus(program, Knobs("LL", buffer_bytes=512 << 10))
    assert ran.program.protocol == ran.knobs.protocol == "Simple"
    assert ran.loop.pass_bytes == 32 << 10 and ran.loop.transfer_slots == 1
    assert ran.knobs.buffer_bytes // 8 >= ran.loop.pass_bytes
    same = as_run_on_cpus(program.replace(protocol="Simple"), Knobs())
    assert same.knobs == Knobs() and same.loop.pass_bytes == 0


def test_eager_messages_cost_what_the_class_has_for_ll(handmade: ModuleType) -> None:
    estimates = load_machine("emulated")
    dear = estimates.replace(simple=ProtocolCosts(hop_us=5000.0))
    program = handmade.ring_allgather(4)
    times = {
        (protocol, machine is dear): EmulatedSimExecutor(pair(), 0.002, machine=machine)
        .time(program, Knobs(protocol), 1024)
        .us
        for protocol in ("Simple", "LL")
        for machine in (estimates, dear)
    }
    assert times["Simple", True] > times["Simple", False] + 5000.0
    assert times["LL", True] == times["LL", False]


def test_it_says_that_it_simulates_an_emulation(handmade: ModuleType) -> None:
    executor = EmulatedSimExecutor(pair(), 0.002)
    assert executor.label.startswith("simulated on an emulated") and "200 Mb/s" in executor.label
    assert executor.name == "sim" and executor.time(handmade.ring_allgather(4), Knobs(), 64).us
    assert SimExecutor(pair()).label != executor.label
