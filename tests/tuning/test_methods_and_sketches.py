"""Tuning with named methods, solvers and given sketches, and over the parameters of sketches."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tuccl
from baseline_searches import BASELINE_SEARCHES
from tuccl.errors import InputError
from tuccl.sketches import Sketch, SketchSpace, candidate_sketches
from tuccl.sketches.candidates import searched_sketches
from tuccl.synth import (
    Collective,
    Options,
    Problem,
    Schedule,
    ScheduleChoice,
    make_schedule,
)
from tuccl.topology import Topology, join, load_profile
from tuccl.tuning import SEARCHES, TuneOptions, programs
from tuccl.tuning.programs import ProgramCache
from tuccl.tuning.searches.descent import DescentSearch
from tuccl.tuning.searches.search import run_search
from tuccl.tuning.searches.space import Point, Space
from tuccl.tuning.studies.schedule_store import SCHEDULE

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


@pytest.mark.parametrize("search", ["descent", "tpe"])
def test_a_solver_runs_where_quick_programs_are_fastest(
    cluster: Topology, monkeypatch: pytest.MonkeyPatch, search: str
) -> None:
    """Even within a small budget; what chose its sketches enters no table."""
    quick: list[str] = []
    solved: list[str] = []

    def counted(problem: Problem, method: str, options: Options) -> Schedule:
        if method == "taccl":
            assert problem.sketch.name in quick
        (solved if method == "taccl" else quick).append(problem.sketch.name)
        return make_schedule(problem, "greedy", Options())

    monkeypatch.setattr(programs, "make_schedule", counted)
    found = made(cluster, TuneOptions(budget=32, methods=("taccl",), search=search))
    assert {method for method, _ in found} == {"taccl"}
    assert 1 <= len(set(solved)) <= 4


def solver_space() -> Space:
    """Six sketches, each worse than the one before; a solver is twice as fast as greedy."""
    legal = {"LL": (1, 2), "Simple": (1, 2)}
    methods = ("msccl-default", "greedy", "taccl", "fewstep")
    choices = [ScheduleChoice(f"s{n}", method, 1) for n in range(6) for method in methods]
    default = Point(choices[0], "Simple", 1, 512, 4 << 20)
    return Space(dict.fromkeys(choices, legal), default)


@pytest.mark.parametrize("name", sorted(SEARCHES | BASELINE_SEARCHES))
def test_every_search_asks_for_a_quick_program_first(name: str) -> None:
    search = (SEARCHES | BASELINE_SEARCHES)[name](solver_space(), seed=3)
    us: dict[str, float] = {}
    tried = set()
    for _ in range(80):
        if (request := search.ask()) is None:
            break
        choice = request.point.choice
        time_us = 10.0 + int(choice.sketch[1:])
        if choice.method in ("taccl", "fewstep"):
            assert choice.sketch in sorted(us, key=us.__getitem__)[:4]
            tried.add(choice.method)
            time_us /= 2
        search.tell(request, [time_us])
        if choice.method == "greedy":
            us[choice.sketch] = time_us
    assert tried == {"taccl", "fewstep"} or (name in BASELINE_SEARCHES and tried)
    assert search.best is not None
    assert search.best.choice.method in tried


TUNE = """
import sys, tuccl
from tuccl.synth.model import solver
from tuccl.topology import join, load_profile

start = solver._Run._start
def started(run):
    start(run)
    print("solving", flush=True)

solver._Run._start = started
topology = join(load_profile("ndv2"), 2)
options = tuccl.TuneOptions(budget=40, methods=(sys.argv[1],))
try:
    tuccl.tune(topology, "allgather", "64K", options=options, path=sys.argv[2])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("method", ["taccl", "fewstep"])
def test_an_interrupt_ends_the_tune_and_stores_no_schedule(method: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", TUNE, method, str(tmp_path / "table")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tune:
        assert tune.stdout is not None
        assert tune.stdout.readline() == "solving\n"
        before = set((tmp_path / "table.study").glob(f"*{SCHEDULE}"))
        tune.send_signal(signal.SIGINT)
        assert tune.stdout.read().splitlines()[-1] == "interrupted"
    assert set((tmp_path / "table.study").glob(f"*{SCHEDULE}")) == before
    assert not (tmp_path / "table").exists()


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


def test_indices_reach_other_sketches(wide: tuple[Space, SketchSpace, ProgramCache]) -> None:
    space, sketches, _ = wide
    start = space.nearest(space.points(space.choices[-1], "Simple", 1)[0])
    names = set()
    every = itertools.product(*map(range, map(len, sketches.axes.values())))
    for values in itertools.islice(every, 0, None, 97):
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
