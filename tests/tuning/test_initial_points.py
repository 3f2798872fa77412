"""What a search times first: legal points, the promising ones before the limit cuts them off."""

from tuccl.tuning import Measurements, Point
from tuccl.tuning.searches.initial_points import initial_points
from tuccl.tuning.searches.space import Plan, Space

METHODS = ("ring", "recursive", "allpairs", "greedy")
SKETCHES = ("pruned", "paired", "full-mesh")


def space() -> Space:
    """The default form on the full mesh, then each method on each sketch, the full mesh last."""
    default = Plan("full-mesh", "msccl-default", 1)
    plans = [default, *(Plan(sketch, method, 1) for sketch in SKETCHES for method in METHODS)]
    legal = {"Simple": (1, 2, 4, 8), "LL": (1, 2, 4, 8), "LL128": (1, 2, 4)}
    return Space({plan: legal for plan in plans}, Point(default, "Simple", 1, 512, 4 << 20))


SPACE = space()


def timed(*methods: str) -> Measurements:
    """What a neighbouring size knows: ``methods``, each ten times as slow as the one before."""
    measurements = Measurements()
    for place, method in enumerate(methods):
        plan = Plan("full-mesh", method, 1)
        measurements.add(Point(plan, "LL", 1, 512, 512 << 10), (10.0 ** (place + 1),), 1)
    return measurements


def test_every_method_is_tried_on_the_first_sketch_and_on_the_full_mesh() -> None:
    tried = {(p.plan.method, p.plan.sketch) for p in initial_points(SPACE, 1 << 12, None, 50)}
    assert tried >= {(m, s) for m in METHODS for s in ("pruned", "full-mesh")}
    assert all(point in SPACE for point in initial_points(SPACE, 1 << 12, None, 50))


def test_what_the_neighbour_found_hopeless_comes_last() -> None:
    known = timed("greedy", "ring")
    points = initial_points(SPACE, 1 << 12, known, 50)
    of = {m: [k for k, p in enumerate(points) if p.plan.method == m] for m in METHODS}
    fresh = [k for k, p in enumerate(points) if p.plan.sketch == "pruned"]
    assert points[0].plan.method == "greedy"
    # Beside what is carried over, those that nobody timed go before the hopeless one.
    for method in ("recursive", "allpairs"):
        assert max(k for k in of[method] if k in fresh) < max(k for k in of["ring"] if k in fresh)


def test_knobs_suit_the_size_and_the_limit_holds() -> None:
    for nbytes, protocol in ((1 << 12, "LL"), (1 << 22, "LL128"), (1 << 28, "Simple")):
        assert {p.protocol for p in initial_points(SPACE, nbytes, None, 50)} == {protocol}
        assert len(initial_points(SPACE, nbytes, None, 3)) == 3
