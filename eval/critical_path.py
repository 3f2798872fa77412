"""The chain of events that sets the time of a simulated run, and what it is made of."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from tuccl.runtime import TracedRun
from tuccl.simulation import TraceSlice

_MOMENT_US = 1e-6  # what is closer counts as one moment
_NETWORK_LATENCY = "latency of the network"
_OTHERS = {
    "setup": "messages in a proxy",
    "turn": "a rank's other messages in its proxy",
    "skipped": "passes that are not recorded",
}


class PathPart(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of work on the chain: its time in us, and the number of its spans."""

    what: str
    us: float
    spans: int


class CriticalPath(msgspec.Struct, frozen=True, kw_only=True):
    """The chain from a call's start to the end of its last thread block, or that of the host.

    ``parts`` add up to ``time_us``; the longest comes first.
    """

    time_us: float
    parts: tuple[PathPart, ...]


class _Link(NamedTuple):
    """A stretch of the chain."""

    what: str
    us: float


def critical_path(run: TracedRun) -> CriticalPath:
    """Return the chain of events that sets the time of ``run``, in us by what it consists of.

    Where the host takes longer for a call than the kernel, it is the host's. Else it is followed
    back from the last thread block's end: where a block waited, to the track that
    ended the wait, at the moment when it did. So a wait counts as what ended it. A
    stretch over passes that were not recorded is named as such.

    >>> from tuccl.program import Knobs
    >>> from tuccl.runtime import SimExecutor
    >>> from tuccl.synth import Collective, lower, msccl_default
    >>> from tuccl.topology import load_profile
    >>> host = load_profile("v100x4")
    >>> program = lower(msccl_default(host, Collective("allgather", 4)))
    >>> path = critical_path(SimExecutor(host).trace(program, Knobs(), 1 << 20))
    >>> abs(sum(part.us for part in path.parts) - path.time_us) < 1e-6
    True
    """
    us: defaultdict[str, float] = defaultdict(float)
    spans: defaultdict[str, int] = defaultdict(int)
    for link in _whole(run):
        us[link.what] += link.us
        spans[link.what] += 1
    parts = [PathPart(what=what, us=us[what], spans=spans[what]) for what in us if us[what] > 0]
    parts.sort(key=lambda part: (-part.us, part.what))
    return CriticalPath(time_us=run.trace.result.time_us, parts=tuple(parts))


def _whole(run: TracedRun) -> Iterator[_Link]:
    """The call's chain: of the host only where it takes longer than the kernel."""
    result = run.trace.result
    if result.host_us > result.gpu_us:
        yield _Link(
            f"host's time for a call ({run.launch}), the kernel is ready sooner", result.host_us
        )
        return
    yield _Link("start of the kernel", run.trace.start_us)
    yield from _chain(run)


def _chain(run: TracedRun) -> Iterator[_Link]:
    """The chain from the end backwards."""
    tracks: defaultdict[int, list[TraceSlice]] = defaultdict(list)
    for s in run.trace.slices:
        tracks[s.track].append(s)
    starts = {track: [s.start_us for s in own] for track, own in tracks.items()}
    blocks = len(run.trace.blocks)
    if not (ending := [t for t in tracks if t < blocks]):
        return
    names = [resource.name for resource in run.network.resources]
    steps = _operations(run)
    track = max(ending, key=lambda t: tracks[t][-1].end_us)
    now = tracks[track][-1].end_us
    jumps = 0  # without any time between them
    while (at := bisect.bisect_left(starts[track], now - _MOMENT_US) - 1) >= 0:
        s = tracks[track][at]
        if s.awaits in tracks and s.released_us <= now + _MOMENT_US and jumps <= len(tracks):
            flight = max(now - s.released_us, 0.0)
            jumps = 0 if flight > _MOMENT_US else jumps + 1
            far = max(s.track, s.awaits) >= len(steps)  # to or from a proxy
            yield _Link(_NETWORK_LATENCY if far else "latency of links", flight)
            track, now = s.awaits, now - flight
        else:
            yield _Link(_what(s, names, steps), now - s.start_us)
            now, jumps = s.start_us, 0


def _operations(run: TracedRun) -> list[list[str]]:
    """By thread block, the type of each of its steps."""
    steps = {
        (g.id, tb.id): [s.op for s in tb.steps] for g in run.program.gpus for tb in g.threadblocks
    }
    return [steps[block.gpu, block.id] for block in run.trace.blocks]


def _what(s: TraceSlice, links: list[str], operations: list[list[str]]) -> str:
    match s.cause:
        case "link":
            return f"full link {links[s.link]}"
        case "work" if s.track < len(operations):
            return f"{operations[s.track][s.step]} at the thread block's own rate"
        case "setup" if s.track < len(operations):
            return f"fixed costs of {operations[s.track][s.step]}"
        case "flight":
            return _NETWORK_LATENCY
    return _OTHERS.get(s.cause, s.cause)


def path_text(path: CriticalPath) -> str:
    """Return ``path`` as text, a line for each of its parts."""
    lines = [
        f"{part.us:>12.1f}  {part.us / path.time_us:>6.1%}  {part.what} ({part.spans}x)"
        for part in path.parts
        if part.us > 0.0005 * path.time_us
    ]
    head = f"# the chain of events that sets the {path.time_us:.1f} us (simulated), in us"
    return "\n".join([head, *lines])
