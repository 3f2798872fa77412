"""The views of a sketch agree with its links; equal sketches key a cache once."""

from __future__ import annotations

from msgspec.structs import replace

from tuccl.sketches import Sketch, candidate_sketches, full_mesh
from tuccl.topology.fabric import join
from tuccl.topology.profiles import load_profile

T = join(load_profile("a100x8-roce"), 2)
MESH = full_mesh(T)


def test_views_agree_with_the_links() -> None:
    for rank in range(MESH.ranks):
        assert [link.dst for link in MESH.out_links(rank)] == [
            other for other in range(16) if other != rank
        ]
        assert MESH.link(rank, rank) is None
    assert sum(len(MESH.out_links(rank)) for rank in range(16)) == len(MESH.links)
    assert MESH.ranks_of(1) == tuple(range(8, 16))
    assert MESH.nhosts == 2
    assert all(MESH.link(link.src, link.dst) is link for link in MESH.links)


def test_sketches_are_equal_where_all_fields_are() -> None:
    again = full_mesh(T)
    assert again is not MESH
    assert again == MESH
    assert hash(again) == hash(MESH)
    assert MESH != MESH.name
    for other in (
        replace(MESH, name="other"),
        replace(MESH, links=MESH.links[1:]),
        replace(MESH, chunks_per_rank=2),
        replace(MESH, notes=("said",)),
    ):
        assert other != MESH
    cache: dict[Sketch, str] = {}
    for sketch in candidate_sketches(T, "allreduce", 1 << 20):
        cache[sketch] = sketch.name
    assert len(cache) == len(set(cache.values()))


def test_costs_of_links() -> None:
    link = MESH.link(0, 8)
    assert link is not None
    assert link.time_us(10**6) == link.alpha_us + link.beta_us_per_mb
    assert link.bandwidth_gbs * link.beta_us_per_mb == 1000.0
