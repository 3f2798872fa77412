"""Choice of the compression ratio: what a step takes against how much of the gradient it sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tuccl.errors import InputError, Unavailable

_POINTS = 200
_POPULATION, _TRIALS = 40, 1600
_WEIGHTS = (0.6, 0.4)  # of time and of what is not sent


@dataclass(frozen=True)
class TriedRatio:
    """Result of some steps at a ratio: what choosing indices took in us, and the mean gain."""

    ratio: float
    compression_us: float
    gain: float


@dataclass(frozen=True)
class RatioChoice:
    """A ratio, its predicted time in us and gain, and how many ratios no other one beats."""

    ratio: float
    us: float
    gain: float
    front: int


def choose_ratio(
    tried: Sequence[TriedRatio],
    exchange_us: Callable[[float], float],
    *,
    search: Literal["grid", "nsga2"] = "grid",
    weights: tuple[float, float] = _WEIGHTS,
    seed: int = 1,
) -> RatioChoice:
    """Return the ratio between those tried that is best in time and gain together.

    Args:
        tried: at least two ratios, in any order.
        exchange_us: of a ratio, what the fastest exchange takes.
        search: ``grid``, of 200 points even in log; ``nsga2`` finds the front by Optuna's NSGA-II.
        weights: of time and of 1 / gain, each from 0 to 1 along the front.
        seed: of NSGA-II.

    Notes:
        Equation 6 of the paper; of its front the point with the least of the larger weighted
        objective (achievement scalarization). Both objectives are monotone in the ratio, so all
        ratios are on the front as a rule and the weights decide. Gain is interpolated by monotone
        cubics over log ratio.

    Raises:
        InputError: fewer than two ratios were tried, or a number is out of its range.
        Unavailable: SciPy is not installed.
    """
    ordered = sorted(tried, key=lambda one: one.ratio)
    if len({one.ratio for one in ordered}) < max(2, len(ordered)):
        raise InputError(f"ratios tried: {len(ordered)}; expected two or more different ones")
    if not all(0 < one.ratio <= 1 and one.gain > 0 for one in ordered):
        raise InputError("ratios tried: expected ratios and gains above 0 and at most 1")
    gain_of, compression_of = _interpolated(ordered)

    def objectives(ratio: float) -> tuple[float, float]:
        return compression_of(ratio) + exchange_us(ratio), 1 / gain_of(ratio)

    low, high = ordered[0].ratio, ordered[-1].ratio
    if search == "grid":
        steps = range(_POINTS)
        ratios = [low * (high / low) ** (step / (_POINTS - 1)) for step in steps]
    else:
        ratios = _nsga2(objectives, low, high, seed)
    front = _front([(*objectives(ratio), ratio) for ratio in ratios])
    us, less, ratio = min(front, key=lambda point: _larger(point, front, weights))
    return RatioChoice(ratio, us, 1 / less, len(front))


_Point = tuple[float, float, float]  # us, 1 / gain, ratio


def _front(points: Sequence[_Point]) -> list[_Point]:
    """Return the points that no other beats in time or gain without losing in the other."""
    front: list[_Point] = []
    for point in sorted(points):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front


def _larger(point: _Point, front: Sequence[_Point], weights: tuple[float, float]) -> float:
    """Return the larger of the weighted objectives, each from 0 to 1 along the front."""
    parts = []
    for objective, weight in enumerate(weights):
        values = [other[objective] for other in front]
        width = max(values) - min(values)
        parts.append(weight * (point[objective] - min(values)) / width if width > 0 else 0.0)
    return max(parts)


def _interpolated(
    ordered: Sequence[TriedRatio],
) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Return gain, and time of choosing indices, by ratio."""
    try:
        import numpy as np
        from scipy.interpolate import PchipInterpolator
    except ImportError:
        raise Unavailable("choice of the ratio: needs SciPy; pip install scipy") from None
    logs = np.log([one.ratio for one in ordered])
    gain = PchipInterpolator(logs, [one.gain for one in ordered])
    us = PchipInterpolator(logs, [one.compression_us for one in ordered])
    return lambda ratio: float(gain(np.log(ratio))), lambda ratio: float(us(np.log(ratio)))


def _nsga2(
    objectives: Callable[[float], tuple[float, float]], low: float, high: float, seed: int
) -> list[float]:
    """Return the ratios of the front that NSGA-II finds."""
    import optuna

    def evaluate(trial: Any) -> tuple[float, float]:  # noqa: ANN401 - Optuna comes late
        return objectives(trial.suggest_float("ratio", low, high, log=True))

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        sampler = optuna.samplers.NSGAIISampler(population_size=_POPULATION, seed=seed)
        study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
        study.optimize(evaluate, n_trials=_TRIALS)
    finally:
        optuna.logging.set_verbosity(before)
    return [trial.params["ratio"] for trial in study.trials]
