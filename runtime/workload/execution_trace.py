"""Calls from PyTorch's execution traces: schemas 1.0 and 1.1 (Chakra's host traces)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tuccl.errors import InputError
from tuccl.runtime.workload.calls import Call, collective_name
from tuccl.synth.model.collective import COUNTED_PER_RANK

_COMMUNICATION = "record_param_comms"
_GROUPS = "## process_group:init ##"
_NO_DATA = frozenset({"wait", "barrier", "init"})
_SPLITS_AFTER_NAME = 1, 3  # input and output splits follow the name, then ranks of the group
_TENSOR_WORDS = 6  # id, storage, offset, elements, bytes of one, device


class _Attribute(msgspec.Struct):
    name: str
    value: msgspec.Raw


class _Values(msgspec.Struct):
    values: list[object] = []


class _Node(msgspec.Struct):
    name: str
    inputs: msgspec.Raw = msgspec.Raw(b"[]")
    outputs: msgspec.Raw = msgspec.Raw(b"[]")
    attrs: list[_Attribute] = []


class _Trace(msgspec.Struct):
    nodes: list[_Node]


class TraceGroup(msgspec.Struct):
    """A process group as a trace lists it; ``ranks`` may be missing."""

    pg_name: str | int = ""
    pg_id: str | int = ""
    pg_desc: str = ""
    ranks: list[int] = []
    group_size: int = 0

    @property
    def name(self) -> str:
        """Its name in the calls."""
        return str(self.pg_name or self.pg_id)

    @property
    def size(self) -> int:
        """The number of its ranks, 0: not known."""
        return self.group_size or len(self.ranks)


def calls_of_execution_trace(text: bytes, where: str) -> list[Call]:
    """Return the collectives that one rank's trace records, in order.

    Sizes are those of the tensors. An alltoall of unequal parts is called ``alltoallv``. The
    size of a group is None where neither the call nor the trace's list of groups says it.

    Raises:
        InputError: it is no such trace; names ``where`` and the place in it.

    Notes:
        pytorch torch/csrc/profiler/standalone/execution_trace_observer.cpp, and
        torch/csrc/distributed/c10d/ParamCommsUtils.hpp.
    """
    nodes = _nodes(text, where)
    try:
        sizes = {group.name: group.size for group in _groups(nodes)}
        calls = [_call(node, sizes) for node in nodes if node.name == _COMMUNICATION]
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{where}: {error}; expected a PyTorch execution trace") from None
    return [call for call in calls if call is not None]


def groups_of_execution_trace(text: bytes, where: str) -> list[TraceGroup]:
    """Return the process groups that one rank's trace lists, which are those that it is in.

    Raises:
        InputError: it is no such trace; names ``where``.
    """
    return list(_groups(_nodes(text, where)))


def _nodes(text: bytes, where: str) -> list[_Node]:
    try:
        return msgspec.json.decode(text, type=_Trace).nodes
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where}: {error}; expected a PyTorch execution trace") from None


def _groups(nodes: list[_Node]) -> Iterator[TraceGroup]:
    """The process groups of a trace; a list that was cut short says nothing."""
    for node in nodes:
        if node.name != _GROUPS:
            continue
        for value in _values(node.inputs):
            try:
                yield from msgspec.json.decode(str(value), type=list[TraceGroup])
            except msgspec.DecodeError:
                continue


def _values(raw: msgspec.Raw) -> list[object]:
    """The values of a node's inputs or outputs: a list in 1.0, beside shapes and types in 1.1."""
    if bytes(raw).lstrip()[:1] == b"[":
        return msgspec.json.decode(raw, type=list[object])
    return msgspec.json.decode(raw, type=_Values).values


def _call(node: _Node, groups: dict[str, int]) -> Call | None:
    values = _values(node.inputs)
    at = next((n for n, value in enumerate(values) if isinstance(value, str)), None)
    if at is None or values[at] in _NO_DATA:
        return None
    name = collective_name(str(values[at]))
    first, last = _SPLITS_AFTER_NAME
    splits = [value for value in values[at + first : at + last] if isinstance(value, list)]
    ranks = _ranks(node, values, at, groups) or max(map(len, splits), default=0) or None
    if name == "alltoallv" and all(len(set(map(str, split))) <= 1 for split in splits):
        name = "alltoall"
    sent_bytes = _tensor_bytes(values[0]) or _attribute_bytes(node, "in_msg_nelems")
    received_bytes = sum(map(_tensor_bytes, _values(node.outputs)))
    received_bytes = received_bytes or _attribute_bytes(node, "out_msg_nelems")
    if name not in COUNTED_PER_RANK or name == "alltoall":
        return Call(name, sent_bytes or received_bytes, ranks=ranks)
    # One side is the whole array, where it is recorded: a root's own in gather and scatter.
    part = sent_bytes if name in ("allgather", "gather") else received_bytes
    return Call(name, max(sent_bytes, received_bytes, part * (ranks or 0)), ranks=ranks)


def _ranks(node: _Node, values: list[object], at: int, groups: dict[str, int]) -> int:
    """The size of the group: as an attribute, as the last value, or by the group's name; or 0."""
    size = _attribute(node, "pg_size")
    after = values[at + _SPLITS_AFTER_NAME[1] :]
    if size is None and after:
        size = after[-1]
    if isinstance(size, int) and size > 0:
        return size
    group = values[at - 2] if at >= 2 else None
    return groups.get(str(group[0] if isinstance(group, list) and group else group), 0)


def _tensor_bytes(value: object, depth: int = 3) -> int:
    """The bytes of a tensor, or of lists of tensors."""
    if not isinstance(value, list) or depth == 0:
        return 0
    if len(value) == _TENSOR_WORDS and isinstance(value[3], int) and isinstance(value[4], int):
        return max(value[3], 0) * max(value[4], 0)
    return sum(_tensor_bytes(each, depth - 1) for each in value)


def _attribute(node: _Node, name: str) -> object:
    raw = next((a.value for a in node.attrs if a.name == name), None)
    return None if raw is None else msgspec.json.decode(raw)


def _attribute_bytes(node: _Node, name: str) -> int:
    """The bytes of a call whose tensors are not recorded: its elements, times those of one."""
    elements, datatype = _attribute(node, name), str(_attribute(node, "dtype")).lower()
    return max(elements, 0) * _DATATYPE_BYTES.get(datatype, 1) if isinstance(elements, int) else 0


_DATATYPE_BYTES = {
    "double": 8,
    "long": 8,
    "float": 4,
    "int": 4,
    "half": 2,
    "bfloat16": 2,
    "short": 2,
}
