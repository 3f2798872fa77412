"""What an emulated cluster consists of: every way leads there, and no name reaches the kernel."""

from __future__ import annotations

import itertools
import re

import msgspec
import pytest

from tuccl.emulation import Emulation
from tuccl.emulation.cluster import EmulatedCluster, emulated_cluster
from tuccl.emulation.launch import hosts_file, places_file
from tuccl.errors import InputError
from tuccl.topology import Link, Node, Topology, join, keep_gpus, load_profile

SAFE = re.compile(r"[a-z0-9.:\-]{1,64}")


def cluster(fabric: str = "single", up_gbs: float | None = None, nodes: int = 3) -> Topology:
    host = keep_gpus(load_profile("ndv4"), [0, 2])
    return join(host, nodes, fabric=fabric, up_gbs=up_gbs)


def two_spines(hosts: tuple[str, ...] = ("a", "b")) -> Topology:
    """Return hosts of a GPU and a NIC each on switches of their own, which two spines join."""
    nodes, links = [Node("s0", "switch"), Node("s1", "switch")], []
    for rank, host in enumerate(hosts):
        gpu, nic, leaf = (f"{host}/{part}" for part in ("gpu", "nic", "leaf"))
        nodes += [Node(gpu, "gpu", host, rank), Node(nic, "nic", host), Node(leaf, "switch")]
        links.append(Link(gpu, nic, "pcie", 10.0, 0.5, duplex=True))
        links.append(Link(nic, leaf, "network", 2.5, 1.0, duplex=True))
        links += [Link(leaf, spine, "network", 1.0, 1.0, duplex=True) for spine in ("s0", "s1")]
    return Topology("two spines", tuple(nodes), tuple(links))


def arrives(emulated: EmulatedCluster, src: str, dst: str) -> bool:
    """Return whether a packet from a NIC comes to another, switch by switch."""
    ahead = {(switch, nic): following for switch, nic, following in emulated.forwarding}
    at = next(port.dst for port in emulated.ports if port.src == src)
    for _ in emulated.switches:
        if at == dst:
            return True
        at = ahead.get((at, dst), "")
    return at == dst


TOPOLOGIES = [
    cluster(),
    cluster("rail"),
    cluster("rail", 100.0),
    cluster("clos", 50.0),
    two_spines(),
]


@pytest.mark.parametrize("t", TOPOLOGIES, ids=lambda t: t.name)
def test_what_is_said_to_be_reached_is_reached(t: Topology) -> None:
    emulated = emulated_cluster(t)
    reaches = set(emulated.reaches)
    for here in emulated.hosts:
        for there in emulated.hosts:
            for one in here.nics:
                for other in there.nics:
                    if here != there:
                        ends = one.id, other.id
                        assert (ends in reaches) == arrives(emulated, *ends)
    for src, dst in reaches:
        assert (dst, src) in reaches


@pytest.mark.parametrize("t", TOPOLOGIES, ids=lambda t: t.name)
def test_every_direction_of_every_wire_has_its_rate_and_a_device(t: Topology) -> None:
    emulated = emulated_cluster(t, 0.01)
    network = [link for link in t.links if link.kind == "network"]
    assert len(emulated.ports) == 2 * len(network)
    assert len({(port.space, port.device) for port in emulated.ports}) == len(emulated.ports)
    rates = {(port.src, port.dst): port.rate_bps for port in emulated.ports}
    for link in network:
        assert rates[link.src, link.dst] == rates[link.dst, link.src]
        assert rates[link.src, link.dst] == pytest.approx(link.bandwidth * 8e9 * 0.01)


@pytest.mark.parametrize("t", TOPOLOGIES, ids=lambda t: t.name)
def test_a_rail_is_a_subnet_of_nics_that_reach_each_other(t: Topology) -> None:
    emulated = emulated_cluster(t)
    nics = emulated.nics
    assert len({nic.address for nic in nics.values()}) == len(nics)
    assert len({nic.mac for nic in nics.values()}) == len(nics)
    reaches = set(emulated.reaches)
    for one, other in itertools.permutations(nics.values(), 2):
        assert one.device != other.device or (one.id, other.id) in reaches
    assert {nic.device for nic in nics.values()} == {
        f"rail{r}" for r in range(len(t.nics_of(t.hosts[0])))
    }


def test_ranks_have_a_nic_of_their_own_only_where_it_reaches_everyone() -> None:
    assert emulated_cluster(cluster("clos")).nic_of[2] == "n1/nic0"
    assert emulated_cluster(cluster("rail")).nic_of == {}


def test_the_fastest_nic_runs_at_a_gigabit_unless_it_is_slower() -> None:
    assert emulated_cluster(cluster()).fastest_bps == 1e9
    slow = msgspec.structs.replace(
        two_spines(),
        links=tuple(
            msgspec.structs.replace(link, bandwidth=link.bandwidth / 100)
            for link in two_spines().links
        ),
    )
    assert emulated_cluster(slow).scale == 1.0 and emulated_cluster(slow).fastest_bps == 200e6


def test_no_name_of_the_topology_reaches_a_command() -> None:
    evil = two_spines(("; reboot", "$(id) -x"))
    emulated = emulated_cluster(evil)
    spaces = {host.space: f"tuccl-{host.space}" for host in emulated.hosts}
    words = [port.device for port in emulated.ports] + [port.space for port in emulated.ports]
    words += [nic.device for nic in emulated.nics.values()]
    words += (hosts_file(emulated) + places_file(emulated, spaces)).split()
    assert all(SAFE.fullmatch(word) for word in words)
    assert len({host.name for host in emulated.hosts}) == 2


def test_latencies_are_reported_for_every_pair_between_hosts() -> None:
    emulated = emulated_cluster(two_spines())
    assert {(r.src, r.dst): r.latency_us for r in emulated.latencies} == {(0, 1): 5.0, (1, 0): 5.0}


def without_a_way_back() -> Topology:
    t = two_spines()
    links = [*t.links, Link("s0", "s1", "network", 1.0, 1.0)]
    return msgspec.structs.replace(t, links=tuple(links))


def with_two_wires_a_nic() -> Topology:
    t = two_spines()
    return msgspec.structs.replace(
        t, links=(*t.links, Link("a/nic", "b/leaf", "network", 1.0, 1.0, duplex=True))
    )


@pytest.mark.parametrize(
    ("t", "scale", "said"),
    [
        (load_profile("ndv4"), None, "1 hosts; 2 to"),
        (two_spines(tuple(f"h{n}" for n in range(65))), None, "65 hosts"),
        (cluster(nodes=17), None, "NICs; at most"),
        (cluster(), 1.0, r"scale 1: .* would run at 200000 Mb/s"),
        (cluster(), -1.0, "scale -1"),
        (cluster(), float("nan"), "scale nan"),
        (cluster("rail", 0.01), 0.01, "at least 1 can be emulated"),
        (with_two_wires_a_nic(), None, "'a/nic' has links to 2 nodes"),
        (without_a_way_back(), None, "no way back"),
    ],
)
def test_what_cannot_be_emulated_is_refused_in_a_line(
    t: Topology, scale: float | None, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        emulated_cluster(t, scale)


def test_latencies_are_by_sender_and_receiver() -> None:
    topology = join(load_profile("ndv2"), 2)
    matrix = Emulation(topology, latency_scale=10).latency_matrix
    cluster = emulated_cluster(topology)
    for src, row in enumerate(matrix):
        for dst, us in enumerate(row):
            assert (us > 0) == (src // 8 != dst // 8)
    route = cluster.latencies[0]
    assert matrix[route.src][route.dst] == route.latency_us * 10
    assert Emulation(topology).latency_matrix == ()
