"""The simulator as an executor: what it promises, not what it models."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from tuccl.errors import InputError
from tuccl.program import Knobs, Program
from tuccl.runtime.executors.executor import Executor
from tuccl.runtime.executors.sim import GroupCall, SimExecutor, padded
from tuccl.simulation import simulate
from tuccl.sketches.rails import rails
from tuccl.synth import Collective, Problem, Schedule, lower, make_schedule
from tuccl.synth.baseline.nccl import nccl_program
from tuccl.synth.model.trace import Trace
from tuccl.topology import (
    Topology,
    join,
    keep_gpus,
    load_machine,
    load_profile,
    machine_of,
    network,
)


@pytest.fixture(scope="module")
def executor(hand: SimpleNamespace) -> Executor:
    return SimExecutor(hand.mesh())


def test_only_claimed_placements_are_timed(hand: SimpleNamespace, executor: Executor) -> None:
    both = executor.time(hand.ring_allgather(), Knobs(), 1 << 20)
    assert both.time_us and both.time_us_ip
    outside = executor.time(hand.ring_allgather(in_place=False), Knobs(), 1 << 20)
    assert (outside.time_us, outside.time_us_ip) == (both.time_us, None)
    inside = executor.time(hand.ring_allgather(out_of_place=False), Knobs(), 1 << 20)
    assert (inside.time_us, inside.time_us_ip) == (None, both.time_us_ip)
    assert inside.us == inside.time_us_ip and outside.us == outside.time_us


def test_calls_together_take_what_each_takes_and_a_refused_one_for_ever(
    hand: SimpleNamespace, executor: Executor
) -> None:
    program = hand.ring_allgather()
    calls = [(Knobs(threads=t), size) for t in (64, 512) for size in (1000, 1 << 20, 64 << 20)]
    times_us = [executor.time(program, *call).us for call in calls]
    refused = (Knobs(threads=100), 1000)
    assert executor.time_all(program, [refused, *calls]) == [math.inf, *times_us]
    assert Executor.time_all(executor, program, [*calls, refused]) == [*times_us, math.inf]
    bounds = executor.least_us(program, [*calls, refused])
    assert all(0 < b <= us * 1.0005 for b, us in zip(bounds, [*times_us, math.inf], strict=True))
    too_many = SimExecutor(hand.mesh(ranks=3))
    assert too_many.time_all(program, calls) == [math.inf] * len(calls)


def test_it_is_deterministic_and_says_it_simulates(
    hand: SimpleNamespace, executor: Executor
) -> None:
    again = SimExecutor(hand.mesh())
    program = hand.ring_allgather("LL")
    first = executor.time(program, Knobs("LL"), 65536, repeats=3)
    assert first == again.time(program, Knobs("LL"), 65536, repeats=3)
    assert first.samples_us == (first.us,) * 3
    assert first.on == executor.name == "sim" and first.wrong is None
    assert "simulated" in executor.label and hand.mesh().name in executor.label


def test_sizes_that_do_not_divide_are_padded(hand: SimpleNamespace, executor: Executor) -> None:
    program = hand.ring_allgather()
    odd = executor.time(program, Knobs(), (1 << 20) + 1)
    assert odd == executor.time(program, Knobs(), (1 << 20) + hand.ranks)
    assert [padded(n, 4) for n in (1, 4, 5)] == [4, 4, 8]


def test_more_bytes_take_longer(hand: SimpleNamespace, executor: Executor) -> None:
    program = hand.ring_allgather()
    times = [executor.time(program, Knobs(), 1 << n).us for n in range(10, 30, 2)]
    assert times == sorted(times)


def test_an_ideal_ring_takes_what_its_links_take(hand: SimpleNamespace) -> None:
    """n-1 steps of a share each over 50 GB/s links of 0.7 us, nothing else costing time."""
    executor = SimExecutor(hand.mesh(), load_machine("ideal"))
    nbytes = 1 << 30
    time_us = executor.time(hand.ring_allgather(), Knobs(), nbytes).us
    busiest = nbytes / hand.ranks * (hand.ranks - 1) / 50e3
    assert busiest <= time_us <= busiest * 1.01


def test_the_host_term_is_the_launchs(hand: SimpleNamespace) -> None:
    program = hand.ring_allgather()
    times = {
        launch: SimExecutor(hand.mesh(), launch=launch).time(program, Knobs(), 1024).us
        for launch in ("process", "mpi", "graph")
    }
    assert times["graph"] <= min(times.values()) and len(set(times.values())) > 1


@pytest.mark.parametrize(("nbytes", "repeats"), [(0, 1), (1024, 0), (-4, 1)])
def test_empty_calls_are_refused(
    hand: SimpleNamespace, executor: Executor, nbytes: int, repeats: int
) -> None:
    with pytest.raises(InputError):
        executor.time(hand.ring_allgather(), Knobs(), nbytes, repeats=repeats)


def test_programs_for_other_ranks_and_unknown_launches_are_refused(
    hand: SimpleNamespace, executor: Executor
) -> None:
    with pytest.raises(InputError, match="ranks"):
        executor.time(hand.ring_allgather(ranks=3), Knobs(), 1024)
    with pytest.raises(InputError, match="launch"):
        SimExecutor(hand.mesh(), launch="torchrun")


def test_many_ranks_have_routes_where_programs_send() -> None:
    topology = join(load_profile("dgx-h100"), 17)
    executor = SimExecutor(topology)
    problem = Problem(Collective("allreduce", 136), rails(topology), 1, 136 << 13, topology)
    rings = lower(_ring(136, period=4))
    assert rings.period == 4
    for program in (
        nccl_program(topology, problem.collective, "tree", 2),
        lower(make_schedule(problem, "hierarchical-doubling")),
        rings,
    ):
        _assert_has_routes(executor, topology, program)


def test_many_ranks_on_unlike_hosts_have_routes_too() -> None:
    topology = keep_gpus(join(load_profile("dgx-h100"), 17), range(132))
    executor, collective = SimExecutor(topology), Collective("allreduce", 132)
    _assert_has_routes(executor, topology, lower(_ring(132, period=4)))
    program = nccl_program(topology, collective, "ring", 1)
    time_us = _assert_has_routes(executor, topology, program)
    call = GroupCall(range(132), program, Knobs("LL128"), 132 << 13)
    assert executor.time_groups([call]) == [pytest.approx(time_us, rel=1e-6)]


def _ring(ranks: int, period: int) -> Schedule:
    """An allgather by one ring, of the chunks of the first ranks."""
    trace = Trace(Collective("allgather", ranks), 1, "ring", period)
    for step in range(ranks - 1):
        for chunk in range(period):
            trace.send(chunk, (chunk + step) % ranks, (chunk + step + 1) % ranks)
    return trace.schedule()


def _assert_has_routes(executor: SimExecutor, topology: Topology, program: Program) -> float:
    """Its time, which is that over all pairs' routes."""
    knobs, nbytes = Knobs("LL128"), program.ngpus << 13
    time_us = executor.time(program, knobs, nbytes).us
    every = simulate(
        program, knobs, network(topology), machine_of(topology), nbytes, launch="mpi"
    ).time_us
    assert time_us == pytest.approx(every, rel=1e-6)
    assert executor.time_all(program, [(knobs, nbytes)]) == [time_us]
    [least_us] = executor.least_us(program, [(knobs, nbytes)])
    assert least_us <= time_us
    return time_us
