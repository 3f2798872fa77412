"""The shared rule of ways, held against trying every way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import msgspec
import pytest

from tuccl.errors import InputError
from tuccl.topology import Link, Node, Topology, all_paths, join, load_profile, network, path
from tuccl.topology.graph import FixedRoute
from tuccl.topology.relays import Hop


def every_way(t: Topology, src: str, dst: str) -> Iterator[tuple[str, ...]]:
    ahead: dict[str, set[str]] = {node.id: set() for node in t.nodes}
    for link in t.links:
        for a, b in link.directions():
            ahead[a].add(b)

    def walk(way: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for following in ahead[way[-1]] - set(way):
            if following == dst:
                yield (*way, following)
            elif t.node(following).kind != "gpu":
                yield from walk((*way, following))

    return walk((src,))


def width(t: Topology, way: tuple[str, ...]) -> float:
    rates = [
        sum(link.bandwidth for link in t.links if hop in link.directions())
        for hop in itertools.pairwise(way)
    ]
    return min(rates)


@pytest.mark.parametrize("seed", range(60))
def test_direct_else_widest_then_shortest_then_smallest_ids(
    seed: int, random_machine: Callable[[int], Topology]
) -> None:
    t = random_machine(seed)
    for (src, dst), way in all_paths(t).items():
        a, b = t.gpus[src].id, t.gpus[dst].id
        found = (way.hops[0].src, *(hop.dst for hop in way.hops))
        ways = list(every_way(t, a, b))
        expected = (a, b) if (a, b) in ways else min(ways, key=lambda w: (-width(t, w), len(w), w))
        assert found == expected
        assert way.bandwidth == width(t, found)
        assert way == path(t, src, dst)


def test_all_pairs_of_a_large_cluster_have_a_way() -> None:
    t = join(load_profile("dgx-a100"), 16)
    ways = all_paths(t)
    assert len(ways) == 128 * 127
    assert all(way.crosses_network == (s // 8 != d // 8) for (s, d), way in ways.items())
    assert all(len(way.nics) == (2 if way.crosses_network else 0) for way in ways.values())
    assert all_paths(t) is ways


def test_parallel_links_add_up_and_keep_the_widest_ones_latency() -> None:
    nodes = (Node("a", "gpu", rank=0), Node("b", "gpu", rank=1))
    links = (
        Link("a", "b", "nvlink", 25.0, 0.3, True),
        Link("b", "a", "nvlink", 25.0, 0.3),
        Link("a", "b", "pcie", 10.0, 0.9),
    )
    t = Topology("pair", nodes, links)
    assert path(t, 0, 1).hops == (Hop("a", "b", "nvlink", 35.0, 0.3),)
    assert path(t, 1, 0).bandwidth == 50.0


def test_a_fixed_route_comes_before_the_rule() -> None:
    t = load_profile("v100x4")
    via = ("pcie0", "cpu0", "cpu1", "pcie1")
    fixed = msgspec.structs.replace(t, routes=(FixedRoute("gpu0", "gpu3", via),))
    assert tuple(hop.dst for hop in path(fixed, 0, 3).hops) == (*via, "gpu3")
    assert len(path(fixed, 3, 0).hops) == 1


@pytest.mark.parametrize(("src", "dst"), [(0, 0), (0, 4), (-1, 0)])
def test_wrong_ranks_are_refused(src: int, dst: int) -> None:
    with pytest.raises(InputError, match="rank"):
        path(load_profile("v100x4"), src, dst)


def test_the_simulators_network_is_made_of_the_ways() -> None:
    t = join(load_profile("dgx-1v"), 2)
    net = network(t)
    assert net.ranks == 16
    by_name = {resource.name: resource for resource in net.resources}
    assert len(by_name) == len(net.resources)
    for route in net.routes:
        way = path(t, route.src, route.dst)
        parts = [net.resources[place] for place in route.resources]
        assert [part.name for part in parts] == [f"{hop.src}>{hop.dst}" for hop in way.hops]
        assert [part.bandwidth_gbs for part in parts] == [hop.bandwidth for hop in way.hops]
        assert route.latency_us == pytest.approx(way.latency)
        assert route.transport == ("net" if way.nics else "p2p")
    assert len(net.routes) == 16 * 15
    used = {place for route in net.routes for place in route.resources}
    assert used == set(range(len(net.resources)))
