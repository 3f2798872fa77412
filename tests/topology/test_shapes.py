"""Machines made by a rule: one NVLink domain of many trays, tori, meshes."""

from __future__ import annotations

from collections import Counter

import pytest

from tuccl.errors import InputError
from tuccl.topology import all_paths, join, keep_gpus, load_profile, path, process_gpus
from tuccl.topology.shapes import nvlink_domain, torus


def test_a_rack_is_one_node_whose_trays_share_nvlink_alone() -> None:
    rack = load_profile("gb200-nvl72")
    assert (rack.ranks, rack.hosts, len(rack.nics_of("n0"))) == (72, ("n0",), 72)
    across = path(rack, 3, 4)
    assert [hop.kind for hop in across.hops] == ["nvlink", "nvlink"]
    assert not across.crosses_network
    assert process_gpus(rack) == 4


def test_racks_join_through_their_nics() -> None:
    racks = join(load_profile("gb200-nvl8"), 2, "rail")
    assert racks.hosts == ("n0", "n1")
    for (src, dst), way in all_paths(racks).items():
        assert way.crosses_network == (src // 8 != dst // 8)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("gb200-nvl6", "multiple of 4"),
        ("gb200-nvl2048", "expected 1 to 256 trays"),
        ("gb200-nvl0", "expected 1 to 256 trays"),
        ("mi300x-nvl16", "NVSwitch"),
        ("nothing-nvl8", "not known"),
        ("torus-1x1", "2 to 1024"),
        ("torus-99x99", "2 to 1024"),
        ("torus-0x4", "2 to 1024"),
        ("torus-4", "not known"),
        ("mesh-2x2x2x2", "not known"),
    ],
)
def test_shapes_that_cannot_be_are_refused(name: str, match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        load_profile(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "degree"), [("torus-4x4", 4), ("torus-3x4x5", 6)])
def test_every_place_of_a_torus_has_its_neighbours(name: str, degree: int) -> None:
    grid = load_profile(name)
    ends = Counter(end for link in grid.links for end in (link.src, link.dst))
    assert set(ends.values()) == {degree}
    assert len({frozenset((link.src, link.dst)) for link in grid.links}) == len(grid.links)


def test_a_mesh_has_borders_and_two_in_a_row_are_joined_once() -> None:
    assert len(torus((3, 3), wrap=False).links) == 12
    assert len(torus((2, 3)).links) == 3 + 2 * 3
    assert len(torus((1, 4)).links) == 4


def test_a_process_drives_the_gpus_of_a_server() -> None:
    assert process_gpus(load_profile("dgx-1v")) == 8
    assert process_gpus(join(load_profile("v100x4"), 3)) == 4
    assert process_gpus(keep_gpus(load_profile("dgx-a100"), range(3))) == 3
    assert process_gpus(nvlink_domain(load_profile("gb200"), 2)) == 4
