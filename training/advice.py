"""Advice: all methods simulated on a machine, the one to take, and what to tune for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from tuccl.training.compression.sparse_steps import sparse_step
from tuccl.training.costs import Costs
from tuccl.training.model import Model
from tuccl.training.rows import TrainingRow
from tuccl.training.simulation import TrainingRun, best_run

_RATIO = 0.1
_WORTH = 0.1  # of a step, for which a lossy method is worth a thought
_COLLECTIVES = ("allreduce", "reduce-scatter", "allgather")


class CallSize(msgspec.Struct, frozen=True):
    """Equal calls of a step: ``nbytes`` of the whole array, ``count`` of them."""

    collective: str
    nbytes: int
    count: int


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The method to take on a machine, simulated, and what it is worth.

    Attributes:
        row: of the method, with its step and speed-up.
        reason: why it, in a phrase.
        buckets: bytes of its calls, in their order.
        tune_for: the collectives and sizes that it calls in a step.
        gain: DDP's step, with its default buckets, over the method's.
        least_us: step if communication took no time.
        compression: ``none``, or what a lossy method would be worth.
        compressed_us: step with AR-Topk at a ratio of 0.1, top-k itself not counted.
    """

    row: TrainingRow
    reason: str
    buckets: tuple[int, ...]
    tune_for: tuple[CallSize, ...]
    gain: float
    least_us: float
    compression: str
    compressed_us: float


def advise(model: Model, runs: Sequence[TrainingRun], costs: Costs) -> Advice:
    """Return which of the simulated ``runs`` to take, among them DDP's.

    Notes:
        The survey's tables of which method wins hold on its InfiniBand alone: all are simulated.
    """
    best = best_run(runs)
    ddp = next(run for run in runs if run.method.name == "ddp")
    fastest = min(runs, key=lambda run: run.row.step_us)
    sparse = sparse_step(model, best.row.ranks, costs, _RATIO)
    worth = 1 - sparse.step_us / best.row.step_us
    reason = f"{best.row.exposed:.1%} of its step is exposed communication"
    if fastest is not best:
        loss = best.row.step_us / fastest.row.step_us - 1
        reason += f"; {fastest.row.method} is {loss:.1%} faster, a tie, and needs more"
    compression = "none"
    if worth > _WORTH:
        saved = f"by {sparse.exchange} would save up to {worth:.0%} of a step"
        compression = f"AR-Topk at {_RATIO:g} {saved}; it is lossy"
    return Advice(
        row=best.row,
        reason=reason,
        buckets=tuple(bucket.nbytes for bucket in best.schedule.buckets),
        tune_for=call_sizes(best),
        gain=ddp.row.step_us / best.row.step_us,
        least_us=model.step_us,
        compression=compression,
        compressed_us=sparse.step_us,
    )


def call_sizes(run: TrainingRun) -> tuple[CallSize, ...]:
    """Return the collectives of a step that a table can serve, by size; servers make none."""
    counts = Counter(
        (call, bucket.nbytes)
        for bucket in run.schedule.buckets
        for call in run.schedule.calls
        if call in _COLLECTIVES
    )
    return tuple(CallSize(call, nbytes, count) for (call, nbytes), count in sorted(counts.items()))


def workload_json(advice: Advice) -> bytes:
    """Return the calls of a step as a ``tuccl-workload/1`` file, for ``tuccl tune --workload``."""
    calls = [
        {"collective": each.collective, "bytes": each.nbytes, "count": each.count}
        for each in advice.tune_for
    ]
    name = f"{advice.row.model}, {advice.row.method}"
    return msgspec.json.encode({"format": "tuccl-workload/1", "name": name, "calls": calls}) + b"\n"
