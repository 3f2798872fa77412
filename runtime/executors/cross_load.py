"""The load that the traffic of others carried while a program was timed."""

from __future__ import annotations

import math

import msgspec


class SourceLoad(msgspec.Struct, frozen=True):
    """The bytes that a source of cross traffic sent in an interval, measured.

    Attributes:
        kind: of the source.
        offered_gbs: what its flows were meant to send in GB/s; None: as much as they get.
        carried_gbs: what arrived, payload alone.
        windows_gbs: the same in each 10 ms.
        flow_us: of each flow that ended, the time from when it was due to its last byte.
        late_us: of each, how late it began.
        left_out: flows that never began, because too many were open.
        resent: segments sent again, of flows that ended since the traffic began.
    """

    kind: str
    offered_gbs: float | None
    carried_gbs: float
    windows_gbs: tuple[float, ...]
    flow_us: tuple[float, ...]
    late_us: tuple[float, ...]
    left_out: int
    resent: int


class CarriedLoad(msgspec.Struct, frozen=True):
    """The cross traffic of ``seconds``, source by source; `rate` sources have no flows."""

    seconds: float
    sources: tuple[SourceLoad, ...]

    @property
    def carried_gbs(self) -> float:
        """Return what all sources carried, in GB/s."""
        return math.fsum(source.carried_gbs for source in self.sources)

    @property
    def text(self) -> str:
        """Return offered and carried load in a line, in Mb/s."""
        parts = (
            f"{s.kind} {_mbps(s.offered_gbs)} offered, {_mbps(s.carried_gbs)} carried"
            for s in self.sources
        )
        return f"cross traffic, Mb/s: {'; '.join(parts)}"


def _mbps(gbs: float | None) -> str:
    return "what it gets" if gbs is None else f"{8e3 * gbs:.3g}"
