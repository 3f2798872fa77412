"""Training simulated: each method's schedule under the cost of a machine's calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuccl.training.bucket_schedule import BucketSchedule
from tuccl.training.costs import Costs, c2c_by_time
from tuccl.training.methods import GradientMethod
from tuccl.training.model import Model
from tuccl.training.rows import Backend, TrainingRow, row_of
from tuccl.training.timeline import StepTimeline, simulate_steps

TIE = 0.03
"""Steps that differ by less are a tie: simulations of other machines are no surer."""


@dataclass(frozen=True)
class TrainingRun:
    """A row with what lies behind it: the method, its schedule and the timeline of a step."""

    row: TrainingRow
    method: GradientMethod
    schedule: BucketSchedule
    timeline: StepTimeline


def simulate_training(
    model: Model, method: GradientMethod, ranks: int, costs: Costs, backend: Backend = "default"
) -> TrainingRun:
    """Return the simulated run of ``method`` on ``ranks`` ranks whose calls take ``costs``.

    >>> from tuccl.training import Costs, method_of, reference_model
    >>> from tuccl.training.costs import linear
    >>> costs = Costs({"allreduce": linear(100.0, 2e-4)}, 100.0)
    >>> run = simulate_training(reference_model("ResNet-50"), method_of("bsp"), 8, costs)
    >>> round(run.row.speedup, 2)
    7.4

    Raises:
        InputError: the costs know none of the method's calls.
    """
    schedule = method.schedule(model, costs)
    timeline = simulate_steps(model, schedule, costs)
    programs = sum(
        costs.has_program(call, bucket.nbytes)
        for bucket in schedule.buckets
        for call in schedule.calls
    )
    row = row_of(
        "sim",
        model,
        method,
        backend,
        ranks,
        [timeline.step_us],
        timeline.exposed_us,
        (programs, len(schedule.buckets) * len(schedule.calls) - programs),
        c2c=c2c_by_time(costs.of("allreduce")(model.nbytes), model.step_us),
    )
    return TrainingRun(row, method, schedule, timeline)


def best_run(runs: Sequence[TrainingRun]) -> TrainingRun:
    """Return the run of the shortest step; of those within `TIE` of it the one that needs least.

    Servers are further hosts, and a step without a barrier needs an optimizer of its own; then
    fewer calls are better.
    """
    least_us = min(run.row.step_us for run in runs)
    ties = [run for run in runs if run.row.step_us <= least_us * (1 + TIE)]
    return min(
        ties, key=lambda r: (r.method.is_server, not r.schedule.barrier, len(r.schedule.buckets))
    )
