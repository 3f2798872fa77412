"""Calls under TACCL's programs, the synthesizer that TuCCL and its baseline share.

Solvers end by their deterministic time: a second run makes the same programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tuccl.eval.papers.clusters import topology_of
from tuccl.program import Program
from tuccl.runtime import SimExecutor, time_baseline
from tuccl.sketches import candidate_sketches
from tuccl.synth import MSCCL_DEFAULT_KNOBS, Collective, ScheduleChoice, bound
from tuccl.tuning import SEARCHES, aligned_size
from tuccl.tuning.evaluate import Evaluator
from tuccl.tuning.policy_training import NoStudy, SimulatedCall, simulated_calls
from tuccl.tuning.programs import ProgramCache, sketches_by_name
from tuccl.tuning.rl.state import State
from tuccl.tuning.searches.search import run_search
from tuccl.tuning.searches.space import Point, Space

C0 = ScheduleChoice("full-mesh", "taccl", 1)
"""TACCL on the full mesh: with `MSCCL_DEFAULT_KNOBS` the paper's default."""
EFFORT = 0.02  # of a stage; fifty times as much finds programs that are as fast
EVALUATIONS = 100
_OF_ALL_METHODS = 60


@cache
def executor_of(cluster: str) -> SimExecutor:
    """Return the simulator of a cluster."""
    return SimExecutor(topology_of(cluster))


@cache
def taccl_programs(cluster: str, collective: str) -> ProgramCache:
    """Return TACCL's programs on a cluster."""
    topology = topology_of(cluster)
    call = Collective(collective, topology.ranks)
    return ProgramCache(topology, call, methods=("taccl",), effort=EFFORT)


def taccl_program(cluster: str, collective: str, sketch: str, nbytes: int) -> Program:
    """Return TACCL's program of one chunk a rank on a candidate sketch, under Simple."""
    programs = taccl_programs(cluster, collective)
    sketches = candidate_sketches(topology_of(cluster), collective, nbytes)
    choice = ScheduleChoice(sketch, "taccl", 1)
    found = next(each for each in sketches if each.name == sketch)
    return programs.program(found, choice, nbytes, "Simple", 1).program


def size_on(cluster: str, size: int) -> int:
    """Return the size that the cluster's ranks can share."""
    return aligned_size(size, topology_of(cluster).ranks)


def taccl_call(
    executor: SimExecutor, programs: ProgramCache, nbytes: int, only: ScheduleChoice | None = None
) -> SimulatedCall:
    """Return the call whose choices are TACCL's on every candidate sketch, or ``only`` one.

    Each has one chunk a rank; channels divide it.
    """
    topology, collective = programs.topology, programs.collective
    sketches = candidate_sketches(topology, collective, nbytes)
    sketch_of = sketches_by_name(sketches, None)
    channels = {
        choice: counts
        for choice, counts in programs.choices(sketches, nbytes).items()
        if (choice.method, choice.chunks_per_rank) == ("taccl", 1) and only in (None, choice)
    }
    space = Space(
        channels,
        under_default_knobs(C0),
        lambda choice: programs.channels(sketch_of(choice.sketch), choice, nbytes),
        nbytes=nbytes,
        nchunks=lambda choice: collective.nchunks(choice.chunks_per_rank),
    )
    evaluate = Evaluator(executor, programs, sketch_of, nbytes, NoStudy())
    state = State.of(topology, collective.name, nbytes)
    return SimulatedCall(topology.name, state, space, evaluate, 0.0)


def under_default_knobs(choice: ScheduleChoice) -> Point:
    """Return the point of a choice with MSCCL's default knobs."""
    return Point.of(choice, MSCCL_DEFAULT_KNOBS)


@dataclass(frozen=True)
class Found:
    """The best point of a search, its time in us, and its program."""

    us: float
    point: Point
    program: Program


def search_best(call: SimulatedCall, start: Sequence[Point], budget: int = EVALUATIONS) -> Found:
    """Return what the default search finds, ``start`` among its first points."""
    search = SEARCHES["descent"](call.space, first=[p for p in start if p in call.space])
    found = run_search(search, call.samples, budget)
    best = min([*found.ranked(1)[:1], *start], key=call.us)
    assert isinstance(call.evaluate, Evaluator)
    return Found(call.us(best), best, call.evaluate.program(best).program)


@cache
def search_all_methods(cluster: str, collective: str, nbytes: int) -> Found:
    """Return what the default search finds over every method, sketch and knob."""
    [call] = simulated_calls(topology_of(cluster), collective, [nbytes])
    return search_best(call, (), _OF_ALL_METHODS)


@dataclass(frozen=True)
class Gains:
    """Times of a call in us: the default, and what sketch, knobs and both reach with TACCL."""

    default: float
    sketch: float
    knobs: float
    both: float
    point: Point


@cache
def gains(cluster: str, collective: str, nbytes: int) -> Gains:
    """Return the default's time, and the times that sketch, knobs and both reach."""
    default = under_default_knobs(C0)
    every = taccl_call(executor_of(cluster), taccl_programs(cluster, collective), nbytes)
    mesh = taccl_call(executor_of(cluster), taccl_programs(cluster, collective), nbytes, C0)
    sketch = min(map(under_default_knobs, every.space.choices), key=every.us)
    knobs = search_best(mesh, [default])
    both = search_best(every, list(dict.fromkeys([default, sketch, knobs.point])))
    times = every.us(default), every.us(sketch), knobs.us, both.us
    return Gains(*times, both.point)


@cache
def tuned(cluster: str, collective: str, nbytes: int) -> tuple[float, Found]:
    """Return the time of C0, and what a search finds over TACCL's sketches and knobs."""
    call = taccl_call(executor_of(cluster), taccl_programs(cluster, collective), nbytes)
    default = under_default_knobs(C0)
    return call.us(default), search_best(call, [default])


def baseline_us(cluster: str, kind: str, collective: str, nbytes: int) -> float:
    """Return the simulated time of a baseline in us."""
    executor = executor_of(cluster)
    return time_baseline(executor, topology_of(cluster), kind, collective, nbytes).timing.us


def bound_us(cluster: str, collective: str, nbytes: int) -> float:
    """Return the least time in us of any algorithm, in switches too."""
    return bound(topology_of(cluster), collective, "switches").time_us(nbytes)
