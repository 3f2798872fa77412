"""Other libraries' collectives on the same ranks: those of MPI and of Gloo.

A library answers the same calls as our programs do, so that its times stand next to theirs
(docs/howto/run-on-cpus.md); its data are checked where a call says so.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from tuccl.errors import InputError, Unavailable
from tuccl.execution import RankResult, read_result
from tuccl.runtime.executors.executor import Timing
from tuccl.runtime.executors.mpi import MpiExecutor
from tuccl.runtime.executors.mpi_find import Mpi, mpi_library
from tuccl.runtime.executors.mpi_launch import Launch

__all__ = ["LIBRARIES", "GlooRanks", "Library", "LibraryCall", "MpiRanks"]

LIBRARIES = ("gloo", "openmpi", "mpich")
_FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class LibraryCall:
    """An order to a library to do a collective by one of its own algorithms.

    >>> LibraryCall("allreduce", "ring", 1024).text.splitlines()[:2]
    ['own-run allreduce', 'algorithm ring']
    """

    collective: str
    algorithm: str
    nbytes: int
    datatype: str = "float"
    op: str = "sum"
    root: int = 0
    checked: int = 0
    warmup: int = 0
    timed: int = 0
    seed: int = 1
    pause_us: int = 0

    @property
    def text(self) -> str:
        """The call as worker processes read it."""
        counts = ("checked", "warmup", "timed", "seed", "pause_us")
        fields = ("nbytes", "datatype", "op", "root", *counts)
        lines = [f"own-run {self.collective}", f"algorithm {self.algorithm}"]
        return "\n".join([*lines, *(f"{name} {getattr(self, name)}" for name in fields), ""])


@dataclass(frozen=True)
class Library:
    """A library that runs collectives on the ranks of an executor.

    Attributes:
        name: One of `LIBRARIES`.
        version: Its version, for labels.
        ask: Returns each rank's answer to a text.
        pids: Returns the processes of the ranks.
    """

    name: str
    version: str
    ask: Callable[[str], list[str]]
    pids: Callable[[], list[int]] = list

    def algorithms(self, collective: str) -> tuple[str, ...]:
        """Return the algorithms it offers, its own choice first; none: it lacks the collective."""
        return tuple(self.ask(f"own-algorithms {collective}\n")[0].split())

    def run(self, call: LibraryCall) -> list[RankResult]:
        """Return each rank's result.

        Raises:
            InputError: it cannot do the call.
            Stuck: it does not come to an end.
        """
        return [read_result(text) for text in self.ask(call.text)]

    def time(
        self, collective: str, nbytes: int, root: int, repeats: int, pause_us: int = 0
    ) -> Timing:
        """Return the time of its own choice of algorithm: the median of runs after one to warm up.

        All ranks rest for ``pause_us`` before a run. It stands for both placements.

        Raises:
            InputError: it lacks the collective.
            Stuck: it does not come to an end.
        """
        if not self.algorithms(collective):
            raise InputError(f"{self.name} has no {collective}")
        call = LibraryCall(
            collective, "auto", nbytes, root=root, warmup=1, timed=repeats, pause_us=pause_us
        )
        times = [max(run) for run in zip(*(r.times_us for r in self.run(call)), strict=True)]
        us, each = median(times), tuple(times)
        return Timing(us, us, each, "mpi", samples_us_ip=each, runs=len(times))


class LibraryRanks(MpiExecutor):
    """Processes that run a library's collectives; of the MPI some use the launcher alone."""

    def __init__(self, ranks: int, mpi: Mpi, launch: Launch, *, timeout_s: float = 60.0) -> None:
        """Prepare ``ranks`` processes; nothing is started yet."""
        super().__init__(ranks, mpi, launch=launch, timeout_s=timeout_s)

    @property
    @abstractmethod
    def library(self) -> Library:
        """The library on these ranks."""


class MpiRanks(LibraryRanks):
    """Processes that run an MPI's own collectives."""

    @property
    def worker(self) -> list[str]:
        """The command of each rank."""
        library = mpi_library(self.mpi, _FOLDER, "mpi_own.c")
        return [sys.executable, "-m", f"{__package__}.mpi_rank", str(library)]

    @property
    def library(self) -> Library:
        """The MPI on these ranks."""
        return Library(self.mpi.family, self.mpi.version, self.ask, lambda: self.pids)


class GlooRanks(LibraryRanks):
    """Processes that run Gloo by ``torch.distributed``; of the MPI they use the launcher alone."""

    start_s = 180.0  # every rank imports PyTorch

    def __init__(self, ranks: int, mpi: Mpi, launch: Launch) -> None:
        """Prepare ``ranks`` processes; nothing is started yet.

        Raises:
            Unavailable: this Python has no PyTorch.
        """
        if find_spec("torch") is None:
            raise Unavailable("gloo needs PyTorch: make torch, or pip install torch; left out")
        super().__init__(ranks, mpi, launch, timeout_s=120.0)

    @property
    def worker(self) -> list[str]:
        """The command of each rank."""
        return [sys.executable, "-m", f"{__package__}.gloo_rank"]

    @property
    def library(self) -> Library:
        """Gloo on these ranks."""
        return Library("gloo", f"of PyTorch {version('torch')}", self.ask, lambda: self.pids)
