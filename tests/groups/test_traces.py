"""Groups of a job from the execution traces of its ranks."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tuccl.errors import InputError
from tuccl.groups.layout import ProcessGroups, megatron_groups, mesh_groups
from tuccl.groups.traces import trace_groups


def write_traces(folder: Path, job: ProcessGroups, version: str = "1.1") -> list[Path]:
    """Write a trace for each rank, which lists the world and the rank's groups, as PyTorch does."""
    paths = []
    for rank in range(job.ranks):
        listed = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": job.ranks}]
        for number, kind in enumerate(job.kinds):
            mine = next((group for group in kind.groups if rank in group), ())
            if mine:
                listed.append(
                    {"pg_name": str(number + 1), "pg_desc": kind.desc, "ranks": list(mine)}
                )
        values = [json.dumps(listed)]
        inputs = {"values": values, "shapes": [[]], "types": ["String"]}
        node = {"name": "## process_group:init ##", "id": 2, "outputs": []}
        node["inputs"] = inputs if version == "1.1" else values
        paths.append(folder / f"{rank}.json")
        paths[-1].write_text(json.dumps({"schema": version, "nodes": [node]}))
    return paths


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize(
    "job",
    [megatron_groups("tp=2,cp=2,ep=2,pp=2", 16), mesh_groups("dp=2,shard=3,tp=2", 12)],
    ids=["megatron", "mesh"],
)
def test_traces_of_all_ranks_give_the_groups_of_the_layout(
    tmp_path: Path, job: ProcessGroups, version: str
) -> None:
    paths = write_traces(tmp_path, job, version)
    random.Random(1).shuffle(paths)
    found = trace_groups(paths, job.ranks)
    assert found.kind("default_pg").groups == (tuple(range(job.ranks)),)
    for kind in job.kinds:
        assert sorted(found.kind(kind.name).groups) == sorted(kind.groups)
        assert found.kind(kind.name).desc == kind.desc


def test_the_trace_of_one_rank_gives_its_own_groups(tmp_path: Path, tuccl: Tuccl) -> None:
    job = megatron_groups("tp=4", 8)
    paths = write_traces(tmp_path, job)
    found = trace_groups(paths[:1], 8)
    assert found.kind("tp").groups == ((0, 1, 2, 3),) and found.kind("dp").groups == ((0, 4),)
    machine = tmp_path / "m.json"
    tuccl("probe", "--profile", "v100x4", "--nodes", "2", "-o", machine)
    answer = tuccl("groups", machine, "--trace", ",".join(map(str, paths)))
    assert answer.code == 0 and [line.split()[:2] for line in answer.out.splitlines()[3:]] == [
        ["default_pg", "1"],
        ["tp", "2"],
        ["dp", "4"],
    ]


def test_traces_that_say_nothing_of_groups_or_contradict_themselves_are_refused(
    tmp_path: Path,
) -> None:
    trace = tmp_path / "t.json"
    for content, why in (
        ("{", "expected a PyTorch execution trace"),
        ('{"nodes": []}', "list no groups"),
        ('{"nodes": [{"name": "## process_group:init ##", "inputs": ["[{"]}]}', "list no groups"),
    ):
        trace.write_text(content)
        with pytest.raises(InputError, match=why):
            trace_groups([trace], 8)
    job = mesh_groups("dp=2,tp=2", 4)
    first, *_ = write_traces(tmp_path, job)
    with pytest.raises(InputError, match="expected ranks 0 to 1"):
        trace_groups([first], 2)
    other = tmp_path / "other"
    other.mkdir()
    swapped = write_traces(other, mesh_groups("tp=2,dp=2", 4))
    with pytest.raises(InputError, match="a rank twice"):
        trace_groups([first, swapped[1]], 4)
