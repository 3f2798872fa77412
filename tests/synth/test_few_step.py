"""Few steps: k-synchronous schedules hold what they claim, and programs have as few hops."""

from __future__ import annotations

import sys
from collections import Counter
from fractions import Fraction

import pytest

from tuccl._native import verify
from tuccl.errors import Infeasible
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, Options, Problem, Schedule, lower, synthesize
from tuccl.synth.bounds.hops import hop_bound, longest_chain
from tuccl.synth.few_step.few_step import FEWSTEP_COLLECTIVES, spread_of
from tuccl.synth.few_step.frontier import frontier
from tuccl.synth.few_step.host_waves import equal_parts
from tuccl.synth.few_step.relaxation import Spread, symmetry
from tuccl.synth.few_step.rounds import Crossing, FewSteps, faults, few_steps
from tuccl.synth.model.demand import Demand
from tuccl.synth.model.network import Network, sketch_network
from tuccl.synth.model.solver import Budget
from tuccl.topology import Topology, all_paths
from tuccl.topology.reference import REFERENCE_FABRICS, a100_pod, cube_mesh, torus

pytest.importorskip("ortools")


def asked() -> Budget:
    """Return room enough on a busy machine; effort ends the search."""
    return Budget(seconds=120.0, effort=2.0)


def spread(t: Topology, name: str, chunks: int) -> Spread:
    return spread_of(name, 0, chunks, sketch_network(full_mesh(t), t))[0]


@pytest.mark.parametrize(("steps", "chunks", "rounds"), [(2, 1, 2), (2, 2, 3), (3, 6, 7)])
def test_a_cube_mesh_has_the_points_that_sccl_reports(steps: int, chunks: int, rounds: int) -> None:
    question = spread(cube_mesh(), "allgather", chunks)
    found = few_steps(question, steps, asked())
    assert found.status == "solved"
    assert faults(question, found) is None
    assert sum(found.rounds) == rounds == found.least_rounds
    assert found.best


@pytest.mark.parametrize(
    ("steps", "chunks", "rounds"), [(1, 1, 9), (2, 2, 2), (2, 3, 4), (2, 6, 8)]
)
def test_what_cannot_be_is_proved(steps: int, chunks: int, rounds: int) -> None:
    question = spread(cube_mesh(), "allgather", chunks)
    assert few_steps(question, steps, asked(), rounds).status == "impossible"


def test_no_time_is_not_a_proof() -> None:
    question = spread(cube_mesh(), "allgather", 6)
    found = few_steps(question, 3, Budget(seconds=0.0))
    assert found.status == "out of time"
    assert not found.rounds


def test_the_frontier_rises_to_the_cut_bound() -> None:
    t = cube_mesh()
    points = list(frontier(lambda chunks: spread(t, "allgather", chunks), 6, asked()))
    assert [point.steps for point in points] == sorted({point.steps for point in points})
    costs = [point.cost for point in points]
    assert costs == sorted(set(costs), reverse=True)
    assert points[0].steps == hop_bound(t, Collective("allgather", 8))
    assert costs[-1] == Fraction(7, 6)
    for point in points:
        assert faults(spread(t, "allgather", point.chunks), point.found) is None


def test_a_transitive_machine_is_solved_for_one_rank() -> None:
    question = spread(torus(4, 4), "allgather", 4)
    group = symmetry(question)
    assert len(group.representatives) == 4
    found = few_steps(question, 4, asked())
    assert found.best
    assert faults(question, found) is None
    assert sum(found.rounds) == 15


def test_equal_calls_give_equal_answers() -> None:
    question = spread(cube_mesh(), "allgather", 2)
    one, other = (few_steps(question, 2, asked()) for _ in range(2))
    assert one == other
    assert one.reproducible


def wires() -> Network:
    ends = ((0, 1), (1, 2))
    return Network((0, 0, 0), ends, ((0,), (1,)), (0.0, 0.0), (Fraction(25), Fraction(50)))


@pytest.mark.parametrize(
    ("crossings", "fault"),
    [
        (((0, 0, 0), (1, 1, 0)), None),
        (((0, 0, 0), (0, 1, 0)), "before it is there"),
        (((0, 0, 0), (1, 0, 0)), "comes to rank 1 again"),
        (((0, 0, 0),), "does not reach rank 2"),
        (((0, 0, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1)), "carries 2 items"),
    ],
)
def test_the_checker_finds_faults(
    crossings: tuple[tuple[int, int, int], ...], fault: str | None
) -> None:
    items = (Demand(0, frozenset({1, 2})),) * (2 if len(crossings) == 4 else 1)
    question = Spread(wires(), items, Fraction(25))
    found = FewSteps("solved", 2, (1, 1), 2, tuple(Crossing(*each) for each in crossings))
    said = faults(question, found)
    assert (said is None) if fault is None else (said is not None and fault in said)


@pytest.mark.parametrize("name", sorted(FEWSTEP_COLLECTIVES))
@pytest.mark.parametrize("fabric", ["dgx1", "a100", "2x-a100"])
def test_programs_have_the_fewest_hops_or_one_more(fabric: str, name: str) -> None:
    t = REFERENCE_FABRICS[fabric]()
    collective = Collective(name, t.ranks, 3)
    schedule = synthesize(Problem(collective, full_mesh(t), 1, 1 << 10, t), "fewstep")
    program = lower(schedule)
    assert verify(program, "executor", 3).ok
    assert longest_chain(schedule) <= hop_bound(t, collective) + 1


@pytest.mark.parametrize("name", ["allgather", "allreduce"])
def test_a_nic_sends_few_messages(name: str) -> None:
    """Each NIC of several hosts sends one message to each other host, of all that goes there."""
    t = a100_pod(3)
    schedule = synthesize(Problem(Collective(name, 24), full_mesh(t), 1, 1 << 10, t), "fewstep")
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
    schedule = synthesize(
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
    schedule = synthesize(
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
def test_steps_asked_for_are_kept_and_what_is_proved_is_said(name: str) -> None:
    t = cube_mesh()

    def made(chunks: int, steps: int) -> Schedule:
        problem = Problem(Collective(name, 8), full_mesh(t), chunks, 1 << 20, t)
        return synthesize(problem, "fewstep", Options(steps=steps, budget=asked()))

    with pytest.raises(Infeasible, match="proved: there is no schedule of 1 step"):
        made(1, 1)
    for steps, chunks, rounds in ((2, 2, 3), (3, 6, 7)):
        schedule = made(chunks, steps)
        assert longest_chain(schedule) == steps
        assert schedule.outcome.startswith(f"{steps} steps of {rounds} rounds in all")
        assert f"proved the fewest for {steps} steps" in schedule.outcome


def test_an_allreduce_keeps_to_the_steps_of_both_its_halves() -> None:
    t = cube_mesh()
    problem = Problem(Collective("allreduce", 8), full_mesh(t), 1, 1 << 20, t)
    for steps in (2, 4):
        schedule = synthesize(problem, "fewstep", Options(steps=steps, budget=asked()))
        assert verify(lower(schedule), "executor", 0).ok
        assert longest_chain(schedule) <= steps
    with pytest.raises(Infeasible, match="takes 2 steps at least"):
        synthesize(problem, "fewstep", Options(steps=1, budget=asked()))


def test_hosts_that_differ_are_not_mapped() -> None:
    t = a100_pod(2)
    hosts = equal_parts(sketch_network(full_mesh(t), t))
    assert hosts is not None
    assert hosts.doors == tuple((place,) for place in range(8))
    lopsided = Network(
        hosts=(0, 0, 1),
        pairs=((0, 1), (1, 0), (0, 2), (2, 0)),
        routes=((0,), (1,), (2,), (3,)),
        latencies_us=(0.0,) * 4,
        rates=(Fraction(1),) * 4,
    )
    assert equal_parts(lopsided) is None


def test_without_a_solver_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("ortools")]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    t = cube_mesh()
    with pytest.raises(Infeasible, match=r"pip install tuccl\[solver\]"):
        synthesize(Problem(Collective("alltoall", 8), full_mesh(t), 3, 1 << 10, t), "fewstep")
