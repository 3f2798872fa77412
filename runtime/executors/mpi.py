"""Real data between real processes: MSCCL programs over MPI point-to-point."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from tuccl.execution import Call, RankResult
from tuccl.runtime.executors.measure import CpuExecutor, Effort, LibraryTime, Operands
from tuccl.runtime.executors.mpi_find import Mpi, find_mpi, glue_library, worker_program
from tuccl.runtime.executors.mpi_launch import Launch, usual_launch
from tuccl.runtime.executors.mpi_workers import Workers
from tuccl.runtime.table.context import JobContext


class MpiExecutor(CpuExecutor):
    """Runs programs on worker processes that live from the first call to ``close``.

    After a call that got stuck the next one starts a new set.
    """

    name = "mpi"
    full_effort = 9  # a repeat may take seconds
    start_s = 60.0

    def __init__(
        self,
        ranks: int,
        mpi: Mpi | None = None,
        *,
        launch: Launch | None = None,
        location: str = "",
        operands: Operands | None = None,
        effort: Effort | None = None,
        timeout_s: float = 30.0,
        limit_s: float | None = None,
        latency_us: Sequence[float] = (),
        context: JobContext | None = None,
    ) -> None:
        """Prepare ``ranks`` ranks; nothing is started yet.

        Args:
            ranks: Ranks a program must have.
            mpi: The MPI; None is the first found.
            launch: How the ranks are started; None is all on this machine.
            location: What the ranks run on, for the label; "" is this machine.
            operands: Elements, reduction, whether results are compared.
            effort: How many runs make a time.
            timeout_s: A call in which no rank gets on for so long is stopped.
            limit_s: A call that takes longer is stopped; None for none.
            latency_us: What each message is held back, by sender x ranks + receiver; () for none.
            context: What the ranks share there.

        Raises:
            Unavailable: there is no MPI.
        """
        super().__init__(ranks, operands, effort, latency_us)
        self._mpi = mpi if mpi is not None else find_mpi()
        self._launch = launch if launch is not None else usual_launch(self._mpi)
        self._location = location or f"one machine with {os.cpu_count()} cores"
        self._timeout_s = timeout_s
        self._limit_s = limit_s
        self._context = context
        self._workers: Workers | None = None

    @property
    def context(self) -> JobContext | None:
        """Context of the ranks where they run."""
        return self._context

    @property
    def label(self) -> str:
        """That it measures, by which MPI, and on what."""
        shipped = " with its transport as shipped" if self._mpi.as_shipped else ""
        mpi = f"{self._mpi.family} {self._mpi.version}{shipped}"
        return f"measured between {self.ranks} processes by {mpi} on {self._location}"

    @property
    def worker(self) -> list[str]:
        """The command of each rank."""
        return [str(worker_program()), str(glue_library(self._mpi))]

    @property
    def mpi(self) -> Mpi:
        """The MPI between the ranks."""
        return self._mpi

    def sent_bytes(self) -> int | None:
        """Return what has crossed emulated links so far, headers included; None without any."""
        return None

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers by rank; empty while none run."""
        return self._workers.pids if self._workers is not None and self._workers.alive else []

    def run(self, call: Call) -> Sequence[RankResult]:
        """Return each rank's result of one call, as it is; raises what ``time`` does."""
        call.check()
        return self._living().run(call, self._timeout_s, self._limit_s)

    def ask(self, text: str) -> list[str]:
        """Return each rank's answer to a call's text; raises what ``time`` does."""
        return self._living().ask(text, self._timeout_s, self._limit_s)

    def _living(self) -> Workers:
        if self._workers is None or not self._workers.alive:
            self._workers = Workers(self._launch, self.worker, self.ranks, self.start_s)
        return self._workers

    def set_libraries(self, libraries: Mapping[str, LibraryTime]) -> None:
        """Time the defaults by these libraries on the same ranks from now on."""
        self._library_times, self.libraries = libraries, tuple(libraries)
        self.default_baseline = "libraries" if libraries else type(self).default_baseline

    def close(self) -> None:
        """End the workers, if any run."""
        if self._workers is not None:
            self._workers.close()
        self._workers = None
