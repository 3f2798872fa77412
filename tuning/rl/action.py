"""An action: a point without a machine's names, so that it means the same on another."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from tuccl.synth import ScheduleChoice
from tuccl.tuning.searches.space import Point, Space

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
            kind if (kind := sketch_kind(choice.sketch)) in SKETCH_KINDS else choice.sketch,
            choice.chunks_per_rank,
            point.protocol,
            point.channels,
            point.threads,
            point.buffer_bytes,
        )

    def point(self, space: Space) -> Point:
        """Return the legal point of ``space`` that comes closest.

        Of several sketches of the kind the first, which is ranked best; a name of other parameters
        is itself, where they are worth a try, else that of its kind; where there is none the best
        of all. The rest is `Space.nearest`.
        """
        names = {sketch_kind(name): name for name in reversed(space.sketches)}
        names |= {self.sketch: self.sketch} if self.sketch in space.sketch_axes else {}
        kinds = (self.sketch, self.sketch.removesuffix("-nvlink"), self.sketch.partition("-")[0])
        sketch = next((names[kind] for kind in kinds if kind in names), space.sketches[0])
        choice = ScheduleChoice(sketch, self.method, self.chunks_per_rank)
        return space.nearest(
            Point(choice, self.protocol, self.channels, self.threads, self.buffer_bytes)
        )


_KINDS = ("full-mesh", "mesh", "mesh-congestion", "one", "paired", "pairs", "split")
SKETCH_KINDS = tuple(f"{kind}{suffix}" for suffix in ("", "-nvlink") for kind in _KINDS)
"""The kinds of candidate sketches; other names have more parameters than those."""


def sketch_kind(name: str) -> str:
    """Return the kind of the candidate sketch ``name``, which numbers distinguish.

    >>> sketch_kind("pairs-2-nvlink"), sketch_kind("mesh-congestion-3"), sketch_kind("one")
    ('pairs-nvlink', 'mesh-congestion', 'one')
    """
    return re.sub(r"-\d+(\.\d+)?", "", name)
