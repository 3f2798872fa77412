"""What a search times first: legal points of every method, with knobs that suit the size."""

import pytest

from tuccl.program import default_buffer_bytes
from tuccl.tuning import Point
from tuccl.tuning.searches.initial_knobs import suited_points
from tuccl.tuning.searches.initial_points import initial_points, plans_in_turn
from tuccl.tuning.searches.space import Plan, Space

METHODS = ("ring", "recursive", "allpairs", "greedy")
SKETCHES = ("pruned", "paired", "full-mesh")
DEFAULT = Plan("full-mesh", "msccl-default", 1)
PLANS = [DEFAULT, *(Plan(sketch, method, 1) for sketch in SKETCHES for method in METHODS)]


def space(nbytes: int, nchunks: int = 8) -> Space:
    """The default form on the full mesh, then each method on each sketch, the full mesh last."""
    legal = {"Simple": (1, 2, 4, 8), "LL": (1, 2, 4, 8), "LL128": (1, 2, 4)}
    start = Point(DEFAULT, "Simple", 1, 512, 4 << 20)
    return Space(dict.fromkeys(PLANS, legal), start, nbytes=nbytes, nchunks=lambda plan: nchunks)


def test_every_method_is_tried_on_the_first_sketch_and_on_the_full_mesh_first() -> None:
    points = initial_points(space(1 << 12), 9)
    tried = {(p.plan.method, p.plan.sketch) for p in points}
    assert tried >= {(m, s) for m in METHODS for s in ("pruned", "full-mesh")}
    assert len(points) == 9
    assert sorted(plans_in_turn(PLANS)) == sorted(PLANS)


def test_no_more_plans_are_looked_at_than_are_needed() -> None:
    looked: list[Plan] = []

    def refine(plan: Plan) -> dict[str, tuple[int, ...]]:
        looked.append(plan)
        return {"LL": (1,)}

    start = Point(DEFAULT, "LL", 1, 512, default_buffer_bytes("LL"))
    initial_points(Space({plan: {"LL": (1,)} for plan in PLANS}, start, refine), 3)
    assert len(looked) == 3


@pytest.mark.parametrize(
    ("nbytes", "protocol"), [(1 << 12, "LL"), (1 << 22, "LL128"), (1 << 28, "Simple")]
)
def test_knobs_suit_the_size(nbytes: int, protocol: str) -> None:
    here = space(nbytes)
    for plan in PLANS:
        points = suited_points(here, plan)
        assert len(set(points)) == len(points) > 2
        assert all(point in here for point in points)
        assert points[0].protocol == protocol
        assert len({point.protocol for point in points}) > 1


def test_a_buffer_suits_that_a_chunk_fills_a_few_times() -> None:
    small, middle = space(1 << 12), space(1 << 22)
    for point in suited_points(small, PLANS[1]):
        assert point.buffer_bytes == default_buffer_bytes(point.protocol)
    first = suited_points(middle, PLANS[1])[0]
    passes = (1 << 22) / 8 / (first.buffer_bytes * 15 / 128)
    assert 2 < passes < 8
