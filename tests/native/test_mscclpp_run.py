"""The interpreter of MSCCL++ plans: right plans end right in any order, broken ones show."""

import json
from typing import Any

import pytest

from reference_plans import (
    Rank,
    allpairs_allgather,
    chain_broadcast,
    local,
    move,
    packet_allreduce,
    plan,
    port_ring_allgather,
    reference_plans,
    remote,
    ring_allreduce,
)
from tuccl.errors import InputError, Stuck
from tuccl.mscclpp import ExecutionPlan

Json = Any


@pytest.mark.parametrize("right", list(reference_plans()), ids=lambda p: p.name)
def test_right_plans_compute_right_at_every_size_and_order(right: ExecutionPlan) -> None:
    for chunks in (1, 3, 600):
        for seed in range(3):
            result = right.run(right.size_step * chunks, seed=seed)
            assert result.wrong == 0, result.first_wrong


def test_a_plan_of_32_ranks_runs() -> None:
    wide = allpairs_allgather(32)
    assert wide.run(wide.size_step * 4, calls=2).wrong == 0


def test_a_root_that_is_no_root_shows() -> None:
    chain = chain_broadcast(3)
    assert chain.run(64, root=0).wrong == 0
    assert chain.run(64, root=1).wrong > 0


def without(right: ExecutionPlan, *names: str, nth: int = 0) -> ExecutionPlan:
    """The plan without the nth operation of each of those names in every block of gpu 0."""
    document: Json = json.loads(right.json())
    for block in document["gpus"][0]["threadblocks"]:
        ops = next((op["ops"] for op in block["ops"] if op["name"] == "pipeline"), block["ops"])
        for name in names:
            found = [i for i, op in enumerate(ops) if op["name"] == name]
            if nth < len(found):
                del ops[found[nth]]
    return ExecutionPlan.parse(json.dumps(document))


@pytest.mark.parametrize(
    "broken",
    [
        without(allpairs_allgather(2), "nop", nth=1),
        without(allpairs_allgather(2), "wait"),
        without(ring_allreduce(3), "nop", nth=2),
        without(ring_allreduce(3, 1 << 12), "nop"),
        without(port_ring_allgather(3), "nop"),
        without(chain_broadcast(3), "sem_acquire"),
    ],
    ids=lambda p: p.name,
)
def test_what_nothing_orders_goes_wrong_in_some_order(broken: ExecutionPlan) -> None:
    def fails(seed: int) -> bool:
        try:
            return broken.run(broken.size_step * 300, seed=seed).wrong > 0
        except Stuck:
            return True

    assert any(fails(seed) for seed in range(40))


@pytest.mark.parametrize(
    "broken",
    [without(allpairs_allgather(2), "signal"), without(packet_allreduce(2), "ppkt")],
    ids=lambda p: p.name,
)
def test_what_waits_for_nothing_is_stuck(broken: ExecutionPlan) -> None:
    with pytest.raises(Stuck, match=r"the plan hangs:.* gpu 1 tb"):
        broken.run(broken.size_step)


def test_halves_of_scratch_of_unlike_sizes_do_not_meet() -> None:
    document: Json = json.loads(packet_allreduce(3).json())
    document["gpus"][0]["scratch_chunks"] += 8
    with pytest.raises((Stuck, InputError)):
        ExecutionPlan.parse(json.dumps(document)).run(48)


def test_packets_do_not_protect_where_a_rank_needs_no_other() -> None:
    root, leaf = Rank(0), Rank(1)
    send = move("ppkt", [local("i", 0)], [remote(0, 0)], "memory")
    root.add([send, move("copy", [local("i", 0)], [local("o", 0)])], "memory", [(1, "s")])
    leaf.add([move("upkt", [local("s", 0)], [local("o", 0)])], "memory", [])
    gpus = [root.gpu(1, 1, 8), leaf.gpu(1, 1, 8)]
    ahead = plan("ahead", "broadcast", gpus, protocol="LL", use_double_scratch_buffer=True)
    with pytest.raises(Stuck):
        for seed in range(40):
            ahead.run(1024, seed=seed)


def test_a_second_half_that_begins_amid_a_packet_is_reported() -> None:
    document: Json = json.loads(packet_allreduce(3).json())
    for gpu in document["gpus"]:
        gpu["scratch_chunks"] = 6
    with pytest.raises(InputError, match="begins amid a packet"):
        ExecutionPlan.parse(json.dumps(document)).run(48)


def test_the_seed_decides_all() -> None:
    broken = without(allpairs_allgather(2), "nop", nth=1)
    first = [broken.run(4096, seed=seed).first_wrong for seed in range(5)]
    assert first == [broken.run(4096, seed=seed).first_wrong for seed in range(5)]


@pytest.mark.parametrize("nbytes", [0, -16, 8, 40, 1 << 40])
def test_sizes_that_the_plan_does_not_take_are_refused(nbytes: int) -> None:
    with pytest.raises(InputError, match="nbytes"):
        allpairs_allgather(2).run(nbytes)


def test_an_access_beyond_a_buffer_is_reported() -> None:
    document: Json = json.loads(ring_allreduce(2).json())
    for gpu in document["gpus"]:
        gpu["scratch_chunks"] = 1
    with pytest.raises(InputError, match="an access beyond buffer 2 of gpu"):
        ExecutionPlan.parse(json.dumps(document)).run(1 << 10, seed=3)


SWITCH = {"switch_channel_id": 0, "index": 1, "size": 1}
REMOTE = {"buffer_id": 0, "index": 1, "size": 1}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"src_buff": [SWITCH]}, "not local"),
        ({"src_buff": [REMOTE]}, "not local"),
        ({"channel_ids": []}, "channel of an operation 0 of 0"),
        ({"name": "rppkt", "dst_buff": [SWITCH]}, "target 0 of 0"),
        ({"name": "signal", "channel_type": "switch", "channel_ids": [0]}, "on no channel"),
        ({"name": "wait", "channel_type": "none", "channel_ids": [0]}, "on no channel"),
    ],
)
def test_an_operation_that_names_what_is_not_there_is_reported(fields: Json, message: str) -> None:
    document: Json = json.loads(port_ring_allgather(2).json())
    gpu = document["gpus"][0]
    gpu["channels"].append(
        {"channel_type": "switch", "buffer_type": "i", "rank_groups": [{"size": 0, "ranks": []}]}
    )
    gpu["threadblocks"][0]["channels"].append({"channel_type": "switch", "channel_ids": [0]})
    gpu["threadblocks"][0]["ops"][5].update(fields)
    with pytest.raises(InputError, match=message):
        ExecutionPlan.parse(json.dumps(document)).run(1 << 10)


def test_buffers_of_all_ranks_have_one_limit() -> None:
    with pytest.raises(InputError, match="the buffers of all ranks exceed 4 GiB"):
        allpairs_allgather(32).run(1 << 28)


def test_a_collective_that_no_plan_has_is_refused() -> None:
    document: Json = json.loads(allpairs_allgather(2).json())
    document["collective"] = "sendrecv"
    with pytest.raises(InputError, match="'sendrecv': expected one of"):
        ExecutionPlan.parse(json.dumps(document)).run(1 << 10)
