"""A table's choice for one call in the simulator: what sets its time, and what each knob gains."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tuccl.errors import Infeasible, InputError, Unavailable
from tuccl.eval.critical_path import CriticalPath, critical_path
from tuccl.eval.utilisation import Utilisation, utilisation
from tuccl.program import Program, default_buffer_bytes, max_threads
from tuccl.runtime import Candidate, ConfiguredProgram, Executor, Table, select
from tuccl.runtime.baseline import time_nccl
from tuccl.runtime.table.programs import program_dialect
from tuccl.sketches import Sketch, SketchSpace
from tuccl.synth import EXACT_METHODS, MSCCL_DEFAULT_KNOBS, Collective, ScheduleChoice
from tuccl.tuning.programs import ROBUST, ProgramCache
from tuccl.tuning.searches.space import Point
from tuccl.tuning.studies.reader import parameters_of

_MESH = "full-mesh"


@dataclass(frozen=True)
class KnobEffect:
    """The time in us of a choice with one dimension at its default and the others as chosen.

    ``time_us`` is None where no such program runs, or a solver would have to make it.
    """

    dimension: str
    chosen: str
    default: str
    time_us: float | None


@dataclass(frozen=True)
class ChoiceAnalysis:
    """The choice for one call in the simulator; times in us.

    ``busiest`` is the share of its rate that the most used link carries in equal parts of the
    time, as `ClassUse.over_time` is for classes. ``effects`` holds the dimensions that the choice
    has not at their defaults; NCCL's own choices have none.
    """

    call: Collective
    nbytes: int
    time_us: float
    path: CriticalPath
    use: Utilisation
    busiest: tuple[float, ...]
    effects: tuple[KnobEffect, ...]


def programs_of(table: Table, call: Collective) -> ProgramCache:
    """Return what makes programs for a collective of ``table``."""
    dialect = table.lookup.dialect
    plans = dialect == "mscclpp"
    # A table for NCCL's tuner alone has no programs.
    of_programs = "executor" if dialect == "nccl" else program_dialect(dialect)
    return ProgramCache(table.topology, call, of_programs, as_plans=plans)


def analyse_choice(
    table: Table, executor: Executor, cache: ProgramCache, nbytes: int, version: str
) -> ChoiceAnalysis:
    """Return what ``table`` chooses for a call of ``nbytes`` bytes, looked at closely.

    ``executor`` is a simulator of the table's machine, ``cache`` makes programs for the call
    (`programs_of`), ``version`` is the NCCL whose choice the runtime's default is.

    Raises:
        Infeasible: the choice does not run in the simulator.
        InputError: its record would be too long.
    """
    call = cache.collective
    candidate = select(table.lookup, call.name, nbytes, root=call.root).candidate
    program = table.program(candidate)
    if program is not None and candidate.knobs is not None:
        run = executor.trace(program, candidate.knobs.knobs, nbytes)
    else:
        own = time_nccl(executor, table.topology, call, nbytes, candidate.nccl, version=version)
        run = executor.of_defaults.trace(own.program, own.knobs, nbytes, loop=own.loop)
    use, names = utilisation(run), [resource.name for resource in run.network.resources]
    busiest = run.trace.use[names.index(use.links[0].link)] if use.links else ()
    return ChoiceAnalysis(
        call=call,
        nbytes=nbytes,
        time_us=run.trace.result.time_us,
        path=critical_path(run),
        use=use,
        busiest=tuple(busiest),
        effects=tuple(_effects(table, executor, candidate, cache, nbytes)),
    )


def sketch_of(candidate: Candidate, table: Table, nbytes: int) -> Sketch | None:
    """Return the sketch of a candidate's program, stored or by its name; None: it has none."""
    if not candidate.sketch or (stored := table.sketch(candidate)) is not None:
        return stored if candidate.sketch else None
    try:
        return SketchSpace(table.topology, nbytes).sketch(candidate.sketch)
    except InputError:
        return None


def _effects(
    table: Table, executor: Executor, candidate: Candidate, cache: ProgramCache, nbytes: int
) -> Iterator[KnobEffect]:
    """Yield the effect of each dimension that is not at its default, in the order of the search."""
    program, sketch = table.program(candidate), sketch_of(candidate, table, nbytes)
    if program is None or candidate.knobs is None or sketch is None:
        return
    point = Point.of(candidate.choice, candidate.knobs.knobs)
    for dimension, changed in _changed(point, cache.dialect).items():
        if changed == point:
            continue
        time_us = None
        with contextlib.suppress(Infeasible, InputError, Unavailable):
            if changed.choice == point.choice and changed.channels == point.channels:
                other = program.replace(protocol=changed.protocol)
            else:
                other = _made_anew(cache, sketch, changed, nbytes)
            run = ConfiguredProgram(other, changed.knobs)
            time_us = run.on(executor, nbytes, root=cache.collective.root).time_us
        chosen, default = (str(parameters_of(p)[dimension]) for p in (point, changed))
        yield KnobEffect(dimension, chosen, default, time_us)


def _changed(point: Point, dialect: str) -> dict[str, Point]:
    """Return ``point`` with each dimension at its default; a protocol brings its own buffer."""
    default, choice = MSCCL_DEFAULT_KNOBS, point.choice
    usual = default_buffer_bytes(point.protocol, dialect)
    simple = replace(
        point,
        protocol=default.protocol,
        threads=min(point.threads, max_threads(default.protocol)),
        buffer_bytes=default.buffer_bytes if point.buffer_bytes == usual else point.buffer_bytes,
    )
    return {
        "method": replace(point, choice=ScheduleChoice(_MESH, ROBUST, 1)),
        "sketch": replace(point, choice=replace(choice, sketch=_MESH)),
        "chunking": replace(point, choice=replace(choice, chunks_per_rank=1)),
        "protocol": simple,
        "channels": replace(point, channels=1),
        "threads": replace(point, threads=default.threads),
        "buffer": replace(point, buffer_bytes=usual),
    }


def _made_anew(cache: ProgramCache, sketch: Sketch, point: Point, nbytes: int) -> Program:
    """The program of a point; raises Infeasible where there is none, or a solver has to make it."""
    choice = point.choice
    if choice.method in EXACT_METHODS:
        raise Infeasible(f"{choice.method}: takes a solver's time")
    if choice.sketch != sketch.name and choice.method != ROBUST:
        sketch = SketchSpace(cache.topology, nbytes).sketch(choice.sketch)
    knobs = point.protocol, point.channels, point.buffer_bytes
    return cache.program(sketch, choice, nbytes, *knobs).program
