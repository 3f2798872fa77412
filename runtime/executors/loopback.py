"""Real data between threads of this process as ranks: no MPI, no network, every step as it is."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tuccl.execution import Call, RankResult, run_in_threads
from tuccl.runtime.executors.measure import CpuExecutor, Effort, Operands


class LoopbackExecutor(CpuExecutor):
    """Runs programs by one thread a rank: proves them on data, and times memory copies."""

    name = "loopback"

    def __init__(
        self,
        ranks: int,
        operands: Operands | None = None,
        effort: Effort | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        """Prepare ``ranks`` ranks; a run without progress for ``timeout_s`` is stopped."""
        super().__init__(ranks, operands, effort)
        self._timeout_s = timeout_s

    @property
    def label(self) -> str:
        """That it measures, and on what."""
        return (
            f"measured between {self.ranks} threads of one process "
            f"(memory copies, no network) on {os.cpu_count()} cores"
        )

    def run(self, call: Call) -> Sequence[RankResult]:
        """Return each rank's result of one call."""
        return run_in_threads(call, self._timeout_s)
