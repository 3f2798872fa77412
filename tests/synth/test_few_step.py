"""Few steps: k-synchronous schedules hold what they claim, and programs have as few hops."""

from __future__ import annotations

import sys
from collections import Counter
from fractions import Fraction

import pytest

from reference_fabrics import REFERENCE_FABRICS, a100_pod, cube_mesh, torus
from tests.few_step_reference import schedule_fault
from tuccl.errors import Infeasible
from tuccl.program import verify
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Options, Problem, Schedule, lower, make_schedule
from tuccl.synth.bounds.hops import hop_bound, longest_chain
from tuccl.synth.few_step.few_step import FEWSTEP_COLLECTIVES, instance_of
from tuccl.synth.few_step.instance import Instance, instance_symmetry
from tuccl.synth.few_step.k_synchronous import (
    KSynchronous,
    StepSend,
    solve_k_synchronous,
)
from tuccl.synth.model.demand import Demand
from tuccl.synth.model.hierarchy import equal_groups
from tuccl.synth.model.network import Network, sketch_network
from tuccl.synth.model.solver import Budget
from tuccl.topology import Topology, all_paths

pytest.importorskip("ortools")


def generous() -> Budget:
    """Return room enough on a busy machine; effort ends the search."""
    return Budget(seconds=120.0, effort=2.0)


def instance(t: Topology, name: str, chunks: int) -> Instance:
    return instance_of(Collective(name, t.ranks), chunks, sketch_network(full_mesh(t), t))[0]


@pytest.mark.parametrize(("steps", "chunks", "rounds"), [(2, 1, 2), (2, 2, 3), (3, 6, 7)])
def test_a_cube_mesh_has_the_points_that_sccl_reports(steps: int, chunks: int, rounds: int) -> None:
    problem = instance(cube_mesh(), "allgather", chunks)
    schedule = solve_k_synchronous(problem, steps, generous())
    assert schedule.status == "solved"
    assert schedule_fault(problem, schedule) is None
    assert sum(schedule.rounds) == rounds == schedule.least_rounds
    assert schedule.optimal


@pytest.mark.parametrize(
    ("steps", "chunks", "rounds"), [(1, 1, 9), (2, 2, 2), (2, 3, 4), (2, 6, 8)]
)
def test_what_cannot_be_is_proved(steps: int, chunks: int, rounds: int) -> None:
    problem = instance(cube_mesh(), "allgather", chunks)
    assert solve_k_synchronous(problem, steps, generous(), rounds).status == "impossible"


def test_no_time_is_not_a_proof() -> None:
    problem = instance(cube_mesh(), "allgather", 6)
    schedule = solve_k_synchronous(problem, 3, Budget(seconds=0.0))
    assert schedule.status == "out of time"
    assert not schedule.rounds


def test_a_transitive_machine_is_solved_for_one_rank() -> None:
    problem = instance(torus(4, 4), "allgather", 4)
    symmetry = instance_symmetry(problem)
    assert len(symmetry.representatives) == 4
    schedule = solve_k_synchronous(problem, 4, generous())
    assert schedule.optimal
    assert schedule_fault(problem, schedule) is None
    assert sum(schedule.rounds) == 15


def test_equal_calls_give_equal_answers() -> None:
    problem = instance(cube_mesh(), "allgather", 2)
    one, other = (solve_k_synchronous(problem, 2, generous()) for _ in range(2))
    assert one == other
    assert one.reproducible


def network() -> Network:
    ends = ((0, 1), (1, 2))
    return Network((0, 0, 0), ends, ((0,), (1,)), (0.0, 0.0), (Fraction(25), Fraction(50)))


@pytest.mark.parametrize(
    ("sends", "fault"),
    [
        (((0, 0, 0), (1, 1, 0)), None),
        (((0, 0, 0), (0, 1, 0)), "before it is there"),
        (((0, 0, 0), (1, 0, 0)), "comes to rank 1 again"),
        (((0, 0, 0),), "does not reach rank 2"),
        (((0, 0, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1)), "carries 2 chunks"),
    ],
)
def test_the_checker_finds_faults(
    sends: tuple[tuple[int, int, int], ...], fault: str | None
) -> None:
    demands = (Demand(0, frozenset({1, 2})),) * (2 if len(sends) == 4 else 1)
    problem = Instance(network(), demands, Fraction(25))
    schedule = KSynchronous("solved", 2, (1, 1), 2, tuple(StepSend(*each) for each in sends))
    message = schedule_fault(problem, schedule)
    assert (message is None) if fault is None else (message is not None and fault in message)


@pytest.mark.parametrize("name", sorted(FEWSTEP_COLLECTIVES))
@pytest.mark.parametrize("fabric", ["dgx1", "a100", "2x-a100"])
def test_programs_have_the_fewest_hops_or_one_more(fabric: str, name: str) -> None:
    t = REFERENCE_FABRICS[fabric]()
    collective = Collective(name, t.ranks, 3)
    schedule = make_schedule(Problem(collective, full_mesh(t), 1, 1 << 10, t), "fewstep")
    program = lower(schedule)
    assert verify(program, "executor", 3).ok
    assert longest_chain(schedule) <= hop_bound(t, collective) + 1


@pytest.mark.parametrize("name", ["allgather", "allreduce"])
def test_a_nic_sends_few_messages(name: str) -> None:
    """Each NIC of several hosts sends one message to each other host, of all that goes there."""
    t = a100_pod(3)
    schedule = make_schedule(Problem(Collective(name, 24), full_mesh(t), 1, 1 << 10, t), "fewstep")
    assert verify(lower(schedule), "executor", 0).ok
    ways = all_paths(t)
    sent = Counter(
        hop.src
        for each in schedule.transfers
        if each.src // 8 != each.dst // 8
        for hop in ways[each.src, each.dst].hops
        if "nic" in hop.src and "leaf" in hop.dst
    )
    assert len(sent) == 24
    assert set(sent.values()) == {2}


def test_a_small_alltoall_sends_one_message_a_nic() -> None:
    """All that one host has for another goes as one, where they share a NIC."""
    t = REFERENCE_FABRICS["2x-ndv2"]()
    schedule = make_schedule(
        Problem(Collective("alltoall", 16), full_mesh(t), 1, 1 << 10, t), "fewstep"
    )
    program = lower(schedule)
    assert verify(program, "executor", 0).ok
    crossing = [
        (gpu.id, block.send_peer, step.count)
        for gpu in program.gpus
        for block in gpu.threadblocks
        for step in block.steps
        if step.op == "s" and gpu.id // 8 != block.send_peer // 8
    ]
    assert crossing == [(0, 8, 64), (8, 0, 64)]
    assert "one host solved, and mapped to all 2" in schedule.outcome


def test_between_places_an_alltoall_sends_one_message_a_pair() -> None:
    t = a100_pod(3)
    schedule = make_schedule(
        Problem(Collective("alltoall", 24), full_mesh(t), 1, 1 << 10, t), "fewstep"
    )
    program = lower(schedule)
    assert verify(program, "executor", 0).ok
    for gpu in program.gpus:
        for block in gpu.threadblocks:
            if block.send_peer >= 0 and block.send_peer // 8 != gpu.id // 8:
                assert (block.send_peer - gpu.id) % 8 == 0
                assert [step.count for step in block.steps if step.op == "s"] == [8]


@pytest.mark.parametrize("name", ["allgather", "reduce-scatter"])
def test_requested_steps_are_kept_and_what_is_proved_is_said(name: str) -> None:
    t = cube_mesh()

    def few_step_schedule(chunks: int, steps: int) -> Schedule:
        problem = Problem(Collective(name, 8), full_mesh(t), chunks, 1 << 20, t)
        return make_schedule(problem, "fewstep", Options(steps=steps, budget=generous()))

    with pytest.raises(Infeasible, match="proved: there is no schedule of 1 step"):
        few_step_schedule(1, 1)
    for steps, chunks, rounds in ((2, 2, 3), (3, 6, 7)):
        schedule = few_step_schedule(chunks, steps)
        assert longest_chain(schedule) == steps
        assert schedule.outcome.startswith(f"{steps} steps of {rounds} rounds")
        assert f"proved the fewest for {steps} steps" in schedule.outcome


def test_an_allreduce_keeps_to_the_steps_of_both_its_halves() -> None:
    t = cube_mesh()
    problem = Problem(Collective("allreduce", 8), full_mesh(t), 1, 1 << 20, t)
    for steps in (2, 4):
        schedule = make_schedule(problem, "fewstep", Options(steps=steps, budget=generous()))
        assert verify(lower(schedule), "executor", 0).ok
        assert longest_chain(schedule) <= steps
    with pytest.raises(Infeasible, match="takes 2 steps at least"):
        make_schedule(problem, "fewstep", Options(steps=1, budget=generous()))


def test_hosts_that_differ_are_not_mapped() -> None:
    t = a100_pod(2)
    hosts = equal_groups(sketch_network(full_mesh(t), t))
    assert hosts is not None
    assert hosts.nic_groups == tuple((place,) for place in range(8))
    lopsided = Network(
        hosts=(0, 0, 1),
        pairs=((0, 1), (1, 0), (0, 2), (2, 0)),
        routes=((0,), (1,), (2,), (3,)),
        latencies_us=(0.0,) * 4,
        rates=(Fraction(1),) * 4,
    )
    assert equal_groups(lopsided) is None


def test_without_a_solver_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("ortools")]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    t = cube_mesh()
    with pytest.raises(Infeasible, match="pip install 'ortools=="):
        make_schedule(Problem(Collective("alltoall", 8), full_mesh(t), 3, 1 << 10, t), "fewstep")
