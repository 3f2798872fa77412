"""The runs of nccl-tests in which a sweep tries NCCL's own configurations of one collective."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tuccl.errors import InputError, Stuck, Unavailable
from tuccl.runtime import NcclTestsExecutor
from tuccl.runtime.baseline.nccl_best import CHANNELS
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.tuning.nccl.sweep_journal import SizeTime, SweepJournal, SweepRun, sweep_key

__all__ = ["CHANNELS", "MOST_CANDIDATES", "ConfigurationSweep", "TimesBySize"]

TimesBySize = dict[int, SizeTime]
MOST_CANDIDATES = 3
_CLOSE = 1.5  # times as long as the best at some size: its channels are worth a try
_MOST_CANDIDATES_IN_ALL = 8


@dataclass
class ConfigurationSweep:
    """The runs of one collective: each configuration at all sizes; failed and wrong ones have none.

    ``left`` is the budget in runs, ``channels`` the communicator's as NCCL's log last said, and
    ``times`` the times in us of the configurations that were searched.
    """

    executor: NcclTestsExecutor
    collective: str
    sizes: Sequence[int]
    root: int
    left: int
    journal: SweepJournal
    machine: str  # its signature
    channels: int | None = None
    times: dict[NcclKnobs, TimesBySize] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The key of this sweep's runs in the journal."""
        where = (self.machine, self.executor.label, self.collective)
        return sweep_key(*where, list(self.sizes), self.root)

    def run(self, knobs: NcclKnobs | None) -> TimesBySize:
        """Times by size of one run; empty where it failed. The default's failure is everyone's."""
        what = "default" if knobs is None else knobs.name
        done = self.journal.recall(self.name, what)
        if done is None:
            done = self._measure(knobs, what)
            self.journal.store(done)
        self.channels = done.channels
        return {t.nbytes: t for t in done.times}

    def _measure(self, knobs: NcclKnobs | None, what: str) -> SweepRun:
        variables = None if knobs is None else knobs.variables
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
        """The sizes at which NCCL's log says that ``knobs`` run when they are requested.

        Raises:
            Unavailable: no log came back, or it says nothing of what runs.
        """
        what = f"proof {knobs.name}"
        done = self.journal.recall(self.name, what)
        if done is None:
            done = SweepRun(run=self.name, what=what, proven=self._sizes_that_run(knobs))
            self.journal.store(done)
        return done.proven

    def _sizes_that_run(self, knobs: NcclKnobs) -> tuple[int, ...]:
        try:
            ran = self.executor.logged_calls(
                self.collective,
                self.sizes,
                root=self.root,
                variables=knobs.variables,
            )
        except (InputError, Stuck):
            return ()
        if not any(ran):
            raise Unavailable(
                f"no log of what NCCL chose came back under {self.executor.shared}: an NCCL may "
                "ignore the request, so nothing is entered unproven; correct --shared"
            )
        logged = zip(self.sizes, ran, strict=True)
        return tuple(n for n, calls in logged if calls and all(r.obeys(knobs) for r in calls))

    def search(
        self, first: Iterable[NcclKnobs], report: Callable[[int], None], deadline: float
    ) -> None:
        """Run all of ``first``, then the close ones with other channels, within the budget.

        ``report`` is called with the runs that are left.
        """
        report(self.left)
        self._run_each(first, report, deadline)
        self._run_each(self._with_channels(self.channels or CHANNELS[-1]), report, deadline)

    def _run_each(
        self, configurations: Iterable[NcclKnobs], report: Callable[[int], None], deadline: float
    ) -> None:
        for knobs in configurations:
            if self.left < 1 or time.monotonic() >= deadline:
                return
            self.times[knobs] = self.run(knobs)
            self.left -= 1
            report(self.left)

    def _with_channels(self, most: int) -> Iterator[NcclKnobs]:
        """More channels than the communicator has no tuner can give."""
        close = [knobs for knobs in self.times if self._is_close(knobs)]
        for count in (c for c in CHANNELS if c <= most):
            for knobs in close:
                yield NcclKnobs(algorithm=knobs.algorithm, protocol=knobs.protocol, channels=count)

    def _is_close(self, knobs: NcclKnobs) -> bool:
        return any(t.us <= _CLOSE * self.best_us(n) for n, t in self.times[knobs].items())

    def best_us(self, nbytes: int) -> float:
        """The least time so far of a size."""
        return min((s[nbytes].us for s in self.times.values() if nbytes in s), default=math.inf)

    def best(self) -> list[NcclKnobs]:
        """The three best of each size, those first that are best at most sizes."""
        scores: dict[NcclKnobs, float] = {}
        for nbytes in self.sizes:
            times = {k: s[nbytes].us for k, s in self.times.items() if nbytes in s}
            ranked = sorted(times, key=lambda k: times[k])[:MOST_CANDIDATES]
            for position, knobs in enumerate(ranked):
                scores[knobs] = scores.get(knobs, 0.0) + 2.0**-position
        return sorted(scores, key=lambda k: -scores[k])[:_MOST_CANDIDATES_IN_ALL]
