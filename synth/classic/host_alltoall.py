"""All-to-all by hosts: chunks for one rank of another host cross as one message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.synth.classic.host_links import HostLinks
from tuccl.synth.classic.local_routes import host_path
from tuccl.synth.model.trace import Trace


class _Bundle(NamedTuple):
    """Chunks of `sources`, all of one host, that go to `dst` by one link."""

    sources: tuple[int, ...]
    dst: int
    link: LogicalLink

    def chunks(self, trace: Trace, sources: Iterable[int] | None = None) -> list[int]:
        """Return the numbers of the chunks (of `sources` only, if given)."""
        c, ranks = trace.chunks_per_rank, trace.collective.ranks
        return [
            (src * ranks + self.dst) * c + k
            for src in (self.sources if sources is None else sources)
            for k in range(c)
        ]


def host_alltoall(trace: Trace, sketch: Sketch) -> None:
    """Gather the chunks for one rank of another host on one rank of this one; send them as one.

    The gathering rank has the destination's local rank, where links allow.
    """
    bundles = _bundles(sketch)
    for bundle in bundles:
        for src in bundle.sources:
            if src == bundle.link.src:  # beside the others', so that all go as one
                trace.send_each(bundle.chunks(trace, [src]), src, src)
            else:
                _walk(trace, bundle.chunks(trace, [src]), host_path(sketch, src, bundle.link.src))
    for src, dst in _host_pairs(sketch):
        first = (src * sketch.ranks + dst) * trace.chunks_per_rank
        chunks = range(first, first + trace.chunks_per_rank)
        _walk(trace, chunks, host_path(sketch, src, dst))
    for bundle in bundles:
        trace.send_each(bundle.chunks(trace), bundle.link.src, bundle.link.dst)
    for bundle in bundles:
        _walk(trace, bundle.chunks(trace), host_path(sketch, bundle.link.dst, bundle.dst))


def _bundles(sketch: Sketch) -> list[_Bundle]:
    """Return what crosses hosts, dealt out so that ranks do not all wait for one."""
    links = HostLinks(sketch)
    return [
        _Bundle(sources, dst, links.choose(sources[0], sources[0], sketch.hosts[dst], dst))
        for ahead in range(1, sketch.nhosts)
        for host in range(sketch.nhosts)
        for dst in sketch.ranks_of((host + ahead) % sketch.nhosts)
        for sources in _same_rule(sketch, sketch.ranks_of(host))
    ]


def _same_rule(sketch: Sketch, members: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return `members` grouped by which senders the relay rule lets carry their chunks."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank in members:
        ruled = tuple(s for s, carried in sorted(sketch.relays.items()) if carried)
        carriers = tuple(s for s in ruled if rank in sketch.relays[s] or rank == s)
        groups.setdefault(carriers, []).append(rank)
    return [tuple(group) for group in groups.values()]


def _host_pairs(sketch: Sketch) -> Iterator[tuple[int, int]]:
    """Yield (src, dst) of all pairs inside hosts, by distance."""
    for distance in range(1, sketch.ranks):
        for src in range(sketch.ranks):
            dst = (src + distance) % sketch.ranks
            if sketch.hosts[src] == sketch.hosts[dst]:
                yield src, dst


def _walk(trace: Trace, chunks: Sequence[int], path: tuple[int, ...]) -> None:
    for src, dst in pairwise(path):
        trace.send_each(chunks, src, dst)
