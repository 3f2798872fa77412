"""GPUs with several NICs: who owns which, paths by channel, merged NICs."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import networkx as nx
import pytest

from tuccl.errors import InputError
from tuccl.program import Knobs
from tuccl.simulation import simulate
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Problem, bound, lower, make_schedule
from tuccl.synth.baseline.nccl import nccl_program
from tuccl.topology import (
    Link,
    Node,
    Topology,
    join,
    load_machine,
    load_profile,
    merge_nics,
    network,
    own_nics,
    path,
)
from tuccl.topology.fabric import FABRICS
from tuccl.topology.paths import channel_paths


def host(gpus: int, nics: int, switches: int = 2, nvlink: float = 40.0) -> Topology:
    """Return a host whose PCIe switches each have so many GPUs and NICs."""
    nodes = [Node("cpu0", "cpu", "n0"), Node("nvs", "nvswitch", "n0")]
    links: list[Link] = []

    def wire(src: str, dst: str, kind: str, rate: float) -> None:
        links.append(Link(src, dst, kind, rate, 0.5, duplex=True))  # type: ignore[arg-type]

    for switch in range(switches):
        nodes.append(Node(f"plx{switch}", "pcie", "n0"))
        wire(f"plx{switch}", "cpu0", "pcie", 30.0)
        for gpu in range(switch * gpus, (switch + 1) * gpus):
            nodes.append(Node(f"gpu{gpu}", "gpu", "n0", rank=gpu))
            wire(f"gpu{gpu}", f"plx{switch}", "pcie", 60.0)
            wire(f"gpu{gpu}", "nvs", "nvlink", nvlink)
        for nic in range(switch * nics, (switch + 1) * nics):
            nodes.append(Node(f"nic{nic}", "nic", "n0", port_gbs=12.5))
            wire(f"nic{nic}", f"plx{switch}", "pcie", 15.0)
    return Topology("several", tuple(nodes), tuple(links))


def place(gpu: int, nics: int) -> int:
    """Return where NCCL starts in its list of local NICs (mirrorBits in src/graph/topo.cc)."""
    digits = bin(nics)[3:]
    if nics & (nics - 1) or not digits:
        return gpu % nics
    return int(format(gpu, f"0{len(digits)}b")[-len(digits) :][::-1], 2)


@pytest.mark.parametrize(("gpus", "nics"), [(1, 2), (1, 4), (2, 4), (1, 3), (2, 3), (2, 2), (4, 2)])
def test_gpus_share_near_nics_as_nccl_does(gpus: int, nics: int) -> None:
    own = own_nics(host(gpus, nics))
    for rank in range(2 * gpus):
        first = rank // gpus * nics
        count = -(-nics // gpus)
        turns = [first + (place(rank, nics) + channel) % nics for channel in range(count)]
        if count > 1:
            assert own[rank] == tuple(f"nic{number}" for number in turns)
        else:
            assert len(own[rank]) == 1
    assert len({nic for nics_ in own.values() for nic in nics_}) == 2 * min(nics, gpus * nics)


def test_a_nic_that_is_another_gpus_only_one_is_not_taken_in_turn() -> None:
    t = load_profile("ndv5")
    few = Topology(
        "few",
        tuple(n for n in t.nodes if n.kind != "nic" or n.id < "nic4"),
        tuple(k for k in t.links if not {k.src, k.dst} & {"nic4", "nic5", "nic6", "nic7"}),
    )
    assert all(len(nics) == 1 for nics in own_nics(few).values())
    assert Counter(nics[0] for nics in own_nics(few).values()) == {f"nic{n}": 2 for n in range(4)}
    assert merge_nics(few) is few


@pytest.mark.parametrize("fabric", sorted(FABRICS))
@pytest.mark.parametrize(("gpus", "nics"), [(1, 2), (2, 4), (1, 3)])
def test_channels_take_the_nics_in_turn(gpus: int, nics: int, fabric: str) -> None:
    t = join(host(gpus, nics), 2, fabric)
    own = own_nics(t)
    for src, dst in itertools.permutations(range(t.ranks), 2):
        if t.host_of(src) == t.host_of(dst):
            assert not path(t, src, dst).nics
            continue
        ways = channel_paths(t, src, dst)
        assert len(ways) == nics // gpus
        for channel in range(2 * len(ways)):
            way = path(t, src, dst, channel)
            assert way == ways[channel % len(ways)]
            hops = [(hop.src, hop.dst) for hop in way.hops]
            assert all(one[1] == other[0] for one, other in itertools.pairwise(hops))
        if fabric != "rail" or src % (2 * gpus) == dst % (2 * gpus):
            assert {way.nics[0] for way in ways} == set(own[src])
            assert {way.nics[-1] for way in ways} == set(own[dst])


def test_a_gpu_without_a_nic_is_reached_by_all_nics_of_another() -> None:
    one = host(1, 2)
    bare = Node("far", "gpu", "n1", rank=2)
    links = [Link(f"nic{n}", "leaf", "network", 12.5, 0.5, duplex=True) for n in range(4)]
    links.append(Link("far", "leaf", "network", 25.0, 0.5, duplex=True))
    nodes = (*one.nodes, bare, Node("leaf", "switch"))
    t = Topology("mixed", nodes, (*one.links, *links))
    assert [way.nics for way in channel_paths(t, 0, 2)] == [("nic0",), ("nic1",)]
    assert [way.nics for way in channel_paths(t, 2, 1)] == [("nic3",), ("nic2",)]


def brute_force_allgather(t: Topology) -> Fraction:
    """Return the algbw of the worst cut, by a maximum flow for each set of GPUs and each other."""
    graph = nx.DiGraph()
    pairs = itertools.permutations(range(t.ranks), 2)
    for way in {way for pair in pairs for way in channel_paths(t, *pair)}:
        for hop in way.hops:
            graph.add_edge(hop.src, hop.dst, capacity=Fraction(str(hop.bandwidth)))
    ids = [gpu.id for gpu in t.gpus]
    worst = Fraction(0)
    for size in range(1, len(ids)):
        for side in itertools.combinations(ids, size):
            for gpu in side:
                graph.add_edge("source", gpu)
            for target in set(ids) - set(side):
                worst = max(worst, size / nx.maximum_flow_value(graph, "source", target))
            graph.remove_node("source")
    return len(ids) / worst


@pytest.mark.parametrize(("gpus", "nics", "nvlink"), [(1, 2, 20.0), (1, 2, 90.0), (2, 4, 90.0)])
def test_the_bound_is_over_all_nics(gpus: int, nics: int, nvlink: float) -> None:
    t = join(host(gpus, nics, switches=3 - gpus, nvlink=nvlink), 2)
    best = bound(t, Collective("allgather", t.ranks))
    assert best.algbw_gbs == pytest.approx(float(brute_force_allgather(t)))
    assert best.certified


@pytest.mark.parametrize("method", ["packing", "hierarchical2"])
def test_a_program_of_as_many_channels_uses_every_nic_alike(method: str) -> None:
    t = join(host(1, 2), 2)
    collective = Collective("allgather", 4)
    schedule = make_schedule(Problem(collective, full_mesh(t), 1, 1 << 26, t), method)
    links = network(t)
    for instances, nics in ((1, 4), (2, 8), (4, 8)):
        program = lower(schedule, instances=instances)
        knobs = Knobs("Simple", instances, 512)
        run = simulate(program, knobs, links, load_machine("ideal"), 1 << 26)
        sent = {
            resource.name: carried
            for resource, carried in zip(links.resources, run.resource_bytes, strict=True)
            if carried and resource.name.endswith(">leaf0")
        }
        assert len(sent) == nics
        assert len(set(sent.values())) == 1
        # Each rank's shard crosses to the other host once.
        assert sum(sent.values()) == 1 << 26


@pytest.mark.parametrize(("profile", "channels"), [("oci-h100", 16), ("p5", 32)])
def test_nccl_rings_use_every_nic_alike(profile: str, channels: int) -> None:
    t = join(load_profile(profile), 2)
    program = nccl_program(t, Collective("allgather", 16), "ring", channels)
    sent: Counter[str] = Counter()
    for gpu in program.gpus:
        for block in gpu.threadblocks:
            if block.send_peer >= 0:
                sent.update(path(t, gpu.id, block.send_peer, block.channel).nics)
    assert sent == dict.fromkeys((nic for host in t.hosts for nic in t.nics_of(host)), 2)


def test_merged_nics_have_the_sum_of_their_rates() -> None:
    t = host(1, 4)
    merged = merge_nics(t)
    nics = [node for node in merged.nodes if node.kind == "nic"]
    assert [nic.port_gbs for nic in nics] == [50.0, 50.0]
    assert nics[0].id == "nic0+nic1+nic2+nic3"
    assert merge_nics(merged) is merged
    two = join(merged, 2)
    assert path(two, 0, 2).bandwidth == 50.0
    collective = Collective("allgather", 4)
    assert bound(two, collective).algbw_gbs == bound(join(t, 2), collective).algbw_gbs
    # Rails of merged NICs are as wide as all rails of their parts.
    assert path(merge_nics(join(t, 2, "rail")), 0, 2).bandwidth == 50.0


def test_ports_of_a_card_are_merged_by_themselves() -> None:
    oci, p5 = load_profile("oci-h100"), load_profile("p5")
    assert len(merge_nics(oci, "port").nics_of("n0")) == 8
    assert merge_nics(p5, "port") is p5
    with pytest.raises(InputError, match="expected one of port, gpu"):
        merge_nics(p5, "host")
