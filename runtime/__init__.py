"""Running and choosing: executors, the defaults, the lookup table, export and launch."""

from tuccl.runtime.baseline.defaults import (
    BASELINES,
    BaselineTiming,
    baselines_on,
    time_baseline,
)
from tuccl.runtime.baseline.nccl_call import NcclCall, nccl_call
from tuccl.runtime.executors.executor import MSCCL_LOOP, Executor, StepLoop, Timing, TracedRun
from tuccl.runtime.executors.loopback import LoopbackExecutor
from tuccl.runtime.executors.measure import Effort, Workload, cpu_threads
from tuccl.runtime.executors.mpi import MpiExecutor
from tuccl.runtime.executors.mpi_find import Mpi, find_mpi, find_mpis, glue_library
from tuccl.runtime.executors.mpi_launch import Launch, usual_launch
from tuccl.runtime.executors.paired_timing import TimingCandidate, paired_timings, pool_timings
from tuccl.runtime.executors.sim import SimExecutor
from tuccl.runtime.export.export import Export, export_table
from tuccl.runtime.jobs.bootstrap import BOOTSTRAP_VARIABLES, rendezvous_address, rendezvous_server
from tuccl.runtime.jobs.launch import run, run_environment, shell_block
from tuccl.runtime.jobs.launcher import JobLauncher, forwarding, job_launcher
from tuccl.runtime.jobs.log_verdict import Verdict, verdicts
from tuccl.runtime.jobs.machine_check import changed_machine
from tuccl.runtime.jobs.nccl_log import Communicator, JobLog, Process, read_log
from tuccl.runtime.jobs.plugin_check import PluginAnswer, check_plugin
from tuccl.runtime.jobs.plugins import (
    SchedulerCall,
    TunerCall,
    ask_scheduler,
    ask_tuner,
    plugin_environment,
    plugin_path,
    plugin_paths,
)
from tuccl.runtime.nccl.choice import NcclChoice, nccl_choice
from tuccl.runtime.nccl.graph import NcclGraph, nccl_graph
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.runtime.nccl.switch_points import SwitchPoint, switch_points
from tuccl.runtime.nccl.versions import NCCL_VERSION, nccl_group, nccl_release, nccl_versions
from tuccl.runtime.nccl_tests.executor import NcclTestsExecutor
from tuccl.runtime.nccl_tests.run import NcclTests, find_nccl_tests
from tuccl.runtime.table.entry import (
    Candidate,
    Entry,
    KnobValues,
    Statistics,
    default_candidate,
    reduction_class,
)
from tuccl.runtime.table.lock import in_use
from tuccl.runtime.table.lookup import LookupTable, check_entries, ranges_from_sizes
from tuccl.runtime.table.merge_observed import ObservedTiming, merge_observed, observed_timings
from tuccl.runtime.table.selection import Choice, Explanation, explain, select
from tuccl.runtime.table.store import (
    ProgramFile,
    StoredTable,
    check_target,
    load_table,
    open_table,
    placements,
    program_candidate,
    program_file,
    save_table,
)

__all__ = [
    "BASELINES",
    "BOOTSTRAP_VARIABLES",
    "MSCCL_LOOP",
    "NCCL_VERSION",
    "BaselineTiming",
    "Candidate",
    "Choice",
    "Communicator",
    "Effort",
    "Entry",
    "Executor",
    "Explanation",
    "Export",
    "JobLauncher",
    "JobLog",
    "KnobValues",
    "Launch",
    "LookupTable",
    "LoopbackExecutor",
    "Mpi",
    "MpiExecutor",
    "NcclCall",
    "NcclChoice",
    "NcclGraph",
    "NcclKnobs",
    "NcclTests",
    "NcclTestsExecutor",
    "ObservedTiming",
    "PluginAnswer",
    "Process",
    "ProgramFile",
    "SchedulerCall",
    "SimExecutor",
    "Statistics",
    "StepLoop",
    "StoredTable",
    "SwitchPoint",
    "Timing",
    "TimingCandidate",
    "TracedRun",
    "TunerCall",
    "Verdict",
    "Workload",
    "ask_scheduler",
    "ask_tuner",
    "baselines_on",
    "changed_machine",
    "check_entries",
    "check_plugin",
    "check_target",
    "cpu_threads",
    "default_candidate",
    "explain",
    "export_table",
    "find_mpi",
    "find_mpis",
    "find_nccl_tests",
    "forwarding",
    "glue_library",
    "in_use",
    "job_launcher",
    "load_table",
    "merge_observed",
    "nccl_call",
    "nccl_choice",
    "nccl_graph",
    "nccl_group",
    "nccl_release",
    "nccl_versions",
    "observed_timings",
    "open_table",
    "paired_timings",
    "placements",
    "plugin_environment",
    "plugin_path",
    "plugin_paths",
    "pool_timings",
    "program_candidate",
    "program_file",
    "ranges_from_sizes",
    "read_log",
    "reduction_class",
    "rendezvous_address",
    "rendezvous_server",
    "run",
    "run_environment",
    "save_table",
    "select",
    "shell_block",
    "switch_points",
    "time_baseline",
    "usual_launch",
    "verdicts",
]
