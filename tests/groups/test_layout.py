"""Groups of a layout are those that Megatron-LM and DeviceMesh make."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from tuccl.errors import InputError
from tuccl.groups.layout import (
    Kind,
    ProcessGroups,
    megatron_groups,
    mesh_groups,
    read_groups,
    save_groups,
)


def spans(shape: list[int], axes: list[int]) -> set[tuple[int, ...]]:
    """Groups of a grid whose last axis is fastest, by numpy's own transposition."""
    grid = np.arange(np.prod(shape)).reshape(shape)
    others = [axis for axis in range(len(shape)) if axis not in axes]
    size = int(np.prod([shape[axis] for axis in axes]))
    return {tuple(map(int, row)) for row in grid.transpose(others + axes).reshape(-1, size)}


def sizes_of(draw: random.Random, names: list[str]) -> dict[str, int]:
    return {name: draw.choice([1, 2, 3, 4]) for name in names}


@pytest.mark.parametrize("seed", range(20))
def test_dense_and_expert_groups_are_megatrons(seed: int) -> None:
    draw = random.Random(seed)
    sizes = sizes_of(draw, ["tp", "cp", "dp", "pp"])
    ep = draw.choice([size for size in (1, 2, 3, 4) if sizes["cp"] * sizes["dp"] % size == 0])
    order = ["tp", "cp", "ep", "dp"]
    draw.shuffle(order)
    order.append("pp")
    ranks = int(np.prod(list(sizes.values())))
    text = ",".join(f"{name}={size}" for name, size in {**sizes, "ep": ep}.items())
    job = megatron_groups(text, ranks, "-".join(order))

    found = {kind.name: set(kind.groups) for kind in job.kinds}
    slowest_first = order[::-1]

    def expected(shape: dict[str, int], *names: str) -> set[tuple[int, ...]]:
        axes = [n for n, name in enumerate(slowest_first) if name in names]
        return spans([shape[name] for name in slowest_first], axes)

    dense = {**sizes, "ep": 1}
    for name in ("tp", "cp", "dp", "pp"):
        assert found.get(name, expected(dense, name)) == expected(dense, name)
        assert (name in found) == (sizes[name] > 1)
    if sizes["cp"] > 1:
        assert found["dp-cp"] == expected(dense, "dp", "cp")
    if ep > 1:
        expert = {**sizes, "cp": 1, "ep": ep, "dp": sizes["cp"] * sizes["dp"] // ep}
        assert found["ep"] == expected(expert, "ep")
        assert found.get("edp", expected(expert, "dp")) == expected(expert, "dp")
    for kind in job.kinds:
        assert sorted(rank for group in kind.groups for rank in group) == list(range(ranks))
    for one, other in combinations([n for n in ("tp", "dp", "pp", "cp") if n in found], 2):
        assert all(len(set(a) & set(b)) <= 1 for a in found[one] for b in found[other])


@pytest.mark.parametrize("seed", range(10))
def test_mesh_groups_are_those_of_a_device_mesh(seed: int) -> None:
    draw = random.Random(seed)
    names = ["replicate", "shard", "tp"][: draw.choice([1, 2, 3])]
    shape = [draw.choice([2, 3, 4]) for _ in names]
    text = ",".join(f"{name}={size}" for name, size in zip(names, shape, strict=True))
    job = mesh_groups(text, int(np.prod(shape)))
    assert [kind.name for kind in job.kinds] == names
    for axis, kind in enumerate(job.kinds):
        assert set(kind.groups) == spans(shape, [axis])
        assert kind.desc == f"mesh_{kind.name}"


def test_the_axis_that_is_left_follows_from_the_ranks() -> None:
    assert megatron_groups("tp=2,pp=2", 16).kind("dp").groups[0] == (0, 2, 4, 6)
    assert megatron_groups("tp=2,ep=4", 16).kind("ep").groups[0] == (0, 2, 4, 6)


@pytest.mark.parametrize(
    ("layout", "order", "why"),
    [
        ("tp=3", "tp-cp-ep-dp-pp", "16 ranks do not divide by 3"),
        ("tp=2,dp=4", "tp-cp-ep-dp-pp", "make 8 ranks; the machine has 16"),
        ("xp=2", "tp-cp-ep-dp-pp", "expected NAME=SIZE"),
        ("tp=2,tp=2", "tp-cp-ep-dp-pp", "expected NAME=SIZE"),
        ("tp=0", "tp-cp-ep-dp-pp", "expected NAME=SIZE"),
        ("tp=2", "tp-dp", "expected each of tp-cp-ep-dp-pp once"),
        ("cp=2,ep=4,pp=2", "cp-pp-tp-ep-dp", "Megatron wants pp last"),
    ],
)
def test_layouts_that_are_none_are_refused(layout: str, order: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        megatron_groups(layout, 16, order)


def test_a_file_of_groups_is_read_back_and_a_wrong_one_refused(tmp_path: Path) -> None:
    job = megatron_groups("tp=2,pp=2", 8)
    save_groups(job, tmp_path / "g.json")
    assert read_groups(tmp_path / "g.json") == job
    for text in (
        '{"format":"tuccl-groups/1","ranks":4,"kinds":[{"name":"a","groups":[[0,1],[1,2]]}]}',
        '{"format":"tuccl-groups/1","ranks":4,"kinds":[{"name":"a","groups":[[0,9]]}]}',
        '{"format":"tuccl-groups/1","ranks":4,"kinds":[{"name":"a","groups":[[]]}]}',
        '{"format":"tuccl-groups/1","ranks":0,"kinds":[]}',
        '{"format":"tuccl-groups/2","ranks":4,"kinds":[]}',
        "[" * 100_000,
        "",
    ):
        (tmp_path / "g.json").write_text(text)
        with pytest.raises(InputError, match="tuccl-groups/1") as refused:
            read_groups(tmp_path / "g.json")
        assert "\n" not in str(refused.value)


def test_an_unknown_kind_names_those_there_are() -> None:
    with pytest.raises(InputError, match="no groups 'xp': this job has tp, dp"):
        megatron_groups("tp=2", 4).kind("xp")
    assert ProcessGroups(4, ()).kinds == ()


def test_names_of_kinds_and_sizes_that_cannot_be_are_refused() -> None:
    for name in ("a/b", "t p", "", "..", "1x"):
        with pytest.raises(ValueError, match="expected a letter"):
            ProcessGroups(2, (Kind(name, ((0, 1),)),))
    for layout, why in (
        ("tp=2,etp=2", "add ep"),
        ("tp=0", "sizes above 0"),
        ("tp=2,tp=2", "each name once"),
    ):
        with pytest.raises(InputError, match=why):
            megatron_groups(layout, 4)
