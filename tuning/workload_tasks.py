"""A job's workload as tasks of a tune, and what the job gains by the table that comes of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tuccl.errors import InputError
from tuccl.runtime import Candidate, LookupTable, Timing, default_candidate, select
from tuccl.runtime.workload import Call, LeftOut, Workload
from tuccl.tuning.size_boundaries import Times

TimesOf = Callable[[str], Times]
"""Return the times of the candidates of a collective."""
FEWEST_EVALUATIONS = 16  # enough for a point of every method
_MOST_TASKS = 32
_MOST_KINDS = 1024  # of calls whose times before and after are added up
_CLASSES = (2.0, 1.0, 0.5, 0.25, 0.125)  # of sizes, in an octave
_ELEMENT_BYTES = 4


@dataclass(frozen=True)
class JobTask:
    """A collective and size to tune for a job; ``us`` is the job's time there by default.

    ``budget`` is in evaluations at full effort.
    """

    collective: str
    nbytes: int
    us: float
    budget: int


@dataclass(frozen=True)
class WorkloadGain:
    """The time in us of a job's calls one after another, by default and with a table.

    ``calls`` are of so many ``kinds`` of collective and size. ``gain`` is the first time over the
    second; ``indivisible`` the share of the default's time in calls whose size no program's
    chunks can divide, so that they keep the default.
    """

    calls: int
    kinds: int
    default_us: float
    tuned_us: float
    gain: float
    indivisible: float
    left_out: tuple[LeftOut, ...]


def job_tasks(
    workload: Workload, times_of: TimesOf, ranks: int, budget: int
) -> tuple[JobTask, ...]:
    """Return what to tune for a job, the whole budget shared by the times that they take.

    Calls of one collective with sizes in one class (half an octave, wider where there would be
    over 32 tasks) are one task, at the size that takes the most time. The effort of all tasks,
    ``budget`` for each on average, goes by the square root of their times, beyond what every
    search needs. Calls whose sizes no program can divide are not tuned.

    Args:
        workload: The job's calls; their measured times count where all have one.
        times_of: The times of a collective's candidates; the default's are used.
        ranks: Whose number of chunks has to divide a size.
        budget: Evaluations at full effort, for each task on average.

    Raises:
        InputError: no call can be tuned.
    """
    calls = [call for call in workload.calls if _divides(call, ranks)]
    if not calls:
        raise InputError(
            f"workload {workload.name[:60]}: no call's size divides by {ranks} chunks of 4 bytes; "
            "programs run no other"
        )
    classes = next(
        (each for c in _CLASSES if len(each := _classes(calls, c)) <= _MOST_TASKS),
        _classes(calls, _CLASSES[-1]),
    )
    has_times = all(call.us is not None for call in calls)
    tasks = {}
    for members in classes:
        largest = max(members, key=lambda call: call.count * call.nbytes)
        each_us = largest.us if has_times else None
        if each_us is None:
            each_us = _default_us(times_of(largest.collective), largest.nbytes)
        # Within a class, time is about as size.
        calls_of_largest = sum(call.count * call.nbytes for call in members) / largest.nbytes
        tasks[largest.collective, largest.nbytes] = each_us * calls_of_largest
    budgets = _shared(list(tasks.values()), budget)
    return tuple(
        JobTask(collective, nbytes, us, share)
        for ((collective, nbytes), us), share in zip(tasks.items(), budgets, strict=True)
    )


def _divides(call: Call, ranks: int) -> bool:
    return call.nbytes % (ranks * _ELEMENT_BYTES) == 0


def _classes(calls: Sequence[Call], per_octave: float) -> list[list[Call]]:
    """Calls of one collective with about the same size, by collective and size."""
    classes: dict[tuple[str, int], list[Call]] = {}
    for call in calls:
        key = call.collective, math.floor(math.log2(call.nbytes) * per_octave + 1e-9)
        classes.setdefault(key, []).append(call)
    return [classes[key] for key in sorted(classes)]


def _shared(weights: Sequence[float], budget: int) -> list[int]:
    """Whole shares of ``budget`` times the number of weights, each at least 16 if there are.

    >>> _shared([9.0, 1.0], 96)
    [136, 56]

    Notes:
        By the roots of the weights: if what a search misses falls as one over its effort, this
        makes the weighted sum of what all of them miss least (Neyman's allocation).
    """
    least = min(budget, FEWEST_EVALUATIONS)
    rest = (budget - least) * len(weights)
    roots = [math.sqrt(weight) for weight in weights]
    exact = [rest * root / sum(roots) for root in roots]
    shares = [math.floor(share) for share in exact]
    by_fraction = sorted(range(len(exact)), key=lambda n: shares[n] - exact[n])
    for n in by_fraction[: rest - sum(shares)]:
        shares[n] += 1
    return [least + share for share in shares]


def workload_gain(
    workload: Workload, table: LookupTable, times_of: TimesOf, root: int = 0
) -> WorkloadGain:
    """Return the time of the job's calls without ``table`` and with it, out of place.

    Every kind of call is timed at its own size with the candidate that the table gives it; of
    over 1024 kinds, those that move the most bytes.
    """
    calls = sorted(workload.calls, key=lambda call: -call.count * call.nbytes)[:_MOST_KINDS]
    before = after = indivisible = 0.0
    for call in calls:
        default_us, tuned_us = _before_and_after(call, table, times_of(call.collective), root)
        before += call.count * default_us
        after += call.count * tuned_us
        if table.dialect != "nccl" and not _divides(call, table.ranks):
            indivisible += call.count * default_us
    count = sum(call.count for call in calls)
    return WorkloadGain(
        count, len(calls), before, after, before / after, indivisible / before, workload.left_out
    )


def _before_and_after(
    call: Call, table: LookupTable, times: Times, root: int
) -> tuple[float, float]:
    element_bytes = next(n for n in (4, 2, 1) if call.nbytes % n == 0)
    candidate = select(
        table, call.collective, call.nbytes, root=root, element_bytes=element_bytes
    ).candidate
    if candidate.is_default:
        us = _default_us(times, call.nbytes)
        return us, us
    default = default_candidate(candidate.on)
    timings = times([default, candidate], call.nbytes)
    return _us(timings, default, call.nbytes), _us(timings, candidate, call.nbytes)


def _default_us(times: Times, nbytes: int) -> float:
    default = default_candidate("sim")
    return _us(times([default], nbytes), default, nbytes)


def _us(timings: Mapping[str, Timing | None], candidate: Candidate, nbytes: int) -> float:
    """The time of a candidate in us.

    Raises:
        InputError: it cannot run.
    """
    timing = timings[candidate.name]
    if timing is None:
        raise InputError(f"{candidate.name}: cannot be timed at {nbytes} bytes")
    return timing.us
