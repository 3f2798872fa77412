"""Candidate programs of several sketches and methods, ranked by simulated time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from tuccl._native import Knobs, MachineClass, Network, Program, simulate
from tuccl.errors import Infeasible, InputError
from tuccl.sketches import Sketch
from tuccl.synth.collective import Collective
from tuccl.synth.exact_solver import Budget
from tuccl.synth.lower import lower
from tuccl.synth.methods import EXACT_METHODS, METHODS, synthesize
from tuccl.synth.schedule import Proof
from tuccl.synth.wire_load import bound_share
from tuccl.topology import Topology, network

__all__ = ["Synthesized", "synthesize_best"]

_CHUNKS = (1, 2, 4)
_MOST_CHUNKS = 8


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
        proof: What an exact method proved, by the costs of the sketch.
    """

    program: Program
    method: str
    sketch: str
    chunks_per_rank: int
    time_us: float
    seconds: float
    bound_share: float
    proof: Proof | None = None


def synthesize_best(
    topology: Topology,
    collective: Collective,
    nbytes: int,
    sketches: Iterable[Sketch],
    *,
    machine: MachineClass,
    knobs: Knobs,
    methods: Iterable[str] = tuple(METHODS),
    chunks: Iterable[int] | None = None,
    dialect: str = "executor",
    time_limit_s: float | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> tuple[Synthesized, ...]:
    """Return every program that could be made, the fastest in simulation first.

    Out of place where the program runs so, else in place. Without `chunks`, 1, 2 and 4 chunks a rank
    are tried, or what the method itself finds worth a try. `time_limit_s` ends the search after the
    program at work; what was found by then is returned. An exact method gets an equal part of the
    time left for each of its programs, and an interrupt while one is at work ends the search as
    `time_limit_s` does. ``progress(done, total, what)`` is called before each.

    Raises:
        InputError: a method has no such name.
        Infeasible: no program could be made; says why the first one could not.
    """
    wires = network(topology)
    methods = tuple(methods)
    able = (*METHODS, *EXACT_METHODS)
    if unknown := [m for m in methods if m not in able]:
        raise InputError(f"method {unknown[0][:40]!r}: expected one of {', '.join(able)}")
    found: list[Synthesized] = []
    reasons: list[str] = []
    started = time.monotonic()
    points = tuple(_points(topology, collective, sketches, methods, chunks))
    for number, (sketch, method, parts) in enumerate(points):
        progress(number, len(points), f"{method} on {sketch.name}")
        if time_limit_s is not None and time.monotonic() - started > time_limit_s and found:
            break
        begun = time.monotonic()
        left = (time_limit_s or 20.0) - (begun - started)

        def tell(line: str, at: int = number, name: str = f"{method} on {sketch.name}") -> None:
            progress(at, len(points), f"{name}: {line}")

        budget = Budget(seconds=left / (len(points) - number), report=tell)
        try:
            schedule = synthesize(collective, sketch, method, parts, nbytes, topology, budget)
            program = lower(
                schedule, protocol=knobs.protocol, instances=knobs.channels, dialect=dialect
            )
            _check_residency(program, machine)
        except Infeasible as why:
            reasons.append(f"{method} on {sketch.name}: {why}")
            continue
        time_us = simulated_us(program, knobs, wires, machine, nbytes)
        seconds = time.monotonic() - begun
        share = bound_share(program, topology, collective)
        found.append(
            Synthesized(
                program, method, sketch.name, parts, time_us, seconds, share, schedule.proof
            )
        )
        if budget.interrupted:
            break
    if not found:
        raise Infeasible(reasons[0] if reasons else f"no method serves {collective.name}")
    return tuple(sorted(found, key=lambda s: (s.time_us, s.method, s.sketch, s.chunks_per_rank)))


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
        tried = given or _CHUNKS
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
