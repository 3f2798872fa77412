"""Tuning under scenarios of cross traffic: one objective, and a table that keeps each time."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from tuccl.errors import InputError
from tuccl.eval.compare_scenarios import compare_scenarios, scenarios_text
from tuccl.program import Knobs
from tuccl.runtime import (
    Executor,
    SimExecutor,
    Statistics,
    load_table,
    select,
)
from tuccl.runtime.executors.scenarios import OBJECTIVES, Scenario, ScenarioExecutor
from tuccl.simulation import MachineClass
from tuccl.synth import Collective, lower, msccl_default
from tuccl.topology import CrossTraffic, join, keep_gpus, load_profile, residual
from tuccl.topology.cross_traffic import Source
from tuccl.tuning import TuneOptions, tune
from tuccl.tuning.work import Work
from tuccl.tuning.workers import pickled

FOUR = join(keep_gpus(load_profile("ndv2"), [0]), 4)
BUSY = CrossTraffic(
    tuple(
        Source(src, dst, "rate", load=0.8)
        for src, dst in (("n0/nic0", "leaf0"), ("leaf0", "n0/nic0"))
    )
)
IDEAL = MachineClass("ideal")
PROGRAM = lower(msccl_default(FOUR, Collective("allreduce", 4)))
NBYTES = 16 << 20


def scenarios(weight: float = 1.0) -> list[Scenario]:
    return [
        Scenario("idle", SimExecutor(FOUR, IDEAL)),
        Scenario("busy", SimExecutor(FOUR, IDEAL, cross=BUSY), weight),
    ]


def times() -> tuple[float, float]:
    idle, busy = (each.executor.time(PROGRAM, Knobs(), NBYTES).us for each in scenarios())
    return idle, busy


def us(executor: Executor, protocol: str = "Simple") -> float:
    return executor.time(PROGRAM, Knobs(protocol), NBYTES).us


def test_the_mean_is_that_of_weighted_logarithms() -> None:
    idle, busy = times()
    timing = ScenarioExecutor(scenarios(3.0)).time(PROGRAM, Knobs(), NBYTES)
    assert timing.us == pytest.approx(idle**0.25 * busy**0.75)
    assert timing.scenarios_us == (("idle", idle), ("busy", busy))


def test_the_tail_is_the_mean_of_the_slowest_tenth() -> None:
    idle, busy = times()
    assert us(ScenarioExecutor(scenarios(1 / 9), "tail")) == pytest.approx(busy)
    assert us(ScenarioExecutor(scenarios(1 / 19), "tail")) == pytest.approx((idle + busy) / 2)


def test_the_regret_is_the_worst_ratio_to_the_least_time_so_far() -> None:
    executor = ScenarioExecutor(scenarios(), "regret")
    idle, busy = times()
    assert us(executor) == pytest.approx(math.sqrt(idle * busy))
    slower = executor.time(PROGRAM, Knobs("LL"), NBYTES)
    worst = max(t / best for (_, t), best in zip(slower.scenarios_us, (idle, busy), strict=True))
    assert slower.us == pytest.approx(math.sqrt(idle * busy) * worst)
    assert us(executor.of_search) == pytest.approx(math.sqrt(idle * busy))
    assert worst > 1


@pytest.mark.parametrize(
    ("given", "objective"),
    [
        ([], "mean"),
        ([*scenarios(), *scenarios()], "mean"),
        (scenarios(0.0), "mean"),
        (scenarios(math.nan), "mean"),
        (scenarios(), "median"),
    ],
)
def test_what_no_executor_can_be_made_of_is_refused(given: list[Scenario], objective: str) -> None:
    with pytest.raises(InputError, match="expected"):
        ScenarioExecutor(given, objective)


def test_programs_are_planned_for_the_scenario_that_leaves_least() -> None:
    executor = ScenarioExecutor(scenarios())
    assert executor.topology == FOUR
    assert executor.planned_topology == residual(FOUR, BUSY)


def test_statistics_of_older_tables_are_read_and_written_as_before() -> None:
    old = b'{"count":1,"median_us":2.0,"p10_us":2.0,"p99_us":2.0,"recent_us":2.0}'
    stats = msgspec.json.decode(old, type=Statistics)
    assert msgspec.json.encode(stats) == old
    new = Statistics.of((2.0,), (("busy", 3.0),))
    assert msgspec.json.decode(msgspec.json.encode(new), type=Statistics) == new


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_robust_table_keeps_each_scenarios_best(tmp_path: Path, objective: str) -> None:
    executor = ScenarioExecutor(scenarios(), objective)
    options = TuneOptions(budget=24, methods=("ring", "packing"))
    tune(FOUR, "allreduce", "16M", lambda _: executor, options, path=tmp_path / "robust")
    tune(FOUR, "allreduce", "16M", lambda _: scenarios()[0].executor, options, path=tmp_path / "i")
    robust, idle = load_table(tmp_path / "robust"), load_table(tmp_path / "i")
    rows = {row.scenario: row for row in compare_scenarios(robust, scenarios(), idle)}
    for name, row in rows.items():
        assert row.ceiling_us <= row.oracle_us <= min(row.robust_us, row.selected_us), name
        assert row.selected_us == pytest.approx(row.oracle_us, rel=0.01), name
    busy, at_rest = rows["busy"], rows["idle"]
    assert busy.idle_us is not None
    assert at_rest.idle_us is not None
    assert busy.selected_us < busy.idle_us / 1.3
    assert at_rest.selected_us < 1.03 * at_rest.idle_us
    stored = select(robust.lookup, "allreduce", NBYTES).candidate.stats
    assert stored is not None
    assert stored.scenarios_us.keys() == {"idle", "busy"}
    assert "ceiling" in scenarios_text([*rows.values()], executor.label)


def test_workers_take_scenarios_too(tmp_path: Path) -> None:
    flows = CrossTraffic((Source("n0/nic0", "leaf0", "web", load=0.5),))
    executor = ScenarioExecutor([Scenario("web", SimExecutor(FOUR, cross=flows))])
    us(executor)  # draws flows, which no other process gets
    assert pickled(Work(executor, FOUR, TuneOptions(), tmp_path), None, tmp_path)
