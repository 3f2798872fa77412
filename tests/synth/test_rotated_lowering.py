"""Large schedules that a rotation leaves as they are: a part is lowered and rotated."""

import sys
from dataclasses import replace

import pytest

from tuccl.program import Program, verify
from tuccl.sketches import full_mesh
from tuccl.synth import Collective, lower, make_schedule
from tuccl.synth.baseline.nccl import nccl_ring
from tuccl.synth.bounds.link_load import fraction_of_bound
from tuccl.synth.lowering.rotation import rotation_of
from tuccl.synth.model.problem import Problem
from tuccl.synth.model.schedule import Address, Schedule, Transfer
from tuccl.topology import Topology, join, load_profile

MODULE = sys.modules[lower.__module__]


def hosts(count: int) -> Topology:
    return join(load_profile("v100x4"), count)


def ring(ranks: int) -> Schedule:
    """The first step of an allgather's ring."""
    transfers = tuple(
        Transfer(rank, (rank + 1) % ranks, Address("i", 0), Address("o", rank))
        for rank in range(ranks)
    )
    return Schedule(Collective("allgather", ranks), ranks, transfers, (0,) * ranks, "ring", 1)


def test_a_ring_is_the_same_after_each_rotation_and_without_a_message_after_none() -> None:
    schedule = ring(8)
    assert rotation_of(schedule) == 1
    assert rotation_of(replace(schedule, transfers=schedule.transfers[1:])) == 0


def test_what_differs_every_other_rank_takes_a_rotation_by_two() -> None:
    schedule = ring(8)
    transfers = tuple(replace(t, channel=t.src % 2) for t in schedule.transfers)
    assert rotation_of(replace(schedule, transfers=transfers)) == 2


def test_messages_of_a_connection_in_another_order_are_another_schedule() -> None:
    schedule = ring(4)
    more = tuple(replace(t, src_at=t.dst_at) for t in schedule.transfers)
    twice = (*schedule.transfers, *more)
    assert rotation_of(replace(schedule, transfers=twice)) == 1
    swapped = (more[0], *schedule.transfers, *more[1:])
    assert rotation_of(replace(schedule, transfers=swapped)) == 0


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("allgather", "hierarchical3"),
        ("allgather", "greedy"),
        ("allreduce", "greedy"),
        ("allgather", "allpairs"),
    ],
)
def test_a_rotated_program_is_the_one_that_is_lowered_whole(
    name: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = hosts(8)
    schedule = make_schedule(
        Problem(Collective(name, t.ranks), full_mesh(t), 1, 1 << 20, t), method
    )
    schedule = replace(schedule, hints=replace(schedule.hints, rotation=0))
    whole = lower(schedule)
    rotated = rotated_too(schedule, monkeypatch)
    # Other hosts may pair other connections in a thread block when they are lowered themselves.
    assert moves(rotated)[:4] == moves(whole)[:4]
    assert (rotated.threadblocks, rotated.max_steps) == (whole.threadblocks, whole.max_steps)
    assert verify(rotated, "executor", 0).ok
    collective = Collective(name, t.ranks)
    assert fraction_of_bound(rotated, t, collective) == fraction_of_bound(whole, t, collective)


def moves(program: Program) -> list[list[tuple[object, ...]]]:
    """Return what each connection of each GPU does in its turn; numbers of blocks do not matter."""
    return [
        sorted(
            (
                block.channel,
                block.send_peer,
                block.recv_peer,
                [
                    (s.op, s.src_buffer, s.src_offset, s.dst_buffer, s.dst_offset, s.count)
                    for s in block.steps
                    if s.op != "nop"
                ],
            )
            for block in gpu.threadblocks
        )
        for gpu in program.gpus
    ]


def rotated_too(
    schedule: Schedule, monkeypatch: pytest.MonkeyPatch, dialect: str = "executor"
) -> Program:
    """Lower ``schedule`` as large ones are, and see that it was rotated."""
    taken: list[int] = []
    rotate = MODULE.rotated_gpus

    def seen(form: Schedule, first: list[object]) -> object:
        taken.append(form.hints.rotation)
        return rotate(form, first)

    monkeypatch.setattr(MODULE, "rotated_gpus", seen)
    monkeypatch.setattr(MODULE, "_FEWEST_ROTATED", 1)
    program = lower(schedule, dialect=dialect)
    assert taken
    assert taken[-1]
    return program


def test_a_ring_of_nccls_with_fused_receives_is_rotated_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    t = hosts(8)
    schedule = nccl_ring(t, Collective("allreduce", t.ranks), 2)
    whole = lower(schedule, dialect="fork")
    rotated = rotated_too(schedule, monkeypatch, "fork")
    assert any(
        step.op == "rrcs" for gpu in rotated.gpus for b in gpu.threadblocks for step in b.steps
    )
    assert moves(rotated) == moves(whole)


def test_what_cannot_be_rotated_is_lowered_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule whose rotation is a mistake has the right program all the same."""
    t = hosts(4)
    problem = Problem(Collective("allgather", t.ranks), full_mesh(t), 1, 1 << 20, t)
    schedule = make_schedule(problem, "recursive")
    monkeypatch.setattr(MODULE, "_FEWEST_ROTATED", 1)
    monkeypatch.setattr(MODULE, "rotation_of", lambda schedule: 4)
    program = lower(schedule)
    monkeypatch.undo()
    assert moves(program) == moves(lower(schedule))
