"""Execution plans of programs: proved for every collective, protocol, placement and host."""

from typing import Any

import pytest

from reference_plans import operations
from tests.matrix import Recipe, program, topology
from tests.programs import program as hand_made
from tests.programs import ring_allreduce, send
from tuccl.errors import Infeasible, InputError, TucclError
from tuccl.mscclpp import ExecutionPlan
from tuccl.program import Program, Step, ThreadBlock
from tuccl.synth.mscclpp.knobs import SIMPLE, PlanKnobs
from tuccl.synth.mscclpp.lower import PLAN_COLLECTIVES, lower_to_plan

SHAPES = ("ndv4 2", "ndv4 3", "ndv4 1+1", "v100x4 2+2")
METHODS = ("ring", "allpairs", "recursive", "hierarchical2")
RECIPES = [
    Recipe(method, collective, shape)
    for shape in SHAPES
    for method in METHODS
    for collective in PLAN_COLLECTIVES
]


def plans(recipe: Recipe, knobs: PlanKnobs = SIMPLE) -> list[ExecutionPlan]:
    """Return the plans of both protocols and placements of what the recipe makes."""
    made = program(recipe)
    if made is None:
        return []
    return [
        lower_to_plan(
            made,
            knobs if protocol == knobs.protocol else PlanKnobs(protocol),
            hosts=len(topology(recipe.shape).hosts),
            in_place=in_place,
            root=recipe.collective.root,
        )
        for protocol in ("Simple", "LL")
        for in_place in (False, True)
        if (made.in_place and recipe.name != "reduce-scatter" if in_place else made.out_of_place)
    ]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "knobs",
    [
        SIMPLE,
        PlanKnobs(unit_bytes=1 << 12),
        PlanKnobs(slots=2),
        PlanKnobs(slots=2, unit_bytes=1 << 12),
        PlanKnobs(group_size=2),
        PlanKnobs("LL", group_size=3),
    ],
    ids=str,
)
def test_plans_are_proved_as_their_files_say(shape: str, knobs: PlanKnobs) -> None:
    done = 0
    for recipe in (each for each in RECIPES if each.shape == shape):
        for plan in plans(recipe, knobs):
            report = ExecutionPlan.parse(plan.json()).verify(root=recipe.collective.root)
            assert report.ok, f"{recipe}: {report.errors[0].message}"
            done += 1
    assert done >= 20


def test_channels_are_memory_within_a_host_and_ports_between() -> None:
    for plan in plans(Recipe("allpairs", "alltoall", "v100x4 2+2")):
        for gpu in plan.gpus:
            assert {peer // 2 for peer in gpu.peers("memory")} == {gpu.id // 2}
            assert {peer // 2 for peer in gpu.peers("port")} == {1 - gpu.id // 2}


def test_what_is_only_stored_lands_where_it_is_stored() -> None:
    simple, packets = (
        next(p for p in plans(Recipe("ring", "allgather", "ndv4 3")) if p.protocol == protocol)
        for protocol in ("Simple", "LL")
    )
    assert {gpu.scratch_chunks for gpu in simple.gpus} == {0}
    assert {buffer.type for gpu in simple.gpus for buffer in gpu.remote_buffers} == {"o"}
    assert {buffer.type for gpu in packets.gpus for buffer in gpu.remote_buffers} == {"s"}


@pytest.mark.parametrize("ranks", range(2, 9))
def test_halves_of_scratch_begin_at_whole_packets_on_all_ranks(ranks: int) -> None:
    """The loader divides whatever was allocated by the chunks, rounded up, then by two."""
    plan = lower_to_plan(ring_allreduce(ranks), PlanKnobs("LL"))
    scratch = {gpu.scratch_chunks for gpu in plan.gpus}
    assert len(scratch) == 1
    for allocated in range(1000, 1100):
        chunk = -(-allocated // plan.gpus[0].input_chunks)
        whole = -(-chunk * scratch.copy().pop() * 4 // 16) * 16
        assert whole // 2 % 16 == 0


def test_long_thread_blocks_are_cut() -> None:
    plan = lower_to_plan(ring_allreduce(16), in_place=True)
    counts = [sum(1 + len(op.ops) for op in b.ops) for g in plan.gpus for b in g.threadblocks]
    assert len(plan.gpus[0].threadblocks) > 1 and max(counts) <= 64


def test_pieces_are_pipelines_around_all_that_moves() -> None:
    plan = lower_to_plan(ring_allreduce(4), PlanKnobs(unit_bytes=1 << 16))
    (block,) = plan.gpus[0].threadblocks
    (loop,) = (op for op in block.ops if op.ops)
    assert loop.iter_context and loop.iter_context.unit_size == 1 << 16
    assert all(not op.src_buff for op in block.ops if op is not loop)


@pytest.mark.parametrize("hosts", [1, 4])
def test_slots_with_credits_save_scratch(hosts: int) -> None:
    each, few = (
        lower_to_plan(ring_allreduce(4), PlanKnobs(slots=slots), hosts=hosts, max_bytes=1 << 31)
        for slots in (0, 2)
    )
    assert 0 < few.gpus[0].scratch_chunks < each.gpus[0].scratch_chunks
    assert few.max_message_size >= each.max_message_size


def test_blocks_of_a_group_have_channels_of_their_own() -> None:
    alone, group = (lower_to_plan(ring_allreduce(4), PlanKnobs(group_size=size)) for size in (1, 3))
    for one, three in zip(alone.gpus, group.gpus, strict=True):
        assert len(three.threadblocks) == 3 * len(one.threadblocks)
        assert len(three.peers("memory")) == 3 * len(one.peers("memory"))
    parts = {op.tbg_info.tb_id for op in operations(group) if op.tbg_info}
    assert parts == {0, 1, 2} and group.min_message_size >= 3 * 16 * 4


def test_more_thread_blocks_than_run_at_once_are_refused() -> None:
    with pytest.raises(Infeasible, match="more than 108 thread blocks"):
        lower_to_plan(ring_allreduce(16), PlanKnobs(group_size=64))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"protocol": "LL128"}, "has Simple and LL"),
        ({"protocol": "LL", "unit_bytes": 64}, "packets"),
        ({"protocol": "LL", "slots": 2}, "packets"),
        ({"slots": 1}, "2 or more"),
        ({"threads": 2048}, "multiple of 32 up to 1024"),
        ({"group_size": 0}, "expected 1 to 64"),
        ({"group_size": 2, "unit_bytes": 64}, "not pieces"),
    ],
)
def test_knobs_out_of_range_are_refused(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PlanKnobs(**knobs)


def test_sizes_end_where_offsets_or_shared_scratch_do() -> None:
    ring = ring_allreduce(4)
    alone = lower_to_plan(ring, PlanKnobs("LL"), max_bytes=1 << 31)
    shared = lower_to_plan(ring, PlanKnobs("LL"), max_bytes=1 << 31, share_scratch=True)
    assert shared.reuse_resources and shared.max_message_size < alone.max_message_size < 1 << 31
    with pytest.raises(Infeasible, match="chunks of scratch leave sizes up to"):
        lower_to_plan(ring, PlanKnobs("LL"), min_bytes=1 << 30, max_bytes=1 << 31)


def reduce_scatter() -> Program:
    made = program(Recipe("ring", "reduce-scatter", "ndv4 2"))
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("made", "options", "error", "message"),
    [
        (reduce_scatter, {"in_place": True}, Infeasible, "ranks would choose different plans"),
        (lambda: ring_allreduce(3), {"hosts": 2}, InputError, "that divides 3 ranks"),
        (lambda: ring_allreduce(18), {"hosts": 2}, Infeasible, "an adapter of"),
        (
            lambda: ring_allreduce(2),
            {"min_bytes": 1 << 31, "max_bytes": 1 << 32},
            InputError,
            "2 GiB",
        ),
        (
            lambda: program(Recipe("allpairs", "gather", "ndv4 2")),
            {},
            Infeasible,
            "has no plans of it",
        ),
    ],
)
def test_what_no_plan_can_say_is_refused(
    made: object, options: dict[str, object], error: type[TucclError], message: str
) -> None:
    assert callable(made)
    with pytest.raises(error, match=message):
        lower_to_plan(made(), **options)  # type: ignore[arg-type]


def count_of(plan: ExecutionPlan, name: str) -> int:
    return sum(op.name == name for op in operations(plan))


def test_sums_of_many_messages_are_one_operation() -> None:
    """A reduce-scatter between all pairs: each rank adds up all packets, or all ranks' input."""
    for plan in plans(Recipe("allpairs", "reduce-scatter", "ndv4 8")):
        name = "repkt" if plan.packets else "rre"
        assert plan.packets or {gpu.scratch_chunks for gpu in plan.gpus} == {0}
        assert count_of(plan, name) == 8
        assert count_of(plan, "sem_acquire") == count_of(plan, "sem_release") == 0
        sums = [op for op in operations(plan) if op.name == name]
        assert {len(op.src_buff) for op in sums} == {8}


def test_packets_of_a_sum_go_to_all_ranks_at_once() -> None:
    for plan in plans(Recipe("allpairs", "allreduce", "ndv4 8")):
        if plan.packets:
            sums = [op for op in operations(plan) if op.name == "respkt"]
            assert {len(op.dst_buff) for op in sums} == {8} and len(sums) == 8


def gathered_allreduce(rank: int) -> list[ThreadBlock]:
    """Each of three ranks sends its chunk to both others and adds up what it gets."""
    after, before = (rank + 1) % 3, (rank - 1) % 3
    first = Step("rrc", "i", 0, "o", 0, 1, has_dep=True)
    second = Step("rrc", "o", 0, "o", 0, 1, dep_tb=0, dep_step=1)
    return [
        ThreadBlock(0, after, before, 0, [send("i", 0), first]),
        ThreadBlock(1, before, after, 0, [send("i", 0), second]),
    ]


def test_ranks_that_make_one_sum_add_in_the_order_of_the_program() -> None:
    """Packets are added before the rank's own chunk: its place would differ from rank to rank."""
    made = hand_made("allreduce", 3, 1, gathered_allreduce, in_place=False)
    for protocol, name, sources in (("LL", "repkt", 2), ("Simple", "rre", 3)):
        plan = lower_to_plan(made, PlanKnobs(protocol))
        sums = [op for op in operations(plan) if op.name == name]
        assert {len(op.src_buff) for op in sums} == {sources}


def test_sums_take_packets_where_they_landed() -> None:
    """Ranks of two hosts make different partial sums of a chunk, so their order is free."""
    made = program(Recipe("hierarchical3", "allreduce", "ndv4 3+3"))
    assert made is not None
    steps = {step.op for gpu in made.gpus for block in gpu.threadblocks for step in block.steps}
    plan = lower_to_plan(made, PlanKnobs("LL"), hosts=2)
    every = list(operations(plan))
    assert "re" in steps and "re" not in {op.name for op in every}
    # The rank's own chunk and those of both others of its host.
    assert {len(op.src_buff) for op in every if op.name == "recpkt"} == {3}


def test_packets_from_another_host_are_passed_on_by_a_thread_block_each() -> None:
    for plan in plans(Recipe("hierarchical2", "allgather", "ndv4 4+4")):
        for gpu in plan.gpus if plan.packets else ():
            names = [[op.name for op in block.ops] for block in gpu.threadblocks]
            assert sum("rppkt" in each for each in names) == 4  # three peers and the port
            assert not any("sem_acquire" in each for each in names)


def test_sums_from_another_host_are_sent_from_packets_in_scratch() -> None:
    made = program(Recipe("hierarchical3", "allreduce", "ndv4 4+4"))
    assert made is not None
    plan = lower_to_plan(made, PlanKnobs("LL"), hosts=2)
    sends = [op for op in operations(plan) if op.name == "rppkt"]
    assert {op.channel_type for op in sends} == {"memory", "port"}
    assert {"recpkt", "recspkt"} & {op.name for op in operations(plan)}
    assert {len(op.dst_buff) for op in sends} == {1}


def test_one_thread_block_waits_for_all_that_only_lands() -> None:
    for plan in plans(Recipe("allpairs", "allgather", "ndv4 8")):
        for gpu in plan.gpus if not plan.packets else ():
            names = [{op.name for op in block.ops} for block in gpu.threadblocks]
            assert sum("wait" in each for each in names) == 1
