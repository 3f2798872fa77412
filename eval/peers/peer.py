"""Other libraries' collectives on the same ranks: those of MPI and of Gloo.

A peer answers the same calls as our programs do, with its data checked, so that its times stand
beside theirs (docs/cpu.md).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tuccl._native import RankResult, read_result
from tuccl.errors import Unavailable
from tuccl.runtime.executors.mpi import MpiExecutor
from tuccl.runtime.executors.mpi_launch import Launch
from tuccl.runtime.executors.mpi_workers import Workers

__all__ = ["PEERS", "GlooPeer", "MpiPeer", "Peer", "PeerCall"]

PEERS = ("gloo", "openmpi", "mpich")
_GLOO_START_S = 180.0  # every rank imports PyTorch
_GLOO_PATIENCE_S = 120.0


@dataclass(frozen=True)
class PeerCall:
    """An order to a library to do a collective by one of its own algorithms.

    >>> PeerCall("allreduce", "ring", 1024).text.splitlines()[:2]
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


class Peer(Protocol):
    """A library that runs collectives on the ranks of an executor."""

    @property
    def name(self) -> str:
        """One of `PEERS`."""

    @property
    def version(self) -> str:
        """Its version, for labels."""

    def algorithms(self, collective: str) -> tuple[str, ...]:
        """Return the algorithms it offers, its own choice first; none: it lacks the collective."""

    def run(self, call: PeerCall) -> Sequence[RankResult]:
        """Return each rank's result.

        Raises:
            InputError: it cannot do the call.
            Stuck: it does not come to an end.
        """


class MpiPeer:
    """An MPI's own collectives, in the very processes that run our programs over it."""

    def __init__(self, executor: MpiExecutor) -> None:
        """Take the worker processes of ``executor``, which stays its owner."""
        self._executor = executor

    @property
    def name(self) -> str:
        """The MPI's family."""
        return self._executor.mpi.family

    @property
    def version(self) -> str:
        """The MPI's version."""
        return self._executor.mpi.version

    def algorithms(self, collective: str) -> tuple[str, ...]:
        """Return what the MPI says that it has."""
        return tuple(self._executor.ask(f"own-algorithms {collective}\n")[0].split())

    def run(self, call: PeerCall) -> list[RankResult]:
        """Return each rank's result."""
        return [read_result(text) for text in self._executor.ask(call.text)]


class GlooPeer:
    """Gloo through ``torch.distributed``: a Python process a rank, from first use to ``close``."""

    name = "gloo"

    def __init__(self, ranks: int, launch: Launch) -> None:
        """Prepare ``ranks`` processes; nothing is started yet.

        Args:
            ranks: how many.
            launch: how they are started: an MPI's launcher, of which they use nothing else.

        Raises:
            Unavailable: this Python has no PyTorch.
        """
        if importlib.util.find_spec("torch") is None:
            raise Unavailable("gloo needs PyTorch: make torch, or pip install torch; left out")
        self._ranks = ranks
        self._launch = launch
        self._workers: Workers | None = None

    @property
    def version(self) -> str:
        """PyTorch's version."""
        from importlib.metadata import version

        return f"of PyTorch {version('torch')}"

    def algorithms(self, collective: str) -> tuple[str, ...]:
        """Return its one way, or none."""
        supported = ("allreduce", "allgather", "reduce-scatter", "broadcast", "alltoall")
        return ("auto",) if collective in supported else ()

    def run(self, call: PeerCall) -> list[RankResult]:
        """Return each rank's result."""
        if self._workers is None or not self._workers.alive:
            worker = [sys.executable, str(Path(__file__).with_name("gloo_rank.py"))]
            self._workers = Workers(self._launch, worker, self._ranks, _GLOO_START_S)
        return [read_result(text) for text in self._workers.ask(call.text, _GLOO_PATIENCE_S)]

    def close(self) -> None:
        """End the processes, if any run."""
        if self._workers is not None:
            self._workers.close()
        self._workers = None
