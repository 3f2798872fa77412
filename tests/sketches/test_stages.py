"""Certificates of the three pruning stages, on known machines and on random clusters."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuccl.errors import InputError
from tuccl.sketches import Sketch, bind, full_mesh
from tuccl.sketches.binding import closest_nics
from tuccl.sketches.checks import checked
from tuccl.sketches.grouping import group
from tuccl.sketches.transformation import pinned_routes, transform
from tuccl.topology.fabric import join
from tuccl.topology.graph import FixedRoute, Topology
from tuccl.topology.merge import merge_nics
from tuccl.topology.paths import path
from tuccl.topology.profiles import PROFILES, load_profile

Cluster = Callable[..., Topology]
JOINED = [(name, nodes) for name in PROFILES for nodes in (2, 3)]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[list[int], list[list[float]], bool]:
    hosts = draw(st.integers(2, 4))
    gpus = draw(st.lists(st.integers(1, 4), min_size=hosts, max_size=hosts))
    nics = st.lists(st.sampled_from([3.125, 12.5, 25.0, 50.0]), min_size=1, max_size=3)
    return gpus, draw(st.lists(nics, min_size=hosts, max_size=hosts)), draw(st.booleans())


def certify(sketch: Sketch, t: Topology) -> None:
    """Check that nothing was lost: links and pruned part the mesh, and all reach all."""
    mesh = set(itertools.permutations(range(t.ranks), 2))
    kept = {(link.src, link.dst) for link in sketch.links}
    pruned = Counter((link.src, link.dst) for link in sketch.pruned)
    assert kept | pruned.keys() == mesh
    assert not kept & pruned.keys()
    assert set(pruned.values()) <= {1}
    assert all(link.reason for link in sketch.pruned)
    assert nx.is_strongly_connected(nx.DiGraph(kept))
    hosts = {(sketch.hosts[src], sketch.hosts[dst]) for src, dst in kept}
    assert hosts >= set(itertools.permutations(range(sketch.nhosts), 2))
    checked(sketch)


def certify_stages(t: Topology) -> None:
    t = merge_nics(t)  # the NICs that a GPU's channels take in turn are one
    bindings = bind(t)
    certify_binding(t, bindings)
    grouping = group(t, bindings)
    for nics in grouping.groups:
        owners = [t.node(nic).host for nic in nics]
        assert len(set(owners)) == len(owners), "two NICs of one host in a group"
    assert {nic for nics in grouping.groups for nic in nics} == set(bindings.values())
    for options in ({"connections": 1}, {"connections": None}, {"connections": 1, "split": True}):
        sketch = transform(t, bindings, grouping, **options)
        certify(sketch, t)
        certify_links(sketch, t)
        certify_relays(sketch)


def certify_binding(t: Topology, bindings: dict[int, str]) -> None:
    """Check closeness by another algorithm, and that no GPU could move to a less loaded NIC."""
    graph = nx.DiGraph()
    kinds = {node.id: node.kind for node in t.nodes}
    for link in t.links:
        if link.kind in ("pcie", "cpu", "c2c"):
            for src, dst in link.directions():
                graph.add_edge(src, dst, weight=1000 if kinds[dst] == "cpu" else 1)
    loads = Counter(bindings.values())
    for rank, nic in bindings.items():
        lengths = nx.single_source_dijkstra_path_length(graph, t.gpus[rank].id)
        host = t.host_of(rank)
        assert t.node(nic).host == host
        assert lengths[nic] == min(lengths[other] for other in t.nics_of(host))
        for other in t.nics_of(host):
            if lengths[other] == lengths[nic]:
                assert loads[other] >= loads[nic] - 1


def certify_links(sketch: Sketch, t: Topology) -> None:
    for link in sketch.links:
        default_path = path(t, link.src, link.dst)
        if not link.inter:
            assert link.beta_us_per_mb == pytest.approx(1e3 / default_path.bandwidth)
            assert link.alpha_us == pytest.approx(default_path.latency)
            continue
        assert link.nics == (sketch.bindings[link.src], sketch.bindings[link.dst])
        assert any(set(link.nics) <= set(nics) for nics in sketch.groups)
        if default_path.nics == link.nics:
            assert link.beta_us_per_mb == pytest.approx(1e3 / default_path.bandwidth)
            assert link.alpha_us == pytest.approx(default_path.latency)


def certify_relays(sketch: Sketch) -> None:
    """Check that the chunks of every rank may leave for every other host."""
    reach: dict[int, set[int]] = {rank: set() for rank in range(sketch.ranks)}
    for sender, carried in sketch.relays.items():
        for rank in carried:
            reach[rank] |= {sketch.hosts[link.dst] for link in sketch.out_links(sender)}
    for rank, hosts in reach.items():
        assert hosts | {sketch.hosts[rank]} == set(sketch.hosts)


@pytest.mark.parametrize(("name", "nodes"), JOINED)
def test_known_machines(name: str, nodes: int) -> None:
    certify_stages(join(load_profile(name), nodes))


@settings(max_examples=60, deadline=None)
@given(shape=shapes(), tied=st.booleans())
def test_random_clusters(
    shape: tuple[list[int], list[list[float]], bool], tied: bool, cluster: Cluster
) -> None:
    gpus, rates, nvlink = shape
    certify_stages(cluster(gpus, rates, nvlink=nvlink, tied=tied))


def test_paper_machines_lose_most_links_between_hosts() -> None:
    """TuCCL III.B and IV.B: fewer NIC connections by at least 75 %; A100 pair: 128 links."""
    for name, nodes, links in (("a100x8-roce", 2, 128), ("v100x4", 3, 96)):
        t = join(load_profile(name), nodes)
        bindings = bind(t)
        sketch = transform(t, bindings, group(t, bindings))
        assert full_mesh(t).internode_links == links
        assert sketch.internode_links <= links / 4
        nics = len(t.nics_of("n0"))
        assert sketch.internode_links == nics * nodes * (nodes - 1)


def test_equally_close_nics_share_the_gpus(cluster: Cluster) -> None:
    t = cluster([4, 4], [[12.5] * 3, [12.5] * 2], tied=True)
    assert closest_nics(t, 0) == ("h0/nic0", "h0/nic1", "h0/nic2")
    loads = Counter(bind(t).values())
    assert sorted(loads[nic] for nic in t.nics_of("h0")) == [1, 1, 2]
    assert sorted(loads[nic] for nic in t.nics_of("h1")) == [2, 2]


def test_groups_match_bandwidths_not_places(cluster: Cluster) -> None:
    t = cluster([2, 2], [[25.0, 12.5], [12.5, 25.0]])
    groups = {frozenset(nics) for nics in group(t, bind(t)).groups}
    assert groups == {
        frozenset({"h0/nic0", "h1/nic1"}),
        frozenset({"h0/nic1", "h1/nic0"}),
    }


def test_groups_follow_the_rails_of_the_fabric() -> None:
    """Without a spine only NICs on one rail reach each other."""
    t = join(load_profile("dgx-a100"), 3, "rail")
    for nics in group(t, bind(t)).groups:
        assert len({nic.rpartition("/")[2] for nic in nics}) == 1
        assert len(nics) == 3


def test_hosts_that_share_no_group_are_joined_with_a_note(cluster: Cluster) -> None:
    t = cluster([2, 2, 2], [[15.0, 12.5], [15.0], [12.5]])
    grouping = group(t, bind(t))
    assert any({"h1/nic0", "h2/nic0"} <= set(nics) for nics in grouping.groups)
    assert any("shared no group" in note for note in grouping.notes)


def test_a_nic_with_bandwidth_to_spare_joins_more_groups(cluster: Cluster) -> None:
    t = cluster([4, 2], [[12.5] * 2, [25.0]])
    grouping = group(t, bind(t))
    assert sum("h1/nic0" in nics for nics in grouping.groups) == 2
    assert grouping.notes


def test_idle_nics_are_noted(cluster: Cluster) -> None:
    t = cluster([1, 1], [[25.0, 12.5, 12.5], [12.5]], tied=True)
    assert group(t, bind(t)).notes == ("2 NICs of host h0 have no GPU bound to them",)


def test_a_host_without_nic_is_named(cluster: Cluster) -> None:
    t = cluster([2, 2], [[12.5], [12.5]])
    nodes = tuple(node for node in t.nodes if node.id != "h1/nic0")
    links = [link for link in t.links if "h1/nic0" not in (link.src, link.dst)]
    links.append(type(links[0])("h1/cpu0", "leaf", "network", 1.0, 1.0, duplex=True))
    with pytest.raises(InputError, match="host 'h1' has no NIC"):
        bind(Topology("x", nodes, tuple(links)))


def test_pinned_routes_make_the_topology_use_the_bound_nics(cluster: Cluster) -> None:
    t = cluster([2, 2], [[12.5] * 2, [12.5] * 2], tied=True)
    bindings = bind(t)
    sketch = transform(t, bindings, group(t, bindings))
    routes = pinned_routes(t, sketch)
    assert routes and any("pin them" in note for note in sketch.notes)
    assert all(isinstance(route, FixedRoute) for route in routes)
    pinned = Topology("pinned", t.nodes, t.links, routes)
    for link in sketch.links:
        if link.inter:
            assert path(pinned, link.src, link.dst).nics == link.nics
    assert not pinned_routes(pinned, sketch)


@pytest.mark.parametrize("connections", [0, -1])
def test_connections_below_one_are_refused(connections: int) -> None:
    t = join(load_profile("v100x4"), 2)
    bindings = bind(t)
    with pytest.raises(InputError, match="at least 1"):
        transform(t, bindings, group(t, bindings), connections=connections)
