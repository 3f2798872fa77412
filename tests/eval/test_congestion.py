"""Fits and congestion points: exact where a curve has their form, and as a thesis has them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest

from tuccl.errors import InputError
from tuccl.eval.congestion import (
    EXPONENTS,
    Curve,
    ExponentialFit,
    ResidualFit,
    cdf,
    congestion_point,
    fit_exponential,
    fit_residual,
    held_out_error,
    ring_bytes,
)

C = 25.0  # Gb/s
LOADS = (0.0, 4.0, 8.0, 12.0, 16.0, 18.0, 20.0, 22.0)

# Salamy, MIT 2021: parameters, iteration alone in s, MB sent at N = 4 and 3, Gb/s used.
MODELS = {
    "BERT-large": (335.1e6, 0.84, 2011, 1788, 19.15),
    "VGG-16": (138.36e6, 0.37, 830, 738, 17.95),
    "DenseNet-161": (28.68e6, 0.38, 172, 153, 3.63),
    "ResNet-50": (25.56e6, 0.16, 153, 136, 7.69),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_bytes_and_rates_of_its_four_models(name: str) -> None:
    parameters, alone_s, of_four, of_three, used = MODELS[name]
    assert ring_bytes(parameters, 4) / 1e6 == pytest.approx(of_four, rel=0.003)
    assert ring_bytes(parameters, 3) / 1e6 == pytest.approx(of_three, rel=0.003)
    assert of_four * 8e-3 / alone_s == pytest.approx(used, rel=0.01)


@pytest.mark.parametrize(
    ("carried", "seconds", "megabytes"), [(13.99, 0.68, 929), (15.70, 0.85, 991), (16.6, 0.88, 925)]
)
def test_the_demand_of_vgg_at_its_three_congestion_points(
    carried: float, seconds: float, megabytes: float
) -> None:
    point = congestion_point([(0.0, 0.37), (carried, seconds), (20.0, 3.0), (22.0, 6.0)], C)
    assert point is not None
    assert point.carried == carried
    assert point.demand * 1e3 / 8 == pytest.approx(megabytes, rel=0.01)


def test_a_job_that_never_slows_has_no_congestion_point() -> None:
    assert congestion_point([(x, 0.37) for x in (0.0, 1.0, 2.0, 3.0)], C) is None


@pytest.mark.parametrize(
    ("a", "b", "n"),
    [(0.618, 9.95, 1.0), (0.254, 10.75, 1.0), (0.2, 7.281, 0.5), (0.14, 22.793, 2.0)],
)
def test_a_curve_of_the_thesis_is_found_again(a: float, b: float, n: float) -> None:
    made = ExponentialFit(a, b, n, C, 1.0)
    curve = [(x, made.time(x)) for x in LOADS]
    fits = [fit_exponential(curve, C, each) for each in EXPONENTS]
    best = max(fits, key=lambda fit: fit.r2)
    assert (best.a, best.b, best.n) == pytest.approx((a, b, n))
    assert best.r2 == pytest.approx(1.0)
    assert sorted(fit.r2 for fit in fits)[1] < 0.999


def exponential(curve: Curve, n: float) -> Callable[[float], float]:
    return fit_exponential(curve, C, n).time


def test_the_residual_rate_fits_what_it_is_made_of_and_an_exponential_does_not() -> None:
    made = ResidualFit(0.5, 9.0, 2.5, C, 1.0)
    curve = [(x, made.time(x)) for x in (0.0, 4.0, 8.0, 12.0, 14.0, 16.0, 18.0, 20.0)]
    fit = fit_residual(curve, C)
    assert fit == pytest.approx(made)
    error = held_out_error(curve, lambda part: fit_residual(part, C).time)
    for n in EXPONENTS:
        assert error < 0.2 * held_out_error(curve, partial(exponential, n=n))
    assert math.isinf(fit.time(24.0))


def test_the_congestion_point_lies_at_the_knee() -> None:
    made = ResidualFit(0.5, 6.0, 0.0, C, 1.0)  # the knee is at 25 - 12 = 13
    curve = [(x, made.time(x)) for x in (0.0, 3.0, 6.0, 9.0, 13.0, 15.0, 17.0, 19.0)]
    point = congestion_point(curve, C)
    assert point is not None
    assert point.carried == 13.0
    assert point.demand == pytest.approx(6.0)


def test_curves_that_cannot_be_fitted_are_refused() -> None:
    with pytest.raises(InputError, match="3 points: a fit takes 4"):
        fit_residual([(0.0, 1.0), (1.0, 1.0), (2.0, 2.0)], C)
    with pytest.raises(InputError, match="their rates rising"):
        fit_exponential([(0.0, 1.0), (1.0, 1.0), (1.0, 2.0), (2.0, 2.0)], C, 1.0)
    with pytest.raises(InputError, match="below 25"):
        congestion_point([(x, 1.0) for x in (0.0, 10.0, 20.0, 25.0)], C)


def test_a_distribution_rises_to_one() -> None:
    assert cdf([3.0, 1.0, 1.0, 2.0]) == ((1.0, 0.25), (1.0, 0.5), (2.0, 0.75), (3.0, 1.0))
