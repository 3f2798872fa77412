"""Limits of each dialect of MSCCL, and the first that a program breaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tuccl.errors import InputError
from tuccl.program import Gpu, Program

_LEAST_FORK_END = 1 << 30


@dataclass(frozen=True)
class Limits:
    """Limits of one dialect (docs/reference/msccl.md)."""

    steps: int
    threadblocks: int
    channels: int
    fuses: bool
    peers_per_channel: int = 32
    xml_elements: int = 4095
    awaited_blocks: int = 128
    offset: int = 32767


LIMITS: dict[str, Limits] = {
    "executor": Limits(steps=64, threadblocks=1024, channels=32, fuses=True),
    "rccl": Limits(steps=64, threadblocks=64, channels=32, fuses=False),
    "fork": Limits(steps=256, threadblocks=216, channels=32, fuses=True),
}


def limits_of(dialect: str) -> Limits:
    """Return the limits of `dialect`.

    Raises:
        InputError: there is no such dialect.
    """
    if dialect not in LIMITS:
        raise InputError(f"unknown dialect {dialect[:40]!r}, expected one of: {', '.join(LIMITS)}")
    return LIMITS[dialect]


def fork_end(program: Program, nbytes: int) -> int | None:
    """Return the (exclusive) maxBytes to write for the fork, None where any will do.

    The fork reserves scratch for maxBytes when a communicator is made: a program with scratch is
    for up to twice ``nbytes``, the size it was made for, or as much of 1 GiB as needs no more than
    1 GiB of scratch, and never for what needs over 16 GiB.
    """
    if (most := program.fork_scratch_limit) is None:
        return None
    return min(max(2 * nbytes, min(_LEAST_FORK_END, most // 16)), most)


def fork_scratch_bytes(program: Program) -> int:
    """Return the bytes of scratch that the fork reserves on each GPU for the program's maxBytes."""
    chunks = max((gpu.scratch_chunks for gpu in program.gpus), default=0)
    return -(-(program.max_bytes or 0) * chunks // max(program.nchunks, 1))


class Excess(NamedTuple):
    """A limit that a program breaks: which, where, and by how much."""

    limit: Literal["steps", "peers", "threadblocks", "channels", "elements", "awaited", "offset"]
    rank: int
    found: int
    most: int

    def __str__(self) -> str:
        """Return it in words."""
        words = {
            "steps": "steps in a thread block",
            "peers": "thread blocks that send (or receive) on a channel",
            "threadblocks": "thread blocks",
            "channels": "channels",
            "elements": "XML elements",
            "awaited": "thread blocks that others wait for",
            "offset": "chunks in a buffer",
        }[self.limit]
        return f"rank {self.rank} needs {self.found} {words}, the most is {self.most}"


def excess(program: Program, limits: Limits, first: int = 0) -> Excess | None:
    """Return the first limit that `program` breaks, None if it breaks none.

    With ``first``, so many ranks are looked at: the others are like them.
    """
    gpus = program.gpus[: first or None]
    for gpu_check in (_peers, _steps, _threadblocks, _awaited):
        if (found := gpu_check(gpus, limits)) is not None:
            return found
    for check in (_elements, _offsets):
        if (found := check(program, gpus, limits)) is not None:
            return found
    if program.nchannels > limits.channels:
        return Excess("channels", 0, program.nchannels, limits.channels)
    return None


def _peers(gpus: Sequence[Gpu], limits: Limits) -> Excess | None:
    for gpu in gpus:
        sends: Counter[int] = Counter()
        receives: Counter[int] = Counter()
        for block in gpu.threadblocks:
            sends[block.channel] += block.send_peer >= 0
            receives[block.channel] += block.recv_peer >= 0
        most = max([*sends.values(), *receives.values()], default=0)
        if most > limits.peers_per_channel:
            return Excess("peers", gpu.id, most, limits.peers_per_channel)
    return None


def _steps(gpus: Sequence[Gpu], limits: Limits) -> Excess | None:
    for gpu in gpus:
        most = max((len(block.steps) for block in gpu.threadblocks), default=0)
        if most > limits.steps:
            return Excess("steps", gpu.id, most, limits.steps)
    return None


def _threadblocks(gpus: Sequence[Gpu], limits: Limits) -> Excess | None:
    for gpu in gpus:
        if len(gpu.threadblocks) > limits.threadblocks:
            return Excess("threadblocks", gpu.id, len(gpu.threadblocks), limits.threadblocks)
    return None


def _awaited(gpus: Sequence[Gpu], limits: Limits) -> Excess | None:
    for gpu in gpus:
        last = max((s.dep_tb for block in gpu.threadblocks for s in block.steps), default=-1)
        if last >= limits.awaited_blocks:
            return Excess("awaited", gpu.id, last + 1, limits.awaited_blocks)
    return None


def _elements(program: Program, gpus: Sequence[Gpu], limits: Limits) -> Excess | None:
    for gpu in gpus:
        elements = sum(1 + len(block.steps) for block in gpu.threadblocks)
        if 1 + program.ngpus + elements > limits.xml_elements:
            return Excess("elements", gpu.id, 1 + program.ngpus + elements, limits.xml_elements)
    return None


def _offsets(program: Program, gpus: Sequence[Gpu], limits: Limits) -> Excess | None:
    for gpu in gpus:
        most = max(gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks)
        if max(most, program.nchunks) > limits.offset + 1:
            return Excess("offset", gpu.id, max(most, program.nchunks), limits.offset + 1)
    return None
