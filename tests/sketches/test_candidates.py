"""Candidate sketches are sound, distinct, ranked the same every time, and soon there."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import networkx as nx
import pytest

from tuccl.errors import InputError
from tuccl.sketches import candidate_sketches, full_mesh
from tuccl.sketches.checks import checked
from tuccl.sketches.files import decode_sketch, encode_sketch
from tuccl.topology.fabric import join
from tuccl.topology.graph import Link, Node, Topology
from tuccl.topology.paths import path
from tuccl.topology.profiles import PROFILES, load_profile
from tuccl.topology.symmetry import rotation

Cluster = Callable[..., Topology]
MACHINES = [(name, nodes) for name in PROFILES for nodes in (1, 2, 3)]


@pytest.mark.parametrize(("name", "nodes"), MACHINES)
@pytest.mark.parametrize("nbytes", [1 << 10, 1 << 28])
def test_candidates(name: str, nodes: int, nbytes: int) -> None:
    t = join(load_profile(name), nodes)
    sketches = candidate_sketches(t, "allgather", nbytes)
    assert sketches[-1].pairs == full_mesh(t).pairs
    assert len({frozenset(sketch.pairs) for sketch in sketches}) == len(sketches)
    assert len({sketch.name for sketch in sketches}) == len(sketches)
    mesh = set(itertools.permutations(range(t.ranks), 2))
    for sketch in sketches:
        gone = {(link.src, link.dst) for link in sketch.pruned}
        assert set(sketch.pairs) | gone == mesh
        assert len(sketch.links) + len(sketch.pruned) == len(mesh)
        assert nx.is_strongly_connected(nx.DiGraph(list(sketch.pairs)))
        for turn in sketch.symmetry:
            to = rotation(t.ranks, *turn)
            for link in sketch.links:
                image = sketch.link(to[link.src], to[link.dst])
                assert image is not None and image.inter == link.inter
                assert image.alpha_us == pytest.approx(link.alpha_us)
                assert image.beta_us_per_mb == pytest.approx(link.beta_us_per_mb)
        assert decode_sketch(encode_sketch(checked(sketch))) == sketch
        assert (nbytes // t.ranks) % sketch.chunks_per_rank == 0
    assert candidate_sketches(t, "allgather", nbytes) == sketches


def test_nvlink_goes_first_above_ten_megabytes() -> None:
    t = join(load_profile("ndv2"), 2)
    large = candidate_sketches(t, "allreduce", 64 << 20)[0]
    intra = [link for link in large.links if not link.inter]
    assert all(hop.kind == "nvlink" for link in intra for hop in path(t, link.src, link.dst).hops)
    assert {link.stage for link in large.pruned} == {"size", "transformation"}


def test_pruned_sketches_come_before_denser_ones_when_large() -> None:
    t = join(load_profile("a100x8-roce"), 2)
    first, *_ = candidate_sketches(t, "allgather", 1 << 30)
    assert first.name == "one"
    assert first.internode_links == 8


def test_hosts_joined_without_nics_still_have_candidates() -> None:
    gpus = [Node(f"g{rank}", "gpu", host=f"h{rank // 2}", rank=rank) for rank in range(4)]
    links = [Link(gpu.id, "sw", "network", 10.0, 1.0, duplex=True) for gpu in gpus]
    t = Topology("bare", (*gpus, Node("sw", "switch")), tuple(links))
    *pruned, mesh = candidate_sketches(t, "alltoall", 1 << 20)
    assert len(mesh.links) == 12
    assert all("no NIC groups" in sketch.notes[0] for sketch in pruned)


def test_one_gpu_has_the_empty_mesh(cluster: Cluster) -> None:
    (mesh,) = candidate_sketches(cluster([1], [[12.5]]), "allgather", 1 << 20)
    assert mesh.links == ()


def test_128_gpus_take_seconds_not_minutes() -> None:
    """Bounded at ten times what it takes, so that it fails for the algorithm, not the machine."""
    t = join(load_profile("dgx-a100"), 16)
    start = time.process_time()
    assert len(candidate_sketches(t, "allgather", 1 << 20)) > 1
    assert time.process_time() - start < 20


@pytest.mark.parametrize(("collective", "nbytes"), [("allgathr", 1024), ("allgather", 0)])
def test_bad_requests(cluster: Cluster, collective: str, nbytes: int) -> None:
    with pytest.raises(InputError, match="expected"):
        candidate_sketches(cluster([2, 2], [[12.5], [12.5]]), collective, nbytes)
