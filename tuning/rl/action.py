"""An action: a point without a machine's names, so that it means the same on another."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from tuccl.synth import ScheduleChoice
from tuccl.tuning.searches.space import Point, Space

__all__ = ["Action", "sketch_kind"]

_Name = Annotated[str, msgspec.Meta(max_length=60)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True, order=True):
    """A method on a kind of sketch with its chunks, and the knobs together."""

    method: _Name
    sketch: _Name
    chunks_per_rank: _Count
    protocol: _Name
    channels: _Count
    threads: _Count
    buffer_bytes: _Count

    @classmethod
    def of(cls, point: Point) -> Action:
        """Return the action that ``point`` is."""
        choice = point.choice
        return cls(
            choice.method,
            sketch_kind(choice.sketch),
            choice.chunks_per_rank,
            point.protocol,
            point.channels,
            point.threads,
            point.buffer_bytes,
        )

    def point(self, space: Space) -> Point:
        """Return the legal point of ``space`` that comes closest.

        Of several sketches of the kind the first, which is ranked best, and where there is none
        the best of all; the rest is `Space.nearest`.
        """
        kinds = {sketch_kind(name): name for name in reversed(space.sketches)}
        plain = self.sketch.removesuffix("-nvlink")
        sketch = kinds.get(self.sketch) or kinds.get(plain) or space.sketches[0]
        choice = ScheduleChoice(sketch, self.method, self.chunks_per_rank)
        return space.nearest(
            Point(choice, self.protocol, self.channels, self.threads, self.buffer_bytes)
        )


def sketch_kind(name: str) -> str:
    """Return the kind of the candidate sketch ``name``, which numbers distinguish.

    >>> sketch_kind("pairs-2-nvlink"), sketch_kind("mesh-congestion-3"), sketch_kind("one")
    ('pairs-nvlink', 'mesh-congestion', 'one')
    """
    return re.sub(r"-\d+(\.\d+)?", "", name)
