"""A table's choice for one call in the simulator: what sets its time, and what each knob gains."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tuccl.errors import Infeasible, InputError, Unavailable
from tuccl.eval.critical_path import CriticalPath, critical_path
from tuccl.eval.utilisation import Utilisation, utilisation
from tuccl.program import Program, default_buffer_bytes
from tuccl.runtime import Candidate, ConfiguredProgram, Executor, Table, TracedRun, select
from tuccl.runtime.baseline import time_nccl
from tuccl.runtime.table.programs import program_dialect
from tuccl.sketches import Sketch, SketchSpace
from tuccl.synth import EXACT_METHODS, MSCCL_DEFAULT_KNOBS, Collective, ScheduleChoice
from tuccl.tuning.programs import DEFAULT_METHODS, ROBUST, ProgramCache
from tuccl.tuning.searches.space import Point

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
    return ProgramCache(table.topology, call, program_dialect(dialect), as_plans=plans)


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
    run = _traced(table, executor, candidate, call, nbytes, version)
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


def _traced(
    table: Table,
    executor: Executor,
    candidate: Candidate,
    call: Collective,
    nbytes: int,
    version: str,
) -> TracedRun:
    program = table.program(candidate)
    if program is not None and candidate.knobs is not None:
        return executor.trace(program, candidate.knobs.knobs, nbytes, passes=1)
    own = time_nccl(executor, table.topology, call, nbytes, candidate.nccl, version=version)
    return executor.of_defaults.trace(own.program, own.knobs, nbytes, passes=1, loop=own.loop)


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
    variants = _Variants(cache, point, program, sketch, nbytes)
    for dimension, chosen, default, changed in variants.points():
        time_us = None
        with contextlib.suppress(Infeasible, InputError, Unavailable):
            run = ConfiguredProgram(variants.program_of(changed), changed.knobs)
            time_us = run.on(executor, nbytes, root=cache.collective.root).time_us
        yield KnobEffect(dimension, str(chosen), str(default), time_us)


@dataclass(frozen=True)
class _Variants:
    """The programs that differ from a choice in one dimension."""

    cache: ProgramCache
    point: Point
    program: Program
    sketch: Sketch
    nbytes: int

    def points(self) -> Iterator[tuple[str, object, object, Point]]:
        """Yield each dimension with its value, its default and the point that has that."""
        point, choice, default = self.point, self.point.choice, MSCCL_DEFAULT_KNOBS
        usual = default_buffer_bytes(point.protocol, self.cache.dialect)
        buffer = default.buffer_bytes if point.buffer_bytes == usual else point.buffer_bytes
        variants = (
            ("method", choice.method, ROBUST, replace(point, choice=_choice(ROBUST))),
            ("sketch", choice.sketch, _MESH, replace(point, choice=replace(choice, sketch=_MESH))),
            (
                "chunks a rank",
                choice.chunks_per_rank,
                1,
                replace(point, choice=replace(choice, chunks_per_rank=1)),
            ),
            (
                "protocol",
                point.protocol,
                default.protocol,
                replace(point, protocol=default.protocol, buffer_bytes=buffer),
            ),
            ("channels", point.channels, 1, replace(point, channels=1)),
            ("threads", point.threads, default.threads, replace(point, threads=default.threads)),
            ("buffer", point.buffer_bytes, usual, replace(point, buffer_bytes=usual)),
        )
        yield from (variant for variant in variants if variant[1] != variant[2])

    def program_of(self, point: Point) -> Program:
        """Return the program of a point, made anew where the stored one does not serve.

        Raises:
            Infeasible: there is none, or a solver would have to make it.
        """
        choice = point.choice
        if choice == self.point.choice and point.channels == self.point.channels:
            return self.program.replace(protocol=point.protocol)
        if choice.method in EXACT_METHODS:
            raise Infeasible(f"{choice.method}: takes a solver's time")
        sketch = self.sketch
        if choice.sketch != sketch.name and choice.method not in DEFAULT_METHODS:
            sketch = SketchSpace(self.cache.topology, self.nbytes).sketch(choice.sketch)
        knobs = point.protocol, point.channels, point.buffer_bytes
        return self.cache.program(sketch, choice, self.nbytes, *knobs).program


def _choice(method: str) -> ScheduleChoice:
    return ScheduleChoice(_MESH, method, 1)
