"""Programs of all methods between real processes, and ranks that are lost at every kind of step."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tuccl.errors import Stuck, Unavailable
from tuccl.execution import Call
from tuccl.program import Knobs, Step, ThreadBlock
from tuccl.runtime.executors.mpi import MpiExecutor
from tuccl.runtime.executors.mpi_find import Mpi, find_mpi

KINDS = ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop")
# What is the same over both is tried over one here, and over the other by `make soak`.
ONE_MPI = pytest.mark.parametrize(
    "mpi", ["mpich", pytest.param("openmpi", marks=pytest.mark.slow)], indirect=True
)
LOST = {"SIGKILL": "died", "SIGSTOP": "does not answer"}
SHAPES = {
    4: ("dgx-1v 4", "ndv4 3+1", "ndv4 2+2"),
    9: ("torus 3x3", "ndv4 8+1", "ndv4 3+3+3", "dgx-2 9"),
}


@pytest.fixture(scope="module", params=("openmpi", "mpich"))
def mpi(request: pytest.FixtureRequest) -> Mpi:
    try:
        return find_mpi(request.param)
    except Unavailable as missing:
        pytest.skip(f"{missing}; `make mpi` does it")


def trials(
    matrix: ModuleType, covering: ModuleType, shapes: tuple[str, ...], every: int
) -> Iterator[Any]:
    """Yield one of `every` runs in which all methods' programs meet types, counts and knobs."""
    for method in dict.fromkeys(method for method, _ in matrix.PAIRS):
        names = [name for m, name in matrix.PAIRS if m == method]
        covered = covering.Covering(
            matrix.factors(names, shapes), random.Random(method), matrix.LOOSE
        )
        yield from matrix.trials(covered, method, every)


def assert_right(mpi: Mpi, ranks: int, chosen: list[Any]) -> None:
    with MpiExecutor(ranks, mpi, timeout_s=60) as executor:
        for trial in chosen:
            results = executor.run(trial.call)
            wrong = [f"rank {n}: {r.first_wrong}" for n, r in enumerate(results) if r.wrong]
            assert not wrong, f"{trial.recipe} {trial.way}: {wrong[0]}"


@ONE_MPI
def test_few_runs_of_all_methods_come_out_right(
    mpi: Mpi, matrix: ModuleType, covering: ModuleType, tally: Callable[..., None]
) -> None:
    """Messages held back at random in half of them."""
    chosen = list(trials(matrix, covering, SHAPES[4], every=40))
    of_more = {"hierarchical-doubling", "hierarchical-doubling+split"}  # three hosts of two
    assert {t.recipe.method for t in chosen} >= set(dict(matrix.PAIRS)) - of_more
    assert_right(mpi, 4, chosen)
    tally(runs_by_mpi=len(chosen))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ranks", range(2, 17))
def test_all_methods_come_out_right(
    mpi: Mpi, ranks: int, matrix: ModuleType, covering: ModuleType, tally: Callable[..., None]
) -> None:
    shapes = tuple(s for s in matrix.ALL_SHAPES if matrix.topology(s).ranks == ranks)
    chosen = list(trials(matrix, covering, shapes, every=1))
    assert_right(mpi, ranks, chosen)
    tally(runs_by_mpi=len(chosen))


def assert_named(mpi: Mpi, handmade: ModuleType, op: str, lost: int, number: str) -> None:
    """Take a rank away where rank 0 waits in its step; who is left says so, and all end."""
    window = 2
    call = Call(handmade.stalled(op, window), Knobs(), 4096, warmup=1)
    step = f"rank 0 tb 0 step {window if op == 's' else 1} ({op}) waits for"
    with MpiExecutor(3, mpi, timeout_s=60) as executor:
        executor.run(Call(handmade.ring_allgather(3), Knobs(), 64, checked=1))
        pids = executor.pids
        timer = threading.Timer(1.0, os.kill, (pids[lost], getattr(signal, number)))
        timer.start()
        with pytest.raises(Stuck) as stuck:
            executor.run(call)
        timer.join()
        text = str(stuck.value)
        # MPICH ends the others when one dies, and one of them may be noticed first.
        assert f"rank {lost} (process {pids[lost]}) {LOST[number]}" in text
        assert op == "s" or ", last seen after tb 0 step 0" in text
        assert step in text
        assert "rank 2 tb 0 step 0 (r) waits for data from rank 0" in text
        until = time.monotonic() + 20
        while any(Path(f"/proc/{pid}/exe").exists() for pid in pids) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(Path(f"/proc/{pid}/exe").exists() for pid in pids)


@pytest.mark.parametrize(("op", "lost"), [("rrcs", 1), ("s", 1), ("re", 0)])
def test_a_rank_lost_at_a_step_is_named(mpi: Mpi, handmade: ModuleType, op: str, lost: int) -> None:
    assert_named(mpi, handmade, op, lost, "SIGKILL")


@pytest.mark.slow
@pytest.mark.parametrize("op", KINDS)
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("number", LOST)
def test_a_rank_lost_at_any_step_is_named(
    mpi: Mpi, handmade: ModuleType, op: str, lost: int, number: str
) -> None:
    assert_named(mpi, handmade, op, lost, number)


@ONE_MPI
@pytest.mark.parametrize("number", LOST)
def test_a_rank_lost_between_calls_is_named(mpi: Mpi, handmade: ModuleType, number: str) -> None:
    """Even one that takes no call in, whatever its length: nothing waits for ever."""
    with MpiExecutor(3, mpi, timeout_s=60) as executor:
        executor.run(Call(handmade.ring_allgather(3), Knobs(), 64, checked=1))
        pids = executor.pids
        os.kill(pids[1], getattr(signal, number))
        idle = [ThreadBlock(0, -1, -1, 0, [Step("nop") for _ in range(6000)])]
        call = Call(handmade.program("allreduce", 3, 1, lambda rank: idle), Knobs(), 64, warmup=1)
        assert len(call.text) > 1 << 18  # more than a socket holds
        with pytest.raises(Stuck, match=r"process .* (died|does not answer)"):
            executor.run(call)
        assert executor.pids == []
