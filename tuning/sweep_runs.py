"""The runs of nccl-tests in which a sweep tries NCCL's own configurations of one collective."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tuccl.errors import InputError, Stuck, Unavailable
from tuccl.runtime import NcclTestsExecutor
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.tuning.sweep_journal import SizeTime, SweepJournal, SweepRun, run_name

__all__ = ["CHANNELS", "MOST_CANDIDATES", "Sweep", "Sweeps", "nccl_variables"]

Sweep = dict[int, SizeTime]
CHANNELS = (1, 2, 4, 8, 16, 32)
MOST_CANDIDATES = 3
_CLOSE = 1.5  # times as long as the best at some size: its channels are worth a try
_MOST_FINALISTS = 8


def nccl_variables(knobs: NcclKnobs) -> dict[str, str]:
    """Return the variables that make NCCL run ``knobs`` for every call.

    >>> nccl_variables(NcclKnobs(algorithm="Ring", protocol="LL", channels=4))["NCCL_MAX_NCHANNELS"]
    '4'
    """
    variables: dict[str, str] = {"NCCL_ALGO": knobs.algorithm, "NCCL_PROTO": knobs.protocol}
    if knobs.channels:
        count = str(knobs.channels)
        variables |= {"NCCL_MIN_NCHANNELS": count, "NCCL_MAX_NCHANNELS": count}
    return variables


@dataclass
class Sweeps:
    """The runs of one collective: each configuration over all sizes, wrong and failed ones left out."""

    executor: NcclTestsExecutor
    collective: str
    sizes: Sequence[int]
    root: int
    left: int
    journal: SweepJournal
    machine: str  # its signature
    channels: int | None = None  # of the communicator, as NCCL's log last said
    seen: dict[NcclKnobs, Sweep] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What this sweep is of, so that no other's runs are taken for its own."""
        where = (self.machine, self.executor.label, self.collective)
        return run_name(*where, list(self.sizes), self.root)

    def run(self, knobs: NcclKnobs | None) -> Sweep:
        """Times by size of one run; empty where it failed. The default's failure is everyone's."""
        what = "default" if knobs is None else knobs.name
        done = self.journal.recall(self.name, what)
        if done is None:
            done = self._measured(knobs, what)
            self.journal.store(done)
        self.channels = done.channels
        return {t.nbytes: t for t in done.times}

    def _measured(self, knobs: NcclKnobs | None, what: str) -> SweepRun:
        variables = None if knobs is None else nccl_variables(knobs)
        try:
            timings = self.executor.sweep(
                self.collective, self.sizes, root=self.root, variables=variables
            )
        except (InputError, Stuck):
            if knobs is None:
                raise
            return SweepRun(run=self.name, what=what, channels=self.executor.channels)
        wrong = knobs is not None and any(t.wrong for t in timings)
        pairs = () if wrong else zip(self.sizes, timings, strict=True)
        return SweepRun(
            run=self.name,
            what=what,
            channels=self.executor.channels,
            times=tuple(SizeTime(n, t.time_us, t.time_us_ip) for n, t in pairs),
        )

    def proven(self, knobs: NcclKnobs) -> tuple[int, ...]:
        """The sizes at which NCCL's log says that ``knobs`` run where they are asked for.

        Raises:
            Unavailable: no log came back, or it says nothing of what runs.
        """
        what = f"proof {knobs.name}"
        done = self.journal.recall(self.name, what)
        if done is None:
            done = SweepRun(run=self.name, what=what, proven=self._seen_to_run(knobs))
            self.journal.store(done)
        return done.proven

    def _seen_to_run(self, knobs: NcclKnobs) -> tuple[int, ...]:
        try:
            ran = self.executor.chosen(
                *(self.collective, self.sizes), root=self.root, variables=nccl_variables(knobs)
            )
        except (InputError, Stuck):
            return ()
        if not any(ran):
            raise Unavailable(
                f"no log of what NCCL chose came back under {self.executor.shared}: an NCCL may "
                "ignore what it is asked for, so nothing is entered unproven; mend --shared"
            )
        seen = zip(self.sizes, ran, strict=True)
        return tuple(n for n, calls in seen if calls and all(r.obeys(knobs) for r in calls))

    def search(self, first: Iterable[NcclKnobs], told: Callable[[], None], until: float) -> None:
        """All of ``first``, then the close ones' channels, as far as the budget goes."""
        self._try(first, told, until)
        most = self.channels or CHANNELS[-1]
        self._try(self._with_channels(most), told, until)

    def _try(self, each: Iterable[NcclKnobs], told: Callable[[], None], until: float) -> None:
        for knobs in each:
            if self.left < 1 or time.monotonic() >= until:
                return
            self.seen[knobs] = self.run(knobs)
            self.left -= 1
            told()

    def _with_channels(self, most: int) -> Iterator[NcclKnobs]:
        """More channels than the communicator has no tuner can give."""
        close = [knobs for knobs in self.seen if self._is_close(knobs)]
        for count in (c for c in CHANNELS if c <= most):
            for knobs in close:
                yield NcclKnobs(algorithm=knobs.algorithm, protocol=knobs.protocol, channels=count)

    def _is_close(self, knobs: NcclKnobs) -> bool:
        return any(t.us <= _CLOSE * self.best_us(n) for n, t in self.seen[knobs].items())

    def best_us(self, nbytes: int) -> float:
        """The least time so far of a size."""
        return min((s[nbytes].us for s in self.seen.values() if nbytes in s), default=math.inf)

    def finalists(self) -> list[NcclKnobs]:
        """The three best of each size, those first that are best at most sizes."""
        wins: dict[NcclKnobs, float] = {}
        for nbytes in self.sizes:
            times = {k: s[nbytes].us for k, s in self.seen.items() if nbytes in s}
            for place, knobs in enumerate(sorted(times, key=lambda k: times[k])[:MOST_CANDIDATES]):
                wins[knobs] = wins.get(knobs, 0.0) + 2.0**-place
        return sorted(wins, key=lambda k: -wins[k])[:_MOST_FINALISTS]
