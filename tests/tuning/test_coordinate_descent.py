"""Descents: each ends where no single change is faster, and they begin at different programs."""

from tests.tuning.conftest import Surface, small_space
from tuccl.program import default_buffer_bytes
from tuccl.synth import ScheduleChoice
from tuccl.tuning.searches.coordinate_descent import coordinate_descent
from tuccl.tuning.searches.initial_knobs import most_passes
from tuccl.tuning.searches.measurements import Measurements
from tuccl.tuning.searches.space import Point

SPACE = small_space()


def begun(surface: Surface) -> Measurements:
    measurements = Measurements()
    for method in SPACE.methods:
        point = next(SPACE.nearest(p) for p in SPACE.grid() if p.choice.method == method)
        measurements.add(point, surface(point, 1), 1)
    return measurements


def test_a_descent_ends_where_no_step_is_faster() -> None:
    surface = Surface(SPACE, 3)
    measurements = begun(surface)
    start = measurements.ranked()[0]
    for point in coordinate_descent(SPACE, measurements, start):
        assert point in SPACE
        measurements.add(point, surface(point, 1), 1)
    best = measurements.ranked()[0]
    for dimension in SPACE.dimensions:
        if dimension.name in ("channels", "threads", "buffer"):
            for step in (-1, 1):
                index = SPACE.indices(best)[dimension.name] + step
                if 0 <= index < dimension.size:
                    moved = SPACE.point({**SPACE.indices(best), dimension.name: index})
                    # Of buffers of as many passes one is as good as the other.
                    same = most_passes(SPACE, moved) == most_passes(SPACE, best)
                    if dimension.name != "buffer" or not same:
                        assert measurements.us(best) <= surface.us(moved)


def test_a_coarse_descent_leaves_the_buffer_alone() -> None:
    surface = Surface(SPACE, 3)
    measurements = begun(surface)
    start = measurements.ranked()[0]
    asked = []
    for point in coordinate_descent(
        SPACE, measurements, start, ("protocol", "chunking", "channels")
    ):
        measurements.add(point, surface(point, 1), 1)
        asked.append(point)
    stock = {default_buffer_bytes(protocol) for protocol in SPACE.protocols}
    assert asked and {p.buffer_bytes for p in asked} <= {start.buffer_bytes, *stock}


def test_a_descent_steps_over_buffers_that_change_nothing() -> None:
    best = 1 << 20

    def us(point: Point) -> float:
        return (
            9.0 + abs(point.buffer_bytes - best) / best if point.buffer_bytes < 2 * best else 10.0
        )

    measurements = Measurements()
    measurements.add(SPACE.default, (us(SPACE.default),), 1)
    for point in coordinate_descent(SPACE, measurements, SPACE.default):
        measurements.add(point, (us(point),), 1)
    assert SPACE.default.buffer_bytes > 2 * best
    assert measurements.ranked()[0].buffer_bytes == best


def test_buffers_that_hold_the_data_in_as_many_passes_are_not_timed() -> None:
    small = small_space(32 << 10)
    surface, measurements = Surface(small, 3), Measurements()
    measurements.add(small.default, surface(small.default, 1), 1)
    for point in coordinate_descent(small, measurements, small.default, ("buffer",)):
        measurements.add(point, surface(point, 1), 1)
    # Simple moves half of a buffer in a pass: 64 KiB and more are enough for one.
    assert {p.buffer_bytes for p in measurements.ranked()} == {4 << 20, 32 << 10, 16 << 10}


def test_fewer_threads_than_channels_need_take_a_channel_count_along() -> None:
    measurements = Measurements()

    def us(point: Point) -> float:
        return point.threads / 10 + (0.1 if point.channels == 16 else 0.2 * point.channels)

    choice = ScheduleChoice("pruned", "ring", 1)
    start = SPACE.nearest(Point(choice, "LL", 16, 512, 1 << 20))
    assert (start.channels, start.threads) == (16, 512)
    measurements.add(start, (us(start),), 1)
    for point in coordinate_descent(SPACE, measurements, start, ("threads",)):
        measurements.add(point, (us(point),), 1)
    best = measurements.ranked()[0]
    assert (best.channels, best.threads) == (1, 32)
