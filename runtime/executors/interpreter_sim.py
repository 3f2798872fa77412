"""The simulator as tuccl's own interpreter on GPUs."""

from __future__ import annotations

from tuccl.runtime.executors.sim import SimExecutor
from tuccl.topology import Topology
from tuccl.topology.machine import interpreter_machine_of


class InterpreterSimExecutor(SimExecutor):
    """Runs programs in virtual time as tuccl's own interpreter on GPUs would.

    The interpreter runs no NCCL: the default is a program too, as on GPUs (`CudaExecutor`).
    """

    default_baseline = "msccl-default-robust"

    def __init__(self, topology: Topology, launch: str = "mpi") -> None:
        """Prepare ``topology``; its class is `interpreter_machine_of` it.

        Raises:
            InputError: the topology has several hosts, or there is no such launch.
        """
        super().__init__(topology, interpreter_machine_of(topology), launch)

    @property
    def label(self) -> str:
        """That it simulates tuccl's interpreter, and that its class was never fitted."""
        return f"{super().label}, estimates for tuccl's interpreter"
