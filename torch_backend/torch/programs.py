"""The program that a call runs, made ready for it; None where Gloo does it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from tuccl.execution import BoundProgram, Call
from tuccl.runtime import Table, select
from tuccl.synth.model.collective import REDUCING, ROOTED

_MAX_BOUND = 32
_NAMES = {
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.int32: "int32",
    torch.uint32: "uint32",
    torch.int64: "int64",
    torch.uint64: "uint64",
    torch.float16: "half",
    torch.bfloat16: "bfloat16",
    torch.float32: "float",
    torch.float64: "double",
}
_MOVED = {1: "uint8", 2: "half", 4: "uint32", 8: "uint64"}
_WHOLE = ("allreduce", "broadcast", "reduce")


def datatype_of(collective: str, dtype: torch.dtype) -> str | None:
    """Return the engine's name of a type; where nothing is reduced its width is enough."""
    if collective in REDUCING:
        return _NAMES.get(dtype)
    return _MOVED.get(dtype.itemsize)


@dataclass(frozen=True)
class ProgramKey:
    """Properties of a call that decide its program; equal on every rank but for ``in_place``.

    ``share_bytes`` is what one rank gives or gets; of allreduce, broadcast and reduce the whole.
    """

    collective: str
    share_bytes: int
    datatype: str
    width: int
    op: str = "sum"
    root: int = 0
    in_place: bool = False


class TablePrograms:
    """The programs of one table on one rank, ready to run: the last few kinds of calls are kept."""

    def __init__(self, stored: Table, rank: int, latency_us: Sequence[float] = ()) -> None:
        """Serve ``rank`` from ``stored``; ``latency_us`` is added to messages (`Call`)."""
        self._stored = stored
        self._rank = rank
        self._latency_us = list(latency_us)
        self._ready: OrderedDict[ProgramKey, tuple[BoundProgram, bool] | None] = OrderedDict()

    @property
    def ranks(self) -> int:
        """Ranks of the table."""
        return self._stored.lookup.ranks

    def has(self, collective: str) -> bool:
        """Return whether the table has entries for a collective."""
        return any(entry.collective == collective for entry in self._stored.lookup.entries)

    def peers(self) -> Iterator[int]:
        """Every rank that some program joins to this one."""
        for program in self._stored.programs.values():
            for gpu in program.gpus:
                for block in gpu.threadblocks:
                    for peer in {block.send_peer, block.recv_peer} - {-1}:
                        if self._rank in (gpu.id, peer):
                            yield gpu.id + peer - self._rank

    def ready(self, key: ProgramKey) -> tuple[BoundProgram, bool] | None:
        """Return the program for a call and whether it is laid out in place; None: Gloo's.

        The choice itself does not depend on whether this rank's buffers overlap: others' may not.
        """
        if key not in self._ready:
            self._ready[key] = self._load(key)
            if len(self._ready) > _MAX_BOUND:
                self._ready.popitem(last=False)
        self._ready.move_to_end(key)
        return self._ready[key]

    def _load(self, key: ProgramKey) -> tuple[BoundProgram, bool] | None:
        whole = key.collective in _WHOLE
        choice = select(
            self._stored.lookup,
            key.collective,
            key.share_bytes * (1 if whole else self.ranks),
            in_place=whole,
            root=key.root if key.collective in ROOTED else 0,
            element_bytes=key.width,
            reduction="sum" if key.op == "avg" else key.op,
            pads=True,
        )
        program = self._stored.program(choice.candidate)
        if program is None or choice.candidate.knobs is None:
            return None
        in_place = whole or (key.in_place and program.in_place)
        share_chunks = program.nchunks if whole else program.nchunks // self.ranks
        elements = key.share_bytes // key.width
        chunk_bytes = -(-elements // share_chunks) * key.width
        call = Call(
            program,
            choice.candidate.knobs.knobs,
            chunk_bytes * program.nchunks,
            datatype=key.datatype,
            op=key.op,
            root=key.root,
            in_place=in_place,
            latency_us=self._latency_us,
        )
        return BoundProgram(call, self._rank), in_place
