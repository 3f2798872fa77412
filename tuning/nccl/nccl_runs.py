"""Runs that time NCCL's own configurations of one collective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from tuccl.errors import Infeasible, InputError, Stuck, Unavailable
from tuccl.runtime import Executor, NcclTestsExecutor
from tuccl.runtime.baseline import time_nccl
from tuccl.runtime.nccl.choice import nccl_choice
from tuccl.runtime.nccl.knobs import NcclKnobs
from tuccl.runtime.nccl_tests.logged_calls import LoggedCall
from tuccl.synth import Collective
from tuccl.topology import Topology, signature
from tuccl.tuning.nccl.sweep_journal import SizeTime, SweepJournal, SweepRun, sweep_key

TimesBySize = dict[int, SizeTime]
MOST_CANDIDATES = 3
_MOST_CANDIDATES_IN_ALL = 8


@dataclass
class NcclRuns:
    """The times of one collective's configurations; those that failed or were wrong have none.

    A run of nccl-tests times a configuration at all sizes, since it is the job's start that takes
    long; the simulator times it where it is requested. ``channels`` are the communicator's as
    NCCL's log last said; ``times`` has what was timed for the search.
    """

    executor: Executor
    topology: Topology
    call: Collective
    sizes: Sequence[int]
    version: str
    journal: SweepJournal
    channels: int | None = None
    times: dict[NcclKnobs, TimesBySize] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The key of these runs in the journal."""
        where = (signature(self.topology), self.executor.label, self.call.name)
        return sweep_key(*where, list(self.sizes), self.call.root)

    def samples(self, knobs: NcclKnobs, nbytes: int) -> tuple[float, ...]:
        """Return the search's time of ``knobs`` at a size in us; none where it cannot run."""
        times = self.times.setdefault(knobs, {})
        if nbytes not in times:
            sizes = self.sizes if self.executor.runs_nccl else [nbytes]
            times |= {n: SizeTime(n, None, None) for n in sizes} | self.run(knobs, sizes)
        us = times[nbytes].us
        return () if math.isinf(us) else (us,)

    def run(self, knobs: NcclKnobs | None, sizes: Sequence[int]) -> TimesBySize:
        """Return times by size of one run; none where it failed. The default's failure is raised.

        Raises:
            InputError: NCCL's own choice fails.
            Stuck: it takes too long.
        """
        if self.executor.runs_nccl:
            run = self._run_of_nccl(knobs)
            return {t.nbytes: t for t in run.times}
        return {n: t for n in sizes if (t := self._simulated(knobs, n)) is not None}

    def _run_of_nccl(self, knobs: NcclKnobs | None) -> SweepRun:
        what = "default" if knobs is None else knobs.name
        done = self.journal.recall(self.name, what)
        if done is None:
            done = self._measure(knobs, what)
            self.journal.store(done)
        self.channels = done.channels
        return done

    def _simulated(self, knobs: NcclKnobs | None, nbytes: int) -> SizeTime | None:
        where = (self.executor, self.topology, self.call, nbytes)
        try:
            timing = time_nccl(*where, knobs, version=self.version).timing
        except (Infeasible, InputError):
            if knobs is None:
                raise
            return None
        return SizeTime(nbytes, timing.time_us, timing.time_us_ip)

    def _measure(self, knobs: NcclKnobs | None, what: str) -> SweepRun:
        variables = None if knobs is None else knobs.variables
        executor = cast("NcclTestsExecutor", self.executor)
        try:
            timings = executor.sweep(
                self.call.name, self.sizes, root=self.call.root, variables=variables
            )
        except (InputError, Stuck):
            if knobs is None:
                raise
            return SweepRun(run=self.name, what=what, channels=executor.channels)
        wrong = knobs is not None and any(t.wrong for t in timings)
        pairs = () if wrong else zip(self.sizes, timings, strict=True)
        return SweepRun(
            run=self.name,
            what=what,
            channels=executor.channels,
            times=tuple(SizeTime(n, t.time_us, t.time_us_ip) for n, t in pairs),
        )

    def chosen(self) -> dict[int, tuple[str, str]]:
        """Return the algorithm and protocol of NCCL's own choice, by size, where that is known."""
        if not self.executor.runs_nccl:
            own = {
                n: nccl_choice(self.topology, self.call.name, n, self.version) for n in self.sizes
            }
            return {n: (each.algorithm, each.protocol) for n, each in own.items()}
        what = "log of the default"
        done = self.journal.recall(self.name, what)
        if done is None:
            logged = zip(self.sizes, self._logged(None) or (), strict=False)
            own_calls = [(n, c.algorithm, c.protocol) for n, calls in logged for c in calls[:1]]
            done = SweepRun(run=self.name, what=what, chosen=tuple(own_calls))
            self.journal.store(done)
        return {n: (algorithm, protocol) for n, algorithm, protocol in done.chosen}

    def proven(self, knobs: NcclKnobs) -> tuple[int, ...]:
        """Return the sizes at which ``knobs`` run when they are requested.

        NCCL's log says so; where NCCL is simulated, it does as its model.

        Raises:
            Unavailable: no log came back, or it says nothing of what runs.
        """
        if not self.executor.runs_nccl:
            return tuple(n for n, t in self.times[knobs].items() if not math.isinf(t.us))
        what = f"proof {knobs.name}"
        done = self.journal.recall(self.name, what)
        if done is None:
            done = SweepRun(run=self.name, what=what, proven=self._sizes_that_run(knobs))
            self.journal.store(done)
        return done.proven

    def _sizes_that_run(self, knobs: NcclKnobs) -> tuple[int, ...]:
        ran = self._logged(knobs)
        if ran is None:
            return ()
        if not any(ran):
            shared = cast("NcclTestsExecutor", self.executor).shared
            raise Unavailable(
                f"no log of what NCCL chose came back under {shared}: an NCCL may "
                "ignore the request, so nothing is entered unproven; correct --shared"
            )
        logged = zip(self.sizes, ran, strict=True)
        return tuple(n for n, calls in logged if calls and all(r.obeys(knobs) for r in calls))

    def _logged(self, knobs: NcclKnobs | None) -> list[tuple[LoggedCall, ...]] | None:
        """Return what NCCL's log says that it runs at each size; None: the run failed."""
        executor = cast("NcclTestsExecutor", self.executor)
        variables = None if knobs is None else knobs.variables
        try:
            return executor.logged_calls(
                self.call.name, self.sizes, root=self.call.root, variables=variables
            )
        except (InputError, Stuck):
            return None

    def best(self) -> list[NcclKnobs]:
        """Return the three best of each size, those first that are best at most sizes."""
        scores: dict[NcclKnobs, float] = {}
        for nbytes in self.sizes:
            us = {k: t[nbytes].us for k, t in self.times.items() if nbytes in t}
            ranked = sorted((k for k in us if not math.isinf(us[k])), key=lambda k: us[k])
            for position, knobs in enumerate(ranked[:MOST_CANDIDATES]):
                scores[knobs] = scores.get(knobs, 0.0) + 2.0**-position
        most = _MOST_CANDIDATES_IN_ALL if self.executor.runs_nccl else len(scores)
        return sorted(scores, key=lambda k: -scores[k])[:most]
