"""Lowering: what is fused, what limits do, and that nothing blocks for want of credit."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tuccl.errors import Infeasible, InputError
from tuccl.program import Program, verify
from tuccl.sketches import Sketch
from tuccl.synth import Collective, Placement, Problem, Schedule, lower, make_schedule
from tuccl.synth.model.certificate import verify_schedule
from tuccl.synth.model.schedule import Address, Transfer
from tuccl.synth.model.trace import Trace


def ops(program: Program) -> set[str]:
    return {step.op for gpu in program.gpus for tb in gpu.threadblocks for step in tb.steps}


def ring_of(count: int, ranks: int = 4) -> Schedule:
    """Return an allgather ring whose messages have `count` chunks each."""
    trace = Trace(Collective("allgather", ranks), count, "ring")
    for step in range(ranks - 1):
        for rank in range(ranks):
            part = (rank - step) % ranks
            trace.send(part * count, rank, (rank + 1) % ranks, count=count)
    return trace.schedule()


def test_ring_allreduce_is_one_block_of_fused_steps(mesh: Callable[..., Sketch]) -> None:
    ranks = 6
    program = lower(
        make_schedule(Problem(Collective("allreduce", ranks), mesh([0] * ranks), 1, 1), "ring")
    )
    for gpu in program.gpus:
        (block,) = gpu.threadblocks
        middle = ["rrs"] * (ranks - 2) + ["rrcs"] + ["rcs"] * (ranks - 2)
        assert [step.op for step in block.steps] == ["s", *middle, "r"]
        assert gpu.scratch_chunks == 0
        assert not any(step.has_dep for step in block.steps)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_no_message_size_blocks_a_ring(count: int) -> None:
    """Eight chunks a message would, fused: everybody sends more than a connection holds."""
    program = lower(ring_of(count))
    report = verify(program)
    assert report.ok
    assert report.max_safe_bytes == 0
    assert ("rcs" in ops(program)) == (count < 2)  # messages that a connection holds


def test_rccl_has_no_step_that_receives_and_does_more(mesh: Callable[..., Sketch]) -> None:
    for method in ("ring", "allpairs", "recursive", "hierarchical3"):
        schedule = make_schedule(
            Problem(Collective("allreduce", 8), mesh([0] * 4 + [1] * 4), 1, 1 << 20), method
        )
        assert ops(lower(schedule, dialect="rccl")) <= {"s", "r", "cpy", "re", "nop"}


def test_instances_cut_every_chunk_and_keep_runs(mesh: Callable[..., Sketch]) -> None:
    for name in ("allgather", "allreduce", "alltoall"):
        schedule = make_schedule(
            Problem(Collective(name, 4), mesh([0] * 4), 2, 1 << 30), "allpairs"
        )
        one, four = lower(schedule), lower(schedule, instances=4)
        assert four.nchunks == 4 * one.nchunks
        assert four.nchannels == 4 * one.nchannels
        assert four.max_steps <= one.max_steps + 1


def test_too_many_peers_or_steps_are_spread_over_channels(mesh: Callable[..., Sketch]) -> None:
    many = make_schedule(Problem(Collective("alltoall", 40), mesh([0] * 40), 1, 1), "allpairs")
    assert lower(many).nchannels == 2
    long = make_schedule(Problem(Collective("allreduce", 40), mesh([0] * 40), 1, 1), "ring")
    program = lower(long)
    assert program.nchannels == 2
    assert program.max_steps <= 64
    assert lower(long, dialect="fork").nchannels == 1


def test_refusals_name_limit_rank_and_remedy(mesh: Callable[..., Sketch]) -> None:
    schedule = make_schedule(Problem(Collective("alltoall", 40), mesh([0] * 40), 1, 1), "allpairs")
    with pytest.raises(Infeasible, match=r"rank 0 needs .* thread blocks.*most is 64; use fewer"):
        lower(schedule, instances=4, dialect="rccl")
    small = make_schedule(Problem(Collective("alltoall", 2), mesh([0] * 2), 1, 1), "allpairs")
    with pytest.raises(Infeasible, match=r"33 channels, the most is 32; use fewer instances"):
        lower(small, instances=33)
    with pytest.raises(InputError, match="unknown dialect"):
        lower(small, dialect="nccl")
    with pytest.raises(InputError, match="at least 1"):
        lower(small, instances=0)


def test_wrong_schedules_are_refused(
    mesh: Callable[..., Sketch], run_schedule: Callable[..., bool]
) -> None:
    rng = random.Random(2)
    refused = 0
    for method in ("ring", "allpairs", "recursive", "greedy"):
        schedule = make_schedule(
            Problem(Collective("allreduce", 4), mesh([0] * 4), 1, 1 << 20), method
        )
        for drop in range(len(schedule.transfers)):
            kept = schedule.transfers[:drop] + schedule.transfers[drop + 1 :]
            broken = replace(schedule, transfers=kept)
            assert (verify_schedule(broken) is None) == run_schedule(broken, rng, False)
            if (
                verify_schedule(broken) is not None
                and verify_schedule(broken, in_place=True) is not None
            ):
                refused += 1
                with pytest.raises(Infeasible, match="wrong schedule"):
                    lower(broken)
    assert refused > 50


def test_direct_alltoall_claims_out_of_place_only(mesh: Callable[..., Sketch]) -> None:
    schedule = make_schedule(Problem(Collective("alltoall", 4), mesh([0] * 4), 1, 1), "allpairs")
    assert verify_schedule(schedule, in_place=True) is not None
    program = lower(schedule)
    assert program.out_of_place
    assert not program.in_place


def test_many_local_reductions_into_one_chunk() -> None:
    """The loader fuses at most 16 `re`, of one length, into one: chains must be broken."""
    ranks = 20
    trace = Trace(Collective("reduce", ranks), 1, "copied")
    copied = [trace.copy_to_scratch(0, src, 0, count=ranks) for src in range(1, ranks)]
    for at in copied:
        trace.add_from(0, 0, at, count=ranks)
    assert verify(lower(trace.schedule())).ok


def test_adjacent_transfers_become_one_step_and_long_runs_are_cut() -> None:
    collective = Collective("broadcast", 2)
    chunks = [Transfer(0, 1, Address("i", k), Address("o", k)) for k in range(100)]
    copies = [Transfer(0, 0, Address("i", k), Address("o", k)) for k in range(100)]
    schedule = Schedule(collective, 100, (*chunks, *copies), (0, 0), "hand", 50)
    program = lower(schedule)
    (receiver,) = program.gpus[1].threadblocks
    assert [step.count for step in receiver.steps] == [71, 29]


def test_scratch_that_fusion_made_needless_is_not_requested(mesh: Callable[..., Sketch]) -> None:
    schedule = make_schedule(Problem(Collective("reduce-scatter", 8), mesh([0] * 8), 1, 1), "ring")
    assert min(schedule.scratch) > 0
    assert all(gpu.scratch_chunks == 0 for gpu in lower(schedule).gpus)
    assert all(gpu.scratch_chunks > 0 for gpu in lower(schedule, dialect="rccl").gpus)


@pytest.mark.parametrize("method", ["allpairs", "allpairs+any-order", "ring"])
@pytest.mark.parametrize("collective", ["allreduce", "allgather", "reduce-scatter"])
def test_a_program_for_one_placement_is_right_there_and_no_larger(
    method: str, collective: str, mesh: Callable[..., Sketch]
) -> None:
    if method == "allpairs+any-order" and collective != "allreduce":
        return
    schedule = make_schedule(Problem(Collective(collective, 4), mesh([0] * 4), 2, 1 << 10), method)
    usual = lower(schedule)
    placements: tuple[tuple[Placement, bool], ...] = (("in-place", True), ("out-of-place", False))
    for placement, inside in placements:
        alone = lower(schedule, placement=placement)
        assert (alone.in_place, alone.out_of_place) == (inside, not inside)
        assert verify(alone).ok
        assert alone.threadblocks <= usual.threadblocks
        assert waits(alone) <= waits(usual)


def waits(program: Program) -> int:
    return sum(
        step.dep_tb >= 0
        for gpu in program.gpus
        for block in gpu.threadblocks
        for step in block.steps
    )


def test_in_place_nothing_is_copied_onto_itself(mesh: Callable[..., Sketch]) -> None:
    program = lower(
        make_schedule(Problem(Collective("allgather", 4), mesh([0] * 4), 1, 1 << 10), "allpairs"),
        placement="in-place",
    )
    assert not any(
        step.op == "cpy"
        for gpu in program.gpus
        for block in gpu.threadblocks
        for step in block.steps
    )


def test_a_placement_in_which_the_schedule_is_wrong_is_refused(mesh: Callable[..., Sketch]) -> None:
    schedule = make_schedule(
        Problem(Collective("alltoall", 4), mesh([0] * 4), 1, 1 << 20), "allpairs"
    )
    with pytest.raises(Infeasible, match="wrong schedule"):
        lower(schedule, placement="in-place")


@pytest.mark.parametrize(("method", "same"), [("allpairs", True), ("allpairs+any-order", False)])
def test_all_ranks_add_in_one_order_unless_any_will_do(
    method: str, same: bool, mesh: Callable[..., Sketch]
) -> None:
    """Sums of numbers of very different size differ with the order of adding."""
    schedule = make_schedule(Problem(Collective("allreduce", 4), mesh([0] * 4), 1, 64), method)
    values = [1e16, 1.0, -1e16, 3.0]
    memory = {(r, "i", k): values[r] for r in range(4) for k in range(schedule.nchunks)}
    for t in schedule.transfers:
        moved = []
        for k in range(t.count):
            value = memory[(t.src, *t.src_at.shifted(k))]
            if t.operand_at is not None:
                value += memory[(t.dst, *t.operand_at.shifted(k))]
            moved.append(value)
        memory.update({(t.dst, *t.dst_at.shifted(k)): v for k, v in enumerate(moved)})
    assert verify_schedule(schedule) is None
    results = {tuple(memory[r, "o", k] for k in range(schedule.nchunks)) for r in range(4)}
    assert (len(results) == 1) == same


def test_parts_of_a_sum_run_in_blocks_that_have_sent_too(mesh: Callable[..., Sketch]) -> None:
    ranks, chunks = 4, 4
    schedule = make_schedule(
        Problem(Collective("allreduce", ranks), mesh([0] * ranks), chunks, 64), "allpairs"
    )
    program = lower(schedule)
    for gpu in program.gpus:
        adding = [b for b in gpu.threadblocks if any(s.op == "re" for s in b.steps)]
        assert len(adding) == 2 * (ranks - 1)
        assert any(b.recv_peer < 0 <= b.send_peer for b in adding)


@pytest.mark.parametrize("collective", ["allgather", "reduce-scatter", "allreduce", "alltoall"])
def test_paired_blocks_send_before_they_receive(
    collective: str, mesh: Callable[..., Sketch]
) -> None:
    ranks, call = 6, Collective(collective, 6)
    usual, paired = (
        lower(make_schedule(Problem(call, mesh([0] * ranks), 4, 1 << 22), method))
        for method in ("allpairs", "allpairs+paired")
    )
    for gpu in paired.gpus:
        talking = [b for b in gpu.threadblocks if b.send_peer >= 0]
        assert sorted(b.send_peer for b in talking) == [p for p in range(ranks) if p != gpu.id]
        for block in talking:
            assert block.send_peer == block.recv_peer
            assert next(s.op for s in block.steps if s.op != "nop") == "s"
    assert paired.threadblocks < usual.threadblocks


@pytest.mark.parametrize("dialect", ["executor", "fork"])
def test_paired_blocks_claim_the_sizes_at_which_nothing_blocks(
    dialect: str, mesh: Callable[..., Sketch]
) -> None:
    """Two messages of four chunks wait in a connection: under LL all of them, under Simple two."""
    call = Collective("allgather", 4)
    schedule = make_schedule(Problem(call, mesh([0] * 4), 4, 1 << 20), "allpairs+paired")
    program = lower(schedule, placement="in-place", dialect=dialect)
    assert program.max_bytes is not None
    assert verify(program, dialect).ok
    larger = verify(program.replace(max_bytes=2 * program.max_bytes), dialect)
    assert [error.code for error in larger.errors] == ["size-range"]
    freely = lower(schedule, placement="in-place", dialect=dialect, protocol="LL")
    assert freely.max_bytes is None and verify(freely, dialect).max_safe_bytes == 0


def test_parts_of_a_sum_get_a_block_each_where_blocks_are_paired(
    mesh: Callable[..., Sketch],
) -> None:
    ranks = 4
    schedule = make_schedule(
        Problem(Collective("allreduce", ranks), mesh([0] * ranks), 1, 64),
        "allpairs+paired+any-order",
    )
    for gpu in lower(schedule, placement="in-place").gpus:
        adding = [{s.dst_offset for s in b.steps if s.op == "re"} for b in gpu.threadblocks]
        assert len(gpu.threadblocks) == ranks
        assert sorted(adding, key=min) == [{part} for part in range(ranks)]


def test_a_schedule_that_was_lowered_can_be_copied() -> None:
    schedule = ring_of(1)
    program = lower(schedule)
    copy = pickle.loads(pickle.dumps(schedule))
    assert copy == schedule
    assert lower(copy) == program
