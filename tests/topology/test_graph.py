"""A topology is sound, or refused with the place and the remedy."""

from __future__ import annotations

import math

import msgspec
import pytest

from tuccl.errors import InputError
from tuccl.topology import Link, Node, Topology, all_paths, path
from tuccl.topology.graph import FixedRoute

A, B = Node("a", "gpu", "n0", rank=0), Node("b", "gpu", "n0", rank=1)
R = Node("r", "pcie", "n0")
AB = Link("a", "b", "nvlink", 25.0, 0.3, True)
AR, RB = Link("a", "r", "pcie", 10.0, 0.4, True), Link("r", "b", "pcie", 10.0, 0.4, True)


def test_properties_follow_the_ranks() -> None:
    b = Node("b", "gpu", "n1", rank=0)
    nic = Node("k", "nic", "n0", port_gbs=12.5)
    t = Topology("two", (A.__class__("a", "gpu", "n0", rank=1), b, nic), (AB,))
    assert t.ranks == 2
    assert [gpu.id for gpu in t.gpus] == ["b", "a"]
    assert t.hosts == ("n1", "n0")
    assert (t.host_of(0), t.gpus_of("n0"), t.nics_of("n0")) == ("n1", (1,), ("k",))
    assert t.node("k") is nic
    with pytest.raises(InputError, match="no node 'z'"):
        t.node("z")


@pytest.mark.parametrize(
    ("nodes", "links", "routes", "place", "remedy"),
    [
        ((A, B), (AB, Link("a", "z", "pcie", 1.0, 0.0)), (), "$.links[1].dst", "no node 'z'"),
        ((A, B), (Link("z", "a", "pcie", 1.0, 0.0),), (), "$.links[0].src", "no node 'z'"),
        ((A, A), (AB,), (), "$.nodes[1].id", "unique"),
        ((A, Node("b", "gpu", "n0", rank=0)), (AB,), (), "$.nodes[1].rank", "$.nodes[0]"),
        ((A, Node("b", "gpu", "n0", rank=2)), (AB,), (), "$.nodes[1].rank", "0 to 1"),
        ((A, Node("b", "gpu", "n0", rank=-1)), (AB,), (), "$.nodes[1].rank", "0 to 1"),
        ((A, Node("b", "gpu", "n0")), (AB,), (), "$.nodes[1].rank", "give each GPU"),
        ((A, B, Node("r", "pcie", "n0", rank=2)), (AB,), (), "$.nodes[2].rank", "only GPUs"),
        ((A, B), (Link("a", "b", "pcie", 0.0, 0.0),), (), "$.links[0].bandwidth", "positive"),
        ((A, B), (Link("a", "b", "pcie", math.nan, 0.0),), (), "$.links[0].bandwidth", "positive"),
        ((A, B), (Link("a", "b", "pcie", math.inf, 0.0),), (), "$.links[0].bandwidth", "positive"),
        ((A, B), (Link("a", "b", "pcie", -1.0, 0.0),), (), "$.links[0].bandwidth", "positive"),
        ((A, B), (Link("a", "b", "pcie", 1.0, -0.1),), (), "$.links[0].latency", "zero or more"),
        ((A, B), (Link("a", "b", "pcie", 1.0, math.nan),), (), "$.links[0].latency", "us"),
        ((A, B), (Link("a", "a", "pcie", 1.0, 0.0),), (), "$.links[0].dst", "itself"),
        ((A, B), (Link("a", "b", "pcie", 1.0, 0.0),), (), "$.links", "'a' cannot be reached"),
        ((A, B, R), (AR,), (), "$.links", "'b' cannot be reached"),
        ((R,), (), (), "$.nodes", "at least one node of kind 'gpu'"),
        ((A, B, Node("", "pcie")), (AB,), (), "$.nodes[2].id", "printable"),
        ((A, B, Node("x\n", "pcie")), (AB,), (), "$.nodes[2].id", "printable"),
        ((A, B, Node("r", "pcie", port_gbs=1.0)), (AB,), (), "$.nodes[2].port_gbs", "only a nic"),
        ((A, B, Node("r", "pcie", busid="0:1")), (AB,), (), "$.nodes[2].busid", "only a gpu"),
        ((A, Node("b", "gpu", busid="3b:00.0")), (AB,), (), "$.nodes[1].busid", "0000:3b:00.0"),
        ((A, Node("b", "gpu", busid="00000000:3b:00.0")), (AB,), (), "$.nodes[1].busid", "3b"),
        ((A, B), (AB,), (FixedRoute("a", "r", ()),), "$.routes[0].dst", "no GPU"),
        ((A, B, R), (AR, RB), (FixedRoute("a", "b", ()),), "$.routes[0].via", "no link"),
        ((A, B, R), (AB, AR), (FixedRoute("a", "b", ("r",)),), "$.routes[0].via", "no link"),
        ((A, B, R), (AR, RB), (FixedRoute("a", "b", ("r", "r")),), "$.routes[0].via", "twice"),
        ((A, B), (AB,), (FixedRoute("a", "b", ("z",)),), "$.routes[0].via[0]", "no relay"),
        ((A, B), (AB,), (FixedRoute("a", "b", ()),) * 2, "$.routes[1]", "once"),
    ],
)
def test_contradictions_are_refused_with_the_place(
    nodes: tuple[Node, ...],
    links: tuple[Link, ...],
    routes: tuple[FixedRoute, ...],
    place: str,
    remedy: str,
) -> None:
    with pytest.raises(InputError) as error:
        Topology("t", nodes, links, routes)
    assert str(error.value).startswith(place)
    assert remedy in str(error.value)
    assert "\n" not in str(error.value)


def test_gpus_join_others_only_for_programs() -> None:
    c = Node("c", "gpu", "n0", rank=2)
    bc = Link("b", "c", "nvlink", 25.0, 0.3, True)
    chain = Topology("chain", (A, B, c), (AB, bc))
    assert sorted(all_paths(chain)) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    with pytest.raises(InputError, match="no path from 'a' to 'c'"):
        path(chain, 0, 2)
    with pytest.raises(InputError, match="'c' cannot be reached from GPU 'a'"):
        Topology("parts", (A, B, c), (AB,))


def test_a_changed_copy_is_checked_too() -> None:
    t = Topology("t", (A, B), (AB,))
    with pytest.raises(InputError, match="no node 'b'"):
        msgspec.structs.replace(t, nodes=(A,))
