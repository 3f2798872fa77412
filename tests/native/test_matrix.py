"""All methods' programs in all ways, by threads as ranks: judged inside, and by numpy outside."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tuccl._native import run_on_data
from tuccl.synth import METHODS, searched_methods

METHOD_NAMES = (
    *searched_methods(unordered=True),
    "msccl-default",
    "nccl-ring",
    "nccl-tree",
    "nccl-p2p",
)
# Variants of a method, beside the one without and the one with both of their changes.
BETWEEN = ("allpairs+any-order", "allpairs+paired")
PATIENCE_S = 120.0
RUNNER = Path(__file__).resolve().parents[2] / "build" / "tsan" / "run_calls"
PARTS = 16  # of the soak's runs of a method, for as many processes as there are

Tally = Callable[..., None]


def wrong(matrix: ModuleType, numbers: ModuleType, trial: Any) -> str:  # noqa: ANN401
    """Return what a run leaves wrong: by the engine's own check, then on other data by numpy."""
    recipe, way = trial.recipe, trial.way
    rng = np.random.default_rng(list(repr(recipe).encode()))
    counts = matrix.input_counts(recipe, trial.program, way)
    inputs = [numbers.drawn(way.datatype, way.op, count, rng) for count in counts]
    data = run_on_data(trial.call, [given.tobytes() for given in inputs], PATIENCE_S)
    outputs = [np.frombuffer(out, numbers.STORED[way.datatype]) for out in data]
    root = recipe.collective.root
    found: str = numbers.fault(recipe.name, root, way.datatype, way.op, inputs, outputs)
    return found


def wrong_on_gpus(gpu_emulation: ModuleType, trial: Any) -> str:  # noqa: ANN401
    """Return what the interpreter of GPUs, played on this CPU, leaves wrong."""
    results = gpu_emulation.emulate_gpus(trial.call, PATIENCE_S)
    return next((f"rank {n}: {r.first_wrong}" for n, r in enumerate(results) if r.wrong), "")


def few_trials(matrix: ModuleType, covering: ModuleType, method: str) -> Iterator[Any]:
    """Yield runs in which every collective meets every machine, and most values meet each other."""
    names = [name for m, name in matrix.PAIRS if m == method]
    solved = method in METHODS and METHODS[method].solver
    factors = matrix.factors(names, matrix.SOLVED_SHAPES if solved else matrix.FEW_SHAPES)
    covered = covering.Covering(factors, random.Random(method), matrix.LOOSE)
    yield from matrix.trials(covered, method)


def all_trials(matrix: ModuleType, covering: ModuleType, method: str, name: str) -> Iterator[Any]:
    """Yield runs on all machines in which every value meets every other."""
    factors = matrix.factors([name], matrix.ALL_SHAPES)
    yield from matrix.trials(covering.Covering(factors, random.Random(name)), method)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in BETWEEN else [])
        for name in METHOD_NAMES
    ],
)
def test_few_of_all_runs_come_out_right(
    method: str,
    matrix: ModuleType,
    covering: ModuleType,
    numbers: ModuleType,
    gpu_emulation: ModuleType,
    tally: Tally,
) -> None:
    """Machines, counts, types, reductions, knobs, delays: many with each other, for each method.

    A program that ran is run again by one way in three; `make soak` has all.
    """
    seen, runs = set(), 0
    for number, trial in enumerate(few_trials(matrix, covering, method)):
        if number % 3 and trial.recipe in seen:
            continue
        found = wrong(matrix, numbers, trial)
        if runs % 32 == 0 and trial.way.count != "large prime":
            found = found or wrong_on_gpus(gpu_emulation, trial)
        assert not found, f"{trial.recipe} {trial.way}: {found}"
        seen.add(trial.recipe)
        runs += 2
    assert {r.name for r in seen} == {name for m, name in matrix.PAIRS if m == method}
    tally(programs=len(seen), runs=runs)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("name", sorted({*METHODS["greedy"].collectives}))
@pytest.mark.timeout(7200)
def test_all_runs_come_out_right(
    method: str,
    name: str,
    matrix: ModuleType,
    covering: ModuleType,
    numbers: ModuleType,
    gpu_emulation: ModuleType,
    tally: Tally,
) -> None:
    if (method, name) not in matrix.PAIRS:
        pytest.skip(f"{method} does not do {name}")
    seen, faults, runs = set(), [], 0
    for trial in all_trials(matrix, covering, method, name):
        found = wrong(matrix, numbers, trial) or wrong_on_gpus(gpu_emulation, trial)
        faults += [f"{trial.recipe} {trial.way}: {found}"] * bool(found)
        seen.add(trial.recipe)
        runs += 2
    tally(programs=len(seen), runs=runs)
    assert seen
    assert faults == []


@pytest.mark.slow
@pytest.mark.parametrize(("method", "name"), [("packing", "allreduce"), ("flow", "alltoall")])
@pytest.mark.parametrize("protocol", ["Simple", "LL"])
def test_huge_counts_come_out_right(
    method: str, name: str, protocol: str, matrix: ModuleType, numbers: ModuleType
) -> None:
    """Tens of MiB on each rank, in many passes with a rest."""
    for shape in ("ndv4 2+1", "cube-mesh"):
        recipe = matrix.Recipe(method, name, shape, sketch=1, parts=2, protocol=protocol)
        made = matrix.program(recipe)
        way = matrix.Way(protocol, 1 << 20, "huge", "float", "sum", 0)
        call = matrix.call_of(recipe, made, way, made.in_place, 1)
        assert wrong(matrix, numbers, matrix.Trial(recipe, made, way, call)) == ""


def raced(trials: list[Any], report: Path, *by: str) -> str:
    """Run calls under the thread sanitizer; return what it says, or which came out wrong.

    They run by the engine, or ``by`` "host-form": the interpreter of GPUs.
    """
    texts = [trial.call.text.encode() for trial in trials]
    told = b"".join(b"%d\n%s" % (len(text), text) for text in texts)
    done = subprocess.run(
        [RUNNER, *by],
        input=told,
        capture_output=True,
        timeout=6000,
        check=False,
        env={"TSAN_OPTIONS": f"log_path={report}"},
    )
    races = "".join(file.read_text()[:2000] for file in report.parent.glob(f"{report.name}.*"))
    said = done.stdout.decode(errors="replace").strip()
    clean = done.returncode == 0 and said == f"{len(trials)} calls, 0 wrong"
    return races if clean else f"exit code {done.returncode}: {said[-2000:]} {races}"


needs_runner = pytest.mark.skipif(
    not RUNNER.exists(), reason="build/tsan/run_calls is not built; `make cpp` does it"
)


@needs_runner
def test_few_of_all_runs_have_no_race(
    matrix: ModuleType, covering: ModuleType, tally: Tally, tmp_path: Path
) -> None:
    """Two machines of each method and collective, held back at random, under the sanitizer."""
    chosen = []
    for method in METHOD_NAMES:
        few = [t for t in few_trials(matrix, covering, method) if t.way.count != "large prime"]
        chosen += [t for t in few if t.way.delay_us][:: max(1, len(few) // 8)]
    assert raced(chosen, tmp_path / "race") == ""
    tally(runs_under_tsan=len(chosen))


@needs_runner
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_run_has_a_race(
    method: str, part: int, matrix: ModuleType, tally: Tally, tmp_path: Path
) -> None:
    """Every program of the smallest options, by every protocol, held back at random.

    The interpreter of GPUs, whose threads are many, runs one in four.
    """
    chosen = list(islice(_each_program(matrix, method), part, None, PARTS))
    assert raced(chosen, tmp_path / "race") == ""
    on_gpus = chosen[part % 4 :: 4]
    assert raced(on_gpus, tmp_path / "race", "host-form") == ""
    tally(runs_under_tsan=len(chosen) + len(on_gpus))


def _each_program(matrix: ModuleType, method: str) -> Iterator[Any]:
    rng = random.Random(method)
    for name in (name for m, name in matrix.PAIRS if m == method):
        for shape in matrix.ALL_SHAPES:
            for sketch, protocol in enumerate(("Simple", "LL", "LL128")):
                recipe = matrix.Recipe(method, name, shape, sketch, 1 + sketch % 2, 1, protocol)
                made = matrix.program(recipe)
                if made is None:
                    continue
                count = rng.choice(matrix.COUNTS[:3])
                kinds = rng.choice(matrix.DATATYPES), rng.choice(matrix.OPS)
                way = matrix.Way(protocol, rng.choice((1 << 12, 1 << 16)), count, *kinds, 200)
                in_place = rng.choice(matrix.placements(made))
                call = matrix.call_of(recipe, made, way, in_place, rng.randrange(1 << 30))
                yield matrix.Trial(recipe, made, way, call)
