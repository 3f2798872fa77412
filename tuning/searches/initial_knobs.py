"""Knobs that suit a choice before anything is timed: by the size and by its chunks."""

from __future__ import annotations

import math

from tuccl.program import default_buffer_bytes
from tuccl.runtime.executors.knob_grid import THREADS
from tuccl.synth import ScheduleChoice
from tuccl.tuning.searches.space import Point, Space

_SIZES = ((64 << 10, "small"), (1 << 20, "middle"), (32 << 20, "large"))  # up to so many bytes
# Payload that one pass moves of a chunk, by the buffer: half of the slots
# for Simple; one slot of eight, of which half or an eighth part in 16 is flags, for the others.
_PASS_OF_BUFFER = {"Simple": 1 / 2, "LL": 1 / 16, "LL128": 15 / 128}
_LEAST_PASS = 8 << 10  # bytes; of less, a pass takes as long as its latency
# LL128: waiting for all threads takes time by their number, moving data by its inverse. The share
# of a chunk in bytes for which the fewest threads, two warps, suit.
_FEWEST_LL128_THREADS, _SHARE_OF_FEWEST = 64, 1 << 10
# Protocols by preference, and (protocol's place, channels, passes) by preference.
_PROTOCOLS = {
    "small": ("LL", "LL128", "Simple"),
    "middle": ("LL128", "LL", "Simple"),
    "large": ("LL128", "Simple", "LL"),
    "largest": ("Simple", "LL128", "LL"),
}
_VARIANTS = {
    "small": ((0, 1, 1), (1, 1, 1), (0, 4, 1), (1, 4, 1)),
    "middle": ((0, 1, 4), (0, 8, 1), (1, 4, 1), (2, 4, 1)),
    "large": ((0, 1, 4), (1, 4, 1), (0, 8, 1), (1, 8, 2)),
    "largest": ((0, 16, 1), (0, 4, 4), (1, 16, 1), (0, 2, 4)),
}


def suited_points(space: Space, choice: ScheduleChoice) -> tuple[Point, ...]:
    """Return distinct legal points of ``choice`` to begin with, by preference; none: it has none.

    LL and one channel suit small sizes, Simple and more of them large ones, LL128 those between.
    The buffer suits that holds a fourth of a chunk, or the default where that is smaller, and all
    threads, but with LL128 as many as the root of a channel's share of a chunk.
    """
    legal = space.channels(choice)
    if not legal:
        return ()
    size = next((name for most, name in _SIZES if space.nbytes <= most), "largest")
    protocols = [p for p in _PROTOCOLS[size] if p in legal]
    points = []
    for place, channels, passes in _VARIANTS[size]:
        protocol = protocols[min(place, len(protocols) - 1)]
        count = max((c for c in legal[protocol] if c <= channels), default=min(legal[protocol]))
        buffer_bytes = default_buffer_bytes(protocol)
        chunk_bytes = space.nbytes / space.nchunks(choice) / count
        threads = float(THREADS[-1])
        if protocol == "LL128":
            threads = _FEWEST_LL128_THREADS * math.sqrt(max(chunk_bytes / _SHARE_OF_FEWEST, 1))
        passes = min(passes, int(chunk_bytes) // _LEAST_PASS)
        if passes > 1:
            wanted = chunk_bytes / passes / _PASS_OF_BUFFER[protocol]
            buffer_bytes = min(buffer_bytes, 1 << round(math.log2(max(wanted, 1))))
        warps = round(min(threads, THREADS[-1]) / 32)
        points.append(space.nearest(Point(choice, protocol, count, 32 * warps, buffer_bytes)))
    return tuple(dict.fromkeys(points))


def most_passes(space: Space, point: Point) -> int:
    """Return the passes that a step takes at most: of all of the data, none too small to pay.

    Buffers of as many are one as good as the other.
    """
    pass_bytes = max(point.buffer_bytes * _PASS_OF_BUFFER[point.protocol], _LEAST_PASS)
    return math.ceil(space.nbytes / point.channels / pass_bytes)
