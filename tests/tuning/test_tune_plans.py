"""Tuning for MSCCL++: programs are timed as plans, and what is exported is what was timed."""

import json
from pathlib import Path

import pytest

from tuccl.cli import main
from tuccl.errors import Infeasible, InputError
from tuccl.mscclpp import ExecutionPlan
from tuccl.program import Knobs
from tuccl.runtime import PlanSimExecutor, load_table, time_baseline
from tuccl.runtime.executors.plan_sim import PlanSimulator, plan_knobs
from tuccl.runtime.export import export
from tuccl.synth import Collective, PlanKnobs, lower, msccl_default
from tuccl.synth.mscclpp.lower import lower_to_plan
from tuccl.topology import Topology, join, keep_gpus, load_profile, save_topology
from tuccl.tuning import TuneOptions, TuneResult, tune

HOST = keep_gpus(load_profile("ndv4"), range(4))
SIZES = [1 << 12, 1 << 16]
OPTIONS = TuneOptions(budget=12, dialect="mscclpp")


def tuned(out: Path, topology: Topology, collectives: list[str]) -> TuneResult:
    return tune(topology, collectives, SIZES, PlanSimExecutor, OPTIONS, path=out).result


def test_exported_plans_take_the_times_that_the_table_has(tmp_path: Path) -> None:
    result = tuned(tmp_path / "table", HOST, ["allgather"])
    assert result.label.startswith("simulated MSCCL++")
    assert all((row.best_us or row.default_us) < row.default_us for row in result.tuned)
    export(tmp_path / "table", "mscclpp", tmp_path / "plans")
    [table] = json.loads((tmp_path / "plans" / "selection.json").read_text())["tables"]
    calls = table["plans"]
    simulator = PlanSimulator(HOST)
    for row in result.tuned:
        [call] = [
            c for c in calls if not c["in_place"] and c["min_bytes"] <= row.size <= c["max_bytes"]
        ]
        plan = ExecutionPlan.parse((tmp_path / "plans" / call["file"]).read_bytes())
        assert plan.verify().ok
        assert simulator.run(plan, row.size).time_us == pytest.approx(row.best_us)
        assert max(len(gpu.threadblocks) for gpu in plan.gpus) == row.sms


def test_a_plan_of_more_thread_blocks_than_a_gpu_runs_at_once_is_refused() -> None:
    """They wait for each other. An A100 has 108 multiprocessors, a V100 has 80."""
    eight = [keep_gpus(load_profile(name), range(8)) for name in ("ndv4", "dgx-2")]
    program = lower(msccl_default(eight[0], Collective("allreduce", 8)))
    plan = lower_to_plan(program, PlanKnobs(group_size=7))
    assert PlanSimulator(eight[0]).run(plan, 1 << 20).time_us > 0
    with pytest.raises(Infeasible, match=r"91 thread blocks .* V100-SXM3-32GB .* runs 80 at once"):
        PlanSimulator(eight[1]).run(plan, 1 << 20)


def test_two_hosts_and_a_root_are_tuned_without_what_plans_lack(tmp_path: Path) -> None:
    hosts = join(keep_gpus(HOST, range(2)), 2, "single")
    tuned(tmp_path / "table", hosts, ["broadcast", "gather"])
    table = load_table(tmp_path / "table").lookup
    protocols = {
        candidate.knobs.protocol
        for entry in table.entries
        for candidate in entry.candidates
        if candidate.knobs is not None
    }
    assert protocols == {"Simple"}
    assert {entry.collective for entry in table.entries} == {"broadcast", "gather"}
    exported = export(tmp_path / "table", "mscclpp", tmp_path / "plans")
    assert any("broadcast" in file.name for file in exported.files)
    assert not any("gather" in file.name for file in exported.files)


def test_one_command_makes_a_folder_that_a_job_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine, plans = tmp_path / "t.json", tmp_path / "plans"
    save_topology(HOST, machine)
    words = ["tune", str(machine), "-c", "allgather", "-s", "64K", "--budget", "4"]
    words += ["-o", str(tmp_path / "table"), "--plans", str(plans)]
    assert main(words) == 2
    assert "--dialect mscclpp" in capsys.readouterr().err
    assert main([*words, "--dialect", "mscclpp", "--launch-mode", "graph"]) == 0
    assert {"selection.json", "tuccl_plans.py"} <= {file.name for file in plans.iterdir()}


def test_the_table_is_for_mscclpp_alone(tmp_path: Path) -> None:
    tuned(tmp_path / "table", HOST, ["allgather"])
    with pytest.raises(InputError, match="tuned for MSCCL"):
        export(tmp_path / "table", "executor", tmp_path / "programs")


def test_the_default_to_beat_is_nccl_as_its_own_kernels_run_it() -> None:
    executor = PlanSimExecutor(HOST)
    default = time_baseline(executor, HOST, "nccl", "allreduce", 1 << 20)
    assert (
        default.timing.us
        == time_baseline(executor.of_defaults, HOST, "nccl", "allreduce", 1 << 20).timing.us
    )
    assert any("twice the threads" in text for text in executor.pinned_knobs())


@pytest.mark.parametrize(
    ("knobs", "unit_bytes", "group"),
    [
        (Knobs("Simple", 4, 512, 8 << 20), 0, 4),
        (Knobs("Simple", 4, 512, 2 << 20), 256 << 10, 1),
        (Knobs("LL", 8, 256, 512 << 10), 0, 8),
    ],
)
def test_channels_are_instances_or_groups(knobs: Knobs, unit_bytes: int, group: int) -> None:
    plan = plan_knobs(knobs)
    assert (plan.unit_bytes, plan.group_size) == (unit_bytes, group)
    assert plan.threads == 2 * knobs.threads
