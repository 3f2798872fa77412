"""Rules between equally fast points: what an unmodified runtime can do goes first."""

from __future__ import annotations

from tuccl.program import Knobs, default_buffer_bytes, max_threads
from tuccl.tuning.searches.space import Point

_AS_GOOD = 1.001


def is_as_good(us: float, best_us: float) -> bool:
    """Return whether ``us`` is within 0.1 % of ``best_us``.

    >>> is_as_good(100.05, 100.0), is_as_good(101.0, 100.0)
    (True, False)
    """
    return us <= _AS_GOOD * best_us


def with_default_knobs(point: Point, dialect: str = "executor") -> Point:
    """Return ``point`` with ``dialect``'s threads and the buffer that NCCL gives its protocol.

    Notes:
        Unmodified runtimes cannot change threads and buffers from call to call.
    """
    buffer_bytes = default_buffer_bytes(point.protocol)
    threads = max_threads(point.protocol, dialect)
    return Point.of(point.choice, Knobs(point.protocol, point.channels, threads, buffer_bytes))


def has_default_knobs(point: Point, dialect: str = "executor") -> bool:
    """Return whether ``point`` has ``dialect``'s threads and NCCL's buffer."""
    return point == with_default_knobs(point, dialect)


def tie_break(point: Point, us: float, best_us: float) -> tuple[bool, bool, int, int, float]:
    """Return the key to sort points by, best first.

    The fastest comes first; among those as good as it (``best_us``), NCCL's threads and buffer,
    then fewer channels, then fewer threads: what a collective does not need, others can use.
    """
    if not is_as_good(us, best_us):
        return True, False, 0, 0, us
    return False, not has_default_knobs(point), point.channels, point.threads, us
