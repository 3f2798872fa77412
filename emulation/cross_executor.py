"""Measured times on an emulated cluster beside cross traffic, refused where it was no link's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from tuccl.emulation.cross_traffic import EmulatedTraffic
from tuccl.emulation.emulation import Emulation
from tuccl.emulation.executor import EmulatedExecutor
from tuccl.errors import Unavailable
from tuccl.program import Knobs, Program
from tuccl.runtime.executors.cross_load import CarriedLoad
from tuccl.runtime.executors.executor import MSCCL_LOOP, StepLoop, Timing
from tuccl.runtime.executors.measure import Effort, Operands
from tuccl.runtime.executors.mpi_find import Mpi
from tuccl.units import format_bytes

_EFFORT = Effort(warmup=1, runs=20, seconds=20.0)  # single runs differ: many make a mean
_WARM_S = 1.0  # queues fill, and flows overlap
_TURNS, _RUNS = 4, 5  # of a size with and without the control traffic
_TRIES = 3
_MOST_SLOWED = 1.05


class CrossExecutor(EmulatedExecutor):
    """Runs programs beside the cross traffic of the emulation; a time is the mean of all runs.

    Before the first time of a size, the same traffic is played on control links, which no rank
    uses: where that slows the program by over 5 %, the processors are short, and the times would
    say nothing of links.
    """

    per_run = True

    def __init__(
        self,
        emulation: Emulation,
        mpi: Mpi,
        *,
        operands: Operands | None = None,
        effort: Effort | None = None,
    ) -> None:
        """Prepare a rank for each GPU of ``emulation``, which has cross traffic; nothing starts.

        Args:
            emulation: where the ranks run.
            mpi: the MPI.
            operands: elements, reduction, whether results are compared.
            effort: how many runs make a time.

        Attributes:
            loads: what the traffic carried during each time, in their order.
            idle_us: the median time without traffic, by bytes and releases.
        """
        super().__init__(emulation, mpi, operands=operands, effort=effort or _EFFORT)
        self.loads: list[CarriedLoad] = []
        self.idle_us: dict[tuple[int, tuple[float, ...]], float] = {}
        self._traffic = EmulatedTraffic(emulation)
        self._control = EmulatedTraffic(emulation, on_control=True)

    @property
    def label(self) -> str:
        """That it measures, on what, and beside what."""
        cross = self._emulation.cross
        return f"{super().label}, beside {cross.label if cross else 'no cross traffic'}"

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
        """Return the measured time of ``program`` beside the traffic, its samples all runs.

        Raises:
            Unavailable: the traffic slows the program by the processors.
            TucclError: the traffic ended; and what `EmulatedExecutor.time` raises.
        """
        self.check_processors(program, knobs, nbytes)
        self._play()
        options = {"root": root, "repeats": repeats}
        timing = super().time(program, knobs, nbytes, **options, loop=loop)
        self.loads.append(self._traffic.report())
        return timing

    def iterate(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        releases_us: Sequence[float],
        *,
        runs: int = 1,
    ) -> tuple[float, ...]:
        """Return the measured times in us of iterations beside the traffic.

        Raises:
            Unavailable, TucclError: as ``time``.
        """
        self.check_processors(program, knobs, nbytes, releases_us)
        self._play()
        times = super().iterate(program, knobs, nbytes, releases_us, runs=runs)
        self.loads.append(self._traffic.report())
        return times

    def check_processors(
        self, program: Program, knobs: Knobs, nbytes: int, releases_us: Sequence[float] = (0.0,)
    ) -> None:
        """Return if the processors bear both; of a size the first program stands for all.

        Raises:
            Unavailable: the control traffic slows the program by over 5 %.
        """
        key = nbytes, tuple(releases_us)
        if key in self.idle_us or not self._traffic.has_flows:
            return
        self._traffic.__exit__()
        slowed = 0.0
        alone: list[float] = []
        beside: list[float] = []
        for _ in range(_TRIES):
            for _ in range(_TURNS):
                alone += super().iterate(program, knobs, nbytes, releases_us, runs=_RUNS)
                with self._control:
                    beside += super().iterate(program, knobs, nbytes, releases_us, runs=_RUNS)
            slowed = median(beside) / median(alone)
            if slowed <= _MOST_SLOWED:
                self.idle_us[key] = median(alone)
                return
        raise Unavailable(
            f"{format_bytes(nbytes)}: the cross traffic slows the call by {slowed - 1:.0%} where "
            f"they share no link: the processors are short; lower --scale or the load"
        )

    def close(self) -> None:
        """End the workers and the traffic, if any run."""
        self._traffic.__exit__()
        super().close()

    def _play(self) -> None:
        if not self._traffic.is_playing:
            self._traffic.__enter__()
            time.sleep(_WARM_S)
        self._traffic.report()
