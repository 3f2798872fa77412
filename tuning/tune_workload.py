"""A tune whose aim is a job: its calls as tasks, its time as the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from tuccl.program import Program
from tuccl.runtime import Executor, SimExecutor, load_table
from tuccl.runtime.workload import Workload
from tuccl.synth import Collective
from tuccl.topology import Topology
from tuccl.tuning.candidate_times import CandidateTimes
from tuccl.tuning.options import TuneOptions
from tuccl.tuning.size_boundaries import Times
from tuccl.tuning.tune import Progress, TuneResult, no_progress, tune_tasks
from tuccl.tuning.workload_tasks import TimesOf, job_tasks, workload_gain

__all__ = ["tune_workload"]


def tune_workload(
    executor: Executor,
    topology: Topology,
    workload: Workload,
    out: Path,
    options: TuneOptions | None = None,
    *,
    progress: Progress = no_progress,
) -> TuneResult:
    """Tune what a job calls, write the table to ``out``, and return a summary with its gain.

    The effort, the options' budget for each task on average, goes where the job spends its time
    (`job_tasks`), as measured or else as the default's is simulated. All else is as in `tune`,
    but that sizes are the job's own.

    Raises:
        InputError: no call can be tuned, and what `tune` raises.
        Unavailable: the storage needs a driver that is not installed.
    """
    options = options or TuneOptions()
    machine = executor.topology or topology
    # Real times would share the effort out anew whenever an interrupted tune goes on.
    simulator = executor if executor.deterministic else SimExecutor(machine)
    tasks = job_tasks(
        workload, _times_of(simulator, machine, options, {}), topology.ranks, options.budget
    )
    result = tune_tasks(
        executor,
        topology,
        [(task.collective, task.nbytes, task.budget) for task in tasks],
        out,
        options,
        progress=progress,
    )
    stored = load_table(out)
    times_of = _times_of(executor, machine, options, stored.programs)
    return replace(result, workload=workload_gain(workload, stored.lookup, times_of, options.root))


def _times_of(
    executor: Executor, topology: Topology, options: TuneOptions, programs: Mapping[str, Program]
) -> TimesOf:
    @cache
    def times(collective: str) -> Times:
        call = Collective(collective, topology.ranks, options.root)
        return CandidateTimes(executor, topology, call, options.nccl_version, programs)

    return times
