"""The local search: right schedules from every move, never slower, equal for equal seeds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuccl._native import Knobs, verify
from tuccl.errors import Infeasible, InputError
from tuccl.sketches import Sketch, candidate_sketches, full_mesh
from tuccl.synth import Collective, Improvement, Problem, Schedule, improve, lower, synthesize
from tuccl.synth.improve_moves import MOVES
from tuccl.synth.model.certificate import fault
from tuccl.synth.model.schedule import LoweringHints
from tuccl.topology import load_profile, machine_of, network

SIZE = 256 << 10
DGX = load_profile("dgx-1v")
WANTED = Improvement(network(DGX), machine_of(DGX), Knobs("LL128", 1, 512), SIZE, tries=40)
SKETCH = full_mesh(DGX)

BASES = [("allgather", "greedy"), ("allreduce", "recursive"), ("alltoall", "allpairs")]


def base(name: str, method: str, chunks: int = 2) -> Schedule:
    return synthesize(Problem(Collective(name, DGX.ranks), SKETCH, chunks, SIZE), method)


@pytest.mark.parametrize(("name", "method"), BASES)
def test_what_is_found_is_right_and_no_slower(
    name: str,
    method: str,
    run_schedule: Callable[[Schedule, random.Random, bool], bool],
) -> None:
    found = improve(base(name, method), SKETCH, WANTED)
    assert found.time_us <= found.before_us
    assert found.time_us == WANTED.time_us(lower(found.schedule, protocol="LL128"))
    assert verify(found.program, "executor", 0).ok
    for in_place in (False, True):
        claimed = found.program.in_place if in_place else found.program.out_of_place
        assert not claimed or run_schedule(found.schedule, random.Random(1), in_place)


def spoilt(schedule: Schedule) -> Schedule:
    """Return `schedule` with transfers moved about until its program takes a tenth longer."""
    rng = random.Random(7)
    best = WANTED.time_us(lower(schedule, protocol="LL128"))
    while WANTED.time_us(lower(schedule, protocol="LL128")) < 1.1 * best:
        other = MOVES["rechannel"](schedule, SKETCH, rng)
        if other is not None and fault(other) is None:
            schedule = other
    return schedule


def test_a_schedule_spoilt_on_purpose_is_mended() -> None:
    bad = spoilt(base("allgather", "rings"))
    found = improve(bad, SKETCH, replace(WANTED, tries=100))
    assert found.time_us < 0.97 * found.before_us


def test_a_greedy_schedule_gets_faster() -> None:
    found = improve(base("allgather", "greedy", 1), SKETCH, replace(WANTED, tries=120))
    assert found.time_us < found.before_us
    assert sum(found.gains.values()) > 0


def test_equal_seeds_find_the_same() -> None:
    schedule = base("allgather", "greedy")
    first, again = (improve(schedule, SKETCH, WANTED) for _ in range(2))
    assert (first.schedule, first.time_us) == (again.schedule, again.time_us)


def test_no_tries_change_nothing() -> None:
    schedule = base("allreduce", "recursive")
    found = improve(schedule, SKETCH, replace(WANTED, tries=0))
    assert (found.schedule, found.tried) == (schedule, 0)
    with pytest.raises(InputError, match="tries: expected 0"):
        improve(schedule, SKETCH, replace(WANTED, tries=-1))


def test_a_reroute_keeps_to_the_links_of_the_sketch() -> None:
    sketch = candidate_sketches(DGX, "allgather", SIZE)[0]
    schedule = synthesize(Problem(Collective("allgather", DGX.ranks), sketch, 1, SIZE), "greedy")
    found = improve(schedule, sketch, replace(WANTED, tries=80))
    assert {(t.src, t.dst) for t in found.schedule.transfers if not t.local} <= set(sketch.pairs)


@pytest.mark.parametrize("name", sorted(MOVES))
def test_every_move_finds_right_schedules(name: str, mesh: Callable[..., Sketch]) -> None:
    sketch = mesh([0, 0, 1, 1])
    rng = random.Random(0)
    starts = [
        synthesize(Problem(Collective(what, 4), sketch, 2, SIZE), "greedy")
        for what in ("allgather", "allreduce", "reduce-scatter")
    ]
    starts = [
        replace(s, hints=LoweringHints(split_send_recv=split))
        for s in starts
        for split in (False, True)
    ]
    right = 0
    for _ in range(60):
        schedule = rng.choice(starts)
        other = MOVES[name](schedule, sketch, rng)
        right += other is not None and other != schedule and fault(other) is None
    assert right > 0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(sorted(MOVES)), max_size=12))
def test_any_moves_are_wrong_or_lower_to_what_is_right(
    mesh: Callable[..., Sketch], seed: int, names: list[str]
) -> None:
    sketch = mesh([0, 0, 1, 1])
    rng = random.Random(seed)
    schedule = synthesize(Problem(Collective("allreduce", 4), sketch, 2, SIZE), "greedy")
    for name in names:
        other = MOVES[name](schedule, sketch, rng)
        if other is None or fault(other) is not None:
            continue
        schedule = other
    try:
        program = lower(schedule)
    except Infeasible:
        return  # limits of the dialect
    assert verify(program, "executor", 0).ok
