from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.tuning.conftest import Stand, small_space
from tuccl.errors import InputError
from tuccl.runtime import load_table, select
from tuccl.runtime.table import pareto_set
from tuccl.topology import Topology
from tuccl.tuning import TuneOptions, tune
from tuccl.tuning.fewer_sms import time_leaner_points
from tuccl.tuning.searches.measurements import Measurements
from tuccl.tuning.searches.space import Point

SIZE = 1 << 16


@pytest.fixture(scope="module")
def table(topology: Topology, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sms") / "table"
    tune(topology, ["allgather"], [SIZE], Stand, TuneOptions(budget=60), path=out)
    return out


def test_a_table_says_how_many_sms_its_programs_and_the_default_occupy(table: Path) -> None:
    stored = load_table(table)
    for candidate in stored.lookup.candidates:
        program = stored.program(candidate)
        assert candidate.sms > 0
        assert program is None or candidate.sms == program.threadblocks


def test_a_table_holds_candidates_with_fewer_sms_than_the_fastest(table: Path) -> None:
    entry = select(load_table(table).lookup, "allgather", SIZE).entry
    assert entry is not None
    winners = [c for c in entry.candidates if not c.is_default]
    times = {c.name: c.stats.median_us for c in winners if c.stats is not None}
    front = pareto_set(winners, lambda c: (times[c.name], c.sms))
    assert len(front) > 1
    assert len(winners) <= 6
    assert winners[0].name == min(times, key=lambda name: times[name])


def test_tune_prefers_what_is_requested(table: Path, topology: Topology, tmp_path: Path) -> None:
    options = TuneOptions(budget=60, prefer="sms")
    result = tune(topology, ["allgather"], [SIZE], Stand, options, path=tmp_path / "table").result
    fewest = select(load_table(tmp_path / "table").lookup, "allgather", SIZE).candidate
    fastest = select(load_table(table).lookup, "allgather", SIZE)
    assert fewest == select(load_table(table).lookup, "allgather", SIZE, prefer="sms").candidate
    assert fewest.sms < fastest.candidate.sms
    assert result.tuned[0].sms == fewest.sms
    assert fastest.entry is not None
    assert result.tuned[0].default_sms == fastest.entry.default.sms


def test_a_preference_that_is_none_is_refused(topology: Topology, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected speed or sms"):
        tune(topology, ["allgather"], [SIZE], Stand, TuneOptions(prefer="us"), path=tmp_path)


class Occupancy:
    """Points that take as many SMs as channels, and 80 us shared by these."""

    def __init__(self) -> None:
        self.timed: list[Point] = []

    def __call__(self, point: Point, effort: int) -> list[float]:
        self.timed.append(point)
        return [80.0 / point.channels]

    def ranked(self, measurements: Measurements, effort: int) -> list[Point]:
        return measurements.ranked(effort)

    def program(self, point: Point) -> SimpleNamespace:
        return SimpleNamespace(program=SimpleNamespace(threadblocks=point.channels))


@pytest.mark.parametrize(("limit_us", "channels"), [(30.0, {4, 2, 1}), (5.0, {1})])
def test_points_that_lose_to_the_default_are_not_tried_with_fewer_channels(
    limit_us: float, channels: set[int]
) -> None:
    """But once each method is tried with as few channels as it has."""
    space, occupancy, measurements = small_space(), Occupancy(), Measurements()
    start = space.nearest(Point(space.choices[0], "LL", 8, 512, 1 << 19))
    assert start.channels == 8
    measurements.add(start, [10.0], 1)
    time_leaner_points(space, occupancy, measurements, 1, limit_us, 9)  # type: ignore[arg-type]
    assert {point.channels for point in occupancy.timed} == channels
