"""The knobs of an execution plan, apart from the program and the calls that it is for."""

from __future__ import annotations

from dataclasses import dataclass

from tuccl.errors import InputError

ALIGNMENT = 16  # bytes: a thread moves and adds up so many at once


@dataclass(frozen=True)
class PlanKnobs:
    """Knobs with which a plan of MSCCL++ moves what its program says.

    Attributes:
        protocol: "Simple" (puts and signals) or "LL" (packets).
        threads: Threads of a thread block, a multiple of 32 up to 1024.
        unit_bytes: Bytes of a piece in which chunks move, as MSCCL's slices; 0: whole chunks.
        slots: Messages of a connection that scratch holds at once, given back by credits, at least
            2; 0: all of them. What lands where it is stored needs none.
        group_size: Thread blocks that share the bytes of each operation (`tbg_info`).

    Raises:
        InputError: one is out of range, or none that packets have.
    """

    protocol: str = "Simple"
    threads: int = 1024
    unit_bytes: int = 0
    slots: int = 0
    group_size: int = 1

    def __post_init__(self) -> None:
        """Hold each against its range."""
        if self.protocol not in ("Simple", "LL"):
            raise InputError(f"protocol {self.protocol[:20]!r}: MSCCL++ has Simple and LL")
        if not 32 <= self.threads <= 1024 or self.threads % 32:
            raise InputError(f"{self.threads} threads: expected a multiple of 32 up to 1024")
        if self.unit_bytes < 0 or self.unit_bytes % ALIGNMENT:
            raise InputError(
                f"pieces of {self.unit_bytes} bytes: expected a multiple of {ALIGNMENT}"
            )
        if self.slots < 0 or self.slots == 1:
            raise InputError(f"{self.slots} slots: expected 2 or more, or 0 for one a message")
        if self.packets and (self.unit_bytes or self.slots):
            raise InputError(
                "packets move whole chunks, each to a slot of its own: leave unit_bytes and slots, "
                "or use protocol Simple"
            )
        if self.group_size > 1 and self.unit_bytes:
            raise InputError(
                "a group shares whole chunks, not pieces: leave unit_bytes, or use a group of 1"
            )
        if not 1 <= self.group_size <= 64:
            raise InputError(f"groups of {self.group_size} thread blocks: expected 1 to 64")

    @property
    def packets(self) -> bool:
        """True where data moves in packets."""
        return self.protocol == "LL"


SIMPLE = PlanKnobs()
