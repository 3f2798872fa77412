"""Tuning with named methods, solvers and given sketches, and over the parameters of sketches."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

import tuccl
from tuccl.errors import InputError
from tuccl.sketches import Sketch, SketchSpace, candidate_sketches
from tuccl.sketches.candidates import searched_sketches
from tuccl.synth import Collective, Options, Problem, Schedule, make_schedule
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import TuneOptions, programs
from tuccl.tuning.programs import ProgramCache
from tuccl.tuning.searches.descent import DescentSearch
from tuccl.tuning.searches.search import run_search
from tuccl.tuning.searches.space import Point, Space

SIZE = 64 << 10
Made = Callable[..., set[tuple[str, str]]]


@pytest.fixture(scope="module")
def cluster() -> Topology:
    return join(load_profile("v100x4"), 2)


def made(topology: Topology, options: TuneOptions) -> set[tuple[str, str]]:
    """The (method, sketch) of every program of a table of one size."""
    table = tuccl.tune(topology, "allgather", SIZE, options=options)
    candidates = [c for entry in table.lookup.entries for c in entry.candidates if c.method]
    assert candidates
    return {(str(c.method), str(c.sketch)) for c in candidates}


def test_named_methods_alone_make_programs(cluster: Topology) -> None:
    found = made(cluster, TuneOptions(budget=24, methods=("ring", "hierarchical2")))
    assert {method for method, _ in found} <= {"ring", "hierarchical2"}


def test_given_sketches_alone_are_used(cluster: Topology) -> None:
    own = tuple(s for s in candidate_sketches(cluster, "allgather", SIZE) if s.name == "one")
    found = made(cluster, TuneOptions(budget=24, sketches=own))
    assert {sketch for _, sketch in found} == {"one"}
    renamed = Sketch(**{f: getattr(own[0], f) for f in own[0].__struct_fields__} | {"name": "mine"})
    found = made(cluster, TuneOptions(budget=24, sketches=(renamed,), methods=("hierarchical2",)))
    assert found == {("hierarchical2", "mine")}


def test_a_solver_runs_where_quick_programs_are_fastest(
    cluster: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved: list[str] = []
    quick: list[str] = []

    def counted(problem: Problem, method: str, options: Options) -> Schedule:
        (solved if method == "taccl" else quick).append(problem.sketch.name)
        return make_schedule(problem, method, options)

    monkeypatch.setattr(programs, "_SOLVE_S", 1.0)
    monkeypatch.setattr(programs, "make_schedule", counted)
    found = made(cluster, TuneOptions(budget=60, methods=("taccl",)))
    assert {method for method, _ in found} <= {"taccl", "greedy"}
    assert 1 <= len(set(solved)) <= len(set(quick))


def test_an_interrupted_solve_ends_the_tune(
    cluster: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(problem: Problem, method: str, options: Options) -> Schedule:
        if method == "taccl":
            assert options.budget is not None
            options.budget.interrupted = True
        return make_schedule(problem, "greedy", Options())

    monkeypatch.setattr(programs, "make_schedule", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made(cluster, TuneOptions(budget=60, methods=("taccl",)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (TuneOptions(methods=("rings", "tacl")), "method 'tacl': expected one of ring, .*taccl"),
        (
            TuneOptions(sketches=2 * candidate_sketches(load_profile("v100x4"), "allgather", SIZE)),
            "duplicate sketch 'full-mesh'",
        ),
    ],
)
def test_bad_names_are_refused(cluster: Topology, options: TuneOptions, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tuccl.tune(cluster, "allgather", SIZE, options=options)


@pytest.fixture(scope="module")
def wide() -> tuple[Space, SketchSpace, ProgramCache]:
    """Two hosts of four GPUs on PCIe: links inside are worth pruning there."""
    host = load_profile("v100x4")
    links = tuple(link for link in host.links if link.kind != "nvlink")
    topology = join(Topology("PCIe only", host.nodes, links), 2)
    cache = ProgramCache(topology, Collective("allgather", 8))
    sketches, wider = searched_sketches(topology, "allgather", SIZE)
    assert wider is not None
    space = cache.space(sketches, SIZE, wider=wider)
    assert space is not None
    return space, wider, cache


def test_indices_reach_every_sketch(wide: tuple[Space, SketchSpace, ProgramCache]) -> None:
    space, sketches, _ = wide
    start = space.nearest(space.points(space.choices[-1], "Simple", 1)[0])
    names = set()
    for values in itertools.product(*map(range, map(len, sketches.axes.values()))):
        indices = {**space.indices(start), **dict(zip(sketches.axes, values, strict=True))}
        point = space.point(indices)
        assert point in space
        assert space.point(space.indices(point)) == point
        assert space.nearest(point) == point
        names.add(point.choice.sketch)
    assert names - set(space.sketches), "others than the candidates"


def test_descent_leaves_the_candidates(wide: tuple[Space, SketchSpace, ProgramCache]) -> None:
    """Where fewer links are faster, it goes on from the candidate that has the fewest."""
    space, sketches, _ = wide

    def evaluate(point: Point, repeats: int) -> list[float]:
        return [float(len(sketches.sketch(point.choice.sketch).links))]

    tried = run_search(DescentSearch(space), evaluate, 100).ranked()
    assert all(point in space for point in tried)
    others = {point.choice.sketch for point in tried} - set(space.sketches)
    assert {name.split("-")[0] for name in others} == {"one"}
