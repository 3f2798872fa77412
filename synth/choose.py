"""Candidate programs of several sketches and methods, ranked by simulated time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

from tuccl._native import Knobs, MachineClass, Network, Program, simulate
from tuccl.errors import Infeasible, InputError
from tuccl.sketches import Sketch
from tuccl.synth.bounds.hops import longest_chain
from tuccl.synth.bounds.link_load import bound_share
from tuccl.synth.greedy.problem import Search
from tuccl.synth.improve import Improvement, improve
from tuccl.synth.lowering.lower import claims_size, lower
from tuccl.synth.methods import EXACT_METHODS, METHODS, searched_methods, synthesize
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.schedule import Proof, Schedule
from tuccl.synth.model.solver import Budget
from tuccl.topology import Topology, network

__all__ = ["Synthesized", "synthesize_best"]

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
class _Order:
    """What every program is made and timed for."""

    topology: Topology
    collective: Collective
    nbytes: int
    wires: Network
    machine: MachineClass
    knobs: Knobs
    dialect: str
    search: Search

    def made(self, sketch: Sketch, method: str, parts: int, budget: Budget | None) -> _Made:
        """Return one program.

        Raises:
            Infeasible: the method cannot, or the program does not fit.
        """
        begun = time.monotonic()
        schedule = synthesize(
            self.collective,
            *(sketch, method, parts, self.nbytes, self.topology, budget, self.search),
        )
        program = lower(
            schedule,
            protocol=self.knobs.protocol,
            instances=self.knobs.channels,
            dialect=self.dialect,
        )
        _check_residency(program, self.machine)
        if not claims_size(program, self.nbytes, self.dialect):
            raise Infeasible(
                f"{program.name[:60]}: sends before it receives, which is safe below "
                f"{self.nbytes} bytes only; use protocol LL, more channels or another method"
            )
        time_us = simulated_us(program, self.knobs, self.wires, self.machine, self.nbytes)
        one = Synthesized(
            *(program, method, sketch.name, parts, time_us, time.monotonic() - begun),
            bound_share=bound_share(program, self.topology, self.collective),
            hops=longest_chain(schedule),
            proof=schedule.proof,
            outcome=schedule.outcome,
        )
        return _Made(one, schedule, sketch)


def synthesize_best(
    topology: Topology,
    collective: Collective,
    nbytes: int,
    sketches: Iterable[Sketch],
    *,
    machine: MachineClass,
    knobs: Knobs,
    methods: Iterable[str] = searched_methods(),
    chunks: Iterable[int] | None = None,
    dialect: str = "executor",
    time_limit_s: float | None = None,
    improve_tries: int = 0,
    seed: int = 0,
    starts: int = 0,
    steps: int | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> tuple[Synthesized, ...]:
    """Return every program that could be made, the fastest in simulation first.

    Out of place where the program runs so, else in place. Without `chunks`, what each method
    finds worth a try is tried. `time_limit_s` ends the search after the
    program at work; what was found by then is returned. An exact method gets an equal part of the
    time left for each of its programs. Once there is a program, an interrupt ends the search as
    `time_limit_s` does. ``progress(done, total, what)`` is called before each. With `improve_tries`, the
    fastest programs of three methods are then improved by a local search of so many programs each
    (`improve`), drawn by `seed`, which ends at twice the limit. `greedy` makes `starts` (0: as many as
    take about a second), drawn by `seed` too. `steps` are the messages in a row that `fewstep`, where it
    is the one method, may have.

    Raises:
        InputError: a method has no such name.
        Infeasible: no program could be made; says why the first one could not.
    """
    methods = _known(methods)
    order = _Order(
        *(topology, collective, nbytes, network(topology), machine, knobs, dialect),
        search=Search(seed, starts),
    )
    made: list[_Made] = []
    reasons: list[str] = []
    started = time.monotonic()
    points = tuple(_points(topology, collective, sketches, methods, chunks))
    for number, (sketch, method, parts) in enumerate(points):
        what = f"{method} on {sketch.name}"
        tell = partial(progress, number, len(points))
        spent_s = time.monotonic() - started
        if time_limit_s is not None and spent_s > time_limit_s and made:
            break
        left_s = (time_limit_s or 20.0) - spent_s
        budget = Budget(
            seconds=left_s / (len(points) - number),
            report=_with_head(tell, f"{what}: "),
            steps=steps,
        )
        # Beside others a method takes the same little time everywhere, by its own measure.
        alone = len(methods) == 1 or method in EXACT_METHODS
        try:
            tell(what)
            made.append(order.made(sketch, method, parts, budget if alone else None))
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
            f"no method that searches try serves {collective.name} over {collective.ranks} ranks"
        )
        raise Infeasible(reasons[0] if reasons else tried)
    if improve_tries:
        wanted = Improvement(
            *(order.wires, machine, knobs, nbytes, dialect, improve_tries, seed),
            time_limit_s=None if time_limit_s is None else time_limit_s / _IMPROVED,
            progress=lambda done, total, us: progress(done, total, f"improving {us:.2f} us"),
        )
        made += _improved(made, wanted, topology, collective)
    return tuple(sorted((m.found for m in made), key=_rank))


def _with_head(tell: Callable[[str], None], head: str) -> Callable[[str], None]:
    return lambda line: tell(head + line)


def _known(methods: Iterable[str]) -> tuple[str, ...]:
    """Return ``methods``, after a look whether each has that name."""
    methods = tuple(methods)
    able = (*METHODS, *EXACT_METHODS)
    if unknown := [m for m in methods if m not in able]:
        raise InputError(f"method {unknown[0][:40]!r}: expected one of {', '.join(able)}")
    return methods


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
                bound_share=bound_share(best.program, topology, collective),
                hops=longest_chain(best.schedule),
                before_us=best.before_us,
                outcome="",
            )
            better.append(_Made(faster, best.schedule, sketch))
    return better


def _points(
    topology: Topology,
    collective: Collective,
    sketches: Iterable[Sketch],
    methods: tuple[str, ...],
    chunks: Iterable[int] | None,
) -> Iterator[tuple[Sketch, str, int]]:
    given = None if chunks is None else tuple(chunks)
    for sketch, name in product(sketches, methods):
        method = METHODS.get(name)
        if method and len(methods) > 1 and sketch.ranks > method.most_ranks:
            continue
        tried = given or (method.parts if method else (1,))
        if not given and method and method.chunkings and collective.name in method.collectives:
            try:
                tried = method.chunkings(collective, sketch, topology, _MOST_CHUNKS)
            except Infeasible:
                tried = (1,)  # the method itself says why
        yield from product((sketch,), (name,), tried)


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
