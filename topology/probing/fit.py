"""Latency and rate of a pair from timed messages, with their spread."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, combinations
from statistics import median

import msgspec

from tuccl.errors import InputError

_RESAMPLES = 200
_TAIL = 0.025  # on either side of a 95 % interval


class Estimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A measured value and its 95 % interval, in the unit of the value."""

    value: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Return half the width of the interval."""
        return (self.high - self.low) / 2


class Fit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Latency (alpha) in us and rate (1 / beta) in GB/s of a pair, one way."""

    alpha_us: Estimate
    gbs: Estimate


def fit(times_us: Mapping[int, Sequence[float]], seed: int = 0) -> Fit:
    """Return alpha and beta of t = alpha + beta n for messages of n bytes timed in us.

    Args:
        times_us: by bytes, at least two sizes; repeats of a size in any order.
        seed: of the resampling that gives the intervals.

    Notes:
        Both are robust: each size counts with the median of its repeats; beta is the median slope
        between sizes weighted by their distance (Theil 1950, Sen 1968), the smallest size left out
        where three or more are there, for it shows alpha alone; alpha is what the smallest size
        takes beyond its bytes. Intervals are of 200 bootstrap samples; a size timed once adds
        nothing to them.

    Raises:
        InputError: there are fewer than two sizes, or the times do not rise with the size.

    >>> f = fit({8: [5.0, 5.1, 90.0], 1000: [6.0], 2_000_000: [2005.0, 2004.0, 2006.0]})
    >>> round(f.gbs.value, 3), round(f.alpha_us.value, 1)
    (1.0, 5.1)
    """
    samples = {size: [float(t) for t in times] for size, times in times_us.items() if times}
    if len(samples) < 2:
        raise InputError(f"{len(samples)} message sizes timed; expected two at least")
    value = _line({size: median(times) for size, times in samples.items()})
    if value is None:
        raise InputError("times do not rise with the message size; time larger messages")
    chance = random.Random(seed)
    lines = []
    for _ in range(_RESAMPLES):
        drawn = {s: median(chance.choices(ts, k=len(ts))) for s, ts in samples.items()}
        if (line := _line(drawn)) is not None:
            lines.append(line)
    alpha, gbs = value
    return Fit(_interval(alpha, [a for a, _ in lines]), _interval(gbs, [g for _, g in lines]))


def median_estimate(values: Sequence[float], seed: int = 0) -> Estimate:
    """Return the median of ``values`` and its bootstrap interval.

    >>> median_estimate([2.0, 2.0, 2.0, 50.0, 2.0]).value
    2.0
    """
    return resampled(median, values, seed)


def resampled(
    statistic: Callable[[Sequence[float]], float], values: Sequence[float], seed: int = 0
) -> Estimate:
    """Return ``statistic`` of ``values`` with its bootstrap interval."""
    chance = random.Random(seed)
    drawn = [statistic(chance.choices(values, k=len(values))) for _ in range(_RESAMPLES)]
    return _interval(statistic(values), drawn)


def _line(medians: Mapping[int, float]) -> tuple[float, float] | None:
    """Return alpha in us and the rate in GB/s, None where times fall as sizes rise."""
    sizes = sorted(medians)
    sloped = sizes[1:] if len(sizes) > 2 else sizes
    slopes = sorted(
        ((medians[large] - medians[small]) / (large - small), large - small)
        for small, large in combinations(sloped, 2)
    )
    reached = accumulate(weight for _, weight in slopes)
    half = sum(weight for _, weight in slopes) / 2
    slope = next(s for (s, _), weight in zip(slopes, reached, strict=True) if weight >= half)
    if slope <= 0:
        return None
    alpha = max(0.0, medians[sizes[0]] - slope * sizes[0])
    return alpha, 1e-3 / slope  # us a byte -> GB/s


def _interval(value: float, drawn: Sequence[float]) -> Estimate:
    ranked = sorted([*drawn, value])
    last = len(ranked) - 1
    low, high = ranked[round(_TAIL * last)], ranked[round((1 - _TAIL) * last)]
    return Estimate(value, min(low, value), max(high, value))
