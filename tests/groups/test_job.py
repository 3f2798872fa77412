"""A job's tables: tuned in company, found by members, proven when they are read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.conftest import Tuccl
from tuccl.errors import InputError, TucclError
from tuccl.eval.compare_groups import compare_groups
from tuccl.groups.concurrent import group_call, table_choice, table_run
from tuccl.groups.equivalence import group_orbits
from tuccl.groups.export import export_job
from tuccl.groups.job import JOB_NAME, JobEntry, JobTables, load_job, save_job
from tuccl.groups.layout import Kind, ProcessGroups, megatron_groups, mesh_groups
from tuccl.runtime import SimExecutor
from tuccl.topology import join, keep_gpus, load_profile
from tuccl.tuning import TuneOptions
from tuccl.tuning.job_search import tune_job

MACHINE = join(load_profile("v100x4"), 2)
GROUPS = megatron_groups("tp=4", 8)
CALLS = (("dp", "allreduce"), ("tp", "allgather"))
QUICK = TuneOptions(budget=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("job") / "job"
    tune_job(MACHINE, GROUPS, CALLS, ["1M", "16M"], QUICK, path=place)
    return place


def test_tables_have_the_times_of_all_groups_at_once_and_beat_the_default(folder: Path) -> None:
    job = load_job(folder)
    assert [(e.kind, e.groups, e.concurrent) for e in job.entries] == [
        ("dp", (0, 1, 2, 3), 2),
        ("tp", (0, 1), 1),
    ]
    executor = SimExecutor(MACHINE)
    for entry in job.entries:
        part, table = keep_gpus(MACHINE, job.members(entry)), job.table(entry)
        choose = table_choice({part: table})
        for name, collective in CALLS:
            if name != entry.kind:
                continue
            for nbytes in (1 << 20, 1 << 24):
                own = choose(part, collective, nbytes)
                groups = job.groups.kind(name).groups
                calls = [group_call(own, group, nbytes) for group in groups]
                stats = table.select(collective, nbytes).candidate.stats
                assert stats is not None
                assert stats.median_us == pytest.approx(max(executor.time_groups(calls)), rel=1e-6)
    rows = compare_groups(job)
    assert len(rows) == 4
    assert all(r.bound_us <= r.tuned_us <= r.default_us * (1 + 1e-9) for r in rows)


def test_a_group_is_found_by_its_members_in_their_order(folder: Path) -> None:
    job = load_job(folder)
    for kind in GROUPS.kinds:
        for number, group in enumerate(kind.groups):
            entry = job.of_members(group)
            assert entry is not None and entry.kind == kind.name and number in entry.groups
            assert job.of_members(group[::-1]) is None
    assert job.of_members(range(8)) is None
    assert [(e.kind, members) for e, members in job.of_rank(5)] == [
        ("dp", (1, 5)),
        ("tp", (4, 5, 6, 7)),
    ]


def test_plugins_read_the_host_and_the_address_of_each_rank(tmp_path: Path) -> None:
    whole = join(load_profile("v100x4"), 2)
    first = replace(whole.gpus[0], busid="0000:3b:00.0")
    nodes = tuple(first if node.rank == 0 else node for node in whole.nodes)
    swapped = keep_gpus(replace(whole, nodes=nodes), (4, 0))  # of two hosts
    groups = megatron_groups("tp=2", 2)
    save_job(JobTables(tmp_path, groups, swapped, ()))
    lines = (tmp_path / "members.txt").read_text().splitlines()
    assert lines[1:5] == ["job 2 1", "rank 0 -", "rank 1 0000:3b:00.0", "group - - 0 1"]


def test_members_of_random_layouts_find_one_entry_or_none_of_their_own(tmp_path: Path) -> None:
    """No two members choose differently, and nobody gets the table of other groups."""
    draw, whole = random.Random(5), join(load_profile("v100x4"), 2)
    machines = {ranks: keep_gpus(whole, range(ranks)) for ranks in (2, 4, 6, 8)}
    for _ in range(300):
        ranks, machine = draw.choice(list(machines.items()))
        kinds = []
        for name in "abc"[: draw.randint(1, 3)]:
            order = draw.sample(range(ranks), ranks)
            size = draw.choice([n for n in (1, 2, 4) if ranks % n == 0])
            groups = tuple(tuple(order[n : n + size]) for n in range(0, ranks, size))
            kinds.append(Kind(name, groups[: draw.randint(1, len(groups))]))
        entries = []
        for kind in kinds:
            numbers = draw.sample(range(len(kind.groups)), len(kind.groups))
            while numbers:
                mine = [numbers.pop() for _ in range(draw.randint(1, len(numbers)))]
                table = f"{kind.name}-{mine[0]}"
                (tmp_path / "tables" / table).mkdir(parents=True, exist_ok=True)
                (tmp_path / "tables" / table / "table.txt").write_text(f"end {table}\n")
                entries.append(
                    JobEntry(kind=kind.name, groups=tuple(mine), key="", table=table, checksum="")
                )
        draw.shuffle(entries)
        save_job(JobTables(tmp_path, ProcessGroups(ranks, tuple(kinds)), machine, tuple(entries)))
        job = load_job(tmp_path)
        members = (tmp_path / "members.txt").read_text()
        for kind in kinds:
            for group in kind.groups:
                entry = job.of_members(group)
                assert entry is not None
                line = f"group {entry.table} {entry.table} {' '.join(map(str, group))}\n"
                assert members.count(line) == 1
                owners = job.groups.kind(entry.kind).groups
                assert group in [owners[number] for number in entry.groups]
                for rank in group:  # each member has the choice among its own groups
                    assert (entry, group) in job.of_rank(rank)


def test_a_second_tune_adds_sizes_and_other_company_is_refused(tmp_path: Path) -> None:
    place, host = tmp_path / "job", load_profile("v100x4")
    groups = megatron_groups("tp=2", 4)
    options = TuneOptions(budget=2, methods=("ring",))
    tune_job(host, groups, [("tp", "allgather")], "1M", options, path=place)
    job, _ = tune_job(host, groups, [("tp", "allgather")], "4M", options, path=place)
    assert len(job.entries) == 1 and len(job.table(job.entries[0]).entries) == 2
    beside = [("dp", "allreduce", "1M")]
    with pytest.raises(InputError, match=r"was tuned with .* beside no others; do the same"):
        tune_job(host, groups, [("tp", "allgather")], "4M", options, path=place, beside=beside)
    other = megatron_groups("tp=4", 4)
    with pytest.raises(InputError, match="another machine or of other groups"):
        tune_job(host, other, [("tp", "allgather")], "4M", options, path=place)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="expected the folder of a job's tables, or none"):
        tune_job(host, groups, [("tp", "allgather")], "4M", options, path=tmp_path)


def test_a_job_whose_first_tune_was_cut_off_is_tuned_again(tmp_path: Path) -> None:
    place, host, groups = tmp_path / "job", load_profile("v100x4"), megatron_groups("tp=2", 4)
    options = TuneOptions(budget=2, methods=("ring",))
    whole, _ = tune_job(host, groups, [("tp", "allgather")], "1M", options, path=place)
    (place / JOB_NAME).unlink()  # written last
    again, _ = tune_job(host, groups, [("tp", "allgather")], "1M", options, path=place)
    assert again.entries == whole.entries


def test_workers_tune_the_same_tables(tmp_path: Path) -> None:
    groups, jobs = megatron_groups("tp=2", 4), []
    for workers in (1, 2):
        options = TuneOptions(budget=6, methods=("ring", "allpairs"), workers=workers)
        calls = [("tp", "allgather"), ("dp", "allreduce")]
        place = tmp_path / str(workers)
        job, _ = tune_job(load_profile("v100x4"), groups, calls, "1M", options, path=place)
        jobs.append([job.table(entry).entries for entry in job.entries])
    assert jobs[0] == jobs[1]


def test_calls_beside_slow_a_table_s_times(tmp_path: Path) -> None:
    machine = join(load_profile("v100x4"), 4)
    groups = megatron_groups("tp=4,pp=2", 16)  # dp and pp cross the same NICs
    options = TuneOptions(budget=2, methods=("ring",))
    times = []
    for name, beside in (("idle", []), ("company", [("pp", "allreduce", "64M")])):
        _, tables = tune_job(
            machine,
            groups,
            [("dp", "allgather")],
            "16M",
            options,
            path=tmp_path / name,
            beside=beside,
        )
        times.append(min(t.result.tuned[0].default_us for t in tables))
    assert times[1] > 1.2 * times[0]


def test_a_damaged_index_is_one_line(folder: Path, tmp_path: Path) -> None:
    whole = (folder / JOB_NAME).read_bytes()
    (tmp_path / "topology.json").write_bytes((folder / "topology.json").read_bytes())
    draw = random.Random(3)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        (tmp_path / JOB_NAME).write_bytes(damaged)
        try:
            load_job(tmp_path)
        except TucclError as error:
            assert "\n" not in str(error)
    for table in ("..", "a/b", "", "/etc"):
        with pytest.raises(ValueError, match="expected the name of a folder"):
            JobEntry(kind="dp", groups=(0,), key="", table=table, checksum="")
    (tmp_path / JOB_NAME).write_bytes(whole)
    (tmp_path / "topology.json").write_bytes(b"{}")
    with pytest.raises(InputError, match=r"not the machine of job\.json"):
        load_job(tmp_path)


def test_groups_that_are_not_alike_choose_what_ends_soonest_together(tmp_path: Path) -> None:
    """Alone, each of the three tables prefers a program that is not best beside the others'."""
    machine = join(load_profile("ndv2"), 4)
    groups = megatron_groups("tp=8", 32)
    options = TuneOptions(budget=30, methods=("ring", "rings"))
    calls = [("dp", "allgather")]
    job, tuned = tune_job(machine, groups, calls, "16M", options, path=tmp_path / "j")
    family = groups.kind("dp").groups
    orbits = group_orbits(machine, family)
    assert [list(entry.groups) for entry in job.entries] == orbits and len(orbits) == 3
    [row] = compare_groups(job)
    assert row.tuned_us <= row.default_us * (1 + 1e-9)
    executor = SimExecutor(machine)
    for number, table in enumerate(tuned):  # no other candidate of one table helps
        for other in table.select("allgather", "16M").entry.candidates:  # type: ignore[union-attr]
            runs = []
            for n, (orbit, own) in enumerate(zip(orbits, tuned, strict=True)):
                chosen = other if n == number else own.select("allgather", "16M").candidate
                run = table_run(own, chosen, "allgather", 1 << 24, "2.19")
                runs += [group_call(run, family[member], 1 << 24) for member in orbit]
            assert max(executor.time_groups(runs)) >= row.tuned_us * (1 - 1e-9)


def test_the_verbs_tune_compare_and_explain_a_job(tuccl: Tuccl, tmp_path: Path) -> None:
    machine, job = tmp_path / "m.json", tmp_path / "job"
    tuccl("probe", "--profile", "v100x4", "--nodes", "2", "-o", machine)
    layout = ("--layout", "tp=4")
    words = ("tune", machine, *layout, "-c", "dp:allgather", "-s", "1M", "--budget", "3")
    answer = tuccl(*words, "--method", "ring", "-o", job)
    assert answer.code == 0 and "dp: 4 groups alike, the first of ranks 0 4" in answer.out
    compared = tuccl("compare", job)
    assert compared.code == 0 and compared.out.splitlines()[2].split()[:2] == ["dp", "allgather"]
    explained = tuccl("explain", job, "--rank", "6")
    assert "dp: ranks 2 6; timed with 2 groups of the kind at once" in explained.out
    of_kind = explained.out.replace("of rank 6;", "of rank 6 of dp;")
    assert tuccl("explain", job, "--rank", "6", "--group", "dp").out == of_kind
    assert "no such group has a table" in tuccl("explain", job, "--group", "tp").err
    for bad, why in (
        ((*words, "--beside", "tp:allreduce", "-o", job), "expected KIND:COLLECTIVE=SIZE"),
        ((*words, "--on", "mpi", "-o", job), "their calls are simulated"),
        ((*words, "--concurrent", "some", "-o", job), "expected none, kind or all"),
        (("tune", machine, "-c", "allgather", "-s", "1M", "--beside", "a", "-o", job), "--layout"),
        ((*words, "--storage", "sqlite:///x", "-o", job), "leave out storage and dask"),
        ((*words, "--launch-mode", "graph", "-o", job), "leave out --machine, --launch-mode"),
        (("explain", job, "--rank", "8"), "ranks 0 to 7"),
        (("explain", job, "-s", "1M", "-c", "allgather"), "are for one table"),
        (("explain", job / "tables/dp-0", "--rank", "1"), "job.json"),
        (("explain", job, "--group", "pp"), "pp"),
        (("explain", job / "tables/dp-0", "--group", "dp"), "job.json"),
        (("compare", job, "--report", tmp_path / "r.html"), "tables are compared with"),
    ):
        refused = tuccl(*bad)
        assert refused.code == 2 and why in refused.err, (bad, refused.err)
        assert len(refused.err.strip().splitlines()) == 1, refused.err
    new = tmp_path / "new"
    for more, why in (
        (("--method", "nope"), "method 'nope'"),
        (("--root", "1"), "leave out"),
        (("--dialect", "nccl", "-c", "dp:allreduce,tp:alltoall"), "NCCL's tuners choose for"),
        (("--objective", "tail"), "expected --cross"),
    ):
        refused = tuccl(*words, *more, "-o", new)
        assert refused.code == 2 and why in refused.err and not new.exists(), refused.err


def test_an_interrupted_second_tune_leaves_a_job_that_is_read(tmp_path: Path) -> None:
    place, host, groups = tmp_path / "job", load_profile("v100x4"), megatron_groups("tp=2", 4)
    calls, options = [("dp", "allreduce"), ("tp", "allgather")], TuneOptions(budget=4)
    tune_job(host, groups, calls, ["1M", "4M"], options, path=place)

    def interrupt(done: int, total: int, task: str) -> None:
        if task.startswith("tp") and done > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune_job(
            *(host, groups, calls[::-1], ["1M", "16M"], TuneOptions(budget=6)),
            path=place,
            progress=interrupt,
        )
    assert {row.kind for row in compare_groups(load_job(place))} == {"dp", "tp"}


def lines_of(folder: Path, name: str = "nccl_tuner.csv") -> list[str]:
    return (folder / name).read_text().splitlines()[1:]


def test_choices_are_exported_by_shape_where_all_groups_of_the_shape_agree(
    tmp_path: Path, tuccl: Tuccl
) -> None:
    machine, options = join(load_profile("v100x4"), 4), TuneOptions(budget=10, dialect="nccl")
    groups = megatron_groups("tp=4,pp=2", 16)  # dp and pp: two ranks on two hosts
    place = tmp_path / "job"
    tune_job(machine, groups, [("tp", "allreduce"), ("dp", "allreduce")], "1M", options, path=place)
    found = tuccl("export", place, "--dialect", "nccl", "-o", tmp_path / "some")
    assert found.code == 0
    assert "2 ranks on 2 hosts (dp, pp): left to NCCL, since some of them have no t" in found.err
    assert {line.split(",")[6:8] == ["1", "4"] for line in lines_of(tmp_path / "some")} == {True}
    job, _ = tune_job(machine, groups, [("pp", "allreduce")], "16M", options, path=place)
    exported = export_job(job, "nccl", tmp_path / "other")
    assert any("since their tables differ" in note for note in exported.notes)
    both = [("pp", "allreduce"), ("dp", "allreduce"), ("tp", "allreduce")]
    whole, _ = tune_job(machine, groups, both, ["1M", "16M"], options, path=tmp_path / "whole")
    exported = export_job(whole, "ncclx", tmp_path / "all")
    shapes = {
        tuple(line.rsplit(",", 3)[1:3]) for line in lines_of(tmp_path / "all", "ncclx_tuner.csv")
    }
    assert shapes == {("1", "4"), ("2", "1")}
    assert not any("left to NCCL" in note for note in exported.notes)
    refused = tuccl("export", place, "--dialect", "executor", "-o", tmp_path / "x")
    assert refused.code == 2 and "by shape as nccl, ncclx or mscclpp" in refused.err


def test_shares_of_sms_are_written_for_megatron(tmp_path: Path, tuccl: Tuccl) -> None:
    place, out = tmp_path / "job", tmp_path / "yaml"
    machine, options = join(load_profile("dgx-h100"), 4), TuneOptions(budget=30, dialect="nccl")
    groups = megatron_groups("tp=8,ep=2", 32)
    calls = [("tp", "allreduce"), ("edp", "reduce-scatter")]
    tune_job(machine, groups, calls, ["1M", "256M"], options, path=place)

    def written(*options: str) -> str:
        answer = tuccl("export", place, "--dialect", "megatron", *options, "-o", out)
        assert answer.code == 0, answer.err
        assert answer.err.count("SMs") == len(options[1].split(","))
        return (out / "nccl_communicators.yaml").read_text()

    head = "# The most channels of each kind of job\n"
    assert written("--share", "tp=4") == head + "tp:\n  max_ctas: 4\n"
    both = "tp:\n  max_ctas: 8\nep_dp:\n  max_ctas: 2\n"
    assert written("--share", "tp=8,edp=2") == head + both
    assert "etp:" not in written("--share", "etp=1")  # without a table, by Megatron's name
    plain = tmp_path / "plain"
    dp = [("dp", "reduce-scatter")]
    tune_job(machine, megatron_groups("tp=8", 32), dp, "256M", options, path=plain)
    csv = tuccl("export", plain, "--dialect", "nccl", "--share", "dp=8", "-o", tmp_path / "csv")
    assert "dp: choices of at most 8 SMs take up to" in csv.err
    channels = [int(line.split(",")[5]) for line in lines_of(tmp_path / "csv") if "scatter" in line]
    assert channels and max(channels) <= 8
    mesh = mesh_groups("a=4,b=8", 32)
    tune_job(machine, mesh, [("b", "allreduce")], "1M", options, path=tmp_path / "mesh")
    for bad, why in (
        ((place, "--share", "tp"), "expected KIND=SMS"),
        ((place, "--share", "tp=0"), "expected 1 or more"),
        ((place, "--share", "xp=4"), "no groups 'xp'"),
        ((tmp_path / "mesh", "--share", "b=2"), "none of Megatron's"),
        ((place,), "add --share"),
        ((place / "tables" / "tp-0", "--share", "tp=4"), "is no job's tables"),
    ):
        refused = tuccl("export", *bad, "--dialect", "megatron", "-o", out)
        assert refused.code == 2 and why in refused.err, refused.err
