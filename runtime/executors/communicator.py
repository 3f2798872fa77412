"""Communicators on GPUs whose calls run a table's programs: the functions of tuccl/comm.h."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from tuccl.errors import InputError, TucclError
from tuccl.runtime.executors.cuda import loaded_library

Datatype = Literal[
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "half",
    "float",
    "double",
    "bfloat16",
]
Reduction = Literal["sum", "prod", "max", "min", "avg"]

# In the order of tucclDataType_t and tucclRedOp_t.
_TYPES = Datatype.__args__  # type: ignore[attr-defined]
_OPS = Reduction.__args__  # type: ignore[attr-defined]
_NO_ENTRY = 100
_NO_COLOR = -1
_POINTER = ctypes.c_void_p


class _UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_byte * 128),)


def communicator_id() -> bytes:
    """Return a new communicator's id: one rank makes it and gives it to all.

    It names the rendezvous server of ``TUCCL_BOOTSTRAP``, else one in this process, on loopback.

    Raises:
        Unavailable: there is no library with the kernels.
        TucclError: there can be no server.
    """
    made = _UniqueId()
    _must(_call("tucclGetUniqueId", ctypes.byref(made)), None)
    return bytes(made)


@contextmanager
def group() -> Iterator[None]:
    """Start the calls made within together at its end, those of ranks that share a GPU as one.

    Raises:
        TucclError: ranks that share a GPU differ in their calls, or one of them makes none.
    """
    _must(_call("tucclGroupStart"), None)
    _open.depth += 1
    try:
        yield
    finally:
        code = _call("tucclGroupEnd")
        _open.depth -= 1
        if _open.depth == 0:
            _open.joining.clear()
    _must(code, None)


class _Open(threading.local):
    """A thread's groups that are not ended, and where the communicators within will be written."""

    def __init__(self) -> None:
        self.depth = 0
        self.joining: list[ctypes.c_void_p] = []


_open = _Open()


class Communicator:
    """One rank of a communicator, on the GPU that is present when it joins.

    Calls are NCCL's: memory is given by address, ``count`` as NCCL counts, and a call is started
    on a CUDA stream (its handle; 0: the default one), which it is in order with. Each returns
    False, with nothing started, where the table has no program for it. All calls raise
    TucclError once a rank is gone.

    One rank makes the id by `communicator_id` and gives it to all; then on each::

        with tuccl.Communicator(unique_id, ranks, rank, "table") as comm:
            comm.all_reduce(send, receive, count, "float", "sum", stream)  # False: no program
    """

    def __init__(self, unique_id: bytes, ranks: int, rank: int, table: str | Path = "") -> None:
        """Join as ``rank`` of ``ranks``, once all do; by default ``table`` is TUCCL_TABLE's.

        Of a job's folder it uses the table of its members: those of a communicator of all the
        job's ranks are numbered by it, others by the launcher. Without one no call has a program.

        Raises:
            Unavailable: there is no library with the kernels.
            InputError: the id is none.
            TucclError: the ranks cannot join, or not with this table.
        """
        self._comm = _POINTER()
        if len(unique_id) != ctypes.sizeof(_UniqueId):
            raise InputError(f"an id of {len(unique_id)} bytes: expected communicator_id()'s 128")
        name = _UniqueId.from_buffer_copy(unique_id)
        folder = str(table).encode() if str(table) else None
        if _open.depth > 0:
            _open.joining.append(self._comm)
        _must(_call("tucclCommInitRank", ctypes.byref(self._comm), ranks, name, rank, folder), None)

    @property
    def table(self) -> Path | None:
        """The folder of the table that calls run; None: none is for these ranks."""
        folder = ctypes.c_char_p()
        _must(_call("tucclCommTable", self._comm, ctypes.byref(folder)), self._comm)
        return Path(os.fsdecode(folder.value)) if folder.value else None

    def split(self, color: int | None, key: int = 0) -> Self | None:
        """Return the communicator of the ranks with this ``color``; None for color None.

        Its ranks are in the order of ``key``, then of their ranks here. All ranks call it, those
        of one thread in a `group`. It uses this one's folder of tables; a job's members are
        numbered as here.

        Raises:
            TucclError: it failed at any rank.
        """
        part = type(self).__new__(type(self))
        part._comm = _POINTER()
        if _open.depth > 0:
            _open.joining.append(part._comm)
        number = _NO_COLOR if color is None else color
        _must(_call("tucclCommSplit", self._comm, number, key, ctypes.byref(part._comm)), None)
        return None if color is None else part

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, trace: TracebackType | None
    ) -> None:
        """End it: after its calls, or at once where something was raised."""
        self.close(at_once=kind is not None)

    def all_reduce(
        self,
        send: int,
        receive: int,
        count: int,
        datatype: Datatype,
        op: Reduction = "sum",
        stream: int = 0,
    ) -> bool:
        """Leave the reduction of all ranks' ``count`` elements at ``receive``."""
        return self._run("tucclAllReduce", send, receive, count, datatype, stream, op=op)

    def all_gather(
        self, send: int, receive: int, count: int, datatype: Datatype, stream: int = 0
    ) -> bool:
        """Leave the ``count`` elements of every rank at ``receive``, by rank."""
        return self._run("tucclAllGather", send, receive, count, datatype, stream)

    def reduce_scatter(
        self,
        send: int,
        receive: int,
        count: int,
        datatype: Datatype,
        op: Reduction = "sum",
        stream: int = 0,
    ) -> bool:
        """Leave this rank's ``count`` elements of the reduction at ``receive``."""
        return self._run("tucclReduceScatter", send, receive, count, datatype, stream, op=op)

    def broadcast(
        self,
        send: int,
        receive: int,
        count: int,
        datatype: Datatype,
        root: int = 0,
        stream: int = 0,
    ) -> bool:
        """Leave the ``count`` elements of ``root`` at ``receive``."""
        return self._run("tucclBroadcast", send, receive, count, datatype, stream, root=root)

    def reduce(
        self,
        send: int,
        receive: int,
        count: int,
        datatype: Datatype,
        op: Reduction = "sum",
        root: int = 0,
        stream: int = 0,
    ) -> bool:
        """Leave the reduction of all ranks' ``count`` elements at ``root``'s ``receive``."""
        return self._run("tucclReduce", send, receive, count, datatype, stream, op=op, root=root)

    def all_to_all(
        self, send: int, receive: int, count: int, datatype: Datatype, stream: int = 0
    ) -> bool:
        """Leave what every rank has for this one at ``receive``, ``count`` elements of each."""
        return self._run("tucclAllToAll", send, receive, count, datatype, stream)

    def check(self) -> None:
        """Raise TucclError where a rank is gone or nothing gets on: the communicator has failed."""
        code = ctypes.c_int()
        _must(_call("tucclCommGetAsyncError", self._comm, ctypes.byref(code)), self._comm)
        _must(code.value, self._comm)

    def close(self, *, at_once: bool = False) -> None:
        """End it, after its calls or ``at_once``; does nothing the second time."""
        if self._comm:
            _call("tucclCommAbort" if at_once else "tucclCommDestroy", self._comm)
            self._comm = _POINTER()

    def _run(
        self,
        function: str,
        send: int,
        receive: int,
        count: int,
        datatype: Datatype,
        stream: int,
        *,
        op: Reduction | None = None,
        root: int | None = None,
    ) -> bool:
        if count < 0:
            raise InputError(f"count {count}: expected 0 or more elements")
        numbers: list[Any] = [ctypes.c_int(_index("datatype", datatype, _TYPES))]
        if op is not None:
            numbers.append(ctypes.c_int(_index("op", op, _OPS)))
        if root is not None:
            numbers.append(ctypes.c_int(root))
        pointers = _POINTER(send), _POINTER(receive), ctypes.c_size_t(count)
        code = _call(function, *pointers, *numbers, self._comm, _POINTER(stream))
        if code != _NO_ENTRY:
            _must(code, self._comm)
        return code != _NO_ENTRY


def _call(function: str, *arguments: object) -> int:
    code: int = getattr(loaded_library(), function)(*arguments)
    return code


def _must(code: int, comm: ctypes.c_void_p | None) -> None:
    if code == 0:
        return
    last = loaded_library().tucclGetLastError
    text: bytes = (comm and last(comm)) or last(None) or b"a call failed"
    raise TucclError(text.decode(errors="replace"))


def _index(what: str, name: str, names: tuple[str, ...]) -> int:
    if name not in names:
        raise InputError(f"{what} {name!r}: expected one of {', '.join(names)}")
    return names.index(name)
