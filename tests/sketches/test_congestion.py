"""Scores against a count made by hand, and certificates of what pruning leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import networkx as nx
import pytest

from tuccl.errors import InputError
from tuccl.sketches import bind, full_mesh, prune_congested
from tuccl.sketches.congestion import congestion_scores
from tuccl.sketches.grouping import group
from tuccl.sketches.symmetry import symmetries
from tuccl.sketches.transformation import transform
from tuccl.topology.fabric import join
from tuccl.topology.graph import Topology
from tuccl.topology.merge import merge_nics
from tuccl.topology.paths import path
from tuccl.topology.profiles import PROFILES, load_profile
from tuccl.topology.symmetry import rotation

Cluster = Callable[..., Topology]


def test_the_score_counts_the_links_of_the_worst_hop(cluster: Cluster) -> None:
    """Two hosts of four GPUs and one NIC each: 16 links through a NIC, so 15 too many."""
    t = cluster([4, 4], [[12.5], [12.5]])
    mesh = full_mesh(t)
    assert {link.congestion for link in mesh.links if link.inter} == {15.0}
    bindings = bind(t)
    one = transform(t, bindings, group(t, bindings))
    scores = congestion_scores(one, t)
    assert {scores[link.src, link.dst] for link in one.links if link.inter} == {0.0}


@pytest.mark.parametrize("name", PROFILES)
def test_scores_agree_with_a_plain_count(name: str) -> None:
    t = join(load_profile(name), 2)
    mesh = full_mesh(t)
    merged = merge_nics(t)
    ways = {(link.src, link.dst): path(merged, link.src, link.dst) for link in mesh.links}
    users = Counter((hop.src, hop.dst) for way in ways.values() for hop in way.hops)
    for pair, score in congestion_scores(mesh, t).items():
        way = ways[pair]
        slowed = max(users[hop.src, hop.dst] / hop.bandwidth for hop in way.hops)
        assert score == pytest.approx(slowed * way.bandwidth - 1.0, abs=1e-6)
        assert score >= 0


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("score", [0.0, 1.0, 5.0])
def test_pruning_keeps_ranks_and_hosts_joined(name: str, score: float) -> None:
    t = join(load_profile(name), 3)
    mesh = full_mesh(t)
    pruned = prune_congested(mesh, t, score)
    kept = set(pruned.pairs)
    gone = {(link.src, link.dst) for link in pruned.pruned}
    assert kept | gone == set(mesh.pairs)
    assert not kept & gone
    assert {link.stage for link in pruned.pruned} == {"congestion"}
    assert nx.is_strongly_connected(nx.DiGraph(kept))
    assert len({(pruned.hosts[src], pruned.hosts[dst]) for src, dst in kept}) == 9
    inter = [link for link in pruned.links if link.inter]
    assert max(link.congestion for link in inter) <= score or pruned.notes
    for turn in symmetries(mesh):
        to = rotation(t.ranks, *turn)
        assert {(to[src], to[dst]) for src, dst in gone} == gone


def test_only_the_requested_kind_is_pruned(cluster: Cluster) -> None:
    t = cluster([4, 4], [[12.5], [12.5]], nvlink=False)
    mesh = full_mesh(t)
    inside = prune_congested(mesh, t, 1.0, inter=False)
    assert inside.internode_links == mesh.internode_links
    assert all(inside.hosts[link.src] == inside.hosts[link.dst] for link in inside.pruned)
    assert inside.pruned


def test_a_loose_limit_prunes_nothing(cluster: Cluster) -> None:
    t = cluster([2, 2], [[12.5], [12.5]])
    mesh = full_mesh(t)
    assert prune_congested(mesh, t, 3.0) == mesh


@pytest.mark.parametrize("score", [-1.0, float("nan")])
def test_a_score_below_zero_is_refused(cluster: Cluster, score: float) -> None:
    t = cluster([2, 2], [[12.5], [12.5]])
    with pytest.raises(InputError, match="at least 0"):
        prune_congested(full_mesh(t), t, score)
