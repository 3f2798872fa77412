"""NCCL's algorithms as programs: orders of ranks, trees, and programs that verify."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tuccl.errors import Infeasible, InputError
from tuccl.planners import ring_program
from tuccl.program import Knobs, verify
from tuccl.runtime import SimExecutor
from tuccl.runtime.nccl.graph import nccl_graph
from tuccl.simulation import simulate
from tuccl.synth.baseline.nccl import nccl_alltoall, nccl_program
from tuccl.synth.baseline.nccl_chains import chains
from tuccl.synth.baseline.nccl_nvls import NVLS_COLLECTIVES, nvls_network, nvls_program
from tuccl.synth.baseline.nccl_tree import double_tree_parents
from tuccl.synth.bounds.bound import bound
from tuccl.synth.model.certificate import verify_schedule
from tuccl.synth.model.collective import Collective
from tuccl.topology import Topology, join, load_machine, load_profile, network, path

RINGS = ("allgather", "reduce-scatter", "allreduce", "broadcast", "reduce")
P2P = ("alltoall", "gather", "scatter")


def machine(name: str) -> Topology:
    profile, hosts = name.split(" x")
    t = load_profile(profile)
    return join(t, int(hosts)) if int(hosts) > 1 else t


@pytest.fixture(
    scope="module", params=["v100x4 x1", "v100x4 x3", "dgx-1v x1", "ndv2 x2", "dgx-a100 x2"]
)
def t(request: pytest.FixtureRequest) -> Topology:
    return machine(str(request.param))


def test_every_channel_passes_every_rank_host_by_host(t: Topology) -> None:
    for hosts in chains(t, nccl_graph(t).launch_channels):
        assert sorted(rank for chain in hosts for rank in chain.ranks) == list(range(t.ranks))
        for host, chain in zip(t.hosts, hosts, strict=True):
            assert sorted(chain.ranks) == list(t.gpus_of(host))
            assert chain.from_head[0] == chain.head


@pytest.mark.parametrize("name", ["dgx-1v x2", "dgx-a100 x2", "ndv4 x4", "a100x8-roce x2"])
def test_rings_keep_to_their_rail_and_use_all_nics(name: str) -> None:
    t = machine(name)
    left: set[str] = set()
    for hosts in chains(t, nccl_graph(t).launch_channels):
        for one, following in zip(hosts, hosts[1:] + hosts[:1], strict=True):
            nics = path(t, one.ranks[-1], following.ranks[0]).nics
            assert nics[0].rpartition("/")[2] == nics[-1].rpartition("/")[2]
            left.add(nics[0])
    assert left == {nic for host in t.hosts for nic in t.nics_of(host)}


@pytest.mark.parametrize("name", ["v100x4 x1", "dgx-1v x1"])
def test_rings_in_a_cube_mesh_take_nvlinks_alone(name: str) -> None:
    t = machine(name)
    for (chain,) in chains(t, nccl_graph(t).launch_channels):
        for src, dst in pairwise(chain.ranks + chain.ranks[:1]):
            assert [hop.kind for hop in path(t, src, dst).hops] == ["nvlink"]


@pytest.mark.parametrize("name", RINGS)
def test_ring_programs_verify(t: Topology, name: str) -> None:
    channels = nccl_graph(t).launch_channels
    collective = Collective(name, t.ranks, root=1)
    program = nccl_program(t, collective, "ring", channels)
    assert program.nchannels == channels
    assert program.in_place
    assert program.out_of_place


@pytest.mark.parametrize("protocol", ["Simple", "LL"])
def test_tree_programs_verify(t: Topology, protocol: str) -> None:
    program = nccl_program(t, Collective("allreduce", t.ranks), "tree", 4, protocol)
    assert program.protocol == protocol
    report = verify(program)
    assert report.ok, report.errors


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_trees_pass_on_what_they_receive(t: Topology, channels: int) -> None:
    """A rank with one child sends its sum upwards as it makes it, and results down as they come."""
    program = nccl_program(t, Collective("allreduce", t.ranks), "tree", channels)
    inner = 0
    for gpu in program.gpus:
        for channel in range(channels):
            blocks = [tb for tb in gpu.threadblocks if tb.channel == channel]
            senders = [tb.recv_peer for tb in blocks if tb.recv_peer >= 0]
            if len(blocks) == len(senders) == 2:
                inner += 1
                assert [tb.steps[0].op for tb in blocks] == ["rrs", "rcs"]
                up, down = blocks
                assert (up.send_peer, up.recv_peer) == (down.recv_peer, down.send_peer)
    assert inner >= channels * sum(len(t.gpus_of(host)) - 2 for host in t.hosts)


@pytest.mark.parametrize("name", P2P)
def test_grouped_sends_verify(t: Topology, name: str) -> None:
    schedule = nccl_alltoall(t, Collective(name, t.ranks, root=2), 3)
    assert verify_schedule(schedule) is None
    assert nccl_program(t, Collective(name, t.ranks, root=2), "p2p", 3).out_of_place


@pytest.mark.parametrize("count", range(2, 20))
@pytest.mark.parametrize("mirrored", [False, True])
def test_double_tree_spans_all_with_two_children_at_most(count: int, mirrored: bool) -> None:
    parents = double_tree_parents(count, mirrored=mirrored)
    assert len(parents) == count - 1
    for node in range(count):
        steps = 0
        while node in parents:
            node, steps = parents[node], steps + 1
        assert steps <= count.bit_length()
    assert max(list(parents.values()).count(node) for node in range(count)) <= 2


@pytest.mark.parametrize("count", range(2, 20, 2))
def test_leaves_of_one_tree_are_inside_the_other(count: int) -> None:
    inside = [set(double_tree_parents(count, mirrored=m).values()) for m in (False, True)]
    assert not inside[0] & inside[1]


@pytest.mark.parametrize("name", ["allreduce", "allgather", "reduce-scatter"])
def test_rings_saturate_an_nvswitch(name: str) -> None:
    """In the ideal machine class NCCL's rings reach the cut bound of one NVSwitch host."""
    t = load_profile("dgx-a100")
    collective = Collective(name, 8)
    program = nccl_program(t, collective, "ring", nccl_graph(t).launch_channels)
    nbytes = program.nchunks << 20
    ideal = load_machine("ideal")
    result = simulate(program, Knobs("Simple", 1, 512), network(t), ideal, nbytes)
    least = bound(t, collective).time_us(nbytes)
    assert least * (1 - 1e-9) <= result.time_us <= 1.05 * least


@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_nvls_takes_no_less_than_its_links(hosts: int) -> None:
    """Each adapter carries the sums of its GPU's shard, each NVLink the array and the shard."""
    t = machine(f"dgx-h100 x{hosts}")
    ranks = [t.gpus_of(host) for host in t.hosts]
    program = nvls_program("allreduce", ranks, 16)
    nbytes = program.nchunks << 20
    shared = nvls_network(network(t), ranks)
    knobs, ideal = Knobs("Simple", 1, 512), load_machine("ideal")
    us = simulate(
        program, knobs, shared, ideal, nbytes, pass_bytes=128 << 10, transfer_slots=1
    ).time_us
    least = max(9 / 8 * nbytes / 450e3, nbytes / 8 / 50e3 if hosts > 1 else 0.0)
    assert least <= us <= (1.15 if hosts == 1 else 2 * (hosts - 1)) * least


def test_nvls_copies_the_whole_array_into_and_out_of_the_switchs_buffers() -> None:
    """A GPU scatters all shards and gathers all sums, and reduces and multicasts its own."""
    hosts, channels = [range(4), range(4, 8)], 3
    program = nvls_program("allreduce", hosts, channels)
    for gpu in program.gpus[:8]:
        steps = [s for tb in gpu.threadblocks for s in tb.steps]
        copies = [s for s in steps if s.op == "cpy"]
        for copied in (copies[::2], copies[1::2]):
            chunks = [s.src_offset + n for s in copied for n in range(s.count)]
            assert sorted(chunks) == list(range(program.nchunks))
        assert {s.count for s in steps if s.op != "cpy"} == {1}


def test_nvls_gives_shards_to_32_gpus_of_a_host_and_copies_to_the_others() -> None:
    program = nvls_program("allreduce", [range(40), range(40, 80)], 2)
    for gpu in program.gpus[:80]:
        steps = [s for tb in gpu.threadblocks for s in tb.steps]
        assert (len([s for s in steps if s.op == "cpy"]), program.nchunks) == (4, 64)
        assert (len(steps) > 4) == (gpu.id % 40 < 32)


def test_nvls_does_less_for_a_gather_than_for_an_allreduce() -> None:
    t = load_profile("dgx-h100")
    hosts = [t.gpus_of(host) for host in t.hosts]
    shared, ideal = nvls_network(network(t), hosts), load_machine("ideal")
    us = {}
    for name in NVLS_COLLECTIVES:
        program = nvls_program(name, hosts, 16)
        nbytes = program.nchunks << 20
        run = simulate(program, Knobs("Simple", 1, 512), shared, ideal, nbytes)
        us[name] = run.time_us
    assert us["allgather"] == pytest.approx(us["reduce-scatter"], rel=0.01)
    assert us["allgather"] < us["allreduce"]


def test_nvls_between_hosts_is_for_allreduce() -> None:
    with pytest.raises(Infeasible, match="no NVLS for allgather on 2 hosts"):
        nvls_program("allgather", [range(4), range(4, 8)], 2)


@pytest.mark.parametrize("name", ["broadcast", "reduce"])
def test_lines_and_trees_have_a_chunk_a_channel(t: Topology, name: str) -> None:
    assert nccl_program(t, Collective(name, t.ranks, root=1), "ring", 4).nchunks == 4
    assert nccl_program(t, Collective("allreduce", t.ranks), "tree", 4).nchunks == 4


def test_a_long_ring_is_one_thread_block_a_channel() -> None:
    t = join(load_profile("v100x4"), 20)
    program = nccl_program(t, Collective("allreduce", t.ranks), "ring", 2)
    assert (program.threadblocks, program.nchannels, program.max_steps) == (2, 2, 159)
    assert not program.in_place
    assert verify(program, "fork", 0).ok


@pytest.mark.parametrize(
    ("collective", "orders", "root", "why"),
    [
        ("allgather", [[0, 1, 1]], 0, "each rank once"),
        ("allgather", [[0, 1, 2], [0, 1]], 0, "each rank once"),
        ("allgather", [[0, 3, 1]], 0, "each rank once"),
        ("allgather", [], 0, "one channel or more"),
        ("broadcast", [[0, 1]], 2, "root 2"),
        ("scatter", [[0, 1]], 0, "no ring for scatter"),
    ],
)
def test_what_is_no_ring_is_refused(
    collective: str, orders: list[list[int]], root: int, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        ring_program(collective, orders, root)


def test_what_nccl_does_not_do_is_refused() -> None:
    t = load_profile("v100x4")
    with pytest.raises(Infeasible, match="no ring for alltoall"):
        nccl_program(t, Collective("alltoall", 4), "ring", 2)
    with pytest.raises(Infeasible, match="allreduce only"):
        nccl_program(t, Collective("allgather", 4), "tree", 2)
    with pytest.raises(Infeasible, match="by ring"):
        nccl_alltoall(t, Collective("allgather", 4), 2)
    with pytest.raises(InputError, match="expected one of ring, tree, p2p"):
        nccl_program(t, Collective("allgather", 4), "nvls", 2)
    with pytest.raises(InputError, match="0 channels"):
        nccl_program(t, Collective("allgather", 4), "ring", 0)


@pytest.mark.parametrize("profile", ["oci-h100", "p5", "p4de", "ndv4", "ndv2"])
def test_rings_between_hosts_load_every_nic_alike(profile: str) -> None:
    topology = join(load_profile(profile), 2)
    call = Collective("allgather", topology.ranks)
    nics = len(topology.nics_of(topology.hosts[0]))
    program = nccl_program(topology, call, "ring", 2 * nics if nics < 32 else 32)
    run = SimExecutor(topology).trace(program, Knobs("Simple", 1, 512), 1 << 28)
    parts = zip(run.network.resources, run.trace.result.resource_bytes, strict=True)
    carried = {
        part.name: nbytes
        for part, nbytes in parts
        if part.kind == "network" and "nic" in part.name.partition(">")[0]
    }
    assert len(carried) == 2 * nics
    assert max(carried.values()) == min(carried.values()) > 0
