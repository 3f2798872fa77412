"""Limits of each dialect of MSCCL."""

from __future__ import annotations

from tuccl.errors import InputError
from tuccl.planners import Limits
from tuccl.program import Program

_LEAST_FORK_END = 1 << 30


LIMITS: dict[str, Limits] = {
    "executor": Limits(steps=64, threadblocks=1024, channels=32, fuses=True),
    "rccl": Limits(steps=64, threadblocks=64, channels=32, fuses=False),
    "fork": Limits(steps=256, threadblocks=216, channels=32, fuses=True),
}


MOST_READ_GPUS = 1024
"""GPUs of a program that MSCCL's readers take; tuccl's own take 4,096 and more steps."""

_OWN = Limits(steps=1024, threadblocks=1024, channels=32, fuses=True, xml_elements=_LEAST_FORK_END)


def limits_of(dialect: str, ranks: int = 1) -> Limits:
    """Return the limits of `dialect` for a program of so many ranks.

    Raises:
        InputError: there is no such dialect.
    """
    if dialect not in LIMITS:
        raise InputError(f"unknown dialect {dialect[:40]!r}, expected one of: {', '.join(LIMITS)}")
    return _OWN if dialect == "executor" and ranks > MOST_READ_GPUS else LIMITS[dialect]


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
