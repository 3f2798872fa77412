"""Keeping some of the GPUs."""

from __future__ import annotations

import pytest

from tuccl.errors import InputError
from tuccl.topology import PROFILES, all_paths, join, keep_gpus, load_profile, path
from tuccl.topology.show import matrix


@pytest.mark.parametrize("name", PROFILES)
def test_kept_gpus_keep_their_ways(name: str) -> None:
    t = join(load_profile(name), 2)
    half = t.ranks // 4
    ranks = [*range(half), *range(t.ranks // 2, t.ranks // 2 + half)]
    part = keep_gpus(t, ranks)
    assert part.ranks == len(ranks)
    for src, dst in all_paths(part):
        assert path(part, src, dst) == path(t, ranks[src], ranks[dst])


def test_ranks_follow_the_order_given() -> None:
    part = keep_gpus(load_profile("dgx-1v"), [5, 2])
    assert [gpu.id for gpu in part.gpus] == ["gpu5", "gpu2"]


def test_what_joins_nothing_goes_but_nics_stay() -> None:
    t = join(load_profile("dgx-a100"), 2)
    one = keep_gpus(t, range(4))
    assert one.hosts == ("n0",)
    assert len(one.nics_of("n0")) == 8
    assert {node.host for node in one.nodes} == {"n0", None}
    ends = {node.id for node in one.nodes}
    assert all({link.src, link.dst} <= ends for link in one.links)
    for node in one.nodes:
        around = {end for link in one.links for end in (link.src, link.dst) if node.id in
                  (link.src, link.dst)} - {node.id}  # fmt: skip
        assert node.kind in ("gpu", "nic") or len(around) >= 2


def test_wrong_ranks_are_refused() -> None:
    t = load_profile("v100x4")
    for ranks in ([], [0, 0]):
        with pytest.raises(InputError, match="at least one, each once"):
            keep_gpus(t, ranks)
    for ranks in ([4], [-1]):
        with pytest.raises(InputError, match="ranks 0 to 3"):
            keep_gpus(t, ranks)


def test_the_matrix_shows_every_pair_alike_from_both_sides() -> None:
    t = load_profile("ndv2")
    rows = [line.split() for line in matrix(t).splitlines()[1:9]]
    assert [row[0] for row in rows] == [f"GPU{rank}" for rank in range(8)]
    table = matrix(t)
    assert table.count("NVL 50") == 16
    assert table.count("NVL 25") == 16
    assert table.count("SYS 10") == 24 + 4  # 24 pairs, and four GPUs far from the only NIC
