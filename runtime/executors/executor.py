"""What runs a program and says how long it took: the executors' common face."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tuccl._native import Knobs, Program

__all__ = ["MSCCL_WALK", "OWN_CHOICE", "Executor", "Timing", "Walk"]


class Walk(NamedTuple):
    """How a kernel walks a program's chunks, where it is not MSCCL's interpreter.

    Attributes:
        pass_bytes: Most payload of a chunk in one pass; 0: all that the slots of a transfer hold.
        transfer_slots: Slots of the FIFO that a transfer takes; 0: the protocol's (4 for Simple).
        multicast: The program's last ranks are the NVLink switch (NVLS): simulated only.
        own_choice: The program only names the collective; a real runtime runs what it chooses.

    Notes:
        NCCL's rings walk as the interpreter does; its trees, lines and grouped sends take a slot
        a transfer (NCCL src/include/collectives.h), trees in passes as small as keeps all of
        their hops busy (src/enqueue.cc).
    """

    pass_bytes: int = 0
    transfer_slots: int = 0
    multicast: bool = False
    own_choice: bool = False


MSCCL_WALK = Walk()
OWN_CHOICE = Walk(own_choice=True)


@dataclass(frozen=True)
class Timing:
    """Time of one collective call in us, out of place and in place.

    A placement that the program does not claim has None. ``samples_us`` holds the repeats of
    the placement that ``us`` names, ``samples_us_ip`` those in place, where the executor keeps
    them; ``on`` says what ran it ("sim", "mpi", "cuda",
    "loopback", "nccl-tests"); ``wrong`` counts wrong elements, None where none were compared;
    ``first_wrong`` is the
    first of them; ``runs`` is the number of timed runs behind ``us``, 0 where none was measured.

    >>> Timing(12.0, None, (12.0,), "sim", None).us
    12.0
    """

    time_us: float | None
    time_us_ip: float | None
    samples_us: tuple[float, ...]
    on: str
    wrong: int | None = None
    samples_us_ip: tuple[float, ...] = ()
    runs: int = 0
    first_wrong: str = ""

    @property
    def us(self) -> float:
        """Time in us out of place, or in place where the program claims nothing else."""
        time_us = self.time_us if self.time_us is not None else self.time_us_ip
        if time_us is None:
            raise ValueError("a timing without any time")
        return time_us


class Executor(Protocol):
    """Something that runs programs on one machine: the simulator, MPI, CUDA, nccl-tests.

    ``time`` never changes the program or the knobs it is given. Repeats of a deterministic
    executor are equal. A call that cannot be run raises InputError, never returns a guess.
    """

    @property
    def name(self) -> str:
        """Short name for tables: "sim", "mpi", "cuda" or "nccl-tests"."""

    @property
    def label(self) -> str:
        """One phrase for figures: whether simulated or measured, and on what."""

    @property
    def ranks(self) -> int:
        """Ranks of the machine; a program must have as many."""

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
        """Return the time of ``program`` on the whole array of ``nbytes`` bytes."""
