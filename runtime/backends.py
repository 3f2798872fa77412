"""Executors by name, for callers who have a topology."""

from __future__ import annotations

import os
from collections.abc import Callable

from tuccl.errors import InputError
from tuccl.program import Knobs, Program
from tuccl.runtime.executors.cuda import CudaExecutor
from tuccl.runtime.executors.executor import Executor, Timing
from tuccl.runtime.executors.loopback import LoopbackExecutor
from tuccl.runtime.executors.measure import Effort
from tuccl.runtime.executors.mpi import MpiExecutor
from tuccl.runtime.executors.mpi_find import find_mpi
from tuccl.runtime.executors.plan_sim import PlanSimExecutor
from tuccl.runtime.executors.sim import SimExecutor
from tuccl.runtime.jobs.launch import cache_folder
from tuccl.runtime.jobs.launcher import job_launcher
from tuccl.runtime.mscclpp import ExecutorTest, MscclppExecutor, find_executor_test
from tuccl.runtime.nccl_tests import NcclTests, NcclTestsExecutor, find_nccl_tests
from tuccl.runtime.probing import local_context
from tuccl.topology import Topology
from tuccl.topology.machines import as_topology
from tuccl.units import Size, size_bytes

Backend = Callable[[Topology], Executor]
"""Makes the executor of a machine: ``partial(SimExecutor, launch="graph")``."""

_ONE_RUN = Effort(warmup=1, runs=1)  # who compares takes many, in turns


def _nccl_tests(topology: Topology) -> Executor:
    launcher = job_launcher(None, topology.ranks)
    tests = NcclTests(find_nccl_tests(None), launcher, cache_folder() / "nccl-tests")
    return NcclTestsExecutor(tests, topology.ranks, topology.name)


def _mscclpp(topology: Topology) -> Executor:
    launcher = job_launcher(None, topology.ranks)
    test = ExecutorTest(find_executor_test(None), launcher, cache_folder() / "mscclpp")
    return MscclppExecutor(test, topology.ranks, len(topology.hosts), topology.name)


BACKENDS: dict[str, Backend] = {
    "sim": SimExecutor,
    "mpi": lambda topology: MpiExecutor(
        topology.ranks, find_mpi(None), effort=_ONE_RUN, context=local_context(topology.ranks)
    ),
    "loopback": lambda topology: LoopbackExecutor(topology.ranks, effort=_ONE_RUN),
    "cuda": lambda topology: CudaExecutor(topology.ranks, effort=_ONE_RUN),
    "nccl-tests": _nccl_tests,
    "mscclpp": _mscclpp,
}


def executor_on(topology: Topology, on: str | Backend, dialect: str = "executor") -> Executor:
    """Return the executor ``on``, a name in `BACKENDS`, for programs of ``dialect``.

    Raises:
        InputError: there is no such executor, or it is for another machine.
        Unavailable: it needs something that is not installed.
    """
    if isinstance(on, str):
        if on not in BACKENDS:
            raise InputError(f"on {on[:40]!r}: expected one of {', '.join(BACKENDS)}")
        on = PlanSimExecutor if (on, dialect) == ("sim", "mscclpp") else BACKENDS[on]
    executor = on(topology)
    if executor.ranks != topology.ranks:
        raise InputError(
            f"the executor has {executor.ranks} ranks, the topology {topology.ranks}; "
            "expected the same machine"
        )
    return executor


def simulate(
    program: Program,
    topology: Topology | str | os.PathLike[str],
    size: Size,
    knobs: Knobs | None = None,
    *,
    launch: str = "mpi",
) -> Timing:
    """Return the simulated time of ``program`` in us; nothing is run.

    Args:
        program: For as many ranks as ``topology`` has.
        topology: The machine, or the path of its file.
        size: The whole array in bytes, or text like "16M"; rounded up to whole chunks.
        knobs: Threads and buffers that it runs with; None: the defaults of its protocol.
        launch: Who launches kernels: ``process``, ``mpi`` or ``graph``.

    >>> from tuccl.synth import Collective, lower, msccl_default
    >>> from tuccl.topology import profile
    >>> host = profile("v100x4")
    >>> program = lower(msccl_default(host, Collective("allgather", 4)))
    >>> simulate(program, host, "16M").on
    'sim'

    Raises:
        Infeasible: the GPUs cannot hold all thread blocks at once.
        InputError: the program is for another number of ranks, or the knobs are illegal.
    """
    executor = SimExecutor(as_topology(topology), launch=launch)
    return executor.time(program, knobs or Knobs(program.protocol), size_bytes(size))
