"""A tune whose aim is a job: its calls as tasks, its time as the result."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from tuccl.program import Program
from tuccl.runtime import Executor, SimExecutor
from tuccl.runtime.backends import Backend, executor_on
from tuccl.runtime.nccl.knobs import TUNED_COLLECTIVES
from tuccl.runtime.workload import Workload
from tuccl.synth import Collective
from tuccl.topology import Topology
from tuccl.tuning.candidate_times import CandidateTimes
from tuccl.tuning.joint_search import Progress, no_progress, tune_tasks
from tuccl.tuning.options import TuneOptions
from tuccl.tuning.size_boundaries import Times
from tuccl.tuning.tuned_table import TunedTable, table_path
from tuccl.tuning.workload_tasks import TimesOf, job_tasks, workload_gain


def tune_workload(
    topology: Topology,
    workload: Workload,
    on: str | Backend = "sim",
    options: TuneOptions | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    progress: Progress = no_progress,
) -> TunedTable:
    """Return a table tuned for what a job calls; its ``result`` has the job's gain.

    The effort, the options' budget for each task on average, goes where the job spends its time
    (`job_tasks`), as measured or else as the default's is simulated. Sizes are the job's own; all
    else is as in `tune`.

    Raises:
        InputError: no call can be tuned, and what `tune` raises.
        Unavailable: the storage needs a driver that is not installed.
    """
    options = options or TuneOptions()
    of_nccl = options.dialect == "nccl"
    if of_nccl:
        workload = workload.within(TUNED_COLLECTIVES)
    with executor_on(topology, on, options.dialect) as executor:
        machine = executor.topology or topology
        # Real times would share the effort out anew whenever an interrupted tune goes on.
        simulator = executor if executor.deterministic else SimExecutor(machine)
        times_of = _times_of(simulator, machine, options, {})
        # NCCL's own algorithms run every size.
        tasks = job_tasks(workload, times_of, 1 if of_nccl else topology.ranks, options.budget)
        table = tune_tasks(
            executor,
            topology,
            [(task.collective, task.nbytes, task.budget) for task in tasks],
            table_path(path),
            options,
            progress=progress,
        )
        times_of = _times_of(executor, machine, options, table.programs)
        gain = workload_gain(workload, table.lookup, times_of, options.root)
    return replace(table, result=replace(table.result, workload=gain))


def _times_of(
    executor: Executor, topology: Topology, options: TuneOptions, programs: Mapping[str, Program]
) -> TimesOf:
    @cache
    def times(collective: str) -> Times:
        call = Collective(collective, topology.ranks, options.root)
        return CandidateTimes(executor, topology, call, options.nccl_version, programs)

    return times
