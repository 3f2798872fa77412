"""Plans of MSCCL++ in virtual time: links bound them, waits order them, and each cost counts."""

from typing import Any

import pytest

from tests.native.test_simulate import two_hosts
from tuccl.errors import InputError
from tuccl.mscclpp import ExecutionPlan, Operation
from tuccl.program import Program
from tuccl.runtime.executors.plan_sim import PlanSimulator
from tuccl.simulation import MachineClass, Network, ProtocolCosts
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, lower, make_schedule
from tuccl.synth.mscclpp.knobs import PlanKnobs
from tuccl.synth.mscclpp.lower import lower_to_plan
from tuccl.synth.mscclpp.switch import Multicast, switch_plan
from tuccl.topology import Topology, join, keep_gpus, load_machine, load_profile, network

IDEAL = MachineClass("ideal")
A100 = load_machine("mscclpp-a100")
HOST = load_profile("ndv4")
MIB = 1 << 20


def program(topology: Topology, collective: str, method: str) -> Program:
    """Return a method's program of one chunk a rank."""
    call = Collective(collective, topology.ranks)
    return lower(make_schedule(Problem(call, full_mesh(topology), 1, MIB, topology), method))


def plan(topology: Topology, collective: str, method: str, knobs: PlanKnobs) -> ExecutionPlan:
    """Return its plan, for up to 1 GiB."""
    hosts = len(topology.hosts)
    return lower_to_plan(program(topology, collective, method), knobs, hosts=hosts)


@pytest.mark.parametrize("collective", ["allgather", "alltoall"])
def test_ideal_plans_take_what_the_links_take(collective: str) -> None:
    nbytes = 256 * MIB
    result = plan(HOST, collective, "allpairs", PlanKnobs()).simulate(nbytes, network(HOST), IDEAL)
    least_us = nbytes * 7 / 8 / 300e3  # GB/s of each GPU's link
    assert least_us <= result.time_us < least_us * 1.02


def test_a_rank_in_a_ring_waits_for_the_one_before_it() -> None:
    eight, four = HOST, keep_gpus(HOST, range(4))
    knobs = PlanKnobs("LL")
    latency = [
        plan(t, "allgather", "ring", knobs).simulate(1024, network(t), IDEAL).time_us
        for t in (four, eight)
    ]
    assert latency[1] / latency[0] == pytest.approx(7 / 3, rel=0.1)


def test_pieces_overlap_the_hops_of_a_ring() -> None:
    simulator = PlanSimulator(HOST)
    nbytes = 8 * MIB
    whole, pieces = (
        simulator.run(plan(HOST, "broadcast", "ring", PlanKnobs(unit_bytes=unit)), nbytes).time_us
        for unit in (0, 1 << 18)
    )
    assert pieces < whole


def test_long_pipelines_are_extrapolated_at_their_pace() -> None:
    simulator = PlanSimulator(HOST)
    pipelined = plan(HOST, "allreduce", "ring", PlanKnobs(unit_bytes=1 << 16))
    short, long, longer = (simulator.run(pipelined, n * MIB) for n in (32, 256, 512))
    assert not short.extrapolated
    assert long.extrapolated
    assert longer.time_us / long.time_us == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize(
    ("costs", "protocol"),
    [
        ({"local_us": 5.0}, "Simple"),
        ({"dependency_us": 5.0}, "LL"),
        ({"simple": ProtocolCosts(slice_us=5.0)}, "Simple"),
        ({"simple": ProtocolCosts(hop_us=5.0)}, "Simple"),
        ({"simple": ProtocolCosts(transfer_us=5.0)}, "Simple"),
        ({"simple": ProtocolCosts(reduce_gbs=0.01)}, "Simple"),
        ({"ll": ProtocolCosts(hop_us=5.0)}, "LL"),
        ({"ll": ProtocolCosts(send_gbs=0.01)}, "LL"),
        ({"start_graph_us": 5.0}, "LL"),
        ({"net_message_us": 5.0}, "LL"),
        ({"net_latency_us": 5.0}, "Simple"),
    ],
)
def test_every_cost_makes_calls_slower(costs: dict[str, Any], protocol: str) -> None:
    hosts = join(keep_gpus(HOST, range(4)), 2, "single")
    links = network(hosts)
    method = "hierarchical2" if "dependency_us" in costs else "ring"
    call = plan(hosts, "allreduce", method, PlanKnobs(protocol))
    cheap = call.simulate(1 << 16, links, IDEAL).time_us
    assert call.simulate(1 << 16, links, MachineClass("dear", **costs)).time_us > cheap + 4


def test_groups_of_thread_blocks_share_the_work_of_one() -> None:
    simulator = PlanSimulator(HOST)
    one, four = (
        simulator.run(plan(HOST, "alltoall", "allpairs", PlanKnobs(group_size=k)), 64 * MIB)
        for k in (1, 4)
    )
    assert four.time_us < one.time_us


def test_fewer_threads_are_slower() -> None:
    simulator = PlanSimulator(HOST)
    many, few = (
        simulator.run(plan(HOST, "alltoall", "allpairs", PlanKnobs(threads=k)), 64 * MIB)
        for k in (1024, 128)
    )
    assert many.time_us < few.time_us


def test_a_switch_that_adds_up_moves_less_over_each_link() -> None:
    host = load_profile("ndv5")
    zero_copy = switch_plan(Multicast("allreduce", 8, through_scratch=False))
    pairs = lower_to_plan(program(host, "allreduce", "allpairs"), PlanKnobs(group_size=8))
    simulator = PlanSimulator(host)
    assert simulator.run(zero_copy, 256 * MIB).time_us < simulator.run(pairs, 256 * MIB).time_us
    with pytest.raises(InputError, match="no NVLink switch that reduces"):
        PlanSimulator(HOST).run(zero_copy, MIB)


def test_messages_of_one_adapter_share_it() -> None:
    shared: Network = two_hosts(2, 10.0)
    hosts = join(keep_gpus(HOST, range(2)), 2, "single")
    call = plan(hosts, "alltoall", "allpairs", PlanKnobs())
    nbytes = 64 * MIB
    between = 2 * nbytes / 2 / 10e3  # two ranks send half of their array through 10 GB/s
    assert call.simulate(nbytes, shared, IDEAL).time_us == pytest.approx(between, rel=0.05)


def test_calls_that_cannot_be_are_refused() -> None:
    call = plan(HOST, "allgather", "ring", PlanKnobs())
    with pytest.raises(InputError, match="8 chunks"):
        call.simulate(100, network(HOST), A100)
    with pytest.raises(InputError, match="for 8 ranks, the topology has 4"):
        PlanSimulator(keep_gpus(HOST, range(4))).run(call, MIB)


def test_blocks_that_wait_for_ever_are_named() -> None:
    call = plan(HOST, "allgather", "ring", PlanKnobs())
    gpu = call.gpus[3]
    silent = gpu.threadblocks[0].replace(ops=(Operation("nop"),))
    broken = gpu.replace(threadblocks=(silent, *gpu.threadblocks[1:]))
    with pytest.raises(InputError, match="waits for ever"):
        call.replace(gpus=(*call.gpus[:3], broken, *call.gpus[4:])).simulate(
            MIB,
            network(HOST),
            A100,
        )


def test_a_sum_goes_to_all_ranks_in_one_operation() -> None:
    packets = plan(HOST, "allreduce", "allpairs+paired", PlanKnobs("LL"))
    for gpu in packets.gpus:
        [adding] = [b for b in gpu.threadblocks if any(op.name == "respkt" for op in b.ops)]
        [sums] = [op for op in adding.ops if op.name == "respkt"]
        assert len([ref for ref in sums.dst_buff if ref.buffer_id >= 0]) == 7


def test_a_plan_whose_parts_are_unsound_is_not_simulated() -> None:
    call = plan(HOST, "allgather", "ring", PlanKnobs())
    broken = call.replace(gpus=[call.gpus[0].replace(channels=[]), *call.gpus[1:]])
    with pytest.raises(InputError, match=r"^plan: gpu 0 tb 0: memory channels"):
        broken.simulate(1 << 20, network(HOST), IDEAL)
