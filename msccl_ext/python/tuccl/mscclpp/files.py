"""Reading and writing execution plans as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from tuccl.errors import InputError
from tuccl.mscclpp.plan import NO_LIMIT, ExecutionPlan, Gpu

__all__ = ["is_plan", "parse_plan", "plan_json"]

MOST_GPUS = 1024
_LISTS = ("channels", "remote_buffer_refs")


def is_plan(text: bytes) -> bool:
    """Tell a plan from MSCCL XML by its first character: JSON begins with a brace."""
    return text[:4096].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


def parse_plan(text: bytes | str, path: str = "<string>") -> ExecutionPlan:
    """Return the plan in JSON ``text``; ``path`` stands in the messages.

    Only the form is checked here: :func:`tuccl.mscclpp.verify_plan` proves the rest.

    Raises:
        InputError: "PATH:LINE: $.gpus[3]...: what, what was expected" where a field is missing,
            unknown, of another type or out of range.
    """
    data = text.encode() if isinstance(text, str) else text
    try:
        plan = msgspec.json.decode(data, type=ExecutionPlan)
    except msgspec.ValidationError as error:
        what, _, where = str(error).rpartition(" - at ")
        what, where = (what, where.strip("`")) if what else (where, "$")
        raise InputError(f"{path}:{_line(data, where)}: {where[:200]}: {_plain(what)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        at = re.search(r"byte (\d+)", str(error))
        line = data.count(b"\n", 0, int(at[1])) + 1 if at else 1
        raise InputError(f"{path}:{line}: no JSON: {_plain(str(error))}") from None
    if plan.max_message_size > NO_LIMIT or plan.min_message_size > NO_LIMIT:
        raise InputError(f"{path}: $.max_message_size: expected at most {NO_LIMIT}")
    if not 1 <= len(plan.gpus) <= MOST_GPUS:
        raise InputError(f"{path}: $.gpus: {len(plan.gpus)} of them, expected 1 to {MOST_GPUS}")
    return plan


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:300])


def _line(data: bytes, where: str) -> int:
    """Return the line of the value at a JSON path such as ``$.gpus[3].id``, or of its parent."""
    start, text = 0, data
    try:
        for key, index in re.findall(r"\.(\w+)|\[(\d+)\]", where):
            place, found = 0, b""
            for name, found in _children(text):
                place = text.index(found, place)
                if name == (key or int(index)):
                    break
                place += len(found)
            else:
                break
            start, text = start + place, found
    except (msgspec.MsgspecError, ValueError):
        pass
    return data.count(b"\n", 0, start) + 1


def _children(text: bytes) -> Iterator[tuple[str | int, bytes]]:
    """Yield key or index and text of what a JSON object or array holds, in order."""
    if text.lstrip().startswith(b"{"):
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        yield from ((key, bytes(value)) for key, value in members.items())
    else:
        values = msgspec.json.decode(text, type=list[msgspec.Raw])
        yield from enumerate(bytes(value) for value in values)


def plan_json(plan: ExecutionPlan) -> str:
    """Return the plan as JSON, an operation a line: equal plans, equal text.

    Thread blocks come in order of id, as the loader needs them; the range of sizes is always
    written.

    Raises:
        InputError: ``min_message_size`` is beyond the 32 bits that the loader reads it with.
    """
    if plan.min_message_size >= 2**31:
        raise InputError(
            f"plan {plan.name[:60]}: min_message_size {plan.min_message_size}: the loader reads 32 "
            "bits of it; expected less than 2147483648"
        )
    header = {
        "name": plan.name,
        "collective": plan.collective,
        "protocol": plan.protocol,
        "inplace": plan.inplace,
        "reuse_resources": plan.reuse_resources,
        "use_double_scratch_buffer": plan.use_double_scratch_buffer,
        "buffer_alignment": plan.buffer_alignment,
        "num_threads_per_block": plan.num_threads_per_block,
        "min_message_size": plan.min_message_size,
        "max_message_size": plan.max_message_size,
    }
    lines = [f"{_json(key)}: {_json(value)}" for key, value in header.items()]
    gpus = ",\n  ".join(_gpu_json(gpu) for gpu in plan.gpus)
    return "{" + ",\n ".join([*lines, f'"gpus": [\n  {gpus}]']) + "}\n"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _gpu_json(gpu: Gpu) -> str:
    counts = ("id", "input_chunks", "output_chunks", "scratch_chunks")
    lines = [", ".join(f'"{key}": {getattr(gpu, key)}' for key in counts)]
    for key in ("channels", "remote_buffers", "semaphores"):
        if (parts := getattr(gpu, key)) or key != "semaphores":
            lines.append(f'"{key}": {_json(parts)}')
    blocks = []
    for block in sorted(gpu.threadblocks, key=lambda block: block.id):
        # The loader looks both lists up wherever an operation names them, so they are never left.
        parts = [f'"{key}": {_json(getattr(block, key))}' for key in _LISTS]
        ops = ",\n     ".join(_json(op) for op in block.ops)
        blocks.append(f'{{"id": {block.id}, {", ".join(parts)}, "ops": [\n     {ops}]}}')
    lines.append('"threadblocks": [\n    ' + ",\n    ".join(blocks) + "]")
    return "{" + ",\n   ".join(lines) + "}"
