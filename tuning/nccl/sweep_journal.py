"""Runs of a sweep over NCCL's own configurations, kept so that it can go on later."""

from __future__ import annotations

import hashlib
import math
import os
from collections import defaultdict, deque
from pathlib import Path

import msgspec

from tuccl.errors import InputError
from tuccl.tuning.studies.study import SWEEPS, cut_unfinished_line, end_study, start_study


class SizeTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time of a size in us, out of place and in place."""

    nbytes: int
    time_us: float | None
    time_us_ip: float | None

    @property
    def us(self) -> float:
        """Time in us out of place, or in place where there is no other; infinite without any."""
        times = (t for t in (self.time_us, self.time_us_ip) if t is not None)
        return next(times, math.inf)


class SweepRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One run: its configuration (``what``), its sweep (``run``), and no times if it failed.

    ``channels`` are the communicator's, as NCCL's log said; ``proven`` the sizes at which the log
    says that the requested configuration ran; ``chosen`` the algorithm and protocol that it says
    NCCL chose by itself at each size.
    """

    run: str
    what: str
    channels: int | None = None
    times: tuple[SizeTime, ...] = ()
    proven: tuple[int, ...] = ()
    chosen: tuple[tuple[int, str, str], ...] = ()


class SweepJournal:
    """A line of JSON a run in the study's folder; answers are given back in the order of requests.

    A sweep makes the same requests when it gets the same times, so it goes on from the
    start. A run that was cut short left no line, and is made again.
    """

    def __init__(self, out: Path, *, resume: bool) -> None:
        """Open the journal that belongs to the table ``out``.

        Raises:
            InputError: an unfinished study is there and ``resume`` was not given, or what is
                there is none.
        """
        self._folder = start_study(out, resume=resume)
        self._path = self._folder / SWEEPS
        self._stored: dict[tuple[str, str], deque[SweepRun]] = defaultdict(deque)
        for line in cut_unfinished_line(self._path).splitlines():
            try:
                run = msgspec.json.decode(line, type=SweepRun)
            except msgspec.DecodeError as error:
                raise InputError(
                    f"{self._path}: no journal of a sweep ({str(error)[:80]}); remove it"
                ) from None
            self._stored[run.run, run.what].append(run)

    @property
    def where(self) -> str:
        """The folder of the study."""
        return str(self._folder)

    def recall(self, run: str, what: str) -> SweepRun | None:
        """Return the next stored answer, once; None where none is left."""
        answers = self._stored[run, what]
        return answers.popleft() if answers else None

    def store(self, run: SweepRun) -> None:
        """Append ``run``, and see it to the disk: a run takes seconds of a whole cluster.

        Raises:
            InputError: the disk refuses.
        """
        try:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(run) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"{self._path}: cannot be written: {error.strerror}") from None

    def finish(self) -> None:
        """Note that the sweep came to its end, so that the next one may start anew."""
        end_study(self._folder)


def sweep_key(*identity: object) -> str:
    """Return a short name for what a sweep is of, equal for equal ``identity``.

    >>> sweep_key("allreduce", [1024]) == sweep_key("allreduce", [1024])
    True
    """
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
