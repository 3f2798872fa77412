"""Candidate programs of several sketches and methods, ranked by simulated time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

from tuccl._native import Knobs, MachineClass, Network, Program, simulate
from tuccl.errors import Infeasible, InputError
from tuccl.sketches import Sketch
from tuccl.synth.bounds.hops import longest_chain
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.synth.improve import Improvement, improve
from tuccl.synth.lowering.lower import claims_size, lower
from tuccl.synth.methods import EXACT_METHODS, METHODS, searched_methods, synthesize
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import Proof, Schedule
from tuccl.synth.model.solver import Budget
from tuccl.topology import Topology, network

__all__ = ["Candidates", "Synthesized", "Target", "synthesize_best"]

_MOST_CHUNKS = 8
_IMPROVED = 3  # so many of the fastest, each of another method


@dataclass(frozen=True, slots=True)
class Synthesized:
    """A program, what it was made from, and its simulated time in us at the size asked for.

    Attributes:
        program: Verified.
        method: Name of the method.
        sketch: Name of the sketch.
        chunks_per_rank: Parts of each rank's share.
        knobs: Protocol, channels and threads that it is made for.
        time_us: Simulated.
        seconds: What making it took.
        bound_share: The part of the bound that the program's busiest wire allows.
        hops: Messages that wait for each other, at most.
        proof: What an exact method proved, by the costs of the sketch.
        before_us: Simulated time before a local search made it faster, None where none did.
        outcome: What is proved of its steps, in words, by a method that counts them.
    """

    program: Program
    method: str
    sketch: str
    chunks_per_rank: int
    knobs: Knobs
    time_us: float
    seconds: float
    bound_share: float
    hops: int
    proof: Proof | None = None
    before_us: float | None = None
    outcome: str = ""


class _Made(NamedTuple):
    """A program with what it was lowered from."""

    found: Synthesized
    schedule: Schedule
    sketch: Sketch


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

    def program(self, schedule: Schedule, sketch: Sketch, knobs: Knobs) -> _Made:
        """Return the program of a schedule.

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
        wires = network(self.topology)
        time_us = simulated_us(program, knobs, wires, self.machine, self.nbytes)
        one = Synthesized(
            program,
            schedule.method,
            sketch.name,
            schedule.chunks_per_rank,
            knobs,
            time_us,
            time.monotonic() - begun,
            bound_share=fraction_of_bound(program, self.topology, self.collective),
            hops=longest_chain(schedule),
            proof=schedule.proof,
            outcome=schedule.outcome,
        )
        return _Made(one, schedule, sketch)


@dataclass(frozen=True)
class Candidates:
    """The programs that a search tries: every method on every sketch.

    Attributes:
        sketches: The sketches.
        knobs: Protocols, channels and threads that each schedule is lowered for.
        methods: Names in `METHODS` or `EXACT_METHODS`.
        chunk_counts: Chunks per rank; None: those that each method finds worth a try.
    """

    sketches: Sequence[Sketch]
    knobs: Sequence[Knobs]
    methods: Sequence[str] = searched_methods()
    chunk_counts: Sequence[int] | None = None

    def __post_init__(self) -> None:
        """Refuse methods that do not exist."""
        names = (*METHODS, *EXACT_METHODS)
        if unknown := [m for m in self.methods if m not in names]:
            raise InputError(f"method {unknown[0][:40]!r}: expected one of {', '.join(names)}")

    def points(self, target: Target) -> Iterator[tuple[Sketch, str, int]]:
        """Yield (sketch, method, chunks per rank) of every candidate."""
        collective = target.collective
        for sketch, name in product(self.sketches, self.methods):
            method = METHODS.get(name) or EXACT_METHODS[name]
            if len(self.methods) > 1 and sketch.ranks > method.most_ranks:
                continue
            counts = self.chunk_counts or method.chunk_counts
            choose = method.choose_chunk_counts
            if not self.chunk_counts and choose and collective.name in method.collectives:
                try:
                    counts = choose(collective, sketch, target.topology, _MOST_CHUNKS)
                except Infeasible:
                    counts = (1,)  # the method itself says why
            yield from product((sketch,), (name,), counts)


def synthesize_best(
    target: Target,
    candidates: Candidates,
    options: Options = DEFAULT_OPTIONS,
    *,
    time_limit_s: float | None = None,
    improve_tries: int = 0,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> tuple[Synthesized, ...]:
    """Return every program that could be made, the fastest in simulation first.

    Args:
        target: The call that programs are made for. They run out of place where they can.
        candidates: What is tried.
        options: Seed, starts and steps of the methods.
        time_limit_s: Ends the search after the program at work, with what was found by then. An
            exact method gets an equal part of the time left for each of its programs. An
            interrupt ends the search likewise once there is a program.
        improve_tries: Programs that a local search makes of the fastest of each of three methods
            (`improve`), which ends at twice the limit.
        progress: Called with (done, total, name of the candidate) before each.

    Raises:
        Infeasible: no program could be made; says why the first one could not.
    """
    made: list[_Made] = []
    reasons: list[str] = []
    started = time.monotonic()
    points = tuple(candidates.points(target))
    for number, (sketch, method, chunks) in enumerate(points):
        what = f"{method} on {sketch.name}"
        tell = partial(progress, number, len(points))
        spent_s = time.monotonic() - started
        if time_limit_s is not None and spent_s > time_limit_s and made:
            break
        left_s = (time_limit_s or 20.0) - spent_s
        budget = Budget(
            seconds=left_s / (len(points) - number),
            report=_with_head(tell, f"{what}: "),
        )
        # Beside others a method takes the same little time everywhere, by its own measure.
        alone = len(candidates.methods) == 1 or method in EXACT_METHODS
        effort = replace(options, budget=budget) if alone else options
        try:
            tell(what)
            problem = Problem(target.collective, sketch, chunks, target.nbytes, target.topology)
            schedule = synthesize(problem, method, effort)
            for knobs in candidates.knobs:
                made.append(target.program(schedule, sketch, knobs))
        except Infeasible as why:
            reasons.append(f"{what}: {why}")
        except KeyboardInterrupt:
            if not made:
                raise
            budget.interrupted = True
        if budget.interrupted:
            break
    if not made:
        tried = (
            f"no method that searches try serves {target.collective.name} over "
            f"{target.collective.ranks} ranks"
        )
        raise Infeasible(reasons[0] if reasons else tried)
    if improve_tries:
        wanted = Improvement(
            network(target.topology),
            target.machine,
            candidates.knobs[0],
            target.nbytes,
            target.dialect,
            improve_tries,
            options.seed,
            time_limit_s=None if time_limit_s is None else time_limit_s / _IMPROVED,
            progress=lambda done, total, us: progress(done, total, f"improving {us:.2f} us"),
        )
        made += _improved(made, wanted, target.topology, target.collective)
    return tuple(sorted((m.found for m in made), key=_rank))


def _with_head(tell: Callable[[str], None], head: str) -> Callable[[str], None]:
    return lambda line: tell(head + line)


def _rank(found: Synthesized) -> tuple[float, str, str, int]:
    return found.time_us, found.method, found.sketch, found.chunks_per_rank


def _improved(
    made: Iterable[_Made], wanted: Improvement, topology: Topology, collective: Collective
) -> list[_Made]:
    """Return what a local search makes of the fastest of three methods, where it is faster."""
    by_method: dict[str, _Made] = {}
    for one in sorted(made, key=lambda m: _rank(m.found)):
        by_method.setdefault(one.found.method, one)
    better = []
    for found, schedule, sketch in list(by_method.values())[:_IMPROVED]:
        begun = time.monotonic()
        best = improve(schedule, sketch, wanted)
        if best.time_us < found.time_us:
            faster = replace(
                found,
                program=best.program,
                time_us=best.time_us,
                seconds=found.seconds + time.monotonic() - begun,
                bound_share=fraction_of_bound(best.program, topology, collective),
                hops=longest_chain(best.schedule),
                before_us=best.before_us,
                outcome="",
            )
            better.append(_Made(faster, best.schedule, sketch))
    return better


def _check_residency(program: Program, machine: MachineClass) -> None:
    """Refuse a program whose thread blocks would wait for ever for each other to start."""
    if machine.sm_count and program.threadblocks > machine.sm_count:
        raise Infeasible(
            f"{program.threadblocks} thread blocks cannot be co-resident on the "
            f"{machine.sm_count} SMs of class {machine.name!r}; use fewer channels"
        )


def simulated_us(
    program: Program, knobs: Knobs, wires: Network, machine: MachineClass, nbytes: int
) -> float:
    """Return the GPUs' simulated time in us, with `nbytes` rounded up to whole chunks."""
    whole = -(-nbytes // program.nchunks) * program.nchunks
    return simulate(program, knobs, wires, machine, whole).gpu_us
