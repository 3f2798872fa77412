"""Rings found in sketches: through every rank once, over links, hosts in a row, links disjoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tuccl.errors import Infeasible
from tuccl.sketches import Sketch, candidate_sketches, full_mesh
from tuccl.sketches.sketch import LogicalLink
from tuccl.synth.classic.ring_orders import ring_orders
from tuccl.topology import PROFILES, join, load_profile


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_rings_are_rings(profile: str, hosts: int) -> None:
    t = load_profile(profile)
    t = join(t, hosts) if hosts > 1 else t
    for sketch in (full_mesh(t), candidate_sketches(t, "allreduce", 1 << 26)[0]):
        try:
            rings = ring_orders(sketch, 8)
        except Infeasible:
            assert sketch.internode_links > 0  # one GPU both sends and receives for its host
            continue
        for ring in rings:
            edges = list(zip(ring, (*ring[1:], ring[0]), strict=True))
            assert sorted(ring) == list(range(t.ranks))
            assert all(sketch.link(a, b) for a, b in edges)
            crossings = sum(sketch.hosts[a] != sketch.hosts[b] for a, b in edges)
            assert crossings == (hosts if hosts > 1 else 0)


def test_dgx1_nvlinks_make_six_disjoint_rings() -> None:
    """All 6 links of each GPU, both ways: no more is there."""
    t = load_profile("dgx-1v")
    sketch = full_mesh(t)
    rings = ring_orders(sketch, 8)
    assert len(rings) == 6
    uses = Counter(edge for r in rings for edge in zip(r, (*r[1:], r[0]), strict=True))
    for (a, b), count in uses.items():
        link = sketch.link(a, b)
        assert link is not None
        assert count * 25 <= link.bandwidth_gbs


def test_rings_between_hosts_use_each_nic_once() -> None:
    sketch = full_mesh(join(load_profile("ndv4"), 2))
    rings = ring_orders(sketch, 8)
    assert len(rings) == 8
    used = Counter(
        (link.src // 8, way, nic)
        for ring in rings
        for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)
        if (link := sketch.link(a, b)) is not None and link.inter
        for way, nic in enumerate(link.nics)
    )
    assert set(used.values()) == {1}


def test_no_ring_is_refused() -> None:
    links = tuple(
        LogicalLink(src=a, dst=b, inter=False, alpha_us=1.0, beta_us_per_mb=1.0)
        for a, b in ((0, 1), (1, 0), (0, 2), (2, 0))
    )
    star = Sketch(name="star", ranks=3, hosts=(0, 0, 0), links=links)
    with pytest.raises(Infeasible, match="no ring"):
        ring_orders(star, 1)


def test_uneven_hosts(mesh: Callable[..., Sketch]) -> None:
    sketch = mesh([0, 0, 0, 1, 2, 2])
    (ring,) = ring_orders(sketch, 1)
    assert sorted(ring) == list(range(6))
