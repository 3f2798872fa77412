"""Calls from lists: tuccl's own JSON, tables of text with a heading, and AICB's workloads."""

from __future__ import annotations

import csv
import math
import re
from typing import Literal

import msgspec

from tuccl.errors import InputError
from tuccl.runtime.workload.calls import Call, collective_name
from tuccl.units import parse_size

AICB_GROUP = "model_parallel_NPU_group"
_COLUMNS = {
    "collective": ("collective", "op"),
    "bytes": ("bytes", "size", "size_bytes"),
    "count": ("count",),
    "us": ("us", "time_us"),
    "ranks": ("ranks", "group_size"),
}
_AICB_WORDS = 12
_BYTES = re.compile("[0-9]{1,18}")
_MOST = 1 << 62


class _Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    collective: str
    bytes: int
    count: int = 1
    us: float | None = None
    ranks: int | None = None


class _Json(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal["tuccl-workload/1"]
    calls: tuple[_Listed, ...]
    name: str = ""


def calls_of_json(text: bytes, where: str) -> list[Call]:
    """Return the calls of a ``tuccl-workload/1`` file (docs/reference/files.md).

    Raises:
        InputError: it is something else; names ``where`` and the place in it.
    """
    try:
        read = msgspec.json.decode(text, type=_Json)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{where}: {error}; expected a tuccl-workload/1 list of calls") from None
    return [
        _checked(Call(c.collective, c.bytes, c.count, c.us, c.ranks), f"{where}: $.calls[{n}]")
        for n, c in enumerate(read.calls)
    ]


def calls_of_table(text: str, where: str) -> list[Call]:
    """Return the calls of a CSV or TSV: collective, size, count, or columns with such headings.

    Headings are collective (or op), bytes (size, size_bytes), count, us (time_us), ranks
    (group_size); others are passed over.

    Raises:
        InputError: a column is missing or a cell is no number; names ``where`` and the line.
    """
    lines = text.splitlines()
    separator = "\t" if lines and "\t" in lines[0] else ","
    try:
        rows = [[w.strip() for w in row] for row in csv.reader(lines, delimiter=separator)]
    except csv.Error as error:
        raise InputError(f"{where}: {error}; expected a list of calls") from None
    numbered = [(n, row) for n, row in enumerate(rows, start=1) if any(row)]
    heading = [word.lower() for word in numbered[0][1]] if numbered else []
    places = {
        field: next((heading.index(name) for name in names if name in heading), -1)
        for field, names in _COLUMNS.items()
    }
    if places["collective"] >= 0 and places["bytes"] >= 0:
        numbered = numbered[1:]
    elif len(heading) >= 2 and re.match(r"\d", heading[1]):
        places = {"collective": 0, "bytes": 1, "count": 2, "us": -1, "ranks": -1}
    else:
        raise InputError(
            f"{where}: no list of calls: expected a workload in JSON, an execution trace, "
            "nccl-tests' output, an NCCL log with COLL, AICB's text, or columns collective, bytes "
            "and count"
        )
    return [_row(row, places, f"{where}:{n}") for n, row in numbered]


def _row(row: list[str], places: dict[str, int], where: str) -> Call:
    def cell(field: str) -> str:
        at = places[field]
        return row[at] if 0 <= at < len(row) else ""

    size, count, us, ranks = (cell(field) for field in ("bytes", "count", "us", "ranks"))
    try:
        call = Call(
            collective_name(cell("collective")),
            int(size) if size.isdecimal() else parse_size(size),
            int(count or 1),
            float(us) if us else None,
            int(ranks) if ranks else None,
        )
    except ValueError:
        raise InputError(f"{where}: {','.join(row)[:60]!r}: expected numbers") from None
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return _checked(call, where)


def _checked(call: Call, where: str) -> Call:
    """``call``, unless a number of it cannot be."""
    counts = (call.nbytes, call.count - 1, (call.ranks or 1) - 1)
    us = 1.0 if call.us is None else call.us
    if min(counts) < 0 or max(counts) >= _MOST or not math.isfinite(us) or us <= 0:
        raise InputError(
            f"{where}: {call.count} calls of {call.nbytes} bytes: expected bytes of 0 or more, "
            "and count, us and ranks above 0"
        )
    return call


def calls_of_aicb(text: str, where: str) -> list[Call]:
    """Return the collectives of a step that AICB wrote for SimAI: twelve words a layer.

    Those of the forward pass and of input gradients are of the model-parallel group, those of
    weight gradients of the data-parallel group, whose size the heading may not say.

    Raises:
        InputError: a line has other words; names ``where`` and the line.

    Notes:
        aliyun/SimAI astra-sim Workload.cc: name, -1, then compute time, collective and bytes of
        forward pass, input gradient and weight gradient, then the update's time.
    """
    heading, *lines = text.splitlines()
    settings = {name: int(number) for name, number in re.findall(r"(\w+): (\d{1,9})\b", heading)}
    calls = []
    for number, line in enumerate(lines[1:], start=3):
        words = line.split()
        if not words:
            continue
        places = zip((3, 6, 9), _aicb_groups(settings), strict=True)
        if len(words) < _AICB_WORDS or not all(_BYTES.fullmatch(words[at]) for at in (4, 7, 10)):
            raise InputError(f"{where}:{number}: expected AICB's twelve words of a layer")
        for at, ranks in places:
            name, _, group = words[at].partition("_")
            if name != "NONE":
                ranks = settings.get(group.lower(), 0) if group else ranks
                call = Call(collective_name(name), int(words[at + 1]), ranks=ranks)
                calls.append(_checked(call, f"{where}:{number}"))
    return calls


def _aicb_groups(settings: dict[str, int]) -> tuple[int | None, int | None, int | None]:
    """The ranks of the three columns' groups; 0: another group, whose size is not said."""
    model = settings.get(AICB_GROUP, 1)
    groups = model * settings.get("pp", 1)
    data = settings.get("all_gpus", 0) // groups if groups else 0
    if model > 1:
        return model, model, data
    return (data or None,) * 3  # all is between the data-parallel ranks
