"""A job's time against the load of its link: fits, the congestion point, distributions.

x is what others carry on a link of rate C, t the time of an iteration; both rates have one unit.
The forms are those of a thesis (Salamy, MIT 2021): t = A exp(B / (C - x)^n), and beside them
t = max(t0, D / (C - x - d)), whose terms mean something: the time alone, the bytes on the link, the
rate that no one gets. No fit is good for an x outside the range that it was made from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, linear_regression
from typing import NamedTuple

from tuccl.errors import InputError

EXPONENTS = (0.5, 1.0, 2.0)
_FLAT = 0.05  # of the time alone, which the flat part stays within
_FEWEST = 4

Curve = Sequence[tuple[float, float]]
"""Pairs of carried rate and time, rates rising."""


class ExponentialFit(NamedTuple):
    """t = ``a`` exp(``b`` / (``capacity`` - x)^``n``), and R^2 of log t."""

    a: float
    b: float
    n: float
    capacity: float
    r2: float

    def time(self, carried: float) -> float:
        """Return t where others carry so much."""
        return self.a * math.exp(self.b / (self.capacity - carried) ** self.n)


class ResidualFit(NamedTuple):
    """t = max(``alone``, ``demand`` / (``capacity`` - x - ``unused``)), and R^2 of log t."""

    alone: float
    demand: float
    unused: float
    capacity: float
    r2: float

    def time(self, carried: float) -> float:
        """Return t where others carry so much."""
        left = self.capacity - carried - self.unused
        return max(self.alone, self.demand / left if left > 0 else math.inf)


class CongestionPoint(NamedTuple):
    """The measured point from which on a job slows down; ``demand`` is (C - x) t, its bytes."""

    carried: float
    time: float
    demand: float


def fit_exponential(curve: Curve, capacity: float, n: float) -> ExponentialFit:
    """Return the fit of exponent ``n`` by least squares in log t.

    >>> fit = ExponentialFit(0.2, 7.281, 0.5, 25.0, 1.0)  # BERT-large over RDMA
    >>> round(fit.time(0.0), 3)  # measured alone: 0.84 s
    0.858

    Raises:
        InputError: there are fewer than 4 points, or rates that the link has not.
    """
    _check(curve, capacity)
    axis = [(capacity - carried) ** -n for carried, _ in curve]
    line = linear_regression(axis, [math.log(time) for _, time in curve])
    fit = ExponentialFit(math.exp(line.intercept), line.slope, n, capacity, 0.0)
    return fit._replace(r2=_r2(curve, fit.time))


def fit_residual(curve: Curve, capacity: float) -> ResidualFit:
    """Return the fit of the residual rate: the split into flat and steep points that fits best.

    Flat points give t0 as their mean. Of steep ones C - x = D / t + d is a line in 1 / t.

    Raises:
        InputError: as `fit_exponential`.

    >>> curve = [(x, max(1.0, 10 / (25 - x - 2))) for x in (0, 4, 8, 16, 18, 20, 21)]
    >>> fit = fit_residual(curve, 25.0)
    >>> [round(part, 3) for part in (fit.alone, fit.demand, fit.unused)]
    [1.0, 10.0, 2.0]
    """
    _check(curve, capacity)
    fits = []
    for flat in range(1, len(curve) - 1):
        steep = curve[flat:]
        alone = fmean(time for _, time in curve[:flat])
        if len({time for _, time in steep}) < 2:
            continue
        line = linear_regression([1 / time for _, time in steep], [capacity - x for x, _ in steep])
        fit = ResidualFit(alone, line.slope, line.intercept, capacity, 0.0)
        fits.append(fit._replace(r2=_r2(curve, fit.time)))
    return max(fits, key=lambda fit: fit.r2)


def held_out_error(curve: Curve, fitted: Callable[[Curve], Callable[[float], float]]) -> float:
    """Return the mean of |log t - log fit| over points, each from the fit of all others.

    The ends stay in: a fit is for the range that it was made from.
    """
    errors = []
    for held in range(1, len(curve) - 1):
        time = fitted([*curve[:held], *curve[held + 1 :]])(curve[held][0])
        errors.append(abs(math.log(time) - math.log(curve[held][1])))
    return fmean(errors)


def congestion_point(curve: Curve, capacity: float) -> CongestionPoint | None:
    """Return where the flat part's line meets the tangent of what follows, at the nearest point.

    None where no point, or but one, lies over the flat part.

    Notes:
        The thesis's appendix A.2; flat are the first points within 5 % of the mean before them.

    Raises:
        InputError: as `fit_exponential`.
    """
    _check(curve, capacity)
    flat = 1
    while flat < len(curve) and curve[flat][1] <= (1 + _FLAT) * fmean(t for _, t in curve[:flat]):
        flat += 1
    if flat > len(curve) - 2:
        return None
    (x1, t1), (x2, t2) = curve[flat : flat + 2]
    slope = (t2 - t1) / (x2 - x1)
    if slope <= 0:
        return None
    level, tilt = fmean(t for _, t in curve[:flat]), 0.0
    if flat > 1:
        line = linear_regression([x for x, _ in curve[:flat]], [t for _, t in curve[:flat]])
        level, tilt = line.intercept, line.slope
    at = (level - t1 + slope * x1) / (slope - tilt)
    carried, time = min(curve, key=lambda point: abs(point[0] - at))
    return CongestionPoint(carried, time, (capacity - carried) * time)


def ring_bytes(parameters: float, ranks: int, bits: int = 32) -> float:
    """Return the bytes that a ring sends on each link in an iteration: 2 (N - 1) / N P.

    >>> [round(ring_bytes(335.1e6, ranks) / 1e6) for ranks in (4, 3)]
    [2011, 1787]
    """
    return 2 * (ranks - 1) / ranks * parameters * bits / 8


def cdf(samples: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Return each sample with the part of all that are no larger.

    >>> cdf([2.0, 1.0])
    ((1.0, 0.5), (2.0, 1.0))
    """
    ordered = sorted(samples)
    return tuple((value, (n + 1) / len(ordered)) for n, value in enumerate(ordered))


def _r2(curve: Curve, fitted: Callable[[float], float]) -> float:
    logs = [math.log(time) for _, time in curve]
    left = math.fsum(
        (math.log(fitted(x)) - log) ** 2 for (x, _), log in zip(curve, logs, strict=True)
    )
    whole = math.fsum((log - fmean(logs)) ** 2 for log in logs)
    return 1 - left / whole if whole > 0 else 1.0


def _check(curve: Curve, capacity: float) -> None:
    rates = [carried for carried, _ in curve]
    if len(curve) < _FEWEST or rates != sorted(set(rates)):
        raise InputError(f"{len(curve)} points: a fit takes {_FEWEST} or more, their rates rising")
    if not all(0 <= rate < capacity for rate in rates) or min(t for _, t in curve) <= 0:
        raise InputError(
            f"rates up to {rates[-1]:g}: expected 0 to below {capacity:g}, times over 0"
        )
