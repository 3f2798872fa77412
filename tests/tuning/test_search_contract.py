"""What every search promises (tuning/searches/search.py); a new one joins by a line in SEARCHES."""

import math
from collections.abc import Sequence

import pytest

from baseline_searches import BASELINE_SEARCHES, GridSearch
from tests.tuning.conftest import Surface, small_space, tiny_space
from tuccl.tuning import SEARCHES
from tuccl.tuning.searches.measurements import Measurements
from tuccl.tuning.searches.search import Request, Search, run_search
from tuccl.tuning.searches.space import Point

SPACE = small_space()
ALL_SEARCHES = SEARCHES | BASELINE_SEARCHES


@pytest.fixture(
    params=[
        *sorted(SEARCHES),
        *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(BASELINE_SEARCHES)),
    ]
)
def kind(request: pytest.FixtureRequest) -> type[Search]:
    kind: type[Search] = ALL_SEARCHES[request.param]
    return kind


def requested(search: Search, surface: Surface, count: int) -> list[Request]:
    requests: list[Request] = []
    while len(requests) < count and (request := search.ask()) is not None:
        requests.append(request)
        search.tell(request, surface(request.point, request.repeats))
    return requests


class TestEverySearch:
    def test_asks_for_the_default_first_then_for_what_it_was_given(
        self, kind: type[Search]
    ) -> None:
        first = [SPACE.at(100), SPACE.at(2000), SPACE.at(100), SPACE.default]
        requests = requested(kind(SPACE, first=first, full_effort=9), Surface(SPACE), 3)
        points = [SPACE.default, SPACE.at(100), SPACE.at(2000)]
        assert requests == [Request(point, 9) for point in points]

    @pytest.mark.parametrize("effort", [1, 9])
    def test_asks_for_legal_points_and_never_beyond_full_effort(
        self, kind: type[Search], effort: int
    ) -> None:
        surface = Surface(SPACE, 3, noise=0.1)
        spent: dict[Point, int] = {}
        for request in requested(kind(SPACE, full_effort=effort), surface, 80):
            assert request.point in SPACE
            assert request.repeats > 0
            spent[request.point] = spent.get(request.point, 0) + request.repeats
        assert max(spent.values()) <= effort

    @pytest.mark.parametrize("budget", [1, 7, 40])
    def test_honours_the_budget(self, kind: type[Search], budget: int) -> None:
        for effort in (1, 9):
            surface = Surface(SPACE, 1, noise=0.1)
            search = kind(SPACE, full_effort=effort)
            measurements = run_search(search, surface, budget)
            assert surface.calls == measurements.spent <= budget * effort
            assert search.best is not None  # the default at least

    def test_the_same_seed_asks_the_same(self, kind: type[Search]) -> None:
        runs = [requested(kind(SPACE, seed=5), Surface(SPACE, 2), 60) for _ in range(2)]
        assert runs[0] == runs[1]

    def test_finds_the_optimum_of_a_tiny_space_and_ends(self, kind: type[Search]) -> None:
        space = tiny_space()
        surface = Surface(space, 4)
        search = kind(space)
        measurements = run_search(search, surface, space.grid_size)
        assert search.best is not None
        assert surface.us(search.best) <= 1.02 * surface.optimum()
        assert len(measurements) <= space.grid_size

    def test_none_is_the_end(self, kind: type[Search]) -> None:
        space = tiny_space()
        search = kind(space)
        requested(search, Surface(space), 2 * space.grid_size)
        assert search.ask() is None
        assert search.ask() is None

    def test_points_that_cannot_run_are_passed_over(self, kind: type[Search]) -> None:
        surface = Surface(SPACE, 6)

        def only_rings(point: Point, repeats: int) -> Sequence[float]:
            return surface(point, repeats) if point.choice.method == "ring" else ()

        search = kind(SPACE)
        measurements = run_search(search, only_rings, 60)
        assert search.best is not None
        assert search.best.choice.method == "ring"
        assert all(
            math.isinf(measurements.us(p)) == (p.choice.method != "ring")
            for p in SPACE.grid()
            if p in measurements
        )

    def test_goes_on_from_answers_that_were_kept(self, kind: type[Search]) -> None:
        """Interrupted anywhere and replayed, it ends like one that was not."""
        whole = run_search(kind(SPACE, seed=2), Surface(SPACE, 7), 40)
        kept: dict[Point, list[Sequence[float]]] = {}
        surface = Surface(SPACE, 7)

        def interrupted(point: Point, repeats: int) -> Sequence[float]:
            if surface.calls == 23:
                raise KeyboardInterrupt
            kept.setdefault(point, []).append(surface(point, repeats))
            return kept[point][-1]

        with pytest.raises(KeyboardInterrupt):
            run_search(kind(SPACE, seed=2), interrupted, 40)
        fresh = Surface(SPACE, 7)

        def resumed(point: Point, repeats: int) -> Sequence[float]:
            return kept[point].pop(0) if kept.get(point) else fresh(point, repeats)

        measurements = run_search(kind(SPACE, seed=2), resumed, 40)
        assert measurements.ranked() == whole.ranked()
        assert fresh.calls == whole.spent - 23

    def test_first_points_must_be_legal(self, kind: type[Search]) -> None:
        with pytest.raises(ValueError, match="legal"):
            kind(tiny_space(), first=[SPACE.at(0), SPACE.at(SPACE.grid_size - 1)])
        with pytest.raises(ValueError, match="effort"):
            kind(SPACE, full_effort=0)


def test_the_grid_covers_everything_once() -> None:
    space = tiny_space()
    measurements = run_search(GridSearch(space), Surface(space), space.grid_size)
    assert len(measurements) == measurements.spent == space.grid_size


def test_a_budget_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="budget"):
        run_search(GridSearch(SPACE), Surface(SPACE), 0)


def test_samples_of_a_point_are_pooled() -> None:
    measurements = Measurements()
    point = SPACE.default
    measurements.add(point, [3.0, 1.0], 2)
    measurements.add(point, [2.0], 1)
    assert measurements.us(point) == 2.0
    assert measurements.effort(point) == measurements.spent == 3
    assert measurements.best(effort=4) is None
