"""The last round's entrants: the best point of each program, on stock knobs where that is free."""

from __future__ import annotations

from collections.abc import Sequence

from tuccl._native import Program
from tuccl.errors import Infeasible
from tuccl.synth import Placement
from tuccl.tuning.evaluate import Evaluator
from tuccl.tuning.final_round import beats
from tuccl.tuning.measurements import Record
from tuccl.tuning.space import Point
from tuccl.tuning.tie_break import is_as_good, is_stock, preference, stock_twin

__all__ = ["entrants_of", "placed"]

_PLACEMENTS: tuple[Placement, ...] = ("in-place", "out-of-place")


def entrants_of(
    evaluate: Evaluator, record: Record, effort: int, most: int, *, twins: int
) -> tuple[Point, ...]:
    """Return the best point of each of the best programs, and of the best that runs in place.

    At most ``most`` of them, and one more for the placement. Up to ``twins`` of those whose
    threads or buffer are not stock are tried with stock ones too, at full ``effort``, and
    changed to them where that is no slower: so what is exported is what was tuned. Their
    samples join the record.
    """
    best = _one_per_program(record, effort)
    chosen = best[:most]
    if not any(evaluate.program(p).program.in_place for p in chosen):
        chosen += [p for p in best[most:] if evaluate.program(p).program.in_place][:1]
    entrants: list[Point] = []
    for point in chosen:
        tried = twins > 0 and not is_stock(point)
        entrants.append(_settled(point, evaluate, record, effort) if tried else point)
        twins -= tried
    return tuple(dict.fromkeys(entrants))


def placed(evaluate: Evaluator, points: Sequence[Point]) -> list[tuple[Point, Program]]:
    """Return the points with their programs for one placement alone, where these are others.

    Such a program has no waits and copies that only the other placement needs.
    """
    found: list[tuple[Point, Program]] = []
    for point in points:
        usual = evaluate.program(point).program
        for placement in _PLACEMENTS:
            try:
                alone = evaluate.program(point, placement).program
            except Infeasible:
                continue
            if alone.gpus != usual.gpus:
                found.append((point, alone))
    return found


def _settled(point: Point, evaluate: Evaluator, record: Record, effort: int) -> Point:
    """The stock twin of ``point`` unless it is slower: by 0.1 %, or by more than the noise."""
    twin = stock_twin(point)
    if (missing := effort - record.effort(twin)) > 0:
        record.add(twin, evaluate(twin, missing), missing)
    ours, theirs = record.samples(point), record.samples(twin)
    if not theirs:
        return point
    if evaluate.executor.deterministic:
        return twin if is_as_good(record.us(twin), record.us(point)) else point
    return point if beats(ours, theirs) else twin


def _one_per_program(record: Record, effort: int) -> list[Point]:
    """The preferred point of each program, fastest program first, fewer channels on ties."""
    groups: dict[tuple[object, ...], list[Point]] = {}
    for point in record.ranked(effort):
        groups.setdefault((point.plan, point.protocol, point.channels), []).append(point)
    points = [
        min(group, key=lambda p: preference(p, record.us(p), record.us(group[0])))
        for group in groups.values()
    ]
    if not points:
        return []
    best_us = min(record.us(p) for p in points)
    return sorted(points, key=lambda p: _by_channels(p, record.us(p), best_us))


def _by_channels(point: Point, us: float, best_us: float) -> tuple[bool, int, float]:
    slower = not is_as_good(us, best_us)
    return slower, 0 if slower else point.channels, us
