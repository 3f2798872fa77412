"""The proof of MSCCL++ plans: right ones pass, and each way to break one is told apart."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reference_plans import (
    Rank,
    allpairs_allgather,
    alltoall_slots,
    chain_broadcast,
    local,
    move,
    packet_allreduce,
    plan,
    port_ring_allgather,
    pull_reducescatter,
    reference_plans,
    remote,
    ring_allreduce,
    switch_allreduce,
)
from tuccl.errors import InputError
from tuccl.mscclpp import ExecutionPlan

Json = Any
ALLPAIRS = allpairs_allgather(2)
PORTS = port_ring_allgather(3)
PACKETS = packet_allreduce(2)
RING = ring_allreduce(3, 1 << 12)
CHAIN = chain_broadcast(3)
BARRIER = chain_broadcast(2, barrier=True)
PULL = pull_reducescatter(3)
SWITCH = switch_allreduce(2)
SLOTS = alltoall_slots(3)


@pytest.mark.parametrize("right", list(reference_plans()), ids=lambda p: p.name)
def test_right_plans_pass_and_survive_their_file(right: ExecutionPlan) -> None:
    report = ExecutionPlan.parse(right.json()).verify()
    assert report.ok, report.errors[0].message
    assert not report.warnings


def test_a_plan_of_32_ranks_passes() -> None:
    assert allpairs_allgather(32).verify().ok


def ops(p: Json, gpu: int = 0, tb: int = 0) -> Json:
    return p["gpus"][gpu]["threadblocks"][tb]["ops"]


def walk(p: Json) -> Json:
    """The operations in the pipeline of gpu 0."""
    return next(op for op in ops(p) if op["name"] == "pipeline")["ops"]


def each(p: Json, change: Callable[[Json], object], gpu: int | None = None) -> None:
    """Apply ``change`` to the operations of each thread block of one or every GPU."""
    for rank in p["gpus"]:
        for block in rank["threadblocks"]:
            if gpu is None or rank["id"] == gpu:
                change(block["ops"])


def drop(name: str, nth: int = 0) -> Callable[[Json], None]:
    """Remove the nth operation of that name where there are so many."""

    def change(ops: Json) -> None:
        places = [i for i, op in enumerate(ops) if op["name"] == name]
        if nth < len(places):
            del ops[places[nth]]

    return change


def rename(old: str, new: str) -> Callable[[Json], None]:
    def change(ops: Json) -> None:
        for op in ops:
            op["name"] = new if op["name"] == old else op["name"]

    return change


def broken(right: ExecutionPlan, change: Callable[[Json], object]) -> list[str]:
    document = json.loads(right.json())
    before = copy.deepcopy(document)
    change(document)
    assert document != before
    report = ExecutionPlan.parse(json.dumps(document)).verify()
    assert all("\n" not in e.message for e in report.errors)
    return [e.code for e in report.errors]


ORDER = [
    ("nop before a signal", ALLPAIRS, lambda p: each(p, drop("nop", 1), 0), "race"),
    ("nop after the ready wait", ALLPAIRS, lambda p: each(p, drop("nop"), 0), "race"),
    ("ready handshake", ALLPAIRS, lambda p: each(p, lambda o: [drop("rlxsignal")(o),
     drop("rlxwait")(o)]), "race"),
    ("final wait", ALLPAIRS, lambda p: each(p, drop("wait"), 0), "race"),
    ("signal", ALLPAIRS, lambda p: each(p, drop("signal"), 0), "deadlock"),
    ("relaxed signal for data", ALLPAIRS, lambda p: each(p, rename("signal", "rlxsignal")), "race"),
    ("signal twice", ALLPAIRS, lambda p: ops(p, 0, 1)[5].update(channel_ids=[0, 0]), "race"),
    ("release that nobody acquires", CHAIN, lambda p: [
        p["gpus"][0]["semaphores"].append({"init_value": 0}),
        ops(p).append({"name": "sem_release", "semaphore_ids": [1]})], "unmatched"),
    ("own part", ALLPAIRS, lambda p: each(p, drop("copy"), 1), "wrong-result"),
    ("another chunk", ALLPAIRS, lambda p: ops(p, 0, 1)[3]["dst_buff"][0].update(index=1), "race"),
    ("flush", PORTS, lambda p: each(p, drop("flush"), 0), "race"),
    ("acquire", CHAIN, lambda p: each(p, drop("sem_acquire"), 0), "race"),
    ("release", CHAIN, lambda p: each(p, drop("sem_release"), 1), "deadlock"),
    ("initial value", CHAIN, lambda p: p["gpus"][1]["semaphores"][0].update(init_value=1), "race"),
    ("closing handshake", PULL, lambda p: each(p, lambda o: [drop("signal", 1)(o),
     drop("wait", 1)(o)]), "race"),
    ("wait for inputs", SWITCH, lambda p: each(p, lambda o: [drop("signal")(o),
     drop("wait")(o)]), "race"),
    ("credit", SLOTS, lambda p: each(p, lambda o: drop("wait", len(
        [op for op in o if op["name"] == "wait"]) - 1)(o) if o[0]["name"] == "rlxwait" else None),
     "race"),
    ("nop in a pipeline", RING, lambda p: drop("nop")(walk(p)), "race"),
    ("packets sent", PACKETS, lambda p: each(p, drop("ppkt"), 0), "deadlock"),
    ("second half of scratch", PACKETS, lambda p: p.update(use_double_scratch_buffer=False),
     "race"),
    ("packet read twice", PACKETS, lambda p: ops(p, 0, 1)[0]["src_buff"].append(
        ops(p, 0, 1)[0]["src_buff"][1]), "counted-twice"),
    ("sum of other chunks", PULL, lambda p: ops(p, 0)[3]["src_buff"][1].update(index=1),
     "mixed-chunks"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("right", "change", "code"), [row[1:] for row in ORDER], ids=[row[0] for row in ORDER]
)
def test_what_is_missing_between_operations_is_found(
    right: ExecutionPlan, change: Callable[[Json], object], code: str
) -> None:
    assert code in broken(right, change)


def gpu0(**fields: object) -> Callable[[Json], None]:
    return lambda p: p["gpus"][0].update(fields)


def top(**fields: object) -> Callable[[Json], None]:
    return lambda p: p.update(fields)


def op(number: int, tb: int = 0, **fields: object) -> Callable[[Json], None]:
    return lambda p: ops(p, 0, tb)[number].update(fields)


def refs(kind: str, number: int, **fields: object) -> Callable[[Json], None]:
    """Change a buffer of the put in gpu 0's block 1 of ALLPAIRS."""
    return lambda p: ops(p, 0, 1)[3][kind][number].update(fields)


PARTS = [
    ("no threads", ALLPAIRS, top(num_threads_per_block=0), "threads"),
    ("2048 threads", ALLPAIRS, top(num_threads_per_block=2048), "threads"),
    ("more channels than threads", PULL, top(num_threads_per_block=1), "threads"),
    ("no alignment", ALLPAIRS, top(buffer_alignment=0), "alignment"),
    ("half an int4", ALLPAIRS, top(buffer_alignment=8), "alignment"),
    ("minimum of 4 GiB", ALLPAIRS, top(min_message_size=1 << 32), "size-range"),
    ("maximum of 4 GiB", ALLPAIRS, top(max_message_size=1 << 32), "size-range"),
    ("no maximum", ALLPAIRS, top(max_message_size=2**64 - 1), "size-range"),
    ("empty range", ALLPAIRS, top(min_message_size=1 << 21), "size-range"),
    ("no size divides", ALLPAIRS, top(min_message_size=33, max_message_size=63), "size-range"),
    ("unknown collective", ALLPAIRS, top(collective="sendrecv"), "collective"),
    ("unknown protocol", ALLPAIRS, top(protocol="ll"), "protocol"),
    ("double scratch with Simple", RING, top(use_double_scratch_buffer=True), "scratch"),
    ("scratch of another size, halved", PACKETS, gpu0(scratch_chunks=16), "scratch"),
    ("half of scratch amid a packet", PACKETS, lambda p: [
        g.update(scratch_chunks=6) for g in p["gpus"]], "scratch"),
    ("id of another rank", ALLPAIRS, gpu0(id=1), "gpus"),
    ("no input", ALLPAIRS, gpu0(input_chunks=0), "chunks"),
    ("no output", ALLPAIRS, gpu0(output_chunks=0), "chunks"),
    ("output of another collective", ALLPAIRS, top(collective="allreduce"), "chunks"),
    ("scratch too small", RING, gpu0(scratch_chunks=1), "bounds"),
    ("no scratch", RING, gpu0(scratch_chunks=0), "buffer"),
    ("305 blocks", ALLPAIRS, lambda p: p["gpus"][0]["threadblocks"].extend(
        {"id": n, "ops": [], "channels": []} for n in range(2, 305)), "limit"),
    ("no block", ALLPAIRS, gpu0(threadblocks=[]), "threadblocks"),
    ("block id", ALLPAIRS, lambda p: p["gpus"][0]["threadblocks"][1].update(id=7), "threadblocks"),
    ("peer that is not there", ALLPAIRS, gpu0(
        channels=[{"channel_type": "memory", "connected_to": [9]}]), "channel"),
    ("connected to itself", ALLPAIRS, gpu0(
        channels=[{"channel_type": "memory", "connected_to": [0]}]), "channel"),
    ("channel of no type", ALLPAIRS, gpu0(
        channels=[{"channel_type": "none", "connected_to": [1]}]), "channel"),
    ("remote buffer of itself", ALLPAIRS, gpu0(remote_buffers=[
        {"rank": 0, "type": "o", "access_channel_types": ["memory"]}]), "buffer"),
    ("channel beyond the list", ALLPAIRS, lambda p: p["gpus"][0]["threadblocks"][1]["channels"][0]
     .update(channel_ids=[3]), "limit"),
    ("17 channels of a block", ALLPAIRS, lambda p: p["gpus"][0]["threadblocks"][1]["channels"][0]
     .update(channel_ids=[0] * 17), "limit"),
    ("no references", ALLPAIRS, lambda p: p["gpus"][0]["threadblocks"][1].update(
        remote_buffer_refs=[]), "buffer"),
    ("9 channels of an operation", ALLPAIRS, op(5, 1, channel_ids=[0] * 9), "limit"),
    ("65 operations", ALLPAIRS, lambda p: ops(p).extend([{"name": "nop"}] * 64), "limit"),
    ("operations of a pipeline count", RING, lambda p: walk(p).extend([{"name": "nop"}] * 40),
     "limit"),
    ("barrier 16", BARRIER, op(2, barrier_id=16), "limit"),
    ("one block too many for a barrier", BARRIER, op(2, num_threadblocks=3), "barrier"),
    ("semaphore beyond the list", CHAIN, op(2, semaphore_ids=[1]), "limit"),
    ("17 semaphores", CHAIN, op(2, semaphore_ids=[0] * 17), "limit"),
    ("id beyond the block's list", ALLPAIRS, op(5, 1, channel_ids=[1]), "channel"),
    ("signal on no channel", ALLPAIRS, op(5, 1, channel_ids=[]), "channel"),
    ("fields of a barrier", ALLPAIRS, op(0, barrier_id=0, num_threadblocks=1), "field"),
    ("part of a group that is not there", allpairs_allgather(2, group=2), lambda p: ops(p, 0, 2)[3]
     ["tbg_info"].update(tb_id=2), "group"),
    ("two names of a buffer", ALLPAIRS, refs("src_buff", 0, buffer_id=0), "buffer"),
    ("no buffer", ALLPAIRS, refs("dst_buff", 0, buffer_id=5), "buffer"),
    ("put to itself", ALLPAIRS, lambda p: ops(p, 0, 1)[3].update(
        dst_buff=[{"type": "o", "index": 0, "size": 1}]), "shape"),
    ("beyond the output", ALLPAIRS, refs("dst_buff", 0, index=2), "bounds"),
    ("sizes that differ", ALLPAIRS, refs("dst_buff", 0, size=2), "size"),
    ("no chunk", ALLPAIRS, refs("dst_buff", 0, size=0), "size"),
    ("get", ALLPAIRS, op(3, 1, name="get"), "get"),
    ("put with signal in memory", ALLPAIRS, op(3, 1, name="pws", channel_ids=[0]), "channel"),
    ("pull in place", allpairs_allgather(2, inplace=True), lambda p: p["gpus"][0]["remote_buffers"]
     [0].update(type="i"), "placement"),
    ("reused context", ALLPAIRS, top(reuse_resources=True), "reuse"),
    ("reused scratch too small", RING, top(reuse_resources=True, max_message_size=3 << 25),
     "reuse"),
    ("flush of nothing", PORTS, lambda p: ops(p)[-1].update(dst_buff=[]), "flush"),
    ("port put from the input", PORTS, lambda p: ops(p)[5]["src_buff"][0].update(
        type="i", index=0), "port-source"),
    ("port put on another's channel", PORTS, lambda p: ops(p)[5].update(channel_ids=[1]),
     "channel"),
    ("packets with Simple", PACKETS, top(protocol="Simple", use_double_scratch_buffer=False),
     "packets"),
    ("plain data among packets", PACKETS, lambda p: ops(p, 0, 2).append(
        {"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
         "dst_buff": [{"type": "s", "index": 2, "size": 1}]}), "packets"),
    ("packets through another's second half", PACKETS, lambda p: ops(p, 0)[0].update(name="put"),
     "scratch"),
    ("unit size 0", RING, lambda p: ops(p)[3]["iter_context"].update(unit_size=0), "pipeline"),
    ("unit size 24", RING, lambda p: ops(p)[3]["iter_context"].update(unit_size=24), "pipeline"),
    ("pipeline over two chunks", RING, lambda p: ops(p)[3]["iter_context"].update(num_chunks=2),
     "pipeline"),
    ("pipeline in a pipeline", RING, lambda p: walk(p).append(
        {"name": "pipeline", "iter_context": {"unit_size": 16, "num_chunks": 1},
         "ops": [{"name": "nop"}]}), "pipeline"),
    ("iterations", RING, lambda p: [p.update(max_message_size=3 << 24),
     ops(p)[3]["iter_context"].update(unit_size=16)], "limit"),
    ("switch without this rank", SWITCH, lambda p: p["gpus"][0]["channels"][1]["rank_groups"][0]
     .update(ranks=[1]), "switch"),
    ("switches in another order", SWITCH, lambda p: p["gpus"][0]["channels"].reverse(), "switch"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("right", "change", "code"), [row[1:] for row in PARTS], ids=[row[0] for row in PARTS]
)
def test_what_the_executor_refuses_overruns_or_computes_wrong_is_found(
    right: ExecutionPlan, change: Callable[[Json], object], code: str
) -> None:
    assert code in broken(right, change)


def test_packets_do_not_protect_where_a_rank_needs_no_other() -> None:
    """The root of a broadcast may be two calls ahead and overwrite packets that nobody read."""
    root, leaf = Rank(0), Rank(1)
    send = move("ppkt", [local("i", 0)], [remote(0, 0)], "memory")
    root.add([send, move("copy", [local("i", 0)], [local("o", 0)])], "memory", [(1, "s")])
    leaf.add([move("upkt", [local("s", 0)], [local("o", 0)])], "memory", [])
    gpus = [root.gpu(1, 1, 8), leaf.gpu(1, 1, 8)]
    report = plan(
        "broadcast", "broadcast", gpus, protocol="LL", use_double_scratch_buffer=True
    ).verify()
    assert {e.code for e in report.errors} == {"race"}


def test_an_order_of_file_other_than_that_of_ids_is_found() -> None:
    gpu = ALLPAIRS.gpus[0]
    gpu = gpu.replace(threadblocks=gpu.threadblocks[::-1])
    report = ALLPAIRS.replace(gpus=(gpu, ALLPAIRS.gpus[1])).verify()
    assert [e.code for e in report.errors] == ["threadblocks"]


def test_a_root_is_a_rank() -> None:
    with pytest.raises(InputError, match="root 3: expected 0 to 2"):
        CHAIN.verify(root=3)
    assert not CHAIN.verify(root=1).ok


def test_the_verb_knows_a_plan_by_its_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tuccl.cli import main

    path = tmp_path / "plan"
    path.write_text(ALLPAIRS.json())
    assert main(["verify", str(path), "-c", "allgather"]) == 0
    assert capsys.readouterr().out == f"{path}: ok: allgather on 2 ranks, mscclpp\n"
    assert main(["verify", str(path), "-s", "64K"]) == 0
    assert capsys.readouterr().out.endswith("mscclpp, 64K runs right\n")
    assert main(["verify", str(path), "-s", "17"]) == 2
    assert "nbytes 17" in capsys.readouterr().err
    path.write_text(ALLPAIRS.json().replace('"signal"', '"nop"', 1))
    assert main(["verify", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["errors"][0]["code"] == "deadlock"
