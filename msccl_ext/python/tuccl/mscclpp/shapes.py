"""The operations of MSCCL++: the buffers and channels that each handler reads."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["SHAPES", "Shape"]


@dataclass(frozen=True)
class Shape:
    """Buffers and channels with which an operation does what its name says.

    ``sources`` and ``targets`` match one letter a buffer: i o s of this rank, I O S of another,
    W behind a switch channel. ``channels`` are the types that it works on, empty where it takes
    none; then ``ids`` says how many channels it names: "some" or one for each "target".
    """

    sources: re.Pattern[str]
    targets: re.Pattern[str]
    channels: tuple[str, ...] = ()
    ids: str = ""
    packets: bool = False
    form: str = ""

    @property
    def moves(self) -> bool:
        """True where it moves data."""
        return bool(self.sources.pattern)


def _shape(
    form: str, *channels: str, ids: str = "", packets: bool = False, same: bool = False
) -> Shape:
    """Return the shape written as "SOURCES > TARGETS"; L is any buffer of this rank, R of another.

    ``same``: several sources must be of one buffer, the first one's: the handler takes that for
    all.
    """
    sources, targets = (part.strip() for part in form.split(">"))
    source = "i+|o+|s+" if same else sources
    patterns = [
        part.replace("L", "[ios]").replace("R", "[IOS]").replace(" ", "")
        for part in (source, targets)
    ]
    return Shape(
        re.compile(patterns[0]), re.compile(patterns[1]), channels, ids, packets, form=form
    )


_SYNC = _shape("> ", "memory", "port", ids="some")
_NOTHING = _shape("> ")
_MEMORY = ("memory",)

SHAPES = {
    "nop": _NOTHING,
    "barrier": _NOTHING,
    "pipeline": _NOTHING,
    "sem_acquire": _NOTHING,
    "sem_release": _NOTHING,
    "signal": _SYNC,
    "wait": _SYNC,
    "rlxsignal": _SYNC,
    "rlxwait": _SYNC,
    "flush": _shape("> .*", "port", ids="target"),
    "copy": _shape("L > L"),
    "re": _shape("L L* > L"),
    "res": _shape("L L* > L R+", *_MEMORY),
    "rre": _shape("L R+ > L", *_MEMORY),
    "rres": _shape("L R+ > L R+", *_MEMORY),
    "put": _shape("L+ > R+", "memory", "port", same=True),
    "pws": _shape("L+ > R+", "port", ids="target", same=True),
    "pwsf": _shape("L+ > R+", "port", ids="target", same=True),
    "ppkt": _shape("L+ > S+", *_MEMORY, packets=True, same=True),
    "rppkt": _shape("s > S+", "memory", "port", packets=True),
    "cpkt": _shape("L > s", packets=True),
    "upkt": _shape("s > L", packets=True),
    "repkt": _shape("L s+ > L", packets=True),
    "respkt": _shape("L s+ > L S+", *_MEMORY, packets=True),
    "recpkt": _shape("L s+ > L s", packets=True),
    "recspkt": _shape("L s+ > L s S+", *_MEMORY, packets=True),
    "glres": _shape("W > W"),
    "gstore": _shape("L > W"),
    "gstorepkt": _shape("s > W", packets=True),
}
