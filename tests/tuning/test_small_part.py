"""Large clusters: a part of the hosts is searched first, and nominates candidates for all."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tuccl.errors import InputError
from tuccl.program import Knobs
from tuccl.runtime import SimExecutor, load_table
from tuccl.sketches import candidate_sketches, full_mesh
from tuccl.sketches.rails import rails
from tuccl.synth import Collective, ScheduleChoice
from tuccl.topology import Topology, join, keep_gpus, load_profile, network, signature
from tuccl.tuning import TuneOptions, stages, tune
from tuccl.tuning.searches.space import Point
from tuccl.tuning.small_part import Nomination, nominated_points, part_tasks, small_part
from tuccl.tuning.studies.task_queue import Task
from tuccl.tuning.tuner import TaskResult

OPTIONS = TuneOptions(part=2)


@pytest.fixture(scope="module")
def hosts() -> Topology:
    return join(load_profile("v100x4"), 4)


def test_the_part_has_the_roots_host_and_one_far_from_it(hosts: Topology) -> None:
    found = small_part(hosts, replace(OPTIONS, root=5))
    assert found is not None
    part, options = found
    assert signature(part) == signature(keep_gpus(hosts, [*range(4, 8), *range(12, 16)]))
    assert (options.root, options.part) == (1, 0)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (TuneOptions(), "16 ranks are searched as a whole"),
        (TuneOptions(part=0), "none is wanted"),
    ],
)
def test_some_machines_are_searched_as_a_whole(
    hosts: Topology, options: TuneOptions, why: str
) -> None:
    assert small_part(hosts, options) is None, why


@pytest.mark.parametrize(
    ("options", "ranks", "why"),
    [
        (TuneOptions(part=3), 16, "expected at most half of the cluster's 4"),
        (OPTIONS, 15, "different numbers of GPUs"),
    ],
)
def test_a_part_that_cannot_be_is_refused(
    hosts: Topology, options: TuneOptions, ranks: int, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        small_part(keep_gpus(hosts, range(ranks)), options)


def test_sketches_that_a_user_gives_are_for_the_whole_machine(hosts: Topology) -> None:
    with pytest.raises(InputError, match="sketches"):
        small_part(hosts, replace(OPTIONS, sketches=(full_mesh(hosts),)))


def test_by_default_unequal_hosts_are_searched_as_a_whole() -> None:
    assert (
        small_part(keep_gpus(join(load_profile("dgx-a100"), 9), range(71)), TuneOptions()) is None
    )


def test_what_times_no_parts_refuses_one(hosts: Topology, tmp_path: Path) -> None:
    shared = SimExecutor(hosts, shared=network(hosts))
    with pytest.raises(InputError, match="not timed in parts"):
        tune(hosts, "allgather", "1M", lambda _: shared, OPTIONS, path=tmp_path / "table")
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="--dialect nccl"):
        tune(hosts, "allgather", "1M", options=replace(OPTIONS, dialect="nccl"))


def test_more_than_64_gpus_have_a_part_by_default() -> None:
    found = small_part(join(load_profile("dgx-a100"), 9), TuneOptions())
    assert found is not None
    assert found[0].ranks == 32


def test_rails_stand_in_where_the_whole_machine_has_no_other_sketch() -> None:
    found = small_part(join(load_profile("dgx-a100"), 17), TuneOptions())
    assert found is not None
    part, options = found
    assert [sketch.links for sketch in options.sketches] == [rails(part).links]


def test_part_sizes_have_as_many_bytes_a_rank_or_in_all() -> None:
    tasks = part_tasks([("allgather", 1 << 20, 8), ("allgather", 1 << 22, 20)], 64, 16)
    assert tasks == [
        ("allgather", 1 << 18, 8),
        ("allgather", 1 << 20, 10),
        ("allgather", 1 << 22, 10),
    ]


def test_the_best_of_each_size_come_first_under_names_of_this_machine(hosts: Topology) -> None:
    def point(sketch: str, method: str) -> Point:
        return Point.of(ScheduleChoice(sketch, method, 1), Knobs("LL", 1, 256))

    mesh = full_mesh(hosts)
    one, two = (point(name, "greedy") for name in ("mesh-congestion-3", "gone"))
    ring = point("full-mesh", "ring")
    nominations = [
        Nomination(8, "allgather", 8 * 16 << 8, (one, ring)),
        Nomination(8, "allgather", 8 * 16 << 10, (two, ring)),
        Nomination(8, "allgather", 8 * 16 << 20, (point("full-mesh", "flow"),)),
        Nomination(8, "allreduce", 8 * 16 << 8, (point("full-mesh", "flow"),)),
    ]
    call = Collective("allgather", 32)
    sketches = [msgspec.structs.replace(mesh, name="mesh-congestion-13"), mesh]
    points = nominated_points(nominations, call, 8 * 16 << 10, sketches)
    assert [(p.choice.sketch, p.choice.method) for p in points] == [
        ("mesh-congestion-13", "greedy"),
        ("full-mesh", "ring"),  # another method before the same elsewhere
        ("full-mesh", "greedy"),
    ]


def test_methods_that_few_ranks_are_not_tried_with_are_nominated_for_many() -> None:
    choice = ScheduleChoice("rails", "ring", 2)
    nomination = Nomination(16, "allgather", 1 << 16, (Point.of(choice, Knobs("LL", 1, 256)),))
    for hosts, first in ((33, "hierarchical-doubling"), (32, "ring")):
        t = join(load_profile("v100x4"), hosts)
        call = Collective("allgather", t.ranks)
        points = nominated_points([nomination], call, t.ranks << 12, [rails(t)])
        assert points[0].choice.method == first
        assert points[-1].choice == choice


def test_sizes_between_two_get_what_is_best_at_both() -> None:
    def found(nbytes: int, *methods: str) -> Nomination:
        choices = [ScheduleChoice("full-mesh", method, 1) for method in methods]
        points = [Point.of(choice, Knobs("LL", 1, 256)) for choice in choices]
        return Nomination(16, "allgather", nbytes, tuple(points))

    mesh = full_mesh(join(load_profile("v100x4"), 4))
    sizes = {1 << 10: ("flow",), 1 << 14: ("ring", "greedy"), 1 << 18: ("packing",)}
    nominations = [found(nbytes, *methods) for nbytes, methods in sizes.items()]
    call = Collective("allgather", 16)
    points = nominated_points(nominations, call, 1 << 16, [mesh])
    assert [point.choice.method for point in points] == ["ring", "packing", "greedy"]
    points = nominated_points(nominations, call, 1 << 14, [mesh])  # again
    assert [point.choice.method for point in points] == ["ring", "flow", "packing", "greedy"]


def test_points_on_pruned_rails_are_tried_on_rails_too() -> None:
    t = join(load_profile("dgx-1v"), 17)
    sketches = candidate_sketches(t, "allgather", 1 << 20)
    point = Point.of(ScheduleChoice("mesh-nvlink", "greedy", 1), Knobs("LL", 1, 256))
    nomination = Nomination(32, "allgather", 32 << 12, (point,))
    points = nominated_points([nomination], Collective("allgather", 136), 136 << 12, sketches)
    tried = [(point.choice.sketch, point.choice.method) for point in points]
    larger = [("rails", name) for name in ("hierarchical-doubling", "hierarchical-doubling+split")]
    assert tried == [*larger, ("mesh-nvlink", "greedy"), ("rails", "greedy")]


def test_some_sizes_of_many_ranks_are_searched_before_the_others(
    hosts: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "_MOST_RANKS", 8)
    seen: list[tuple[int, int, str]] = []
    table = tune(
        hosts,
        "allgather",
        "64K:4M:x4",
        options=TuneOptions(budget=24),
        path=tmp_path / "table",
        progress=lambda *state: seen.append(state),
    )
    tasks = list(dict.fromkeys(what.split()[1] for *_, what in seen if what.startswith("allg")))
    assert tasks == ["64K", "4M", "1M", "256K"]  # all but the last again
    most = [row.evaluations for row in table.result.tuned]
    assert most[1] <= 8 < min(most[2:]) <= max(most[2:]) <= 14 + 8 < most[0]
    assert [row.size for row in table.result.tuned] == [1 << power for power in (16, 18, 20, 22)]
    assert {total for done, total, _ in seen if done} == {24 + 2 * 14 + 8 + 3 * 8}
    assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)
    assert seen[-1] == (84, 84, "done")


@pytest.mark.parametrize("keep", [True, False])
def test_sizes_that_are_finished_stay_so_where_the_limit_is_the_default(
    hosts: Topology, tmp_path: Path, keep: bool
) -> None:
    options = TuneOptions(budget=8, part=0, seconds=600.0, default_limit=keep)
    for sizes, of in (("64K", options), ("64K:256K:x4", replace(options, resume=True))):
        seen: list[str] = []
        tune(
            hosts,
            "allgather",
            sizes,
            options=of,
            path=tmp_path / "table",
            progress=lambda done, total, what, seen=seen: seen.append(what),  # type: ignore[misc]
        )
    searched = {what.split()[1] for what in seen if what.startswith("allgather")}
    assert searched == ({"256K"} if keep else {"64K", "256K"})


def test_the_whole_is_tuned_with_what_its_part_nominates(hosts: Topology, tmp_path: Path) -> None:
    seen: list[str] = []
    table = tune(
        hosts,
        "allgather",
        "1M",
        options=replace(OPTIONS, budget=32),
        path=tmp_path / "table",
        progress=lambda done, total, what: seen.append(what),
    )
    parts = [what for what in seen if what.startswith("2 hosts: allgather ")]
    assert parts
    assert seen[-1] == "done"
    [row] = table.result.tuned
    assert row.size == 1 << 20
    assert row.evaluations <= 32  # the budget, with the final round
    assert row.best_us is not None
    assert row.best_us < row.default_us
    assert load_table(tmp_path / "table").lookup.ranks == hosts.ranks


def test_an_interrupt_on_the_part_goes_on_to_the_same_table(
    hosts: Topology, tmp_path: Path
) -> None:
    options = replace(OPTIONS, budget=32)
    sizes = ["64K", "1M"]

    def interrupt(done: int, total: int, what: str) -> None:
        if done > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="missing: allgather 64K 1M"):
        tune(hosts, "allgather", sizes, options=options, path=tmp_path / "cut", progress=interrupt)
    with pytest.raises(InputError, match="unfinished study"):
        tune(hosts, "allgather", sizes, options=options, path=tmp_path / "cut")
    on = tune(
        hosts, "allgather", sizes, options=replace(options, resume=True), path=tmp_path / "cut"
    )
    whole = tune(hosts, "allgather", sizes, options=options, path=tmp_path / "whole")
    assert on.lookup.entries == whole.lookup.entries


def test_an_interrupt_of_the_second_searches_goes_on_to_the_same_table(
    hosts: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "_MOST_RANKS", 8)
    options = TuneOptions(budget=24)
    call = hosts, "allgather", "64K:4M:x4"

    def interrupt(done: int, total: int, what: str) -> None:
        if done > 24 + 2 * 14 + 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"4 sizes are in, not all searched again$"):
        tune(*call, options=options, path=tmp_path / "cut", progress=interrupt)
    assert len(load_table(tmp_path / "cut").lookup.entries) > 1
    on = tune(*call, options=replace(options, resume=True), path=tmp_path / "cut")
    whole = tune(*call, options=options, path=tmp_path / "whole")
    assert on.lookup.entries == whole.lookup.entries


def test_a_simulation_times_a_part(hosts: Topology) -> None:
    executor = SimExecutor(hosts).of_part(keep_gpus(hosts, range(8)))
    assert executor is not None
    assert executor.ranks == 8


def test_a_second_search_counts_where_it_is_worth_more(hosts: Topology, tmp_path: Path) -> None:
    options = TuneOptions(budget=8)
    [entry, *_] = tune(hosts, "allgather", "64K", options=options, path=tmp_path / "t").entries
    first, *others = entry.candidates

    def result(part: float, evaluations: int) -> TaskResult:
        assert first.stats is not None
        us = first.stats.median_us * part
        stats = msgspec.structs.replace(first.stats, p10_us=us, median_us=us)
        faster = msgspec.structs.replace(first, stats=stats)
        entries = (msgspec.structs.replace(entry, candidates=(faster, *others)),)
        task = Task("allgather", 1 << 16, evaluations)
        return TaskResult(task, 1, evaluations, 1e3, entries, ())

    for part, better in ((0.995, 0), (0.98, 1)):
        results = [result(1.0, 5), result(part, 3)]
        [kept] = stages._faster(results)
        assert kept == msgspec.structs.replace(results[better], evaluations=8)
