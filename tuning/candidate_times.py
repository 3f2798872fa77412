"""Times of a table's candidates at any size, the runtime's default among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from tuccl.errors import Infeasible, InputError, Stuck
from tuccl.program import Program
from tuccl.runtime import Candidate, ConfiguredProgram, Executor, Timing, time_baseline
from tuccl.runtime.baseline.candidate import candidate_program
from tuccl.runtime.executors.paired_timing import paired_timings
from tuccl.synth import Collective
from tuccl.topology import Topology

_ROUNDS = 5  # where there is noise


class CandidateTimes:
    """Times the candidates of one collective: at each size once, in turns where there is noise."""

    def __init__(
        self,
        executor: Executor,
        topology: Topology,
        collective: Collective,
        nccl_version: str,
        programs: Mapping[str, Program],
    ) -> None:
        """Prepare to time candidates whose ``programs`` go by their paths in the table."""
        self._executor = executor
        self._topology = topology
        self._collective = collective
        self._version = nccl_version
        self._programs = programs
        self._timings: dict[tuple[str, int], Timing | None] = {}

    def __call__(self, candidates: Sequence[Candidate], nbytes: int) -> dict[str, Timing | None]:
        """Return the timing of each candidate by its name, in us; None: it cannot run there.

        Under noise all are timed again unless each has a time: only times of one round compare.
        """
        names = [(candidate.name, nbytes) for candidate in candidates]
        if any(name not in self._timings for name in names):
            self._timings |= self._time(candidates, nbytes)
        return {name: self._timings[name, nbytes] for name, _ in names}

    def _time(
        self, candidates: Sequence[Candidate], nbytes: int
    ) -> dict[tuple[str, int], Timing | None]:
        timings: dict[tuple[str, int], Timing | None] = {}
        for group in [[c] for c in candidates] if self._executor.deterministic else [candidates]:
            group_timings: list[Timing] | list[None] = [None] * len(group)
            with suppress(Infeasible, InputError, Stuck):
                runs = [self._run(c, nbytes) for c in group]
                root = self._collective.root
                group_timings = paired_timings(
                    self._executor, runs, nbytes, root=root, rounds=_ROUNDS
                )
            timings |= {(c.name, nbytes): t for c, t in zip(group, group_timings, strict=True)}
        return timings

    def _run(self, candidate: Candidate, nbytes: int) -> ConfiguredProgram:
        executor, topology, call = self._executor, self._topology, self._collective
        own = candidate_program(
            executor, topology, call, nbytes, candidate, self._programs, version=self._version
        )
        return own or time_baseline(
            executor,
            topology,
            executor.default_baseline,
            call.name,
            nbytes,
            root=call.root,
            version=self._version,
        )
