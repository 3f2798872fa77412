"""Plans of groups that call at once: as long as alone where they share nothing, else longer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import Tuccl
from tuccl.errors import Infeasible, InputError
from tuccl.eval.compare_groups import compare_groups
from tuccl.groups.concurrent import group_call, nccl_choice, table_choice
from tuccl.groups.executor import GroupPlanExecutor
from tuccl.groups.layout import megatron_groups
from tuccl.program import Knobs, to_xml
from tuccl.runtime import ConfiguredProgram, PlanSimExecutor, SimExecutor
from tuccl.runtime.executors.plan_sim import call_plan
from tuccl.synth import Collective, lower, msccl_default
from tuccl.topology import Topology, join, keep_gpus, load_profile, save_topology
from tuccl.tuning import TuneOptions
from tuccl.tuning.job_search import tune_job

OWN_NICS = join(keep_gpus(load_profile("ndv4"), range(4)), 2, "single")  # each GPU has one
SHARED_NIC = join(load_profile("v100x4"), 2)  # two GPUs share one
TP, DP = [tuple(range(4)), tuple(range(4, 8))], [(rank, rank + 4) for rank in range(4)]
MIB = 1 << 20
KNOBS = (
    Knobs("Simple", 1, 512, 8 << 20),
    Knobs("Simple", 1, 512, 512 << 10),
    Knobs("LL", 1, 256, 8 << 20),
)


def run_of(part: Topology, nbytes: int, knobs: Knobs = KNOBS[0]) -> ConfiguredProgram:
    """Return msccl-default's allreduce as a plan."""
    program = lower(msccl_default(part, Collective("allreduce", part.ranks)))
    return ConfiguredProgram(program, knobs, plan=call_plan(part, program, knobs, nbytes))


def times(
    machine: Topology,
    groups: Sequence[Sequence[int]],
    nbytes: int,
    knobs: Knobs = KNOBS[0],
) -> list[float]:
    own = run_of(keep_gpus(machine, groups[0]), nbytes, knobs)
    calls = [group_call(own, group, nbytes) for group in groups]
    return SimExecutor(machine, launch="graph").time_groups(calls)


@pytest.mark.parametrize("knobs", KNOBS)
@pytest.mark.parametrize("nbytes", [1 << 16, 64 * MIB])
def test_groups_that_share_nothing_take_what_each_takes_alone(knobs: Knobs, nbytes: int) -> None:
    """64 MiB in pieces of 64 KiB are extrapolated."""
    for groups in (TP, DP):
        part = keep_gpus(OWN_NICS, groups[0])
        program = run_of(part, nbytes, knobs).program
        alone = PlanSimExecutor(part).time(program, knobs, nbytes).us
        assert times(OWN_NICS, groups[:1], nbytes, knobs) == [alone]
        assert times(OWN_NICS, groups, nbytes, knobs) == pytest.approx([alone] * len(groups))


def test_groups_that_share_a_nic_take_longer() -> None:
    [alone] = times(SHARED_NIC, DP[:1], 64 * MIB)
    together = times(SHARED_NIC, DP, 64 * MIB)
    carried_us = 2 * 64 * MIB / 12.5e3  # a rank of each group sends the array through 12.5 GB/s
    assert all(max(1.4 * alone, carried_us) < us < 2 * alone for us in together)
    assert times(SHARED_NIC, [DP[0], DP[2]], 64 * MIB) == pytest.approx([alone] * 2)


def test_a_call_that_begins_later_shares_only_what_is_left() -> None:
    own = run_of(keep_gpus(SHARED_NIC, DP[0]), 64 * MIB)
    first, second = (group_call(own, group, 64 * MIB) for group in DP[:2])
    executor = SimExecutor(SHARED_NIC, launch="graph")
    [alone] = executor.time_groups([first])
    assert executor.time_groups([first, second._replace(start_us=2 * alone)]) == pytest.approx(
        [alone, 3 * alone], rel=0.01
    )


def test_turns_of_calls_that_repeat_take_as_long_as_one() -> None:
    executor = SimExecutor(OWN_NICS, launch="graph")
    own = run_of(keep_gpus(OWN_NICS, DP[0]), MIB)
    calls = [group_call(own, group, MIB)._replace(repeats=group != DP[0]) for group in DP]
    [alone] = executor.time_groups(calls[:1])
    assert executor.time_groups(calls) == pytest.approx([alone] * 4)
    own = run_of(keep_gpus(SHARED_NIC, DP[0]), MIB)
    pair = [group_call(own, group, MIB) for group in DP[:2]]
    executor = SimExecutor(SHARED_NIC, launch="graph")
    once = executor.time_groups(pair)
    assert executor.time_groups([pair[0], pair[1]._replace(repeats=True)]) == pytest.approx(
        once, rel=0.05
    )
    with pytest.raises(InputError, match="do not repeat"):
        executor.time_groups([call._replace(repeats=True) for call in pair])


def test_calls_that_cannot_be_at_once_are_refused() -> None:
    executor = SimExecutor(OWN_NICS, launch="graph")
    part = keep_gpus(OWN_NICS, TP[0])
    call = group_call(run_of(part, MIB), TP[0], MIB)
    assert call.plan is not None
    most = 108 // len(call.plan.gpus[0].threadblocks)
    assert len(executor.time_groups([call] * most)) == most
    with pytest.raises(InputError, match="co-resident on the 108 SMs"):
        executor.time_groups([call] * (most + 1))
    v100s, wide = load_profile("dgx-2"), Knobs("Simple", 7, 512, 8 << 20)
    eight = keep_gpus(v100s, range(8))
    with pytest.raises(Infeasible, match="runs 80 at once"):
        run_of(eight, MIB, wide)
    with pytest.raises(InputError, match="from 0 to 7"):
        executor.time_groups([call._replace(members=(0, 1, 2, 8))])
    uneven = keep_gpus(OWN_NICS, (0, 4, 1, 5))
    program = lower(msccl_default(uneven, Collective("allreduce", 4)))
    with pytest.raises(Infeasible, match="numbered host by host"):
        call_plan(uneven, program, KNOBS[0], MIB)
    with pytest.raises(InputError, match="ranks 0, 4, 1, 5: MSCCL"):
        GroupPlanExecutor(OWN_NICS, ((0, 4, 1, 5), (2, 6, 3, 7)), [0, 1])


def test_a_search_times_the_plans_of_all_groups(tmp_path: Path) -> None:
    groups, options = megatron_groups("tp=4", 8), TuneOptions(budget=20, dialect="mscclpp")
    job, [tuned] = tune_job(
        SHARED_NIC, groups, [("dp", "allreduce")], "16M", options, path=tmp_path / "job"
    )
    assert "simulated MSCCL++" in tuned.result.label and "2 groups at once" in tuned.result.label
    [entry] = job.entries
    part, table = keep_gpus(SHARED_NIC, DP[0]), job.table(entry)
    own = table_choice({part: table})(part, "allreduce", 16 * MIB)
    assert own.plan is not None
    calls = [group_call(own, group, 16 * MIB) for group in DP]
    stats = table.select("allreduce", 16 * MIB).candidate.stats
    assert stats is not None
    together = max(SimExecutor(SHARED_NIC).time_groups(calls))
    assert stats.median_us == pytest.approx(together)
    [row] = compare_groups(job)
    assert row.bound_us <= row.tuned_us == pytest.approx(together)
    assert row.tuned_us < row.default_us
    default = nccl_choice(table.lookup.nccl_version)(part, "allreduce", 16 * MIB)
    as_nccl = [group_call(default, group, 16 * MIB) for group in DP]
    assert row.default_us == pytest.approx(max(SimExecutor(SHARED_NIC).time_groups(as_nccl)))


def test_kinds_choose_plans_beside_each_other(tmp_path: Path) -> None:
    groups, options = megatron_groups("tp=4", 8), TuneOptions(budget=12, dialect="mscclpp")
    calls = [("dp", "allreduce"), ("tp", "allreduce")]
    beside = [(*call, "4M") for call in calls]
    job, _ = tune_job(
        *(SHARED_NIC, groups, calls, "4M", options),
        path=tmp_path / "job",
        concurrent="all",
        beside=beside,
    )
    [dp, tp] = compare_groups(job)
    for row in (dp, tp):
        assert row.tuned_us <= 1.01 * row.default_us
        assert all(each.tuned_us <= 1.01 * each.default_us for each in row.beside)
    assert max(row.default_us / row.tuned_us for row in (dp, tp)) > 1.1
    families = {e.kind: job.groups.kind(e.kind).groups for e in job.entries}
    runs = {}
    for entry in job.entries:
        part = keep_gpus(SHARED_NIC, job.members(entry))
        own = table_choice({part: job.table(entry)})(part, "allreduce", 4 * MIB)
        runs[entry.kind] = [group_call(own, group, 4 * MIB) for group in families[entry.kind]]
    together = [*runs["dp"], *(call._replace(repeats=True) for call in runs["tp"])]
    ends = SimExecutor(SHARED_NIC).time_groups(together)
    assert dp.tuned_us == pytest.approx(max(ends[:4]))
    assert dp.beside[0].tuned_us == pytest.approx(max(ends[4:]))
    # One kind runs a plan here, the other keeps NCCL's choice: both engines share the links.
    assert {call.plan is None for each in runs.values() for call in each} == {True, False}


def test_bench_times_a_program_as_the_plan_that_it_becomes(tmp_path: Path, tuccl: Tuccl) -> None:
    topology, file = tmp_path / "t.json", tmp_path / "p.xml"
    save_topology(SHARED_NIC, topology)
    part = keep_gpus(SHARED_NIC, DP[0])
    own = run_of(part, MIB)
    file.write_text(to_xml(own.program))
    words = ("--layout", "tp=4", "-c", "dp:allreduce", "-s", "1M", "--dialect", "mscclpp")
    [row] = json.loads(tuccl("bench", file, topology, *words, "--json").out)["simulated"]
    knobs = Knobs("Simple", 1, 512, 4 << 20)
    expected = PlanSimExecutor(part, launch="mpi").time(own.program, knobs, MIB).us
    assert row["programs"] == "plan" and row["alone_us"] == pytest.approx(expected)
    assert row["together_us"] > 1.2 * expected
    assert own.plan is not None
    own.plan.write(tmp_path / "plan.json")
    refused = tuccl("bench", tmp_path / "plan.json", topology, *words)
    assert refused.code == 2 and "is a plan; groups run a program's" in refused.err


def test_one_command_tunes_a_job_and_writes_its_plans(tmp_path: Path, tuccl: Tuccl) -> None:
    topology, plans = tmp_path / "t.json", tmp_path / "plans"
    save_topology(SHARED_NIC, topology)
    words = ["tune", topology, "--layout", "tp=4", "-c", "tp:allgather", "-s", "64K"]
    words += ["--budget", "4", "--dialect", "mscclpp", "-o", tmp_path / "job", "--plans", plans]
    answer = tuccl(*words)
    assert answer.code == 0 and "simulated MSCCL++" in answer.out
    document = json.loads((plans / "selection.json").read_text())
    assert [table["groups"] for table in document["tables"]] == [[list(group) for group in TP]]


def test_the_slowest_group_of_the_orbit_counts() -> None:
    executor = GroupPlanExecutor(SHARED_NIC, tuple(DP), [0, 1, 2, 3], launch="graph")
    own = run_of(keep_gpus(SHARED_NIC, DP[0]), 16 * MIB)
    found = executor.time(own.program, own.knobs, 16 * MIB)
    assert found.time_us == pytest.approx(max(times(SHARED_NIC, DP, 16 * MIB)))
    assert found.time_us_ip is not None and executor.concurrent == 2


def test_plans_and_programs_share_links_and_nothing_else() -> None:
    nbytes, part = 16 * MIB, keep_gpus(SHARED_NIC, DP[0])
    plan, program = run_of(part, nbytes), nccl_choice()(part, "allreduce", nbytes)
    executor = SimExecutor(SHARED_NIC)
    calls = [group_call(plan, DP[0], nbytes), group_call(program, DP[2], nbytes)]
    [plan_us], [program_us] = (executor.time_groups([call]) for call in calls)
    for order in (calls, calls[::-1]):
        found = executor.time_groups(order)
        alone = [plan_us, program_us] if order is calls else [program_us, plan_us]
        assert found == pytest.approx(alone, rel=1e-3)
    beside = [calls[0], calls[1]._replace(members=DP[1])]
    together = executor.time_groups(beside)
    assert together[0] > 1.2 * plan_us and together[1] > 1.2 * program_us
    # Both arrays of each direction pass 12.5 GB/s; neither ends after both in turn.
    assert 2 * nbytes / 12.5e3 < max(together) < plan_us + program_us
    for again in range(2):
        calls = [c._replace(repeats=n == again) for n, c in enumerate(beside)]
        found = executor.time_groups(calls)
        assert all(us > 1.2 * each for us, each in zip(found, [plan_us, program_us], strict=True))
    with pytest.raises(InputError, match="do not repeat"):
        executor.time_groups([call._replace(repeats=True) for call in beside])
