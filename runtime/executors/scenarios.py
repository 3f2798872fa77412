"""Several scenarios of cross traffic as one executor: one time for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from tuccl.errors import InputError
from tuccl.program import Knobs, Program
from tuccl.runtime.executors.executor import MSCCL_LOOP, Executor, StepLoop, Timing
from tuccl.topology import Topology

Objective = Literal["mean", "tail", "regret"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
_TAIL = 0.1


class Scenario(NamedTuple):
    """An executor under one scenario of cross traffic, and how much its times weigh."""

    name: str
    executor: Executor
    weight: float = 1.0


class ScenarioExecutor(Executor):
    """Times each call under all scenarios, and reduces the times to one.

    The objectives: ``mean``, the weighted geometric mean; ``tail``, the mean of the slowest tenth
    of all times; ``regret``, the mean of the scenarios' least times so far, by the worst ratio of a
    time to its scenario's least. Scenarios must be simulated: their times have no noise.
    """

    name = "sim"
    simulated = True
    deterministic = True
    full_effort = 1

    def __init__(self, scenarios: Sequence[Scenario], objective: str = "mean") -> None:
        """Prepare to time calls under ``scenarios``.

        Raises:
            InputError: there is none, names are equal, a weight is not above 0, or there is
                no such objective.
        """
        names = [scenario.name for scenario in scenarios]
        if not scenarios or len(set(names)) < len(names):
            raise InputError("scenarios: expected one or more, each with a name of its own")
        for scenario in scenarios:
            if not 0 < scenario.weight < math.inf:
                raise InputError(
                    f"scenario {scenario.name[:60]}: weight {scenario.weight:g}; expected above 0"
                )
        if objective not in OBJECTIVES:
            raise InputError(
                f"objective {objective[:20]!r}: expected one of {', '.join(OBJECTIVES)}"
            )
        self.scenarios = tuple(scenarios)
        self.objective = objective
        self._first = scenarios[0].executor
        self.ranks = self._first.ranks
        self.default_baseline = self._first.default_baseline
        self._least_us: dict[tuple[str, int, int, str], float] = {}

    @property
    def topology(self) -> Topology | None:
        """The machine."""
        return self._first.topology

    @property
    def planned_topology(self) -> Topology | None:
        """The machine with what is left of its links in the scenario that leaves least."""

        def left_gbs(topology: Topology | None) -> float:
            return sum(link.bandwidth for link in topology.links) if topology else math.inf

        planned = (scenario.executor.planned_topology for scenario in self.scenarios)
        return min(planned, key=left_gbs)

    @property
    def of_search(self) -> Executor:
        """The executor that a search goes by: regrets change with what it finds, means do not."""
        if self.objective != "regret":
            return self
        searched = ScenarioExecutor(self.scenarios)
        searched._least_us = self._least_us
        return searched

    @property
    def label(self) -> str:
        """That it simulates, what, and under which scenarios."""
        parts = [f"{each.weight:g} x {each.executor.label}" for each in self.scenarios]
        return f"{self.objective} of {'; '.join(parts)}"

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
        """Return the objective's time of ``program``, and its time under each scenario.

        Raises:
            Infeasible: as the scenarios' executors.
            InputError: as they.
        """
        timings = [
            each.executor.time(program, knobs, nbytes, root=root, loop=loop)
            for each in self.scenarios
        ]
        for each, timing in zip(self.scenarios, timings, strict=True):
            key = program.collective, nbytes, root, each.name
            self._least_us[key] = min(self._least_us.get(key, math.inf), timing.us)
        us = self._reduced(timings, (program.collective, nbytes, root))
        first, samples = timings[0], (us,) * repeats
        return Timing(
            None if first.time_us is None else us,
            None if first.time_us_ip is None else us,
            samples,
            self.name,
            samples_us_ip=() if first.time_us_ip is None else samples,
            scenarios_us=tuple(
                (each.name, timing.us) for each, timing in zip(self.scenarios, timings, strict=True)
            ),
        )

    def _reduced(self, timings: Sequence[Timing], call: tuple[str, int, int]) -> float:
        weights = [each.weight for each in self.scenarios]
        if self.objective == "tail":
            weighted = [
                (us, weight / sum(weights) / len(timing.samples_us))
                for timing, weight in zip(timings, weights, strict=True)
                for us in timing.samples_us
            ]
            return _tail_mean(weighted)
        if self.objective == "regret":
            least = [self._least_us[*call, each.name] for each in self.scenarios]
            worst = max(t.us / best for t, best in zip(timings, least, strict=True))
            return worst * geometric_mean(least, weights)
        return geometric_mean([timing.us for timing in timings], weights)


def geometric_mean(times_us: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted geometric mean of times in us."""
    logs = (weight * math.log(us) for us, weight in zip(times_us, weights, strict=True))
    return math.exp(sum(logs) / sum(weights))


def _tail_mean(weighted_us: Sequence[tuple[float, float]]) -> float:
    """Return the mean of the slowest tenth (CVaR) of times with weights that add up to 1."""
    left, total = _TAIL, 0.0
    for us, weight in sorted(weighted_us, reverse=True):
        part = min(weight, left)
        total += part * us
        left -= part
    return total / (_TAIL - left)
