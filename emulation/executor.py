"""Measured times on an emulated cluster, refused where the bytes did not take its links."""

from __future__ import annotations

from tuccl.emulation.emulation import Emulation
from tuccl.errors import TucclError
from tuccl.program import Knobs, Program
from tuccl.runtime.executors.executor import MSCCL_LOOP, StepLoop, Timing
from tuccl.runtime.executors.measure import Effort, Operands
from tuccl.runtime.executors.mpi import MpiExecutor
from tuccl.runtime.executors.mpi_find import Mpi
from tuccl.runtime.executors.mpi_launch import Launch
from tuccl.runtime.table.programs import sent_chunks
from tuccl.topology import Topology

_TIMEOUT_S = 60.0  # a slice may take seconds on a slow link
_LEAST_CROSSED = 0.25  # of what the program sends between hosts; shared memory leaves nothing


class EmulatedExecutor(MpiExecutor):
    """Runs programs over MPI with each rank on its host of an emulated cluster that is up."""

    def __init__(
        self,
        emulation: Emulation,
        mpi: Mpi,
        *,
        operands: Operands | None = None,
        effort: Effort | None = None,
    ) -> None:
        """Prepare a rank for each GPU of ``emulation``'s topology; nothing is started yet.

        Args:
            emulation: where the ranks run.
            mpi: the MPI.
            operands: elements, reduction, whether results are compared.
            effort: how many runs make a time.
        """
        self._emulation = emulation
        super().__init__(
            sum(len(host.ranks) for host in emulation.cluster.hosts),
            mpi,
            launch=emulation.launch(mpi),
            location=emulation.label,
            operands=operands,
            effort=effort,
            timeout_s=_TIMEOUT_S,
            latency_us=[us for row in emulation.latency_matrix for us in row],
        )
        self._crossed_by: tuple[int, ...] = ()

    def launch(self, mpi: Mpi) -> Launch:
        """Return how ``mpi`` starts ranks on the same hosts."""
        return self._emulation.launch(mpi)

    @property
    def topology(self) -> Topology:
        """The topology with the emulated rates."""
        return self._emulation.topology

    @property
    def burst_us(self) -> float:
        """The time in us that full buckets save a run at most."""
        return self._emulation.burst_us

    @property
    def pause_us(self) -> int:
        """The time in us in which the slowest token bucket fills.

        Without, a run finds what the one before it left, and one that ends with its links idle is
        flattered.
        """
        return self._emulation.refill_us

    def sent_bytes(self) -> int:
        """Return what has crossed the emulated links so far, headers included.

        Raises:
            TucclError: the queues cannot be read.
        """
        return self._emulation.sent_bytes()

    def time(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        *,
        root: int = 0,
        repeats: int = 1,
        loop: StepLoop = MSCCL_LOOP,
    ) -> Timing:
        """Return the measured time of ``program`` on the whole array of ``nbytes`` bytes.

        Raises:
            TucclError: the bytes between hosts did not cross the emulated links; and what
                `MpiExecutor.time` raises.
        """
        options = {"root": root, "repeats": repeats}
        if loop.library or (self._crossed_by and self._crossed_by == tuple(self.pids)):
            return super().time(program, knobs, nbytes, **options, loop=loop)
        before = self._emulation.sent_bytes()
        timing = super().time(program, knobs, nbytes, **options, loop=loop)
        crossed = self._emulation.sent_bytes() - before
        least = _LEAST_CROSSED * timing.runs * self._crossing(program) * nbytes
        if crossed < least:
            raise TucclError(
                f"only {crossed} bytes crossed the emulated links, at least {least:.0f} were sent "
                f"between hosts: this MPI joins them by other means, such as shared memory"
            )
        if least > 0:  # these workers' path, which they keep
            self._crossed_by = tuple(self.pids)
        return timing

    def _crossing(self, program: Program) -> float:
        """Return what the program sends between hosts, in whole arrays."""
        hosts = self._emulation.cluster.hosts
        host_of = {rank: host.host for host in hosts for rank in host.ranks}
        return sum(sent_chunks(program, host_of).values()) / program.nchunks
