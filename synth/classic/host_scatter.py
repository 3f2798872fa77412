"""Scatter and gather of many hosts: what goes to or comes from a host crosses as one message."""

from __future__ import annotations

from collections.abc import Iterator

from tuccl.sketches.sketch import Sketch
from tuccl.synth.model.trace import Trace


def host_scatter(trace: Trace, sketch: Sketch, root: int) -> None:
    """Hand each host's chunks to a rank beside the root, which sends them to its rail's there.

    Ranks beside the root take turns, so that all NICs carry the same.
    """
    crossings = list(_crossings(sketch, root))
    for members, here, _ in crossings:
        _send(trace, members, root, here)
    for members, here, there in crossings:
        trace.reserve(_chunks(trace, members), there)
        _send(trace, members, here, there)
    for members, _, there in crossings:
        for rank in members:
            _send(trace, (rank,), there, rank)
    for rank in sketch.ranks_of(sketch.hosts[root]):
        _send(trace, (rank,), root, rank)


def host_gather(trace: Trace, sketch: Sketch, root: int) -> None:
    """Bring each host's chunks to one of its ranks, which sends them to its rail's at the root."""
    crossings = list(_crossings(sketch, root))
    for members, _, there in crossings:
        trace.reserve(_chunks(trace, members), there)
        for rank in members:  # its own as well, beside the others', so that all go as one
            trace.send_each(_chunks(trace, (rank,)), rank, there)
    for rank in sketch.ranks_of(sketch.hosts[root]):
        _send(trace, (rank,), rank, root)
    for members, here, there in crossings:
        _send(trace, members, there, here)
    for members, here, _ in crossings:
        _send(trace, members, here, root)


def _crossings(sketch: Sketch, root: int) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Yield the ranks of each other host, and those in charge of it beside the root and there."""
    home = sketch.hosts[root]
    beside = sketch.ranks_of(home)
    for ahead in range(1, sketch.nhosts):
        members = sketch.ranks_of((home + ahead) % sketch.nhosts)
        place = ahead % len(beside)
        yield members, beside[place], members[place]


def _chunks(trace: Trace, ranks: tuple[int, ...]) -> range:
    return range(ranks[0] * trace.chunks_per_rank, (ranks[-1] + 1) * trace.chunks_per_rank)


def _send(trace: Trace, ranks: tuple[int, ...], src: int, dst: int) -> None:
    if src != dst:
        trace.send_each(_chunks(trace, ranks), src, dst)
