import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuning.conftest import small_space, tiny_space
from tuccl.errors import Infeasible
from tuccl.program import Knobs
from tuccl.runtime.executors.knob_grid import BUFFERS, CHANNELS, PROTOCOLS, THREADS, WHOLE_GRID
from tuccl.synth import ScheduleChoice
from tuccl.tuning.searches.space import Point, Space

SPACE = small_space()


def test_the_grid_holds_each_legal_point_once() -> None:
    points = list(SPACE.grid())
    assert len(points) == len(set(points)) == SPACE.grid_size
    assert all(point in SPACE for point in points)
    assert all(point.knobs.illegal() is None for point in points)
    assert all(point.knobs.normalised() == point.knobs for point in points)


def test_the_grid_is_what_normalising_the_whole_table_leaves() -> None:
    choice = ScheduleChoice("full-mesh", "ring", 1)
    space = Space({choice: {p: CHANNELS for p in PROTOCOLS}}, Point.of(choice, Knobs()))
    whole = {
        Point.of(choice, knobs)
        for protocol in PROTOCOLS
        for channels in CHANNELS
        for threads in THREADS
        for buffer_bytes in {*BUFFERS, *WHOLE_GRID.legal_buffers(protocol)}
        if (knobs := Knobs(protocol, channels, threads, buffer_bytes)).illegal() is None
    }
    assert set(space.grid()) == whole


@given(st.integers(0, SPACE.grid_size - 1))
def test_positions_and_indices_name_the_same_point(position: int) -> None:
    point = SPACE.at(position)
    assert SPACE.point(SPACE.indices(point)) == point
    assert SPACE.nearest(point) == point


@given(st.tuples(*(st.integers(0, d.size - 1) for d in SPACE.dimensions)))
def test_any_indices_give_a_legal_point(values: tuple[int, ...]) -> None:
    indices = {d.name: v for d, v in zip(SPACE.dimensions, values, strict=True)}
    assert SPACE.point(indices) in SPACE


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_buffer_index_names_another_buffer(protocol: str) -> None:
    sizes = {d.name: d.size for d in SPACE.dimensions}
    start = SPACE.indices(next(p for p in SPACE.grid() if p.protocol == protocol))
    found = [SPACE.point({**start, "buffer": i}).buffer_bytes for i in range(sizes["buffer"])]
    legal = WHOLE_GRID.legal_buffers(protocol)
    assert sorted(set(found)) == list(legal)
    assert len(found) - len(legal) == (1 if protocol == "LL128" else 0)  # 512 B holds no line


def test_points_of_another_space_are_carried_to_legal_ones() -> None:
    tiny = tiny_space()
    for point in list(SPACE.grid())[::97]:
        assert tiny.nearest(point) in tiny
    for point in tiny.grid():
        assert SPACE.nearest(point) == point  # the tiny space is part of the small one


def test_positions_outside_the_grid_are_refused() -> None:
    for position in (-1, SPACE.grid_size):
        with pytest.raises(IndexError):
            SPACE.at(position)


def test_an_illegal_default_is_refused() -> None:
    choice = ScheduleChoice("full-mesh", "ring", 1)
    with pytest.raises(Infeasible):
        Space({choice: {"LL": (1,)}}, Point(choice, "Simple", 1, 512, 4 << 20))
    with pytest.raises(Infeasible):
        Space({}, Point(choice, "Simple", 1, 512, 4 << 20))
