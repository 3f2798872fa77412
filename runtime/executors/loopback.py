"""Real data between threads of this process as ranks: no MPI, no network, every step as it is."""

from __future__ import annotations

import os

from tuccl._native import Knobs, Program, run_in_threads
from tuccl.runtime.executors.executor import MSCCL_WALK, Timing, Walk
from tuccl.runtime.executors.measure import Effort, Workload, check_ranks, measure

__all__ = ["LoopbackExecutor"]


class LoopbackExecutor:
    """Runs programs by one thread a rank: proves them on data, and times memory copies."""

    def __init__(
        self,
        ranks: int,
        workload: Workload | None = None,
        effort: Effort | None = None,
        patience_s: float = 10.0,
    ) -> None:
        """Prepare ``ranks`` ranks; a run in which nobody gets on for ``patience_s`` is stopped."""
        self._ranks = ranks
        self._workload = workload
        self._effort = effort
        self._patience_s = patience_s

    @property
    def name(self) -> str:
        """The executor's name in tables."""
        return "loopback"

    @property
    def label(self) -> str:
        """That it measures, and on what."""
        return (
            f"measured between {self._ranks} threads of one process "
            f"(memory copies, no network) on {os.cpu_count()} cores"
        )

    @property
    def ranks(self) -> int:
        """Ranks a program must have."""
        return self._ranks

    def time(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        *,
        root: int = 0,
        repeats: int = 1,
        walk: Walk = MSCCL_WALK,
    ) -> Timing:
        """Return the measured time of ``program`` on the whole array of ``nbytes`` bytes.

        Raises:
            InputError: the program is for another number of ranks, or cannot be run.
            Stuck: the run cannot end; says who waits for whom.
        """
        check_ranks(program, self._ranks)
        return measure(
            lambda call: run_in_threads(call, self._patience_s),
            *(program, knobs, nbytes),
            on=self.name,
            root=root,
            repeats=repeats,
            walk=walk,
            workload=self._workload,
            effort=self._effort,
        )
