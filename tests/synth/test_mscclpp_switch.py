"""Plans in which a switch adds up and multicasts: proved, run, and refused with reasons."""

from typing import Any

import pytest

from reference_plans import operations
from tuccl.errors import Infeasible, InputError, TucclError
from tuccl.mscclpp import ExecutionPlan
from tuccl.synth import Multicast, PlanKnobs, switch_plan
from tuccl.synth.mscclpp.switch import SWITCH_COLLECTIVES

FORMS = [
    (Multicast(collective, ranks, blocks, through_scratch), PlanKnobs(**knobs), in_place)
    for collective in SWITCH_COLLECTIVES
    for ranks, blocks in ((2, 3), (8, 2))
    for through_scratch in (True, False)
    for knobs in ({}, {"unit_bytes": 32}, {"protocol": "LL"})
    for in_place in (False, True)
    if collective != "reduce-scatter" or not (in_place or "protocol" in knobs)
]


def names(plan: ExecutionPlan) -> set[str]:
    return {op.name for op in operations(plan)}


@pytest.mark.parametrize(("multicast", "knobs", "in_place"), FORMS, ids=str)
def test_the_switch_computes_right(multicast: Multicast, knobs: PlanKnobs, in_place: bool) -> None:
    plan = ExecutionPlan.parse(switch_plan(multicast, knobs, in_place=in_place).json())
    assert plan.verify().ok
    for pieces in (1, 5):
        assert plan.run(pieces * plan.size_step, calls=3).wrong == 0
    gathers = multicast.collective == "allgather"
    move = "gstorepkt" if knobs.packets else "gstore" if gathers else "glres"
    assert names(plan) & {"gstorepkt", "gstore", "glres"} == {move}


def test_only_scratch_is_behind_the_switch_unless_buffers_can_be() -> None:
    for through_scratch, buffers in ((True, {"s"}), (False, {"i", "o"})):
        plan = switch_plan(Multicast("allreduce", 4, 1, through_scratch))
        assert {
            c.buffer_type for gpu in plan.gpus for c in gpu.channels if c.rank_groups
        } == buffers
        assert ("copy" in names(plan)) == through_scratch


def test_all_ranks_add_packets_in_one_order() -> None:
    plan = switch_plan(Multicast("allreduce", 12, 1), PlanKnobs("LL"))
    orders = set()
    for gpu in plan.gpus:
        sums = [op for op in gpu.threadblocks[0].ops if op.dst_buff and op.dst_buff[0].type == "o"]
        orders.add(tuple(ref.index for op in sums for ref in op.src_buff))
    assert len(orders) == 1


@pytest.mark.parametrize(
    ("multicast", "options", "error", "message"),
    [
        (Multicast("alltoall", 8), {}, Infeasible, "does only allgather"),
        (Multicast("reduce-scatter", 8), {"in_place": True}, Infeasible, "only out of place"),
        (Multicast("allreduce", 18), {}, InputError, "expected 2 to 17"),
        (Multicast("allreduce", 8, 0), {}, InputError, "expected 1 to 64"),
        (Multicast("allreduce", 8), {"knobs": PlanKnobs(slots=2)}, InputError, "without slots"),
        (Multicast("allreduce", 8), {"max_bytes": 100}, Infeasible, "sizes end at 0 bytes"),
    ],
)
def test_what_a_switch_cannot_do_is_refused(
    multicast: Multicast, options: dict[str, Any], error: type[TucclError], message: str
) -> None:
    with pytest.raises(error, match=message):
        switch_plan(multicast, **options)
