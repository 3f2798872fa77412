"""Candidate programs of several sketches and methods, ranked by simulated time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

from tuccl._native import Knobs, MachineClass, Network, Program, simulate
from tuccl.errors import Infeasible, InputError
from tuccl.sketches import Sketch
from tuccl.synth.bounds.bound import bound
from tuccl.synth.bounds.hops import fewest_hops, longest_chain
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.synth.classic.local_routes import slowest
from tuccl.synth.lowering.lower import claims_size, lower
from tuccl.synth.methods import EXACT_METHODS, METHODS, searched_methods, synthesize
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import Proof, Schedule
from tuccl.synth.model.solver import Budget
from tuccl.topology import Topology, network

__all__ = ["Candidates", "SearchResult", "Synthesized", "Target", "synthesize_best"]

_MOST_CHUNKS = 8
# Programs, each the fastest of its method, whose knobs and form are varied.
_FINALISTS = 4
# Transfers above which a schedule is not lowered in its other form too.
_MOST_REFORMED = 4000
# Transfers and steps that are made in a second on a common processor: what limits count, so that
# an equal seed gives an equal program whatever else the machine does. The clock ends a search only
# where the machine is slower than that by the factor.
_WORK_PER_SECOND = 60_000
_SLOWEST_MACHINE = 3.0
# The part of a limit after which no other method is tried; the rest is for the fastest programs.
_METHODS_SHARE = 0.6
# The order in which methods are tried where latency decides, and where bandwidth does.
_FOR_LATENCY = [
    "allpairs",
    "allpairs-paired",
    "allpairs-any-order",
    "allpairs-paired-any-order",
    "recursive",
    "hierarchical2",
    "fewstep",
    "hierarchical3",
    "pipelined",
    "greedy",
    "ring",
    "rings",
    "packing",
    "flow",
]
_FOR_BANDWIDTH = [
    "packing",
    "flow",
    "hierarchical2",
    "hierarchical3",
    "rings",
    "pipelined",
    "allpairs",
    "hierarchical-rings",
    "allpairs-paired",
    "ring",
    "recursive",
    "greedy",
]
# Size from which, on 8 ranks, and the protocols and channels by which a schedule is judged first.
_FIRST_KNOBS = (
    (8 << 20, ("Simple", "LL128", "LL"), 8),
    (512 << 10, ("LL128", "Simple", "LL"), 4),
    (64 << 10, ("LL128", "LL", "Simple"), 2),
    (0, ("LL", "LL128", "Simple"), 1),
)


@dataclass(frozen=True, slots=True)
class Synthesized:
    """A program, its schedule, and its simulated time in us at the size of the target.

    Attributes:
        program: Verified.
        sketch: Name of the sketch.
        schedule: The schedule that it was lowered from.
        knobs: Protocol, channels and threads that it is made for.
        time_us: Simulated.
        seconds: Time that making it took, as far as it was not made for others already.
        fraction_of_bound: The part of the bound that the program's busiest link allows.
        hops: Messages that wait for each other, at most.
    """

    program: Program
    sketch: str
    schedule: Schedule
    knobs: Knobs
    time_us: float
    seconds: float
    fraction_of_bound: float
    hops: int

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return self.schedule.method

    @property
    def chunks_per_rank(self) -> int:
        """Return the chunks of each rank's part."""
        return self.schedule.chunks_per_rank

    @property
    def proof(self) -> Proof | None:
        """Return what an exact method proved, by the costs of the sketch."""
        return self.schedule.proof

    @property
    def outcome(self) -> str:
        """Return in words what is proved of its steps, by a method that counts them."""
        return self.schedule.outcome

    @property
    def rank(self) -> tuple[float, str, str, int]:
        """Return the key that orders programs: time first."""
        return self.time_us, self.method, self.sketch, self.chunks_per_rank


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The programs of a search.

    Attributes:
        programs: The fastest in simulation first; at least one.
        ended: Why the search ended: ``complete``, ``limit`` (the work of the time limit is done:
            the same again on any machine), ``clock`` or ``interrupt``.
        untried: Pairs of a sketch and a method that were left out.
    """

    programs: tuple[Synthesized, ...]
    ended: str
    untried: int


@dataclass(frozen=True)
class Target:
    """The call that programs are made and timed for.

    Attributes:
        topology: The machine.
        collective: The collective, with its root.
        nbytes: Bytes of the whole buffer.
        machine: Rates of its class, for the simulator.
        dialect: The dialect whose limits hold: ``executor``, ``rccl`` or ``fork``.
    """

    topology: Topology
    collective: Collective
    nbytes: int
    machine: MachineClass
    dialect: str = "executor"

    def program(
        self, schedule: Schedule, sketch: str, knobs: Knobs, seconds: float = 0.0
    ) -> Synthesized:
        """Return the program of a schedule, which itself took `seconds`.

        Raises:
            Infeasible: it does not fit.
        """
        begun = time.monotonic()
        program = lower(
            schedule,
            protocol=knobs.protocol,
            instances=knobs.channels,
            dialect=self.dialect,
        )
        _check_residency(program, self.machine)
        if not claims_size(program, self.nbytes, self.dialect):
            raise Infeasible(
                f"{program.name[:60]}: sends before it receives, which is safe below "
                f"{self.nbytes} bytes only; use protocol LL, more channels or another method"
            )
        links = network(self.topology)
        return Synthesized(
            program,
            sketch,
            schedule,
            knobs,
            simulated_us(program, knobs, links, self.machine, self.nbytes),
            seconds + time.monotonic() - begun,
            fraction_of_bound(program, self.topology, self.collective),
            longest_chain(schedule),
        )

    def favours_bandwidth(self, sketch: Sketch) -> bool:
        """Return whether the bound by bytes exceeds that by messages in a row at this size."""
        alpha_us, _ = slowest(sketch, sketch.pairs)
        latency_us = fewest_hops(self.topology, self.collective) * alpha_us
        return bound(self.topology, self.collective).time_us(self.nbytes) > 2 * latency_us


@dataclass(frozen=True)
class Candidates:
    """The programs that a search tries: every method on every sketch.

    Attributes:
        sketches: The sketches, the most promising first.
        knobs: Protocols, channels and threads to choose from. Schedules are judged by those that
            suit the size; for the fastest, the others are tried too.
        methods: Names in `METHODS` or `EXACT_METHODS`.
        chunk_counts: Chunks per rank; None: those that each method finds worth a try.
        allows: Whether a schedule may run by some knobs.
    """

    sketches: Sequence[Sketch]
    knobs: Sequence[Knobs]
    methods: Sequence[str] = searched_methods()
    chunk_counts: Sequence[int] | None = None
    allows: Callable[[Schedule, Knobs], bool] = lambda schedule, knobs: True

    def __post_init__(self) -> None:
        """Refuse methods that do not exist."""
        names = (*METHODS, *EXACT_METHODS)
        if unknown := [m for m in self.methods if m not in names]:
            raise InputError(f"method {unknown[0][:40]!r}: expected one of {', '.join(names)}")

    def ordered(self, target: Target) -> list[tuple[Sketch, str]]:
        """Return the pairs of sketch and method, those that the bound favours at this size first.

        Methods that suit the size have several sketches tried before others have their first.
        """
        pairs = [
            (number, sketch, name)
            for (number, sketch), name in product(enumerate(self.sketches), self.methods)
            if len(self.methods) == 1
            or name in EXACT_METHODS
            or sketch.ranks <= METHODS[name].most_ranks
        ]
        if len(self.methods) > 1:
            large = target.favours_bandwidth(self.sketches[0])
            order = _FOR_BANDWIDTH if large else _FOR_LATENCY
            position = {
                name: order.index(name) if name in order else len(order) for name in METHODS
            }
            pairs.sort(
                key=lambda p: (position.get(p[2], 0) // 3 + p[0], p[0], position.get(p[2], 0))
            )
        return [(sketch, name) for _, sketch, name in pairs]

    def counts(self, target: Target, sketch: Sketch, name: str) -> Sequence[int]:
        """Return the chunks per rank to try."""
        method = METHODS.get(name) or EXACT_METHODS[name]
        choose = method.choose_chunk_counts
        if self.chunk_counts or not choose or target.collective.name not in method.collectives:
            return self.chunk_counts or method.chunk_counts
        try:
            return choose(target.collective, sketch, target.topology, _MOST_CHUNKS)
        except Infeasible:
            return (1,)  # the method itself says why

    def first_knobs(self, target: Target) -> list[Knobs]:
        """Return the knobs that suit the size, then the same with fewer channels."""
        size = target.nbytes * 8 // target.topology.ranks
        protocols, most = next(entry[1:] for entry in _FIRST_KNOBS if size >= entry[0])
        offered = {knobs.protocol for knobs in self.knobs}
        protocol = next((each for each in protocols if each in offered), self.knobs[0].protocol)
        some = sorted((k for k in self.knobs if k.protocol == protocol), key=lambda k: -k.channels)
        return [knobs for knobs in some if knobs.channels <= most] or some[-1:]


def synthesize_best(
    target: Target,
    candidates: Candidates,
    options: Options = DEFAULT_OPTIONS,
    *,
    time_limit_s: float | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> SearchResult:
    """Return every program that could be made, the fastest in simulation first.

    Args:
        target: The call that programs are made for. They run out of place where they can.
        candidates: What is tried.
        options: Seed, starts and steps of the methods.
        time_limit_s: Ends the search after as much work as a common machine does in that time; a
            solver gets an equal part of it for each of its programs. An interrupt ends the search
            likewise once there is a program.
        progress: Called with (done, total, name of the candidate) before each.

    Raises:
        Infeasible: no program could be made; says why.
    """
    search = _Search(target, candidates, options, time_limit_s, progress)
    return search.run()


@dataclass
class _Search:
    """A search at work; `work_s` is its work so far, in seconds of a common machine."""

    target: Target
    candidates: Candidates
    options: Options
    limit_s: float | None
    progress: Callable[[int, int, str], None]
    programs: list[Synthesized] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    work_s: float = 0.0
    final_work_s: float = float("inf")
    ended: str = "complete"
    started: float = field(default_factory=time.monotonic)

    def run(self) -> SearchResult:
        pairs = self.candidates.ordered(self.target)
        untried = len(pairs)
        try:
            for number, (sketch, method) in enumerate(pairs):
                if self.over():
                    break
                tell = partial(self.progress, number, len(pairs))
                self.try_method(sketch, method, untried, tell)
                untried -= 1
            if self.ended != "interrupt":
                self.vary_finalists()
        except KeyboardInterrupt:
            if not self.programs:
                raise
            self.ended = "interrupt"
        if not self.programs:
            raise Infeasible(self.refusal())
        return SearchResult(tuple(sorted(self.programs, key=lambda m: m.rank)), self.ended, untried)

    def over(self) -> bool:
        """Return whether no more methods are tried; a search goes on until it has a program."""
        if self.limit_s is not None and self.programs and self.ended == "complete":
            if self.work_s > _METHODS_SHARE * self.limit_s:
                self.ended = "limit"
            elif time.monotonic() - self.started > _SLOWEST_MACHINE * self.limit_s:
                self.ended = "clock"
        return self.ended != "complete"

    def try_method(
        self, sketch: Sketch, method: str, pairs_left: int, tell: Callable[[str], None]
    ) -> None:
        """Make the programs of a method on a sketch."""
        target, what = self.target, f"{method} on {sketch.name}"
        tell(what)
        counts = self.candidates.counts(target, sketch, method)
        for number, chunks in enumerate(counts):
            left_s = (self.limit_s or 20.0) - (time.monotonic() - self.started)
            budget = Budget(
                seconds=left_s / (pairs_left * (len(counts) - number)),
                report=lambda line: tell(f"{what}: {line}"),
            )
            # Beside others a method takes the same little time everywhere, by its own measure.
            single = len(self.candidates.methods) == 1 or method in EXACT_METHODS
            options = replace(self.options, budget=budget) if single else self.options
            problem = Problem(target.collective, sketch, chunks, target.nbytes, target.topology)
            try:
                begun = time.monotonic()
                schedule = synthesize(problem, method, options)
                seconds = time.monotonic() - begun
                self.work_s += (METHODS.get(method) or EXACT_METHODS[method]).effort_s
                self.lower_first(schedule, sketch, seconds)
            except Infeasible as why:
                self.reasons.append(f"{what}: {why}")
            if budget.interrupted:
                self.ended = "interrupt"
                return

    def lower_first(self, schedule: Schedule, sketch: Sketch, seconds: float) -> None:
        """Lower `schedule` by the knobs that suit the size, with fewer channels if need be.

        Raises:
            Infeasible: it fits with none.
        """
        first = self.candidates.first_knobs(self.target)
        for knobs in first:
            try:
                self.lower(schedule, sketch.name, knobs, seconds)
                return
            except Infeasible:
                if knobs is first[-1]:
                    raise

    def lower(
        self, schedule: Schedule, sketch: str, knobs: Knobs, seconds: float = 0.0
    ) -> Synthesized:
        """Return the program of `schedule`, which counts among those made.

        Raises:
            Infeasible: it does not fit, or the knobs are not allowed for it.
        """
        self.work_s += len(schedule.transfers) / _WORK_PER_SECOND
        if not self.candidates.allows(schedule, knobs):
            raise Infeasible(
                f"{knobs.protocol} does not keep data whole on links that it uses, such as PCIe; "
                "use Simple or LL"
            )
        program = self.target.program(schedule, sketch, knobs, seconds)
        steps = sum(len(tb.steps) for gpu in program.program.gpus for tb in gpu.threadblocks)
        self.work_s += steps / _WORK_PER_SECOND
        self.programs.append(program)
        return program

    def vary_finalists(self) -> None:
        """Try all knobs, and the other form, of the fastest program of each of some methods."""
        if self.limit_s is not None:
            self.final_work_s = self.work_s + (1 - _METHODS_SHARE) * self.limit_s
        by_method: dict[str, Synthesized] = {}
        for program in sorted(self.programs, key=lambda m: m.rank):
            by_method.setdefault(program.method, program)
        for program in list(by_method.values())[:_FINALISTS]:
            fastest = program
            others = (knobs.protocol for knobs in self.candidates.knobs)
            for protocol in dict.fromkeys((program.knobs.protocol, *others)):
                fastest = min(
                    fastest, self.climb(program, protocol) or fastest, key=lambda m: m.rank
                )
            hints = fastest.schedule.hints
            if len(fastest.schedule.transfers) > _MOST_REFORMED or hints.rotation:
                continue
            other = replace(hints, split_send_recv=not hints.split_send_recv)
            if not hints.sends_first:
                self.attempt(replace(fastest.schedule, hints=other), fastest.sketch, fastest.knobs)

    def climb(self, start: Synthesized, protocol: str) -> Synthesized | None:
        """Return the fastest program of a schedule by a protocol: channels doubled, then halved."""
        some = [knobs for knobs in self.candidates.knobs if knobs.protocol == protocol]
        some.sort(key=lambda knobs: knobs.channels)
        first = max(
            (n for n, k in enumerate(some) if k.channels <= start.knobs.channels), default=0
        )
        fastest = start if some[first] == start.knobs else None
        fastest = fastest or self.attempt(start.schedule, start.sketch, some[first])
        for direction in (some[first + 1 :], some[:first][::-1]):
            for knobs in direction:
                other = self.attempt(start.schedule, start.sketch, knobs)
                if other is None or (fastest is not None and other.time_us >= fastest.time_us):
                    break
                fastest = other
        return fastest

    def attempt(self, schedule: Schedule, sketch: str, knobs: Knobs) -> Synthesized | None:
        """Return a program, None where there is none or the limit is reached."""
        if self.work_s > self.final_work_s:
            return None
        try:
            return self.lower(schedule, sketch, knobs)
        except Infeasible:
            return None

    def refusal(self) -> str:
        """Return why no program could be made: a reason for each sketch of a method by itself."""
        reasons = list(dict.fromkeys(self.reasons))
        if not reasons:
            name, ranks = self.target.collective.name, self.target.collective.ranks
            names = [
                n for n, m in METHODS.items() if name in m.collectives and ranks > m.most_ranks
            ]
            hint = f"; these do, if named: {', '.join(names)}" if names else ""
            return f"no method that searches try serves {name} over {ranks} ranks{hint}"
        if len(self.candidates.methods) > 1 or len(reasons) == 1:
            return reasons[0]
        last_of_sketch = {reason.split(":")[0]: reason for reason in reasons}
        return "; ".join(last_of_sketch.values())


def _check_residency(program: Program, machine: MachineClass) -> None:
    """Refuse a program whose thread blocks would wait for ever for each other to start."""
    if machine.sm_count and program.threadblocks > machine.sm_count:
        raise Infeasible(
            f"{program.threadblocks} thread blocks cannot be co-resident on the "
            f"{machine.sm_count} SMs of class {machine.name!r}; use fewer channels"
        )


def simulated_us(
    program: Program, knobs: Knobs, links: Network, machine: MachineClass, nbytes: int
) -> float:
    """Return the simulated time of the GPUs in us, with `nbytes` rounded up to whole chunks."""
    rounded = -(-nbytes // program.nchunks) * program.nchunks
    return simulate(program, knobs, links, machine, rounded).gpu_us
