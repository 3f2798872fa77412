"""The program that a call runs, made ready for it; None where Gloo does it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from tuccl.execution import BoundProgram, Call, Group, GroupChoices, PeerListener
from tuccl.runtime import Table, select
from tuccl.runtime.table.entry import Candidate
from tuccl.runtime.table.programs import sent_chunks
from tuccl.runtime.table.text import table_text
from tuccl.synth.model.collective import REDUCING, ROOTED
from tuccl.torch.options import interface

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


# A program, whether it is laid out in place, and the candidate that its time counts for, or -1.
ReadyProgram = tuple[BoundProgram, bool, int]
# A listener, the addresses of peers, and a secret.
Meeting = tuple[PeerListener, dict[int, str], str]


class TablePrograms:
    """The programs of one table on one rank, ready to run: the last few kinds of calls are kept."""

    def __init__(self, stored: Table, rank: int, latency_us: Sequence[float] = ()) -> None:
        """Serve ``rank`` from ``stored``; ``latency_us`` is added to messages (`Call`)."""
        self._stored = stored
        self._rank = rank
        self._latency_us = list(latency_us)
        self._ready: OrderedDict[tuple[ProgramKey, int], tuple[BoundProgram, bool] | None] = (
            OrderedDict()
        )
        self._candidates = [c for entry in stored.lookup.entries for c in entry.candidates]
        self._choices: GroupChoices | None = None

    def adapt(self, group: Group, meeting: Meeting) -> None:
        """Let choices change as times do; all ranks join rank 0 before their first call.

        Rank 0 keeps the times in the table's folder.
        """
        text, links = table_text(self._stored.lookup).decode(), self._link_shares()
        folder = str(self._stored.folder) if self._rank == 0 else ""
        self._choices = GroupChoices(
            group, self.ranks, *meeting, text, folder, *links, interface() or ""
        )

    def close(self) -> None:
        """Learn no more."""
        if self._choices is not None:
            self._choices.close()

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
            for pair in program.sent:
                if self._rank in pair:
                    yield sum(pair) - self._rank

    def _link_shares(self) -> tuple[list[int], list[list[float]]]:
        """Return by rank its host, and by candidate what of the array leaves and enters each."""
        topology = self._stored.topology
        place = {host: number for number, host in enumerate(topology.hosts)}
        host_of = {rank: topology.host_of(rank) for rank in range(self.ranks)}
        shares = []
        for candidate in self._candidates:
            program = self._stored.program(candidate)
            shares.append([0.0] * (2 * len(place)))
            if program is not None:
                for (src, dst), chunks in sent_chunks(program, host_of).items():
                    shares[-1][place[src]] += chunks / program.nchunks
                    shares[-1][len(place) + place[dst]] += chunks / program.nchunks
        return [place[host] for host in host_of.values()], shares

    def ready(self, key: ProgramKey | None) -> ReadyProgram | None:
        """Return the program for the next call; None: Gloo's, as always without a key.

        The choice itself does not depend on whether this rank's buffers overlap: others' may not.
        """
        if key is None:
            if self._choices is not None:
                self._choices.skip()
            return None
        chosen, timed = self._choose(key)
        if (key, chosen) not in self._ready:
            self._ready[key, chosen] = self._load(key, chosen)
            if len(self._ready) > _MAX_BOUND:
                self._ready.popitem(last=False)
        self._ready.move_to_end((key, chosen))
        found = self._ready[key, chosen]
        return None if found is None else (*found, timed)

    def _choose(self, key: ProgramKey) -> tuple[int, int]:
        """Return the candidate of the next call (-1: as tuned), and that which is timed, or -1."""
        if self._choices is None:
            return -1, -1
        whole, root = key.collective in _WHOLE, key.root if key.collective in ROOTED else 0
        nbytes = key.share_bytes * (1 if whole else self.ranks)
        return self._choices.choose(key.collective, nbytes, root, key.width, whole)

    def _as_tuned(self, key: ProgramKey) -> Candidate:
        whole = key.collective in _WHOLE
        return select(
            self._stored.lookup,
            key.collective,
            key.share_bytes * (1 if whole else self.ranks),
            in_place=whole,
            root=key.root if key.collective in ROOTED else 0,
            element_bytes=key.width,
            reduction="sum" if key.op == "avg" else key.op,
            pads=True,
        ).candidate

    def _load(self, key: ProgramKey, chosen: int) -> tuple[BoundProgram, bool] | None:
        whole = key.collective in _WHOLE
        candidate = self._candidates[chosen] if chosen >= 0 else self._as_tuned(key)
        program = self._stored.program(candidate)
        if program is None or candidate.knobs is None:
            return None
        in_place = whole or (key.in_place and program.in_place)
        share_chunks = program.nchunks if whole else program.nchunks // self.ranks
        elements = key.share_bytes // key.width
        chunk_bytes = -(-elements // share_chunks) * key.width
        call = Call(
            program,
            candidate.knobs.knobs,
            chunk_bytes * program.nchunks,
            datatype=key.datatype,
            op=key.op,
            root=key.root,
            in_place=in_place,
            latency_us=self._latency_us,
        )
        return BoundProgram(call, self._rank), in_place
