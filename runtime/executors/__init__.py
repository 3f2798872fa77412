"""Executors: the contract, simulated, on threads, over MPI, on GPUs; how runs are timed."""

from typing import TYPE_CHECKING

from tuccl.lazy import make_lazy

if TYPE_CHECKING:
    from tuccl.runtime.executors.communicator import Communicator, communicator_id, group
    from tuccl.runtime.executors.configured_program import ConfiguredProgram, TimedProgram
    from tuccl.runtime.executors.cuda import CudaExecutor, cuda_devices
    from tuccl.runtime.executors.executor import MSCCL_LOOP, Executor, StepLoop, Timing, TracedRun
    from tuccl.runtime.executors.interpreter_sim import InterpreterSimExecutor
    from tuccl.runtime.executors.loopback import LoopbackExecutor
    from tuccl.runtime.executors.measure import Effort, Operands, cpu_threads
    from tuccl.runtime.executors.mpi import MpiExecutor
    from tuccl.runtime.executors.mpi_find import Mpi, find_mpi, find_mpis, glue_library
    from tuccl.runtime.executors.mpi_launch import Launch, usual_launch
    from tuccl.runtime.executors.paired_timing import paired_timings, pool_timings
    from tuccl.runtime.executors.plan_sim import PlanSimExecutor, PlanSimulator
    from tuccl.runtime.executors.scenarios import Scenario, ScenarioExecutor
    from tuccl.runtime.executors.sim import SimExecutor

__all__ = [
    "MSCCL_LOOP",
    "Communicator",
    "ConfiguredProgram",
    "CudaExecutor",
    "Effort",
    "Executor",
    "InterpreterSimExecutor",
    "Launch",
    "LoopbackExecutor",
    "Mpi",
    "MpiExecutor",
    "Operands",
    "PlanSimExecutor",
    "PlanSimulator",
    "Scenario",
    "ScenarioExecutor",
    "SimExecutor",
    "StepLoop",
    "TimedProgram",
    "Timing",
    "TracedRun",
    "communicator_id",
    "cpu_threads",
    "cuda_devices",
    "find_mpi",
    "find_mpis",
    "glue_library",
    "group",
    "paired_timings",
    "pool_timings",
    "usual_launch",
]

make_lazy(__name__)
