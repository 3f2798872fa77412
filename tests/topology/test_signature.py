"""The signature: same machine, same signature; another machine, another."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations

import msgspec
import pytest

from tuccl.errors import InputError
from tuccl.topology import (
    PROFILES,
    Link,
    Node,
    Topology,
    differences,
    join,
    keep_gpus,
    load_profile,
    signature,
)
from tuccl.topology.graph import FixedRoute


def disguised(t: Topology, seed: int) -> Topology:
    """Return the same machine under other names, in another order, with other notes."""
    chance = random.Random(seed)
    places = list(range(len(t.nodes)))
    chance.shuffle(places)
    names = {node.id: f"x{places[index]}" for index, node in enumerate(t.nodes)}
    hosts = {host: f"host-{chance.random()}" for host in {n.host for n in t.nodes} if host}
    ranks = list(range(t.ranks))
    chance.shuffle(ranks)
    nodes = [
        msgspec.structs.replace(
            node,
            id=names[node.id],
            host=hosts.get(node.host or ""),
            rank=None if node.rank is None else ranks[node.rank],
        )
        for node in t.nodes
    ]
    links = []
    for link in t.links:
        ends = (link.src, link.dst)
        if link.duplex and chance.random() < 0.5:
            ends = ends[::-1]
        links.append(
            msgspec.structs.replace(
                link,
                src=names[ends[0]],
                dst=names[ends[1]],
                source="elsewhere",
                assumed=True,
                measured=chance.random() + 1,
            )
        )
    routes = [
        FixedRoute(names[r.src], names[r.dst], tuple(names[v] for v in r.via)) for r in t.routes
    ]
    chance.shuffle(nodes)
    chance.shuffle(links)
    return Topology("other", tuple(nodes), tuple(links), tuple(routes))


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("seed", range(3))
def test_names_order_and_measured_rates_never_enter(name: str, seed: int) -> None:
    t = join(load_profile(name), 2, "clos")
    assert signature(disguised(t, seed)) == signature(t)
    assert len(signature(t)) == 16
    int(signature(t), 16)


@pytest.mark.parametrize("seed", range(30))
def test_random_machines_keep_theirs(seed: int, random_machine: Callable[[int], Topology]) -> None:
    t = random_machine(seed)
    assert signature(disguised(t, seed)) == signature(t)


def test_any_change_of_the_graph_changes_it() -> None:
    t = join(load_profile("dgx-1v"), 2)
    seen = {signature(t)}
    for index in range(0, len(t.links), 5):
        link = t.links[index]
        others = [*t.links[:index], *t.links[index + 1 :]]
        faster = msgspec.structs.replace(link, bandwidth=link.bandwidth * 2)
        oneway = msgspec.structs.replace(link, duplex=False)
        for changed in (faster, oneway):
            try:
                other = Topology("t", t.nodes, (*others, changed))
            except InputError as error:
                assert "cannot be reached" in str(error)
            else:
                assert signature(other) not in {signature(t)}
    model = msgspec.structs.replace(t.nodes[0], model="V100-SXM2-16GB")
    seen.add(signature(msgspec.structs.replace(t, nodes=(model, *t.nodes[1:]))))
    seen.update(
        signature(join(load_profile("dgx-1v"), n, f)) for n in (2, 3) for f in ("rail", "clos")
    )
    seen.add(signature(keep_gpus(t, range(8))))
    assert len(seen) == 7


def ring(sizes: tuple[int, ...]) -> Topology:
    """Return GPUs in rings of these sizes, all on one switch."""
    nodes: list[Node] = []
    links: list[Link] = []
    for size in sizes:
        first = len(nodes)
        nodes += [Node(f"g{first + i}", "gpu", "h", rank=first + i) for i in range(size)]
        for i in range(size):
            a, b = nodes[first + i].id, nodes[first + (i + 1) % size].id
            links.append(Link(a, b, "nvlink", 25.0, 0.3, True))
    links += [Link(node.id, "s", "pcie", 10.0, 0.4, True) for node in nodes]
    return Topology("rings", (*nodes, Node("s", "pcie", "h")), tuple(links))


def test_regular_graphs_are_distinguished() -> None:
    shapes = [(12,), (6, 6), (4, 4, 4), (3, 3, 3, 3), (9, 3), (8, 4)]
    for one, other in combinations(shapes, 2):
        assert signature(ring(one)) != signature(ring(other))


def test_split_links_count_as_their_sum() -> None:
    t = load_profile("v100x4")
    halves = [
        msgspec.structs.replace(link, bandwidth=link.bandwidth / 2)
        for link in t.links
        for _ in (0, 1)
    ]
    assert signature(msgspec.structs.replace(t, links=tuple(halves))) == signature(t)


def test_drift_names_what_changed() -> None:
    t = load_profile("dgx-1v")
    assert differences(t, t) == ()
    assert differences(t, disguised_but_for_ranks(t)) == ()
    slower = tuple(
        msgspec.structs.replace(x, bandwidth=25.0) if (x.src, x.dst) == ("gpu0", "gpu3") else x
        for x in t.links
    )
    lines = differences(t, msgspec.structs.replace(t, links=slower))
    assert lines == (
        "rank 0 to 3: 50 GB/s (nominal) before, 25 now",
        "rank 3 to 0: 50 GB/s (nominal) before, 25 now",
    )
    # The same shape under another numbering has the same signature; drift tells.
    swapped = keep_gpus(t, [1, 0, 2, 3, 4, 5, 6, 7])
    assert signature(swapped) == signature(t)
    assert differences(t, swapped)
    assert "8 GPUs before, 4 now" in differences(t, keep_gpus(t, range(4)))
    measured = [
        tuple(msgspec.structs.replace(x, measured=m) for x in t.links) for m in (20.0, 15.0)
    ]
    before, now = (msgspec.structs.replace(t, links=links) for links in measured)
    assert differences(before, before) == ()
    assert "20 GB/s measured before, 15 now" in differences(before, now)[0]
    assert len(differences(before, now)) == 21
    unwired = msgspec.structs.replace(
        t,
        nodes=tuple(
            msgspec.structs.replace(n, port_gbs=1.0) if n.id == "nic0" else n for n in t.nodes
        ),
    )
    assert "signature" in differences(t, unwired)[0]


def disguised_but_for_ranks(t: Topology) -> Topology:
    names = {node.id: f"z{index}" for index, node in enumerate(reversed(t.nodes))}
    nodes = tuple(msgspec.structs.replace(n, id=names[n.id], host="other") for n in t.nodes)
    links = tuple(
        msgspec.structs.replace(x, src=names[x.src], dst=names[x.dst]) for x in reversed(t.links)
    )
    return Topology("z", nodes, links)
