"""Execution plans of MSCCL++: what is read back, and what is refused with its place."""

import json
from typing import Any

import pytest

from tuccl.errors import InputError
from tuccl.mscclpp import (
    BufferRef,
    Channel,
    ExecutionPlan,
    Gpu,
    IterContext,
    Operation,
    RemoteBuffer,
    RemoteBufferRefs,
    ThreadBlock,
    ThreadBlockChannels,
    ThreadBlockGroup,
    is_plan,
    parse_plan,
    plan_json,
)


def exchange(rank: int) -> Gpu:
    """One rank of two that give each other their input."""
    copy = Operation(
        name="copy",
        src_buff=(BufferRef(0, 1, type="i"),),
        dst_buff=(BufferRef(rank, 1, type="o"),),
        tbg_info=ThreadBlockGroup(0, 1),
    )
    put = Operation(
        name="put",
        channel_type="memory",
        channel_ids=(0,),
        src_buff=(BufferRef(0, 1, type="i"),),
        dst_buff=(BufferRef(rank, 1, buffer_id=0),),
    )
    loop = Operation(name="pipeline", iter_context=IterContext(1 << 20, 1), ops=(put,))
    block = ThreadBlock(
        1,
        (loop, copy, Operation(name="nop")),
        (ThreadBlockChannels("memory", (0,)),),
        (RemoteBufferRefs("memory", (0,)),),
    )
    return Gpu(
        rank,
        1,
        2,
        0,
        (Channel("memory", (1 - rank,)),),
        (RemoteBuffer(1 - rank, "o", ("memory",)),),
        (block, ThreadBlock(0, (Operation(name="nop"),), ())),
    )


PLAN = ExecutionPlan(
    "exchange", "allgather", "Simple", False, (exchange(0), exchange(1)), max_message_size=1 << 20
)


def test_what_is_written_is_read_back_with_blocks_in_order_of_id() -> None:
    text = plan_json(PLAN)
    again = parse_plan(text)
    assert [block.id for block in again.gpus[0].threadblocks] == [0, 1]
    assert again.gpus[0].threadblocks[1] == PLAN.gpus[0].threadblocks[0]
    assert plan_json(again) == text
    assert json.loads(text)["max_message_size"] == 1 << 20
    # The loader has no default for these.
    assert all(
        {"channels", "remote_buffer_refs"} <= block.keys()
        for gpu in json.loads(text)["gpus"]
        for block in gpu["threadblocks"]
    )


def test_operations_are_numbered_as_the_loader_lays_them_out() -> None:
    names = [(b.id, n, op.name) for gpu, b, n, op in PLAN.operations() if gpu.id == 0]
    loop = [(1, 0, "pipeline"), (1, 1, "put"), (1, 2, "copy"), (1, 3, "nop")]
    assert names == [*loop, (0, 0, "nop")]


def test_channels_and_switches_are_numbered_across_entries() -> None:
    gpu = PLAN.gpus[0]
    assert gpu.peers("memory") == [1] and gpu.peers("port") == [] and gpu.switches() == []


def test_a_minimum_beyond_what_the_loader_reads_is_not_written() -> None:
    import msgspec

    with pytest.raises(InputError, match="min_message_size 4294967296: the loader reads 32 bits"):
        plan_json(msgspec.structs.replace(PLAN, min_message_size=1 << 32))


OP = ("gpus", 1, "threadblocks", 1, "ops", 1)
SOURCE = (*OP, "src_buff", 0)


def changed(*path: str | int, to: object) -> str:
    """The plan as JSON, a line a value, with another value at ``path``; None removes it."""
    document: Any = json.loads(plan_json(PLAN))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    if to is None:
        del place[path[-1]]
    return json.dumps(document, indent=1)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("inplace",), None, "missing required field `inplace`"),
        (("gpus", 1, "id"), "x", r"\$.gpus\[1\].id: Expected `int`, got `str`"),
        ((*OP, "name"), "sync", r"\.ops\[1\].name: Invalid enum value 'sync'"),
        ((*SOURCE, "index"), -1, r"src_buff\[0\].index: Expected `int` >= 0"),
        ((*SOURCE, "type"), "x", r"src_buff\[0\].type: Invalid enum value 'x'"),
        ((*OP, "cnt"), 1, "unknown field `cnt`"),
        ((*OP, "channel_ids"), 0, "channel_ids: Expected `array`, got `int`"),
        (("gpus",), [], "gpus: 0 of them"),
        (("max_message_size",), 2**64, "max_message_size: expected at most"),
    ],
)
def test_what_is_no_plan_is_refused_with_its_place(
    path: tuple[str | int, ...], value: object, message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        parse_plan(changed(*path, to=value), "p.json")
    assert str(error.value).startswith("p.json:") and "\n" not in str(error.value)


def test_the_line_of_a_refused_value_is_its_own() -> None:
    text = changed(*SOURCE, "index", to=-7)
    line = text[: text.index("-7")].count("\n") + 1
    with pytest.raises(InputError, match=rf"^p.json:{line}: "):
        parse_plan(text, "p.json")


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b"\xff", b"null", b"{}"])
def test_no_bytes_raise_anything_else(text: bytes) -> None:
    with pytest.raises(InputError):
        parse_plan(text)


def test_every_cut_of_a_plan_is_refused() -> None:
    text = plan_json(PLAN).rstrip()
    for end in range(len(text)):
        with pytest.raises(InputError):
            parse_plan(text[:end])


def test_plans_are_told_from_programs_by_content() -> None:
    assert is_plan(plan_json(PLAN).encode()) and not is_plan(b"<algo>")
