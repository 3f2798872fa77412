"""The points of the final round: the best of each program, with NCCL's default knobs if as good."""

from __future__ import annotations

from collections.abc import Sequence

from tuccl.errors import Infeasible
from tuccl.program import Program
from tuccl.synth import Placement
from tuccl.tuning.evaluate import Evaluator
from tuccl.tuning.final_round import beats
from tuccl.tuning.searches.measurements import Measurements
from tuccl.tuning.searches.space import Point
from tuccl.tuning.searches.tie_break import (
    has_default_knobs,
    is_as_good,
    tie_break,
    with_default_knobs,
)

_PLACEMENTS: tuple[Placement, ...] = ("in-place", "out-of-place")


def final_points(
    evaluate: Evaluator,
    measurements: Measurements,
    effort: int,
    most: int,
    *,
    default_knobs_trials: int,
    pareto: Sequence[Point] = (),
) -> tuple[Point, ...]:
    """Return the best point of each of the best programs, and of the best that runs in place.

    At most ``most`` of them, one more for the placement, and those of ``pareto``. Up to
    ``default_knobs_trials`` of those whose threads or buffer are not NCCL's defaults are timed with
    the defaults too, at full ``effort``, and changed to them where that is no slower: so what is
    exported is what was tuned.
    Their samples join the measurements.
    """
    ranked = _one_per_program(evaluate, measurements, effort)
    best = ranked[:most]
    if not any(evaluate.program(p).program.in_place for p in best):
        best += [p for p in ranked[most:] if evaluate.program(p).program.in_place][:1]
    best += [p for p in pareto if p not in best]
    points: list[Point] = []
    for point in best:
        if default_knobs_trials > 0 and not has_default_knobs(point, evaluate.programs.dialect):
            default_knobs_trials -= 1
            point = _with_default_knobs_if_as_good(point, evaluate, measurements, effort)
        points.append(point)
    return tuple(dict.fromkeys(points))


def best_of_methods(
    evaluate: Evaluator, measurements: Measurements, effort: int
) -> tuple[Point, ...]:
    """Return the best point of each method, the fastest first."""
    best: dict[str, Point] = {}
    for point in evaluate.ranked(measurements, effort):
        best.setdefault(point.choice.method, point)
    return tuple(best.values())


def single_placement_programs(
    evaluate: Evaluator, points: Sequence[Point]
) -> list[tuple[Point, Program]]:
    """Return the points with their programs for one placement, where these differ.

    Such a program has no waits and copies that only the other placement needs.
    """
    programs: list[tuple[Point, Program]] = []
    for point in points:
        general = evaluate.program(point).program
        for placement in _PLACEMENTS:
            try:
                program = evaluate.program(point, placement).program
            except Infeasible:
                continue
            if program != general.replace(
                in_place=program.in_place, out_of_place=program.out_of_place
            ):
                programs.append((point, program))
    return programs


def _with_default_knobs_if_as_good(
    point: Point, evaluate: Evaluator, measurements: Measurements, effort: int
) -> Point:
    """``point`` with NCCL's knobs unless that is slower: by 0.1 %, or by more than the noise."""
    usual = with_default_knobs(point, evaluate.programs.dialect)
    if (missing := effort - measurements.effort(usual)) > 0:
        measurements.add(usual, evaluate(usual, missing), missing)
    ours, theirs = measurements.samples(point), measurements.samples(usual)
    if not theirs:
        return point
    if evaluate.executor.deterministic:
        return usual if is_as_good(measurements.us(usual), measurements.us(point)) else point
    return point if beats(ours, theirs) else usual


def _one_per_program(evaluate: Evaluator, measurements: Measurements, effort: int) -> list[Point]:
    """The preferred point of each program, fastest program first, fewer SMs on ties."""
    groups: dict[tuple[object, ...], list[Point]] = {}
    for point in evaluate.ranked(measurements, effort):
        groups.setdefault((point.choice, point.protocol, point.channels), []).append(point)
    points = [
        min(group, key=lambda p: tie_break(p, measurements.us(p), measurements.us(group[0])))
        for group in groups.values()
    ]
    best_us = min((measurements.us(p) for p in points), default=0.0)

    def order(point: Point) -> tuple[bool, int, float]:
        us = measurements.us(point)
        slower = not is_as_good(us, best_us)
        return slower, 0 if slower else evaluate.program(point).program.threadblocks, us

    return sorted(points, key=order)
