"""Timing programs against each other where times have noise: in turns, pooled by program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from tuccl.errors import InputError
from tuccl.runtime.executors.configured_program import ConfiguredProgram
from tuccl.runtime.executors.executor import Executor, Timing

MOST_SPREAD = 1.5
"""Times whose 90th percentile is more than this times their 10th are not comparable."""


def is_comparable(samples_us: Sequence[float]) -> bool:
    """Return whether the machine was quiet enough for the samples to be compared with others.

    >>> is_comparable([10.0, 11.0, 14.0]), is_comparable([10.0, 11.0, 16.0]), is_comparable([])
    (True, False, True)
    """
    ordered = sorted(samples_us)
    last = len(ordered) - 1
    return not ordered or ordered[round(0.9 * last)] <= MOST_SPREAD * ordered[round(0.1 * last)]


def paired_timings(
    executor: Executor,
    candidates: Sequence[ConfiguredProgram],
    nbytes: int,
    *,
    root: int = 0,
    rounds: int = 1,
    until: Callable[[int], bool] = lambda done: False,
) -> list[Timing]:
    """Return a timing of each candidate in us, made of one sample a round and placement.

    A round times every candidate once, each round in the opposite order of the one before: what
    disturbs the machine for a while disturbs all alike. Without noise one round is enough, and
    is all that is run. ``until`` is called with the rounds that are done, and ends it before
    ``rounds`` are.

    Raises:
        InputError: no round was requested; and what ``executor`` raises.
    """
    if rounds < 1:
        raise InputError(f"{rounds} rounds: expected at least one")
    timings: list[list[Timing]] = [[] for _ in candidates]
    for done in range(1 if executor.deterministic else rounds):
        if done > 0 and until(done):
            break
        order = range(len(candidates)) if done % 2 == 0 else reversed(range(len(candidates)))
        for n in order:
            e = candidates[n]
            timing = executor.time(e.program, e.knobs, nbytes, root=root, loop=e.loop)
            timings[n].append(timing)
    return [pool_timings(each) for each in timings]


def pool_timings(timings: Sequence[Timing]) -> Timing:
    """Return one timing of the samples of ``timings`` of one program: their medians in us.

    >>> a, b = (Timing(us, None, (us,), "mpi", runs=1) for us in (1.0, 4.0))
    >>> pool_timings([a, b]).us, pool_timings([a, b]).runs
    (2.5, 2)
    """
    if len(timings) == 1:
        return timings[0]
    first = timings[0]
    out_of_place = [t.time_us for t in timings if t.time_us is not None]
    in_place = [t.time_us_ip for t in timings if t.time_us_ip is not None]
    samples = out_of_place or in_place
    checked = [t.wrong for t in timings if t.wrong is not None]
    return Timing(
        median(out_of_place) if out_of_place else None,
        median(in_place) if in_place else None,
        tuple(samples),
        first.on,
        sum(checked) if checked else None,
        tuple(in_place),
        sum(t.runs for t in timings),
        next((t.first_wrong for t in timings if t.first_wrong), ""),
    )
