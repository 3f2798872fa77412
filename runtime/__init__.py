"""Running and choosing: executors, the defaults, the lookup table, export and launch."""

from tuccl.runtime.asked import Asked, ask_plugin
from tuccl.runtime.baseline import (
    BASELINES,
    BaselineTiming,
    baselines_on,
    runtime_default,
    time_baseline,
)
from tuccl.runtime.bootstrap import BOOTSTRAP_VARIABLES, meeting_address, meeting_point
from tuccl.runtime.contest import LONG_US, Contender, Standing, contest, screened
from tuccl.runtime.emulate import (
    Emulation,
    RunningEmulation,
    running_emulations,
    set_rate,
)
from tuccl.runtime.emulate_flows import WireRate, received_mbps, wire_rates
from tuccl.runtime.emulate_ground import emulated_network, emulated_topology
from tuccl.runtime.emulate_mpi import EmulatedExecutor
from tuccl.runtime.emulate_plan import plan as emulation_plan
from tuccl.runtime.emulate_sim import EmulatedSimExecutor, eager_costs, on_cpus
from tuccl.runtime.entry import (
    Candidate,
    Entry,
    KnobValues,
    Statistics,
    default_candidate,
    reduction_class,
)
from tuccl.runtime.executor import MSCCL_WALK, Executor, Timing, Walk
from tuccl.runtime.export import Export, export_table
from tuccl.runtime.folding import InService, fold, in_service
from tuccl.runtime.interleaved import Entrant, interleaved, is_noise_free, pooled
from tuccl.runtime.job_launch import JobLauncher, forwarding, job_launcher
from tuccl.runtime.launch import run, run_environment, shell_block
from tuccl.runtime.log_verdict import Verdict, verdicts
from tuccl.runtime.lookup import LookupTable, check_entries, ranges_from_sizes
from tuccl.runtime.loopback import LoopbackExecutor
from tuccl.runtime.machine_check import changed_machine
from tuccl.runtime.measured import Effort, Workload, cpu_threads
from tuccl.runtime.mpi import MpiExecutor
from tuccl.runtime.mpi_find import Mpi, find_mpi, find_mpis, glue_library
from tuccl.runtime.mpi_launch import Launch, usual_launch
from tuccl.runtime.nccl_call import NcclCall, nccl_call
from tuccl.runtime.nccl_choice import NcclChoice, nccl_choice
from tuccl.runtime.nccl_graph import NcclGraph, nccl_graph
from tuccl.runtime.nccl_knobs import NcclKnobs
from tuccl.runtime.nccl_log import Communicator, JobLog, Process, read_log
from tuccl.runtime.nccl_switches import SwitchPoint, switch_points
from tuccl.runtime.nccl_tests import NcclTestsExecutor
from tuccl.runtime.nccl_tests_run import NcclTests, find_nccl_tests
from tuccl.runtime.nccl_versions import NCCL_VERSION, nccl_group, nccl_release, nccl_versions
from tuccl.runtime.peers import PEERS, GlooPeer, MpiPeer, OwnCall, Peer
from tuccl.runtime.plugins import (
    SchedulerCall,
    TunerCall,
    ask_scheduler,
    ask_tuner,
    plugin_environment,
    plugin_path,
    plugin_paths,
)
from tuccl.runtime.selection import Choice, Explanation, explain, select
from tuccl.runtime.sim import SimExecutor
from tuccl.runtime.table import (
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
from tuccl.runtime.table_lock import in_use
from tuccl.runtime.traced import TracedRun

__all__ = [
    "BASELINES",
    "BOOTSTRAP_VARIABLES",
    "LONG_US",
    "MSCCL_WALK",
    "NCCL_VERSION",
    "PEERS",
    "Asked",
    "BaselineTiming",
    "Candidate",
    "Choice",
    "Communicator",
    "Contender",
    "Effort",
    "EmulatedExecutor",
    "EmulatedSimExecutor",
    "Emulation",
    "Entrant",
    "Entry",
    "Executor",
    "Explanation",
    "Export",
    "GlooPeer",
    "InService",
    "JobLauncher",
    "JobLog",
    "KnobValues",
    "Launch",
    "LookupTable",
    "LoopbackExecutor",
    "Mpi",
    "MpiExecutor",
    "MpiPeer",
    "NcclCall",
    "NcclChoice",
    "NcclGraph",
    "NcclKnobs",
    "NcclTests",
    "NcclTestsExecutor",
    "OwnCall",
    "Peer",
    "Process",
    "ProgramFile",
    "RunningEmulation",
    "SchedulerCall",
    "SimExecutor",
    "Standing",
    "Statistics",
    "StoredTable",
    "SwitchPoint",
    "Timing",
    "TracedRun",
    "TunerCall",
    "Verdict",
    "Walk",
    "WireRate",
    "Workload",
    "ask_plugin",
    "ask_scheduler",
    "ask_tuner",
    "baselines_on",
    "changed_machine",
    "check_entries",
    "check_target",
    "contest",
    "cpu_threads",
    "default_candidate",
    "eager_costs",
    "emulated_network",
    "emulated_topology",
    "emulation_plan",
    "explain",
    "export_table",
    "find_mpi",
    "find_mpis",
    "find_nccl_tests",
    "fold",
    "forwarding",
    "glue_library",
    "in_service",
    "in_use",
    "interleaved",
    "is_noise_free",
    "job_launcher",
    "load_table",
    "meeting_address",
    "meeting_point",
    "nccl_call",
    "nccl_choice",
    "nccl_graph",
    "nccl_group",
    "nccl_release",
    "nccl_versions",
    "on_cpus",
    "open_table",
    "placements",
    "plugin_environment",
    "plugin_path",
    "plugin_paths",
    "pooled",
    "program_candidate",
    "program_file",
    "ranges_from_sizes",
    "read_log",
    "received_mbps",
    "reduction_class",
    "run",
    "run_environment",
    "running_emulations",
    "runtime_default",
    "save_table",
    "screened",
    "select",
    "set_rate",
    "shell_block",
    "switch_points",
    "time_baseline",
    "usual_launch",
    "verdicts",
    "wire_rates",
]
