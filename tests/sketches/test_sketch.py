"""The views of a sketch agree with its links, and its digest with what it allows."""

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


def test_the_digest_names_what_is_allowed_not_how_it_came_about() -> None:
    renamed = replace(MESH, name="other", notes=("said",))
    assert renamed.digest == MESH.digest
    assert hash(renamed) == hash(MESH)
    assert replace(MESH, links=MESH.links[1:]).digest != MESH.digest
    assert replace(MESH, chunks_per_rank=2).digest != MESH.digest
    cache: dict[Sketch, str] = {}
    for sketch in candidate_sketches(T, "allreduce", 1 << 20):
        cache[sketch] = sketch.name
    assert len(cache) == len(set(cache.values()))


def test_costs_of_links() -> None:
    link = MESH.link(0, 8)
    assert link is not None
    assert link.time_us(10**6) == link.alpha_us + link.beta_us_per_mb
    assert link.bandwidth_gbs * link.beta_us_per_mb == 1000.0
