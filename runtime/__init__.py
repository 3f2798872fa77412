"""Running and choosing: executors, the defaults, the lookup table, export and launch."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.runtime.baseline import (
        BASELINES,
        BEST_BASELINES,
        SYMMETRIC_BASELINE,
        baselines_on,
        time_baseline,
    )
    from tuccl.runtime.executors import (
        MSCCL_LOOP,
        Communicator,
        ConfiguredProgram,
        CudaExecutor,
        Effort,
        Executor,
        InterpreterSimExecutor,
        LoopbackExecutor,
        MpiExecutor,
        Operands,
        PlanSimExecutor,
        SimExecutor,
        StepLoop,
        TimedProgram,
        Timing,
        TracedRun,
        communicator_id,
        find_mpi,
    )
    from tuccl.runtime.jobs import run_command, run_environment
    from tuccl.runtime.mscclpp import MscclppExecutor
    from tuccl.runtime.nccl.versions import NCCL_VERSION
    from tuccl.runtime.nccl_tests import NcclTestsExecutor
    from tuccl.runtime.table import (
        Candidate,
        Entry,
        LookupTable,
        ProgramFile,
        Statistics,
        Table,
        default_candidate,
        explain,
        load_table,
        program_candidate,
        program_file,
        reduction_class,
        save_table,
        select,
        table_preferring,
    )

__all__ = [
    "BASELINES",
    "BEST_BASELINES",
    "MSCCL_LOOP",
    "NCCL_VERSION",
    "SYMMETRIC_BASELINE",
    "Candidate",
    "Communicator",
    "ConfiguredProgram",
    "CudaExecutor",
    "Effort",
    "Entry",
    "Executor",
    "InterpreterSimExecutor",
    "LookupTable",
    "LoopbackExecutor",
    "MpiExecutor",
    "MscclppExecutor",
    "NcclTestsExecutor",
    "Operands",
    "PlanSimExecutor",
    "ProgramFile",
    "SimExecutor",
    "Statistics",
    "StepLoop",
    "Table",
    "TimedProgram",
    "Timing",
    "TracedRun",
    "baselines_on",
    "communicator_id",
    "default_candidate",
    "explain",
    "find_mpi",
    "load_table",
    "program_candidate",
    "program_file",
    "reduction_class",
    "run_command",
    "run_environment",
    "save_table",
    "select",
    "table_preferring",
    "time_baseline",
]

make_lazy(__name__)
