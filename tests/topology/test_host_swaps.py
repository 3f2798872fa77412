"""Hosts that may change places, and what they spare: exactly what the full way gives."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import permutations

import msgspec
import pytest

from tuccl.topology import (
    Node,
    Path,
    Topology,
    all_paths,
    join,
    join_hosts,
    keep_gpus,
    load_profile,
    signature,
)
from tuccl.topology.host_swaps import Hops, HostSwaps, host_classes
from tuccl.topology.paths import joined_pairs, path_orbits
from tuccl.topology.relays import RelayPaths


def clusters() -> list[Topology]:
    """Clusters of up to 64 GPUs: equal hosts on every fabric, unequal ones, and a slow link."""
    ndv2, dgx = load_profile("ndv2"), load_profile("dgx-h100")
    equal = [
        join(load_profile(name), hosts, fabric)
        for name, hosts in (("ndv2", 4), ("dgx-h100", 8), ("p5", 2), ("dgx-2", 2))
        for fabric in ("single", "rail", "clos")
    ]
    slow = msgspec.structs.replace(equal[0].links[-1], bandwidth=3.0)
    lopsided = msgspec.structs.replace(equal[0], links=(*equal[0].links[:-1], slow))
    small = keep_gpus(join(dgx, 3, "rail", up_gbs=100.0), [0, 1, 2, 3, 8, 9, 10, 11, 16])
    return [*equal, *oddly_named(), lopsided, small, ndv2, load_profile("torus-4x4x4")]


def oddly_named() -> list[Topology]:
    """Clusters whose hosts, and the switches beside them, are in another order as text."""
    ndv4, ndv2 = load_profile("ndv4"), load_profile("ndv2")
    names = (["b", "a", "n10", "n2"], ["t", "tor0a", "u", "tor"], ["x", "x.1", "x-1", "x!"])
    odd = [
        join_hosts([ndv4, ndv4, ndv2, ndv4], few, fabric)[0]
        for few in names
        for fabric in ("single", "clos")
    ]
    bare = [msgspec.structs.replace(each, routes=()) for each in odd]
    spines = [several_spines(each) for each in bare[1::2]]
    return [*odd, *bare, *spines, *map(renamed, (bare[0], spines[0]))]


def several_spines(topology: Topology) -> Topology:
    """Two more spines beside that of a Clos, of which paths take the first by name."""
    more = [
        msgspec.structs.replace(link, dst=spine)
        for link in topology.links
        for spine in ("a", "v")
        if link.dst == "spine0"
    ]
    nodes = (*topology.nodes, Node("a", "switch"), Node("v", "switch"))
    return msgspec.structs.replace(topology, nodes=nodes, links=(*topology.links, *more))


def renamed(topology: Topology) -> Topology:
    """The same machine with ids in no order, so that ties go another way on each host."""
    name = {node.id: str(n * 7919 % 997) for n, node in enumerate(topology.nodes)}
    return msgspec.structs.replace(
        topology,
        nodes=tuple(msgspec.structs.replace(n, id=name[n.id]) for n in topology.nodes),
        links=tuple(
            msgspec.structs.replace(link, src=name[link.src], dst=name[link.dst])
            for link in topology.links
        ),
    )


@pytest.mark.parametrize("topology", clusters(), ids=lambda t: t.name[:30])
def test_a_signature_by_symmetry_is_that_of_every_gpu(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    def apart(
        hosts: Sequence[Sequence[int]], nodes: Sequence[Hashable], hops: Hops
    ) -> list[list[int]]:
        return [[host] for host in range(len(hosts))]

    by_symmetry = signature(topology)
    monkeypatch.setattr(sys.modules[signature.__module__], "host_classes", apart)
    assert by_symmetry == signature(topology)


def test_hosts_change_places_with_their_own_switches() -> None:
    """Three hosts of one GPU, each on a switch of its own below one spine."""
    ends = [(0, 3), (1, 4), (2, 5), (3, 6), (4, 6), (5, 6)]
    hops = {(a, b): 25 for ends_of in ends for a, b in permutations(ends_of)}
    nodes = ["gpu"] * 3 + ["switch"] * 4
    assert host_classes([[0], [1], [2]], nodes, hops) == [[0, 1, 2]]
    assert host_classes([[0], [1], [2]], nodes, hops | {(5, 6): 12}) == [[0, 1], [2]]
    assert host_classes([[0], [1], [2]], ["gpu", "GPU", *nodes[2:]], hops) == [[0, 2], [1]]
    assert host_classes([[0, 1], [2]], nodes, hops) == [[0], [1]]


@pytest.mark.parametrize("topology", clusters(), ids=lambda t: t.name[:30])
def test_paths_by_symmetry_are_those_of_every_host(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_symmetry = all_paths(msgspec.structs.replace(topology))
    joined = joined_pairs(topology)
    monkeypatch.setattr(HostSwaps, "first", lambda self, src, dst: (src, dst))
    assert by_symmetry == all_paths(msgspec.structs.replace(topology))
    assert joined == len(by_symmetry)


@pytest.mark.parametrize("topology", clusters(), ids=lambda t: t.name[:30])
def test_images_of_the_paths_of_orbits_are_all_paths_each_once(topology: Topology) -> None:
    images = Counter[tuple[str, ...]]()
    for path, swaps in path_orbits(topology):
        nodes = nodes_of(path)
        images.update(swaps.images(nodes))
        assert swaps.count(nodes) == len(list(swaps.images(nodes)))
    assert images == Counter(map(nodes_of, all_paths(topology).values()))


def nodes_of(path: Path) -> tuple[str, ...]:
    return (path.hops[0].src, *(hop.dst for hop in path.hops))


def test_equal_hosts_share_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 hosts two are looked at, whose GPUs are 16 ends of paths."""
    cluster = msgspec.structs.replace(join(load_profile("dgx-h100"), 8))
    ends = set[str]()
    searched = RelayPaths._shortest_to

    def shortest_to(self: RelayPaths, dst: str, width: float) -> dict[str, list[str]]:
        ends.add(dst)
        return searched(self, dst, width)

    monkeypatch.setattr(RelayPaths, "_shortest_to", shortest_to)
    assert len(all_paths(cluster)) == 64 * 63
    gpus = {each for each in ends if "/gpu" in each}  # not the NICs that are near to them
    assert gpus == {f"n{host}/gpu{gpu}" for host in range(2) for gpu in range(8)}


@pytest.mark.parametrize("fabric", ["single", "clos"])
def test_swaps_leave_out_hosts_whose_ids_are_in_another_order(fabric: str) -> None:
    """A switch is before the nodes of its host as text, or after them; so is one of all hosts."""
    cluster, _ = join_hosts([load_profile("ndv2")] * 3, ["a", "b", "z"], fabric)
    images = cluster.derived(RelayPaths).swaps.images(("a/gpu0",))
    assert {nodes for (nodes,) in images} == {"a/gpu0", "b/gpu0"}
