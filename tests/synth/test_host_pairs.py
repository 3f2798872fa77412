"""One rank of a host is in charge of another host: alltoall, scatter and gather at scale."""

from __future__ import annotations

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest

from reference_fabrics import a100_pod
from tuccl.errors import Infeasible
from tuccl.program import Program, verify
from tuccl.sketches import Sketch, full_mesh
from tuccl.sketches.rails import rails
from tuccl.synth import Collective, Problem, Schedule, lower, make_schedule
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.synth.classic.local_routes import reversed_sketch
from tuccl.synth.lowering.limits import limits_of
from tuccl.synth.model.certificate import verify_schedule
from tuccl.topology import Link, Node, Topology, join, load_profile
from tuccl.tuning import synthesize


def pod(hosts: int, size: int, nics: int) -> Topology:
    """Equal hosts of GPUs on a switch, which share NICs."""
    nodes, links = [Node("leaf", "switch")], []
    for number in range(hosts):
        host = f"n{number}"
        nodes.append(Node(f"{host}/inner", "nvswitch", host))
        for n in range(nics):
            nodes.append(Node(f"{host}/nic{n}", "nic", host))
            links.append(Link(f"{host}/nic{n}", "leaf", "network", 25.0, 1.0, duplex=True))
        for n in range(size):
            gpu, nic = f"{host}/gpu{n}", f"{host}/nic{n * nics // size}"
            nodes.append(Node(gpu, "gpu", host, size * number + n))
            links.append(Link(gpu, nic, "pcie", 25.0, 0.5, duplex=True))
            links.append(Link(gpu, f"{host}/inner", "nvlink", 200.0, 0.5, duplex=True))
    return Topology(f"{hosts} of {size}", tuple(nodes), tuple(links))


def made(t: Topology, name: str, chunks: int = 1, root: int = 0) -> Schedule:
    problem = Problem(Collective(name, t.ranks, root), rails(t), chunks, t.ranks << 20, t)
    return make_schedule(problem, "hierarchical3")


def rail_peers(program: Program, size: int) -> int:
    """The most ranks of other hosts that some rank sends to."""
    return max(
        len({b.send_peer for b in gpu.threadblocks if b.send_peer // size != gpu.id // size} - {-1})
        for gpu in program.gpus
    )


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize(
    ("t", "peers"),
    [  # for each (hosts - 1) / size whole turns one peer, and one for each host left
        (pod(5, 4, 4), 1),
        (pod(6, 4, 2), 2),
        (pod(8, 4, 1), 4),
        (pod(8, 3, 3), 3),
        (a100_pod(9), 1),
    ],
)
def test_an_alltoall_by_pairs_of_hosts_has_few_peers_and_equal_rails(
    t: Topology, peers: int, chunks: int
) -> None:
    size = len(t.gpus_of(t.hosts[0]))
    schedule = made(t, "alltoall", chunks)
    program = lower(schedule)
    assert verify_schedule(schedule) is None
    assert verify(program, "executor", 0).ok
    assert rail_peers(program, size) == peers
    crossed = Counter[int]()
    for (src, dst), count in schedule.sent.items():
        if src // size != dst // size:
            assert src % size == dst % size
            crossed[src] += count
    # Every chunk for another host crosses once, and every rank takes as many.
    assert set(crossed.values()) == {(t.ranks - size) * chunks}
    assert len(crossed) == t.ranks
    assert fraction_of_bound(program, t, Collective("alltoall", t.ranks)) == pytest.approx(1)


@pytest.mark.parametrize("size", [2, 3])
def test_an_alltoall_by_pairs_of_hosts_computes_on_numbers(
    size: int,
    mesh: Callable[..., Sketch],
    run_schedule: Callable[..., bool],
    run_program: Callable[..., bool],
) -> None:
    rng = random.Random(0)
    hosts = [rank // size for rank in range(6 * size)]
    collective = Collective("alltoall", len(hosts))
    problem = Problem(collective, mesh(hosts, "rail"), 2, 1 << 20)
    schedule = make_schedule(problem, "hierarchical3")
    assert run_schedule(schedule, rng, False)
    assert run_program(lower(schedule, instances=2), collective, rng, False)


def test_rotating_hosts_rotates_the_alltoall() -> None:
    t = pod(7, 2, 2)
    transfers = made(t, "alltoall").whole().transfers
    pairs = Counter((x.channel, x.src, x.dst, x.src_at.buffer, x.count) for x in transfers)
    turned = Counter(
        (x.channel, (x.src + 2) % t.ranks, (x.dst + 2) % t.ranks, x.src_at.buffer, x.count)
        for x in transfers
    )
    assert pairs == turned


def test_hosts_that_no_rank_can_be_in_charge_of_are_refused() -> None:
    with pytest.raises(Infeasible, match="4 hosts of 4 is what hierarchical2 does"):
        made(pod(4, 4, 4), "alltoall")
    lopsided = pod(3, 2, 2)
    extra = Node("n0/gpu2", "gpu", "n0", 6)
    link = Link("n0/gpu2", "n0/inner", "nvlink", 200.0, 0.5, duplex=True)
    uneven = Topology("uneven", (*lopsided.nodes, extra), (*lopsided.links, link))
    for name in ("alltoall", "scatter", "gather"):
        with pytest.raises(Infeasible, match="needs equal hosts"):
            made(uneven, name)


def test_two_distances_share_two_thread_blocks() -> None:
    """65 hosts ahead and 65 back need 32 pairs and one for each way of the last."""
    t = pod(130, 2, 2)
    program = lower(made(t, "alltoall"))
    assert rail_peers(program, 2) == 65
    for gpu in program.gpus:
        peers = [(b.send_peer, b.recv_peer) for b in gpu.threadblocks]
        outside = [pair for pair in peers if any(p >= 0 and p // 2 != gpu.id // 2 for p in pair)]
        assert len(outside) == 66
        assert sum(-1 in pair for pair in outside) == 2
    assert program.threadblocks <= 108  # of an A100


def test_more_peers_than_a_channel_has_may_still_share_thread_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Peers are dealt out to channels so that the way back has the same, and the block too."""
    t = pod(2, 40, 2)
    schedule = made_allpairs(t)
    blocks = lower(schedule).threadblocks
    assert blocks >= 2 * 79
    limits = limits_of("executor").replace(threadblocks=blocks - 1)
    monkeypatch.setattr(sys.modules[lower.__module__], "limits_of", lambda *_: limits)
    assert lower(schedule).threadblocks <= 80


def made_allpairs(t: Topology) -> Schedule:
    problem = Problem(Collective("alltoall", t.ranks), full_mesh(t), 1, t.ranks << 20, t)
    return make_schedule(problem, "allpairs")


@pytest.mark.parametrize("hosts", [2, 3])
def test_a_message_of_many_senders_crosses_in_parts(hosts: int) -> None:
    """A rank of a rack waits for more ranks than a thread block has steps."""
    t = pod(hosts, 70, 70)
    problem = Problem(Collective("alltoall", t.ranks), rails(t), 1, t.ranks << 20, t)
    schedule = make_schedule(problem, "hierarchical2")
    crossing = [x for x in schedule.transfers if x.src // 70 != x.dst // 70]
    assert {x.count for x in crossing} == {35}
    program = lower(schedule)
    assert program.max_steps <= 64
    assert fraction_of_bound(program, t, problem.collective) == pytest.approx(1)


@pytest.mark.parametrize("root", [0, 5])
@pytest.mark.parametrize("name", ["scatter", "gather"])
@pytest.mark.parametrize(("t", "chunks"), [(pod(4, 4, 4), 1), (pod(9, 4, 2), 3), (pod(3, 2, 1), 2)])
def test_scatter_and_gather_cross_once_for_each_host(
    t: Topology, chunks: int, name: str, root: int
) -> None:
    size = len(t.gpus_of(t.hosts[0]))
    schedule = made(t, name, chunks, root)
    assert verify_schedule(schedule) is None
    assert verify_schedule(schedule, in_place=True) is None
    assert verify(lower(schedule), "executor", root).ok
    peers = defaultdict(list)
    for x in schedule.transfers:
        if x.src // size != x.dst // size:
            assert x.count == size * chunks
            near, far = (x.src, x.dst) if name == "scatter" else (x.dst, x.src)
            assert near // size == root // size
            peers[near].append(far // size)
    hosts = [host for far in peers.values() for host in far]
    assert sorted(hosts) == [h for h in range(t.ranks // size) if h != root // size]
    assert max(map(len, peers.values())) <= -(-len(hosts) // size)


def test_a_sketch_alike_in_both_directions_is_its_own_reverse(mesh: Callable[..., Sketch]) -> None:
    sketch = mesh([0, 0, 1, 1], "mesh")
    assert reversed_sketch(sketch) == sketch


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["dgx-h100", "dgx-a100"])
def test_1024_gpus_have_an_alltoall(profile: str) -> None:
    t = join(load_profile(profile), 128)
    found = synthesize(t, "alltoall", 64 << 20, protocol="Simple", channels=1)
    assert found.best.method == "hierarchical3"
    assert found.best.fraction_of_bound >= 0.99
    assert found.best.program.threadblocks <= 108
    assert rail_peers(found.best.program, 8) <= 16 + 6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["broadcast", "reduce", "gather", "scatter"])
def test_1024_gpus_have_the_rooted_collectives(name: str) -> None:
    found = synthesize(join(load_profile("dgx-h100"), 128), name, 64 << 20, channels=1)
    assert "hierarchical3" in {program.method for program in found.programs}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["allgather", "allreduce", "alltoall", "broadcast", "reduce"])
def test_eight_racks_of_72_have_programs(name: str) -> None:
    found = synthesize(join(load_profile("gb200-nvl72"), 8), name, 64 << 20, channels=1)
    assert found.best.program.threadblocks <= 148
