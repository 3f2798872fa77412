"""Timing programs on real data: how often, over which ranks, and what is checked."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean, median

from tuccl.errors import InputError
from tuccl.execution import Call, RankResult
from tuccl.program import Knobs, Program
from tuccl.runtime.executors.executor import MSCCL_LOOP, Executor, StepLoop, Timing
from tuccl.runtime.executors.knob_grid import KnobGrid

_GPU_THREADS_OF_A_CPU_THREAD = 128
_MOST_THREADS = 512
_CHANNELS = (1, 2, 4, 8)
_BUFFERS = tuple(64 << 10 << i for i in range(8))  # smaller slots are all message cost on a CPU


@dataclass(frozen=True)
class Effort:
    """The runs for one time: ``runs`` a round after ``warmup``, fewer where they take long.

    >>> Effort().runs_of(time_us=100.0, repeats=5), Effort().runs_of(time_us=1e6, repeats=5)
    (20, 1)
    """

    warmup: int = 10
    runs: int = 20
    seconds: float = 2.0

    def runs_of(self, time_us: float, repeats: int) -> int:
        """Return the runs of a round such that all rounds take about ``seconds``, at least 1."""
        affordable = self.seconds * 1e6 / (repeats * max(time_us, 1e-3))
        return max(1, min(self.runs, int(affordable)))


@dataclass(frozen=True)
class Operands:
    """The elements, their reduction, and whether results are compared."""

    datatype: str = "float"
    op: str = "sum"
    check: bool = False


def cpu_threads(knobs: Knobs, ranks: int) -> int:
    """Return the CPU threads that share a rank's large reductions: its part of the cores at most.

    >>> cpu_threads(Knobs(threads=128), 2)
    1
    """
    cores = (os.cpu_count() or 1) // ranks
    return max(1, min(cores, knobs.threads // _GPU_THREADS_OF_A_CPU_THREAD))


def check_ranks(program: Program, ranks: int) -> None:
    """Refuse a program for another number of ranks than there are.

    Raises:
        InputError: says both numbers.
    """
    if program.ngpus != ranks:
        raise InputError(
            f"program {program.name[:40]!r} is for {program.ngpus} ranks, there are {ranks}"
        )


LibraryTime = Callable[[str, int, int, int, int], Timing]
"""Times a library's collective by name, bytes of the whole array, root, runs, us of rest before."""


class DataExecutor(Executor):
    """Runs programs on real data: what it measures is measured, not simulated."""

    default_baseline = "msccl-default-robust"
    per_run = False
    """Samples are single runs and a time is their mean, as where others share the links."""

    def __init__(
        self,
        ranks: int,
        operands: Operands | None = None,
        effort: Effort | None = None,
        latency_us: Sequence[float] = (),
    ) -> None:
        """Prepare ``ranks`` ranks; nothing is started yet."""
        self.ranks = ranks
        self._operands = operands or Operands()
        self._effort = effort or Effort()
        self._latency_us = tuple(latency_us)
        self._library_times: Mapping[str, LibraryTime] = {}

    @property
    def pause_us(self) -> int:
        """The rest in us of all ranks before each timed run: each finds the same network."""
        return 0

    @abstractmethod
    def run(self, call: Call) -> Sequence[RankResult]:
        """Return each rank's result of one call, as it is; raises what ``time`` does."""

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

        Where ``loop`` names a library, that of its own collective instead. A run takes as long as
        its slowest rank; all ranks start it together. ``repeats`` is the number of rounds, the
        samples are their medians, the time is the median of all runs. Each message is held back by
        its route's latency, and all ranks rest for ``pause_us`` before each run.

        Raises:
            InputError: the program is for another number of ranks, or cannot be run.
            Stuck: a rank died or hangs, or the ranks wait for each other; says where.
            Unavailable: the ranks cannot be started.
        """
        check_ranks(program, self.ranks)
        if repeats < 1 or nbytes < 1:
            raise InputError(f"{nbytes} bytes, {repeats} repeats: expected at least one of each")
        if loop.multicast:
            raise InputError(f"{program.name[:40]!r} needs a multicasting switch: simulated only")
        if loop.library:
            measure = self._library_times[loop.library]
            return measure(program.collective, nbytes, root, repeats, self.pause_us)
        call = self._call(program, knobs, nbytes, root, loop)
        rounds: dict[bool, list[list[float]]] = {}
        wrong, first_wrong = 0, ""
        for in_place, claimed in ((False, program.out_of_place), (True, program.in_place)):
            if claimed:
                rounds[in_place], ranks = self._rounds(partial(call, in_place=in_place), repeats)
                wrong += sum(rank.wrong for rank in ranks)
                first_wrong = first_wrong or _first_wrong(ranks, in_place)
        if not rounds:
            raise InputError(f"program {program.name[:40]!r} claims no placement")
        runs = {placement: [us for r in each for us in r] for placement, each in rounds.items()}
        samples = {placement: tuple(map(median, each)) for placement, each in rounds.items()}
        if self.per_run:
            samples = {placement: tuple(each) for placement, each in runs.items()}
        middle = mean if self.per_run else median
        first = next(iter(rounds))
        return Timing(
            middle(runs[False]) if False in runs else None,
            middle(runs[True]) if True in runs else None,
            samples[first],
            self.name,
            wrong if self._operands.check else None,
            samples.get(True, ()),
            len(runs[first]),
            first_wrong,
        )

    def iterate(
        self,
        program: Program,
        knobs: Knobs,
        nbytes: int,
        releases_us: Sequence[float],
        *,
        runs: int = 1,
    ) -> tuple[float, ...]:
        """Return the measured times in us of iterations, after one that is not timed.

        Raises:
            InputError, Stuck, Unavailable: as ``time``.
        """
        check_ranks(program, self.ranks)
        call = self._call(program, knobs, nbytes, 0, MSCCL_LOOP)(
            warmup=1, timed=runs, in_place=not program.out_of_place, releases_us=list(releases_us)
        )
        call.check()
        return tuple(_slowest(self.run(call)))

    def _call(
        self, program: Program, knobs: Knobs, nbytes: int, root: int, loop: StepLoop
    ) -> Callable[..., Call]:
        return partial(
            Call,
            program,
            knobs,
            nbytes,
            datatype=self._operands.datatype,
            op=self._operands.op,
            root=root,
            threads=cpu_threads(knobs, program.ngpus),
            pass_bytes=loop.pass_bytes,
            transfer_slots=loop.transfer_slots,
            latency_us=list(self._latency_us),
            pause_us=self.pause_us,
        )

    def _rounds(
        self, call: Callable[..., Call], repeats: int
    ) -> tuple[list[list[float]], Sequence[RankResult]]:
        """Return the runs' times by round in us, and the results of the first call."""
        call().check()
        first = self.run(call(checked=int(self._operands.check), warmup=1, timed=1))
        first_times = _slowest(first)
        runs = self._effort.runs_of(first_times[0], repeats)
        if runs == 1:  # long, or few wanted: the first counts too
            further = _slowest(self.run(call(timed=repeats - 1))) if repeats > 1 else []
            return [[us] for us in (*first_times, *further)], first
        warmup = min(self._effort.warmup, runs)
        times = _slowest(self.run(call(warmup=warmup, timed=runs * repeats)))
        return [times[i : i + runs] for i in range(0, len(times), runs)], first


class CpuExecutor(DataExecutor):
    """Runs programs on CPUs as ranks: moves real data, but none of its times are a GPU's."""

    @property
    def supported_knobs(self) -> KnobGrid:
        """The knobs that change what it does.

        Notes:
            On CPUs LL128 runs as LL with other slots; threads share a reduction
            only as far as a rank has cores to itself, in steps of 128; a channel is a mere tag.
        """
        cores = (os.cpu_count() or 1) // self.ranks
        steps = range(1, min(cores, _MOST_THREADS // _GPU_THREADS_OF_A_CPU_THREAD))
        fewer = (_GPU_THREADS_OF_A_CPU_THREAD * n for n in steps)
        return KnobGrid(("Simple", "LL"), _CHANNELS, (*fewer, _MOST_THREADS), _BUFFERS)


def _first_wrong(results: Sequence[RankResult], in_place: bool) -> str:
    form = "in place" if in_place else "out of place"
    descriptions = (f"rank {n} ({form}): {r.first_wrong}" for n, r in enumerate(results) if r.wrong)
    return next(descriptions, "")


def _slowest(results: Sequence[RankResult]) -> list[float]:
    return [max(times) for times in zip(*(r.times_us for r in results), strict=True)]
