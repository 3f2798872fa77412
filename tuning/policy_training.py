"""Training of policies on simulated machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from tuccl.errors import Infeasible, InputError
from tuccl.runtime import NCCL_VERSION, SimExecutor, time_baseline
from tuccl.runtime.baseline import time_nccl
from tuccl.runtime.nccl.versions import nccl_release
from tuccl.sketches.candidates import searched_sketches
from tuccl.synth import Collective
from tuccl.topology import Topology
from tuccl.tuning.evaluate import Evaluator
from tuccl.tuning.joint_search import aligned_size
from tuccl.tuning.nccl.nccl_tune import space_of_call
from tuccl.tuning.options import SEARCHES, TuneOptions
from tuccl.tuning.programs import ProgramCache, sketches_by_name
from tuccl.tuning.rl.action import Action
from tuccl.tuning.rl.policy import Policy, TrainedCall, TrainedCollective
from tuccl.tuning.rl.state import State
from tuccl.tuning.searches.search import Evaluate, run_search
from tuccl.tuning.searches.space import Point, Space
from tuccl.tuning.searches.tie_break import is_as_good, with_default_knobs
from tuccl.tuning.studies.study import Study

Progress = Callable[[int, int, str], None]
_TRIED_SLOWER = 1.25  # than the best of its call: still worth a try elsewhere
_PROGRAMS_EACH = 5
_NEVER_US = 1e15  # of a default that cannot run


@dataclass(frozen=True)
class SimulatedCall:
    """A call on a simulated machine: its state, its space, and what times its points."""

    machine: str
    state: State
    space: Space
    evaluate: Evaluate
    default_us: float
    samples_us: dict[Point, float] = field(default_factory=dict, repr=False, compare=False)

    def us(self, point: Point) -> float:
        """Return the simulated time of ``point`` in us; infinite where it cannot run."""
        if point not in self.samples_us:
            self.samples_us[point] = min(self.evaluate(point, 1), default=math.inf)
        return self.samples_us[point]

    def gain(self, action: Action) -> float | None:
        """Return log(time of the search's default / time of ``action``); None: it cannot run."""
        if action.method not in self.space.methods:
            return None
        us, default_us = self.us(action.point(self.space)), self.us(self.space.default)
        return None if math.isinf(us) else math.log(min(default_us, _NEVER_US) / us)

    def samples(self, point: Point, repeats: int = 1) -> tuple[float, ...]:
        """Return the time of ``point`` as a search takes it; none where it cannot run."""
        us = self.us(point)
        return () if math.isinf(us) else (us,) * repeats


class NoStudy(Study):
    """Keeps nothing: the simulator answers again in no time."""

    def __init__(self) -> None:
        """Need no storage."""

    def recall(self, point: Point, program: str, repeats: int) -> None:
        """Return None."""

    def attempt(self, point: Point, program: str) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def store(self, point: Point, program: str, repeats: int, samples_us: Sequence[float]) -> None:
        """Keep nothing."""


def simulated_calls(
    topology: Topology,
    collective: str,
    sizes: Sequence[int],
    dialect: str = "executor",
    nccl_version: str = NCCL_VERSION,
) -> list[SimulatedCall]:
    """Return the calls of ``collective`` on ``topology`` that can be tuned, one a size.

    Of ``dialect`` nccl the points are NCCL's own configurations (`NcclSpace`), else programs.
    """
    executor = SimExecutor(topology)
    if dialect == "nccl":
        call = Collective(collective, topology.ranks)
        return [_nccl_call(executor, call, n, nccl_version) for n in dict.fromkeys(sizes)]
    programs = ProgramCache(topology, Collective(collective, topology.ranks))
    calls = (
        _simulated_call(executor, programs, nbytes)
        for nbytes in dict.fromkeys(aligned_size(size, topology.ranks) for size in sizes)
    )
    return [call for call in calls if call is not None]


def _simulated_call(
    executor: SimExecutor, programs: ProgramCache, nbytes: int
) -> SimulatedCall | None:
    """The call of ``nbytes`` bytes; None: it has no legal point."""
    topology, name = programs.topology, programs.collective.name
    sketches, wider = searched_sketches(topology, name, nbytes)
    space = programs.space(sketches, nbytes, wider=wider)
    if space is None:
        return None
    default = time_baseline(executor, topology, executor.default_baseline, name, nbytes)
    return SimulatedCall(
        topology.name,
        State.of(topology, name, nbytes),
        space,
        Evaluator(executor, programs, sketches_by_name(sketches, wider), nbytes, NoStudy()),
        default.timing.us,
    )


def _nccl_call(executor: SimExecutor, call: Collective, nbytes: int, version: str) -> SimulatedCall:
    topology = executor.topology
    space = space_of_call(topology, call.name, nbytes, version)

    def evaluate(point: Point, repeats: int) -> tuple[float, ...]:
        try:
            knobs = space.knobs(point)
            timed = time_nccl(executor, topology, call, nbytes, knobs, version=version)
        except (Infeasible, InputError):
            return ()
        return (timed.timing.us,) * repeats

    return SimulatedCall(
        topology.name,
        State.of(topology, call.name, nbytes),
        space,
        evaluate,
        time_nccl(executor, topology, call, nbytes, version=version).timing.us,
    )


def train_policy(
    topologies: Sequence[Topology],
    collectives: Sequence[str],
    sizes: Sequence[int],
    *,
    budget: int = 60,
    seed: int = 0,
    dialect: str = "executor",
    nccl_version: str = NCCL_VERSION,
    progress: Progress = lambda done, total, what: None,
) -> Policy:
    """Return a policy trained on simulations of every collective and size on every machine.

    Each call is searched with ``budget`` evaluations by the default search. The best points of
    each call become actions, and every action is timed on every call, so that the policy knows
    where it is good and where it is not. Of ``dialect`` nccl the actions are configurations of
    NCCL ``nccl_version``, else programs with knobs.

    Raises:
        InputError: no machine, size or call that can be tuned, or a budget below 1.
    """
    if budget < 1 or not sizes or min(sizes) < 1:
        raise InputError("policy: expected a budget of at least 1, and sizes of at least 1 byte")
    total, version = len(topologies) * len(collectives), nccl_release(nccl_version)
    trained = []
    for number, collective in enumerate(collectives):
        calls: list[SimulatedCall] = []
        for index, topology in enumerate(topologies):
            progress(number * len(topologies) + index, total, f"{collective} on {topology.name}")
            here = simulated_calls(topology, collective, sizes, dialect, version)
            calls += here
            _search(here, budget, seed)
        done = (number + 1) * len(topologies)
        progress(done, total, f"{collective}: every action on every call")
        trained.append(_trained(collective, calls))
    progress(total, total, "done")
    if not any(each.calls for each in trained):
        raise InputError(
            "policy: no call of these can be tuned; give machines of two ranks or more"
        )
    names = ", ".join(dict.fromkeys(t.name for t in topologies))
    what = f"simulated: {names}; {', '.join(collectives)}; budget {budget}, seed {seed}"
    what = f"NCCL {version} {what}" if dialect == "nccl" else what
    of_nccl = dialect == "nccl"
    return Policy(trained_on=what[:255], collectives=tuple(trained), of_nccl=of_nccl)


def _search(calls: Sequence[SimulatedCall], budget: int, seed: int) -> None:
    """Search the calls on one machine."""
    for call in calls:
        run_search(SEARCHES[TuneOptions.search](call.space, seed=seed), call.samples, budget)


def _trained(collective: str, calls: Sequence[SimulatedCall]) -> TrainedCollective:
    actions = sorted({a for call in calls for a in _actions(call)})
    return TrainedCollective(
        collective,
        tuple(actions),
        tuple(
            TrainedCall(call.machine[:255], call.state, tuple(call.gain(a) for a in actions))
            for call in calls
        ),
    )


def _actions(call: SimulatedCall) -> list[Action]:
    """The best point of each of the best programs, with default knobs where these are as good."""
    ranked = sorted((us, point) for point, us in call.samples_us.items() if not math.isinf(us))
    best: dict[tuple[str, str, str], Point] = {}
    for us, point in ranked:
        if us <= _TRIED_SLOWER * ranked[0][0]:
            best.setdefault((point.choice.method, point.protocol, point.choice.sketch), point)
    points = []
    for point in list(best.values())[:_PROGRAMS_EACH]:
        usual = with_default_knobs(point)
        as_good = usual in call.space and is_as_good(call.us(usual), call.us(point))
        points.append(usual if as_good else point)
    return [Action.of(point) for point in points]
