"""What a search times first: legal points of every method, with knobs that suit the size."""

import pytest

from tuccl.program import default_buffer_bytes
from tuccl.synth import ScheduleChoice
from tuccl.tuning.searches.initial_knobs import suited_points
from tuccl.tuning.searches.initial_points import choices_in_turn, initial_points
from tuccl.tuning.searches.space import Point, Space

METHODS = ("ring", "recursive", "allpairs", "greedy")
SKETCHES = ("pruned", "paired", "full-mesh")
DEFAULT = ScheduleChoice("full-mesh", "msccl-default", 1)
CHOICES = [
    DEFAULT,
    *(ScheduleChoice(sketch, method, 1) for sketch in SKETCHES for method in METHODS),
]


def space(nbytes: int, nchunks: int = 8) -> Space:
    """The default form on the full mesh, then each method on each sketch, the full mesh last."""
    legal = {"Simple": (1, 2, 4, 8), "LL": (1, 2, 4, 8), "LL128": (1, 2, 4)}
    start = Point(DEFAULT, "Simple", 1, 512, 4 << 20)
    return Space(
        dict.fromkeys(CHOICES, legal), start, nbytes=nbytes, nchunks=lambda choice: nchunks
    )


def test_every_method_is_tried_on_the_first_sketch_and_on_the_full_mesh_first() -> None:
    points = initial_points(space(1 << 12), 9)
    tried = {(p.choice.method, p.choice.sketch) for p in points}
    assert tried >= {(m, s) for m in METHODS for s in ("pruned", "full-mesh")}
    assert len(points) == 9
    assert sorted(choices_in_turn(CHOICES)) == sorted(CHOICES)


def test_no_more_plans_are_looked_at_than_are_needed() -> None:
    looked: list[ScheduleChoice] = []

    def refine(choice: ScheduleChoice) -> dict[str, tuple[int, ...]]:
        looked.append(choice)
        return {"LL": (1,)}

    start = Point(DEFAULT, "LL", 1, 512, default_buffer_bytes("LL"))
    initial_points(Space({choice: {"LL": (1,)} for choice in CHOICES}, start, refine), 3)
    assert len(looked) == 3


@pytest.mark.parametrize(
    ("nbytes", "protocol"), [(1 << 12, "LL"), (1 << 22, "LL128"), (1 << 28, "Simple")]
)
def test_knobs_suit_the_size(nbytes: int, protocol: str) -> None:
    here = space(nbytes)
    for choice in CHOICES:
        points = suited_points(here, choice)
        assert len(set(points)) == len(points) > 2
        assert all(point in here for point in points)
        assert points[0].protocol == protocol
        assert len({point.protocol for point in points}) > 1


def test_a_buffer_suits_that_a_chunk_fills_a_few_times() -> None:
    small, middle = space(1 << 12), space(1 << 22)
    for point in suited_points(small, CHOICES[1]):
        assert point.buffer_bytes == default_buffer_bytes(point.protocol)
    first = suited_points(middle, CHOICES[1])[0]
    passes = (1 << 22) / 8 / (first.buffer_bytes * 15 / 128)
    assert 2 < passes < 8


def test_few_threads_suit_small_chunks_with_ll128_alone() -> None:
    threads: dict[str, list[int]] = {}
    for nbytes in (1 << 14, 1 << 19, 1 << 26):
        for point in suited_points(space(nbytes), CHOICES[1]):
            if point.channels == 1:
                threads.setdefault(point.protocol, []).append(point.threads)
    assert threads["LL128"] == sorted(set(threads["LL128"]))
    assert set(threads["LL"]) == {512}
