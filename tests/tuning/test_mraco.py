import math

import pytest

from baseline_searches import RandomSearch
from tests.tuning.conftest import Surface, small_space
from tuccl.tuning.searches.convergence import Convergence, divergence
from tuccl.tuning.searches.mraco import MracoSearch
from tuccl.tuning.searches.search import run_search
from tuccl.tuning.searches.space import Point

SPACE = small_space()
SEEDS = range(3)


def regret(search: MracoSearch | RandomSearch, surface: Surface, budget: int) -> float:
    run_search(search, surface, budget)
    assert search.best is not None
    return math.log(surface.us(search.best) / surface.optimum())


@pytest.mark.slow
def test_it_beats_random_search_on_the_same_budget() -> None:
    for noise, effort in ((0.0, 1), (0.1, 27)):
        ours = [
            regret(MracoSearch(SPACE, seed=s, full_effort=effort), Surface(SPACE, s, noise), 40)
            for s in SEEDS
        ]
        theirs = [
            regret(RandomSearch(SPACE, seed=s, full_effort=effort), Surface(SPACE, s, noise), 40)
            for s in SEEDS
        ]
        assert sum(ours) < sum(theirs) / 2


def test_few_points_get_full_effort_where_there_is_noise() -> None:
    search = MracoSearch(SPACE, seed=1, full_effort=27)
    measurements = run_search(search, Surface(SPACE, 1, noise=0.1), 12)
    efforts = [measurements.effort(p) for p in measurements.ranked()]
    assert len(efforts) > 2 * 12  # far more points than full evaluations
    cut = [effort for effort in efforts if effort not in (1, 3, 9, 27)]
    assert len(cut) <= 1  # at most the one that the budget's end cut short
    assert search.best is not None
    assert measurements.effort(search.best) == 27


def test_the_best_is_one_that_was_measured_in_full() -> None:
    """Elite retention: a lucky first sample never wins."""
    search = MracoSearch(SPACE, full_effort=27)
    lucky: set[Point] = set()

    def timing(point: Point, repeats: int) -> list[float]:
        if point not in lucky and repeats < 27:
            lucky.add(point)
            return [1.0] * repeats
        return [100.0] * repeats

    measurements = run_search(search, timing, 10)
    assert search.best is not None
    assert measurements.effort(search.best) == 27


def test_it_stops_when_nothing_is_gained_any_more() -> None:
    search = MracoSearch(SPACE)
    measurements = run_search(search, lambda point, repeats: [5.0] * repeats, 2000)
    assert 40 <= measurements.spent < 1000
    assert search.ask() is None


def test_it_goes_on_while_it_gains() -> None:
    search = MracoSearch(SPACE)
    time_us = 1e6

    def ever_faster(point: Point, repeats: int) -> list[float]:
        nonlocal time_us
        time_us *= 0.99
        return [time_us] * repeats

    assert run_search(search, ever_faster, 150).spent == 150


def test_every_bracket_compares_its_survivor_in_full() -> None:
    search = MracoSearch(SPACE, full_effort=9)
    measurements = run_search(search, Surface(SPACE, 3, noise=0.3), 40)
    full = measurements.ranked(9)
    assert len(full) > 10
    assert len(measurements.ranked()) > len(full)
    assert search.best == full[0]


def test_divergence_is_that_of_kullback_and_leibler() -> None:
    points = [SPACE.at(i) for i in range(0, SPACE.grid_size, 701)]
    assert divergence(SPACE, points, points) == 0.0
    apart = divergence(SPACE, points[:10], points[-10:])
    assert apart > 0.1
    assert divergence(SPACE, points, points[::-1]) == 0.0


def test_settling_needs_both_conditions() -> None:
    rings = [p for p in SPACE.grid() if p.choice.method == "ring"]
    same, window = [rings[0]] * 10, 10
    for gain, second, converged in (
        (0.0, same, True),
        (0.2, same, False),
        (0.0, rings[-10:], False),
    ):
        watch = Convergence(SPACE, window)
        for i, point in enumerate([*same, *second]):
            watch.add(point, 100.0 if i < 10 else 100.0 * (1 - gain))
        assert watch.converged is converged
    watch = Convergence(SPACE, window)
    for point in same:
        watch.add(point, 1.0)
    assert not watch.converged  # one window alone says nothing
