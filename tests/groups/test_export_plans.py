"""Plans of a job's tables: a communicator gets them by its members, or by a shape that agrees."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conftest import Tuccl
from tests.gpu.test_job_communicators import write_job
from tests.runtime.table.test_export_mscclpp import (
    Builder,
    loaded,
    mscclpp,  # noqa: F401 - a fixture
    plans_of,
    request,
    run_script,
)
from tests.test_layers import imported
from tests.torch_backend.conftest import machine, write_table
from tuccl.errors import InputError
from tuccl.groups.export import export_job
from tuccl.groups.job import JobEntry, JobTables, load_job, save_job
from tuccl.groups.layout import Kind, ProcessGroups
from tuccl.runtime import load_table

pytestmark = pytest.mark.usefixtures("mscclpp")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> JobTables:
    """Two hosts of four GPUs: tp within a host, dp across."""
    place = write_job(tmp_path_factory.mktemp("job"), "tp=4", ("tp", 1, 4), ("dp", 2, 1))
    return load_job(place)


@pytest.fixture
def plans(job: JobTables, tmp_path: Path) -> Path:
    export_job(job, "mscclpp", tmp_path / "plans")
    return tmp_path / "plans"


def job_of(folder: Path, groups: Sequence[Sequence[int]], *tables: tuple[Path, int]) -> JobTables:
    """Return a job of one kind; the tables stand below it, each for groups up to a number."""
    entries, first = [], 0
    for place, last in tables:
        shutil.copytree(place, folder / "tables" / place.name)
        entries.append(
            JobEntry(
                kind="k",
                groups=tuple(range(first, last)),
                key="",
                table=place.name,
                checksum=load_table(place).lookup.checksum,
            )
        )
        first = last
    kind = Kind(name="k", groups=tuple(map(tuple, groups)))
    ranks = 1 + max(map(max, groups))
    made = JobTables(folder, ProcessGroups(ranks, (kind,)), machine(2, ranks // 2), tuple(entries))
    save_job(made)
    return load_job(folder)


def names(algorithms: Sequence[Any]) -> set[str]:
    return {each.name for each in algorithms}


def test_each_group_gets_the_plans_of_its_table_for_its_rank(job: JobTables, plans: Path) -> None:
    module, proved = loaded(plans), plans_of(plans)
    assert not any(name.startswith("tuccl") for name in imported(plans / "tuccl_plans.py"))
    assert proved and all(plan.verify().ok for plan in proved.values())
    found: dict[str, set[str]] = {}
    for kind, shape in (("tp", (4, 4)), ("dp", (2, 1))):
        for group in job.groups.kind(kind).groups:
            for rank in range(len(group)):
                own = module.algorithms(rank, *shape, members=group, sums_only=True)
                assert {each.plan.rank for each in own} == {rank}
                assert names(own) == names(module.algorithms(rank, *shape, sums_only=True))
                assert {len(proved[name].gpus) for name in names(own)} == {len(group)}
                assert found.setdefault(kind, names(own)) == names(own)
    assert found["tp"].isdisjoint(found["dp"])
    assert found["tp"] | found["dp"] == set(proved)


@pytest.mark.parametrize(
    ("shape", "members"),
    [
        ((8, 4), None),
        ((2, 2), None),
        ((2, 1), [5, 1]),
        ((4, 4), [0, 1, 2, 4]),
        ((2, 2), [1, 5]),
    ],
)
def test_other_communicators_are_left_to_the_runtime_with_one_line(
    plans: Path,
    shape: tuple[int, int],
    members: list[int] | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    module = loaded(plans)
    for _ in range(2):
        assert module.algorithms(0, *shape, members=members, sums_only=True) == []
    [line] = caplog.messages
    assert "no plans" in line and "\n" not in line


def test_a_process_registers_its_groups_and_requests_get_plans_by_shape(
    plans: Path,
    mscclpp: Builder,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = run_script(plans, tmp_path, monkeypatch, "import tuccl_plans\n", (6, 8, 4))
    ranks = {each.plan.name: each.plan.rank for each in mscclpp.added}
    algorithms: dict[str, dict[str, Any]] = {}
    for each in mscclpp.added:
        algorithms.setdefault(each.collective, {})[each.name] = each
    for world_size, on_host, rank in ((4, 4, 2), (2, 1, 1)):
        call = request("allreduce", 1 << 20, world_size=world_size, n_ranks_per_node=on_host)
        assert ranks[mscclpp.selector(algorithms, call).name] == rank
    for shape in ((8, 4), (4, 2), (2, 2)):
        call = request("allreduce", 1 << 20, world_size=shape[0], n_ranks_per_node=shape[1])
        assert mscclpp.selector(algorithms, call) is None
    assert module.communicators(6, 16, 4) == [(6, 16, 4)]


def test_groups_of_one_shape_with_different_tables_are_served_by_members_alone(
    tmp_path: Path,
) -> None:
    pairs = [(rank, rank + 2) for rank in range(2)]
    whole = write_table(tmp_path / "a", 2, 1, collectives=["allreduce"])
    other = write_table(tmp_path / "b", 2, 1, protocol="LL", collectives=["allreduce"])
    for place, tables, why in (
        ("two", ((whole, 1), (other, 2)), "since their tables differ"),
        ("one", ((whole, 1),), "since some of them have no table"),
    ):
        out = tmp_path / place / "plans"
        exported = export_job(job_of(tmp_path / place, pairs, *tables), "mscclpp", out)
        text = "groups of 2 ranks, 1 on a host (k), without members: left to MSCCL++, "
        assert [note for note in exported.notes if "left to" in note] == [text + why]
        module = loaded(out)
        assert module.plans_of(2, 1) == []
        by_pair = [names(module.algorithms(0, 2, 1, members=m, sums_only=True)) for m in pairs]
        assert by_pair[0] and by_pair[0].isdisjoint(by_pair[1])
        assert bool(by_pair[1]) == (len(tables) == 2)


def test_a_shape_in_which_a_rank_has_two_places_is_served_by_members_alone(tmp_path: Path) -> None:
    """A process registers a plan for one rank; tp and dp of two have one table here."""
    place = write_job(tmp_path / "job", "tp=2,pp=2", ("tp", 1, 2), ("dp", 1, 2), ("pp", 2, 1))
    exported = export_job(load_job(place), "mscclpp", tmp_path / "out")
    assert any("(tp, dp)" in n and "has other places in some" in n for n in exported.notes)
    module = loaded(tmp_path / "out")
    assert module.plans_of(2, 2) == [] and module.plans_of(2, 1)
    assert module.plans_of(2, 2, [0, 1]) == module.plans_of(2, 2, [1, 3])
    assert module.communicators(3, 8, 4) == [(0, 2, 1)]


def test_groups_that_are_not_numbered_host_by_host_spoil_the_shapes_that_their_ranks_see(
    tmp_path: Path,
) -> None:
    table = write_table(tmp_path / "a", 2, 2, collectives=["allgather"])
    groups = [(0, 1, 4, 5), (2, 6, 3, 7)]
    exported = export_job(job_of(tmp_path / "job", groups, (table, 2)), "mscclpp", tmp_path / "out")
    assert any("left to MSCCL++, whose plans need as many" in note for note in exported.notes)
    module = loaded(tmp_path / "out")
    assert module.plans_of(4, 2) == module.plans_of(4, 2, groups[1]) == []
    assert module.plans_of(4, 2, groups[0])


def test_the_adapter_that_mscclpp_would_take_is_said(job: JobTables, tmp_path: Path) -> None:
    notes = export_job(job, "mscclpp", tmp_path / "out").notes
    assert [n.split(":")[0] for n in notes if "MSCCLPP_HCA_DEVICES" in n] == ["dp"]
    assert "dp" in [n.split(":")[0] for n in notes if "the job must make no others" in n]


def test_what_cannot_be_exported_writes_nothing(
    job: JobTables, tmp_path: Path, tuccl: Tuccl
) -> None:
    out = tmp_path / "out"
    words = ("export", job.folder, "--dialect", "mscclpp", "-o", out)
    for more, why in ((("--share", "dp=4"), "no --share"), (("--share-scratch",), "one table")):
        refused = tuccl(*words, *more)
        assert refused.code == 2 and why in refused.err and not out.exists()
    damaged = [msgspec.structs.replace(e, checksum="0" * 64) for e in job.entries]
    with pytest.raises(InputError, match="tune the job again"):
        export_job(JobTables(job.folder, job.groups, job.topology, tuple(damaged)), "mscclpp", out)
    assert not out.exists()
    answer = tuccl(*words)
    assert answer.code == 0 and "selection.json" in answer.out
