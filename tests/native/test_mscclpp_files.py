"""Execution plans of MSCCL++: what is read back, and what is refused with its place."""

import json
from pathlib import Path
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
    text = PLAN.json()
    again = ExecutionPlan.parse(text)
    assert [block.id for block in again.gpus[0].threadblocks] == [0, 1]
    assert again.gpus[0].threadblocks[1] == PLAN.gpus[0].threadblocks[0]
    assert again.json() == text
    assert json.loads(text)["max_message_size"] == 1 << 20
    # The loader has no default for these.
    assert all(
        {"channels", "remote_buffer_refs"} <= block.keys()
        for gpu in json.loads(text)["gpus"]
        for block in gpu["threadblocks"]
    )


def test_a_minimum_beyond_what_the_loader_reads_is_not_written() -> None:
    with pytest.raises(InputError, match="min_message_size 4294967296: the loader reads 32 bits"):
        PLAN.replace(min_message_size=1 << 32).json()


OP = ("gpus", 1, "threadblocks", 1, "ops", 1)
SOURCE = (*OP, "src_buff", 0)


def changed(*path: str | int, to: object) -> str:
    """The plan as JSON, a line a value, with another value at ``path``; None removes it."""
    document: Any = json.loads(PLAN.json())
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
        (("gpus", 1, "id"), "x", r"\$.gpus\[1\].id: expected a number, got '\"x\""),
        ((*OP, "name"), "sync", r"\.ops\[1\].name: 'sync': expected one of \[nop, barrier"),
        ((*SOURCE, "index"), -1, r"src_buff\[0\].index: expected a whole number from 0 to"),
        ((*SOURCE, "type"), "x", r"src_buff\[0\].type: 'x': expected one of \[i, o, s\]"),
        ((*OP, "cnt"), 1, "unknown field `cnt`"),
        ((*OP, "channel_ids"), 0, "channel_ids: expected an array, got '0"),
        (("name",), 7, r"\$.name: expected a string, got '7"),
        (("name",), "", "got an empty one"),
        (("name",), "a\nb", r"\$.name: an escape of no printable character"),
        (("name",), "x" * 801, "more than 800 bytes"),
        (("inplace",), 0, "inplace: expected true or false, got '0"),
        ((*SOURCE, "index"), 1.5, r"index: expected a whole number"),
        ((*OP, "tbg_info"), [], "tbg_info: expected an object, got '"),
        (("gpus",), [], "expected 1 to 1024 gpus, got 0"),
        (("max_message_size",), 2**64, "max_message_size: expected a whole number from 0 to"),
    ],
)
def test_what_is_no_plan_is_refused_with_its_place(
    path: tuple[str | int, ...], value: object, message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        ExecutionPlan.parse(changed(*path, to=value), "p.json")
    assert str(error.value).startswith("p.json:") and "\n" not in str(error.value)


def test_the_line_of_a_refused_value_is_its_own() -> None:
    text = changed(*SOURCE, "index", to=-7)
    line = text[: text.index("-7")].count("\n") + 1
    with pytest.raises(InputError, match=rf"^p.json:{line}: "):
        ExecutionPlan.parse(text, "p.json")


def test_pipelines_are_not_nested_without_end() -> None:
    loops = '{"name":"pipeline","ops":[' * 100_000
    text = PLAN.json().replace('{"name":"pipeline"', loops + '{"name":"pipeline"', 1)
    with pytest.raises(InputError, match="nested too deeply"):
        ExecutionPlan.parse(text)


def test_a_field_is_there_once() -> None:
    text = PLAN.json().replace('"inplace": false', '"inplace": false, "inplace": true')
    with pytest.raises(InputError, match="duplicate field `inplace`"):
        ExecutionPlan.parse(text)


def test_names_are_any_printable_unicode() -> None:
    text = PLAN.json().replace('"exchange"', '"a\\"\\u00e9\\ud83d\\ude00"')
    plan = ExecutionPlan.parse(text)
    assert plan.name == 'a"\u00e9\U0001f600'
    assert ExecutionPlan.parse(plan.json()) == plan


def test_a_file_is_written_whole_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    PLAN.write(path)
    assert ExecutionPlan.read(path) == ExecutionPlan.parse(PLAN.json())
    assert [each.name for each in tmp_path.iterdir()] == ["plan.json"]
    with pytest.raises(InputError, match="cannot be written"):
        PLAN.write(tmp_path / "nowhere" / "plan.json")
    with pytest.raises(InputError, match="no such file"):
        ExecutionPlan.read(tmp_path / "none")
    with pytest.raises(InputError, match="no regular file"):
        ExecutionPlan.read(tmp_path)


def test_parts_are_values() -> None:
    copy = Operation("copy", src_buff=[BufferRef(0, 1, "i")])
    assert copy == Operation("nop").replace(name="copy", src_buff=copy.src_buff)
    assert copy != copy.replace(barrier_id=1)
    with pytest.raises(TypeError, match="no field 'nmae'"):
        copy.replace(nmae="nop")
    with pytest.raises(InputError, match="unknown operation 'sync', expected one of: nop, barrier"):
        Operation("sync")


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b"\xff", b"null", b"{}"])
def test_no_bytes_raise_anything_else(text: bytes) -> None:
    with pytest.raises(InputError):
        ExecutionPlan.parse(text)


def test_every_cut_of_a_plan_is_refused() -> None:
    text = PLAN.json().rstrip()
    for end in range(len(text)):
        with pytest.raises(InputError):
            ExecutionPlan.parse(text[:end])


def test_plans_are_distinguished_from_programs_by_content() -> None:
    assert is_plan(PLAN.json().encode()) and not is_plan(b"<algo>")
