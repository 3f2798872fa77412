"""Hosts that may change places, and what they spare: exactly what the full way gives."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from itertools import permutations

import msgspec
import pytest

from tuccl.topology import Topology, all_paths, join, keep_gpus, load_profile, signature
from tuccl.topology.symmetry import Hops, HostSwaps, host_classes


def clusters() -> list[Topology]:
    """Clusters of up to 64 GPUs: equal hosts on every fabric, unequal ones, and a slow link."""
    ndv2, dgx = load_profile("ndv2"), load_profile("dgx-h100")
    equal = [
        join(load_profile(name), hosts, fabric)
        for name, hosts in (("ndv2", 4), ("dgx-h100", 8), ("p5", 2), ("dgx-2", 2))
        for fabric in ("single", "clos")
    ]
    slow = msgspec.structs.replace(equal[0].links[-1], bandwidth=3.0)
    lopsided = msgspec.structs.replace(equal[0], links=(*equal[0].links[:-1], slow))
    small = keep_gpus(join(dgx, 3, "rail", up_gbs=100.0), [0, 1, 2, 3, 8, 9, 10, 11, 16])
    return [*equal, lopsided, small, ndv2, load_profile("torus-4x4x4")]


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
    monkeypatch.setattr(HostSwaps, "swapped", lambda self, src, dst: (src, dst))
    assert by_symmetry == all_paths(msgspec.structs.replace(topology))
