"""One collective of a tune, and the search at one size of it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tuccl._native import default_buffer_bytes
from tuccl.runtime import BaselineTiming, Executor, Timing, time_baseline
from tuccl.sketches import Sketch, candidate_sketches
from tuccl.synth import Collective
from tuccl.topology import Topology, encode_topology, signature
from tuccl.tuning.evaluate import Evaluator, full_effort, is_noise_free
from tuccl.tuning.finals import Final, Finalist
from tuccl.tuning.opening import default_point, opening
from tuccl.tuning.programs import Programs
from tuccl.tuning.record import Record
from tuccl.tuning.search import Search, run
from tuccl.tuning.space import Point, Space
from tuccl.tuning.study import Studies

__all__ = ["NCCL_VERSION", "Outcome", "Task", "tuned_size"]

NCCL_VERSION = "2.19"
_MOST_FINALISTS = 3
_SIM_FINALISTS = 5
_AS_GOOD = 1.001


@dataclass(frozen=True)
class Task:
    """One collective of a tune, whose sizes are searched one after another."""

    executor: Executor
    topology: Topology
    programs: Programs
    studies: Studies
    search: type[Search]
    budget: int
    seed: int
    run: str

    @property
    def collective(self) -> Collective:
        """The collective."""
        return self.programs.collective


@dataclass(frozen=True)
class Outcome:
    """What one size came to: the finalists, and what finding them cost at full effort."""

    final: Final
    grid_size: int
    evaluations: int
    record: Record | None = field(repr=False)


def tuned_size(
    task: Task, nbytes: int, neighbour: Record | None, progress: Callable[[int], None]
) -> Outcome:
    """Search one size, measure the best again, and the runtime's default with them."""
    sketches = candidate_sketches(task.topology, task.collective.name, nbytes)
    default = _runtime_default(task, nbytes)
    by_name = {sketch.name: sketch for sketch in sketches}
    channels = task.programs.plans(sketches, nbytes)
    start = default_point(channels)
    if start is None:
        final = Final(task.collective, nbytes, task.programs.dialect, default, ())
        return Outcome(final, 0, 0, None)
    space = Space(channels, start, lambda p: task.programs.channels(by_name[p.sketch], p, nbytes))
    evaluate = _evaluator(task, by_name, nbytes, space, default.timing)
    effort = full_effort(task.executor)
    noisy = not is_noise_free(task.executor)
    reserve = min(_MOST_FINALISTS, task.budget // 4) if noisy else 0
    budget = max(task.budget - reserve, 1)
    search = task.search(
        space,
        seed=task.seed,
        full_effort=effort,
        first=opening(space, nbytes, neighbour, budget // 2),
    )
    record = run(search, evaluate, budget, progress)
    most = max(reserve, 1) if noisy else _SIM_FINALISTS
    finalists = tuple(_finalists(evaluate, record, effort, most))
    again = len(finalists) if noisy else 0  # the simulator's answer is known: nothing is spent
    final = Final(task.collective, nbytes, task.programs.dialect, default, finalists)
    return Outcome(final, space.legal_points, math.ceil(record.spent / effort) + again, record)


def _evaluator(
    task: Task, sketches: Mapping[str, Sketch], nbytes: int, space: Space, default: Timing
) -> Evaluator:
    """The evaluator with its study, whose name says all that its samples depend on.

    Rates may differ between topologies of one signature, and what times may have changed under
    its label: so the whole topology enters, and where there is no noise the default's time,
    which changes with anything that matters.
    """
    study = task.studies.study(
        space,
        task.run,
        signature(task.topology),
        task.collective.name,
        nbytes,
        task.executor.label,
        task.programs.dialect,
        hashlib.sha256(encode_topology(task.topology)).hexdigest(),
        default if is_noise_free(task.executor) else None,
    )
    return Evaluator(task.executor, task.programs, sketches, nbytes, study)


def _finalists(evaluate: Evaluator, record: Record, effort: int, most: int) -> list[Finalist]:
    """The best programs, and the best that runs in place, measured again in both placements."""
    best = _one_per_program(record, effort)
    chosen = best[:most]
    if not any(evaluate.program(p).program.in_place for p in chosen):
        chosen += [p for p in best[most:] if evaluate.program(p).program.in_place][:1]
    return [
        Finalist(p, evaluate.program(p).program, evaluate.both_placements(p, effort))
        for p in chosen
    ]


def _one_per_program(record: Record, effort: int) -> list[Point]:
    """The best point of each program, fastest program first.

    Of points as good as equal the one nearest to the stock knobs: stock runtimes cannot change
    threads and buffers from call to call (docs/msccl.md 10).
    """
    groups: dict[tuple[object, ...], list[Point]] = {}
    for point in record.ranked(effort):
        groups.setdefault((point.plan, point.protocol, point.channels), []).append(point)
    return [_nearest_to_stock(points, record) for points in groups.values()]


def _nearest_to_stock(points: list[Point], record: Record) -> Point:
    """Of ``points``, fastest first, the most usual one among those as good as the first."""
    return min(points, key=lambda p: _preference(p, points[0], record))


def _preference(point: Point, best: Point, record: Record) -> tuple[bool, bool, int, float]:
    slower = record.us(point) > _AS_GOOD * record.us(best)
    stock = point.buffer_bytes == default_buffer_bytes(point.protocol)
    return slower, not stock, -point.threads, record.us(point)


def _runtime_default(task: Task, nbytes: int) -> BaselineTiming:
    """What the runtime does without a table, timed with as many repeats as the finalists."""
    default = time_baseline(
        task.executor,
        task.topology,
        "nccl",
        task.collective.name,
        nbytes,
        root=task.collective.root,
        version=NCCL_VERSION,
    )
    repeats = full_effort(task.executor)
    if repeats == 1:
        return default
    root = task.collective.root
    timing = task.executor.time(default.program, default.knobs, nbytes, root=root, repeats=repeats)
    return replace(default, timing=timing)
