"""Clusters of equal hosts: the given rates, no way inside a host over the network, spread NICs."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from tuccl.errors import InputError
from tuccl.topology import (
    PROFILES,
    Topology,
    all_paths,
    join,
    join_hosts,
    keep_gpus,
    load_profile,
    overlay,
    own_nics,
    path,
    signature,
)
from tuccl.topology.fabric import FABRICS
from tuccl.topology.paths import channel_paths
from tuccl.topology.readers.nccl_xml import read_nccl_xml

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "machines" / "ndv2-topo.xml"


def rates(t: Topology, kind: str = "network") -> dict[tuple[str, str], float]:
    return {(x.src, x.dst): x.bandwidth for x in t.links if x.kind == kind}


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("fabric", sorted(FABRICS))
def test_hosts_are_copies_in_order(name: str, fabric: str) -> None:
    one = load_profile(name)
    t = join(one, 3, fabric)
    assert t.ranks == 3 * one.ranks
    assert t.hosts == ("n0", "n1", "n2")
    for host in range(3):
        ranks = range(host * one.ranks, (host + 1) * one.ranks)
        assert t.gpus_of(f"n{host}") == tuple(ranks)
        assert [t.gpus[r].id for r in ranks] == [f"n{host}/{gpu.id}" for gpu in one.gpus]
    for (src, dst), way in all_paths(t).items():
        assert way.crosses_network == (src // one.ranks != dst // one.ranks)
        assert len(way.nics) == 2 * way.crosses_network


@pytest.mark.parametrize("name", PROFILES)
def test_traffic_of_all_pairs_loads_the_nics_evenly(name: str) -> None:
    one = load_profile(name)
    t = join(one, 2)
    ways = {pair: channel_paths(t, *pair) for pair in all_paths(t)}
    load = Counter(nic for turns in ways.values() for way in turns for nic in way.nics)
    assert len(load) == 2 * len(one.nics_of("n0"))
    assert len(set(load.values())) == 1
    own = own_nics(t)
    for (src, dst), turns in ways.items():
        if turns[0].nics:
            assert tuple(way.nics[0] for way in turns) == own[src]
            assert {way.nics[1] for way in turns} == set(own[dst])


def test_a_way_in_a_host_is_that_of_the_host_alone() -> None:
    one = load_profile("dgx-1v")
    t = join(one, 2)
    for src, dst in all_paths(one):
        alone = [f"n1/{hop.dst}" for hop in path(one, src, dst).hops]
        assert [hop.dst for hop in path(t, src + 8, dst + 8).hops] == alone
    # The network would be wider between the sockets: that is what the routes are for.
    assert path(t, 0, 7).bandwidth < t.node("n0/nic0").port_gbs  # type: ignore[operator]


def test_single() -> None:
    t = join(load_profile("ndv2"), 2)
    assert rates(t) == {("n0/nic0", "leaf0"): 12.5, ("n1/nic0", "leaf0"): 12.5}
    assert t.name == "2x ndv2"


def test_paper_clos() -> None:
    t = join(load_profile("a100x8-roce"), 2, "clos", up_gbs=50.0, down_gbs=25.0)
    wires = rates(t)
    assert wires["n1/nic3", "tor1"] == 12.5  # the port is slower than the switch's 200 Gb/s
    assert wires["tor0", "spine0"] == 50.0
    assert path(t, 0, 8).bandwidth == 12.5
    slow = join(load_profile("a100x8-roce"), 2, "clos", down_gbs=5.0)
    assert rates(slow)["n0/nic0", "tor0"] == 5.0
    assert rates(slow)["tor0", "spine0"] == 20.0
    assert [x.assumed for x in slow.links if x.dst == "spine0"] == [True, True]


def test_rails_meet_only_at_a_given_spine() -> None:
    one = load_profile("dgx-h100")
    apart = join(one, 2, "rail")
    assert {dst for _, dst in rates(apart)} == {f"rail{i}" for i in range(8)}
    assert [n for n in path(apart, 3, 11).nics] == ["n0/nic3", "n1/nic3"]
    joined = join(one, 2, "rail", up_gbs=100.0)
    assert rates(joined)["rail5", "spine0"] == 100.0
    assert "spine0" in [hop.dst for hop in path(joined, 0, 12).hops]


def test_unknown_port_rates_are_assumed_from_pcie() -> None:
    bare, _ = read_nccl_xml(EXAMPLE)
    wires = [x for x in join(bare, 2).links if x.kind == "network"]
    assert [(x.bandwidth, x.assumed) for x in wires] == [(31.52, True)] * 2
    given = [x for x in join(bare, 2, down_gbs=12.5).links if x.kind == "network"]
    assert [(x.bandwidth, x.assumed) for x in given] == [(12.5, False)] * 2
    known = [x for x in join(overlay(bare, "ndv2"), 2).links if x.kind == "network"]
    assert [x.bandwidth for x in known] == [12.5] * 2


def test_one_host_needs_no_fabric() -> None:
    t = join(load_profile("ndv2"), 1)
    assert rates(t) == {}
    assert t.hosts == ("n0",)


def test_bad_arguments_are_refused(machines: Path) -> None:
    one = load_profile("ndv2")
    cases: list[tuple[Topology, int, str, float | None, float | None, str]] = [
        (one, 0, "single", None, None, "1 to 1024"),
        (one, 600, "single", None, None, "at most 4096"),
        (one, 2, "torus", None, None, "single, rail, clos"),
        (one, 2, "clos", 0.0, None, "up rate"),
        (one, 2, "clos", None, math.nan, "down rate"),
        (one, 2, "single", 5.0, None, "no uplink"),
        (join(one, 2), 2, "single", None, None, "cluster already"),
    ]
    for t, nodes, fabric, up, down, expected in cases:
        with pytest.raises(InputError, match=expected):
            join(t, nodes, fabric, up, down)
    lonely = keep_gpus(load_profile("v100x4"), [0])
    alone = tuple(node for node in lonely.nodes if node.kind == "gpu")
    with pytest.raises(InputError, match="no NIC"):
        join(Topology("one", alone, ()), 2)


def test_hosts_of_different_hardware_keep_their_order_and_names() -> None:
    old, new = load_profile("ndv2"), load_profile("dgx-a100")
    for fabric in sorted(FABRICS):
        t, warnings = join_hosts([old, new, old], ["a", "b", "c"], fabric)
        assert not warnings
        assert t.hosts == ("a", "b", "c")
        assert [t.host_of(rank) for rank in (0, 8, 16)] == ["a", "b", "c"]
        assert len(t.nics_of("b")) == len(new.nics_of("n0"))
        for (src, dst), way in all_paths(t).items():
            assert way.crosses_network == (t.host_of(src) != t.host_of(dst))
    assert t.name == "2x ndv2 + 1x dgx-a100"


def test_names_and_order_of_hosts_are_no_part_of_the_signature() -> None:
    old, new = load_profile("ndv2"), load_profile("dgx-a100")
    one, _ = join_hosts([old, new], ["a", "b"], "clos", up_gbs=50.0)
    other, _ = join_hosts([new, old], ["x", "y"], "clos", up_gbs=50.0)
    assert signature(one) == signature(other)
    assert signature(one) != signature(join_hosts([old, old], ["a", "b"], "clos", 50.0)[0])


def test_a_joined_host_joins_again_under_a_new_name() -> None:
    alone, _ = join_hosts([load_profile("ndv2")], ["first"])
    t, _ = join_hosts([alone, load_profile("dgx-a100")], ["a", "b"])
    assert t.gpus[0].id == "a/gpu0"


def test_hosts_are_called_by_their_topologies_where_those_differ() -> None:
    hosts = [load_profile("ndv2"), load_profile("dgx-a100")]
    assert join_hosts(hosts)[0].hosts == ("ndv2", "dgx-a100")
    assert join_hosts([hosts[0]] * 2)[0].hosts == ("n0", "n1")
    for names in (["a"], ["a", "a"], ["a", ""], ["a", "b/c"]):
        with pytest.raises(InputError):
            join_hosts(hosts, names)
