"""Only knobs that an executor honours are searched."""

import pytest

from tuccl.runtime import SimExecutor
from tuccl.runtime.executors.knob_grid import CHANNELS, PROTOCOLS, WHOLE_GRID
from tuccl.runtime.executors.loopback import LoopbackExecutor
from tuccl.synth import ScheduleChoice
from tuccl.topology import load_profile
from tuccl.tuning.searches.space import Point, Space


def test_the_simulator_honours_every_knob() -> None:
    assert SimExecutor(load_profile("v100x4")).supported_knobs == WHOLE_GRID


def test_an_executor_on_cpus_is_not_searched_for_what_it_ignores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    grid = LoopbackExecutor(4).supported_knobs
    choice = ScheduleChoice("full-mesh", "ring", 1)
    start = Point(choice, "Simple", 1, 512, 4 << 20)
    space = Space({choice: dict.fromkeys(PROTOCOLS, CHANNELS)}, start, grid=grid)
    points = list(space.grid())
    assert start in points and len(set(points)) == len(points) == space.grid_size
    assert {p.threads for p in points} == {512}  # four ranks share two cores
    assert {p.protocol for p in points} == {"Simple", "LL"}
    for point in points:
        assert space.point(space.indices(point)) == space.nearest(point) == point
    assert Point(choice, "LL128", 1, 512, 4 << 20) not in space
    monkeypatch.setattr("os.cpu_count", lambda: 12)
    assert LoopbackExecutor(4).supported_knobs.threads == (128, 256, 512)  # three cores a rank
