"""Initial points: the default, and every method with knobs that suit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from tuccl.program import Knobs
from tuccl.runtime.executors.knob_grid import WHOLE_GRID, KnobGrid
from tuccl.synth import MSCCL_DEFAULT_KNOBS, SOLVERS, ScheduleChoice
from tuccl.tuning.searches.initial_knobs import suited_points
from tuccl.tuning.searches.space import Channels, Point, Space


def default_point(
    channels: Mapping[ScheduleChoice, Channels], grid: KnobGrid = WHOLE_GRID
) -> Point | None:
    """Return what untuned MSCCL runs, or the nearest to it that is legal; None: nothing is.

    The default knobs on the robust form of msccl-default, which choices begin with but for very
    many ranks.
    """
    count = MSCCL_DEFAULT_KNOBS.channels
    # A solver's runs only where quick methods are fast.
    for choice in sorted(channels, key=lambda choice: choice.method in SOLVERS):
        for protocol in grid.protocols:
            if count in channels[choice].get(protocol, ()):
                legal = grid.legal_threads(protocol, count)
                threads = max(t for t in legal if t <= MSCCL_DEFAULT_KNOBS.threads)
                return Point.of(choice, Knobs(protocol, count, threads))
    return None


def initial_points(space: Space, most: int) -> list[Point]:
    """Return at most ``most`` points to time before the search's own.

    The choices of all methods in turn but solvers', each with the knobs that suit it best.
    """
    points = (
        point
        for choice in choices_in_turn(space.choices)
        for point in suited_points(space, choice)[:1]
    )
    return list(islice(points, most))  # no more programs are made than that


def points_of_methods(space: Space) -> list[Point]:
    """Return a point of each quick method that has a program, with the knobs that suit it best."""
    found: dict[str, Point] = {}
    for choice in choices_in_turn(space.choices):
        if choice.method not in found and (points := suited_points(space, choice)):
            found[choice.method] = points[0]
    return list(found.values())


def choices_in_turn(choices: Sequence[ScheduleChoice]) -> list[ScheduleChoice]:
    """Return the choices of quick methods in turn, each method's first and last sketch first."""
    of_method: dict[str, list[ScheduleChoice]] = {}
    for choice in choices:
        if choice.method not in SOLVERS:
            of_method.setdefault(choice.method, []).append(choice)
    queues = []
    for own in of_method.values():
        last = next(choice for choice in own if choice.sketch == own[-1].sketch)
        queues.append(list(dict.fromkeys((own[0], last, *own))))
    longest = max(map(len, queues), default=0)
    return [queue[i] for i in range(longest) for queue in queues if i < len(queue)]
