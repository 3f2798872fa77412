"""Rings inside hosts and straight ways between: what many thread blocks a GPU can keep streaming.

Every part goes round each host's ring as a chain of its own, on a channel of its own as far as there
are any, and so streams through all ranks at once: a thread block receives, adds and sends on in one
step, and touches each byte once, where all-pairs methods write a sum down for each peer. Parts of
ranks of the ring's own host come back by the channel they came by; others come back later, so that one
channel would have them wait for each other. Chains are as long as a host is large: this is for large
sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.hierarchical import require_hosts
from tuccl.synth.classic.local_routes import require_links
from tuccl.synth.classic.ring_orders import host_ring
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import Schedule
from tuccl.synth.model.trace import Trace

__all__ = ["HIERARCHICAL_RINGS_COLLECTIVES", "hierarchical_rings"]

HIERARCHICAL_RINGS_COLLECTIVES = frozenset({"allgather", "reduce-scatter", "allreduce"})

_NAME = "hierarchical-rings"
_PLACES = 8  # have channels of their own: three each, which make some 26 thread blocks a GPU


def hierarchical_rings(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return a schedule whose parts go round inside hosts, and between them from place to place.

    Raises:
        Infeasible: there is one host only, hosts differ in size, have no ring of the same order, or
            a link between the ranks of one place on two hosts is missing.
    """
    sketch = problem.sketch
    require_hosts(sketch, _NAME)
    hosts = _rings(sketch)
    pairs = [(a, b) for place in zip(*hosts, strict=True) for a in place for b in place if a != b]
    require_links(sketch, pairs, _NAME)
    trace = Trace(problem.collective, problem.chunks_per_rank, _NAME)
    name = problem.collective.name
    for k in range(problem.chunks_per_rank):
        if name != "allgather":
            _sum_up(trace, hosts, k)
        if name != "reduce-scatter":
            _spread(trace, hosts, k)
    return trace.schedule()


def _rings(sketch: Sketch) -> list[tuple[int, ...]]:
    """Return each host's ranks in the order of its ring, the same places one after another."""
    members = [sketch.ranks_of(host) for host in range(sketch.nhosts)]
    sizes = sorted({len(own) for own in members})
    if sizes[0] < 2 or len(sizes) > 1:
        raise Infeasible(
            f"{_NAME}: hosts of {' and '.join(map(str, sizes))} ranks, expected 2 or more on each and "
            "as many on all; use hierarchical2"
        )
    places = [members[0].index(rank) for rank in host_ring(sketch, 0)]
    hosts = [tuple(own[place] for place in places) for own in members]
    around = [(a, b) for ring in hosts for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)]
    require_links(sketch, around, _NAME)
    return hosts


class _Part(NamedTuple):
    """The part of the rank at ``place`` of ``host``."""

    host: int
    place: int

    def summing(self, host: int) -> int:
        """Return the channel by which it goes round the ring of ``host`` as partial sums."""
        place = self.place % _PLACES
        return place if host == self.host else _PLACES + place

    def spreading(self, host: int) -> int:
        """Return the channel by which it goes round the ring of ``host`` when it is whole."""
        place = self.place % _PLACES
        return place if host == self.host else 2 * _PLACES + place


def _parts(hosts: Sequence[Sequence[int]]) -> list[_Part]:
    """Return all parts, those of one place beside each other."""
    return [_Part(host, place) for place in range(len(hosts[0])) for host in range(len(hosts))]


def _sum_up(trace: Trace, hosts: list[tuple[int, ...]], k: int) -> None:
    """Chunk ``k`` of each part goes round every host's ring to its owner's place, then to its owner."""
    size, c, parts = len(hosts[0]), trace.chunks_per_rank, _parts(hosts)
    for step in range(1, size):
        for part in parts:
            chunk = hosts[part.host][part.place] * c + k
            src, dst = (part.place + step) % size, (part.place + step + 1) % size
            for host, ring in enumerate(hosts):
                trace.reduce(chunk, ring[src], ring[dst], part.summing(host))
    for ahead in range(1, len(hosts)):
        for part in parts:
            owner, other = hosts[part.host][part.place], (part.host + ahead) % len(hosts)
            trace.reduce(owner * c + k, hosts[other][part.place], owner, part.summing(other))


def _spread(trace: Trace, hosts: list[tuple[int, ...]], k: int) -> None:
    """Chunk ``k`` of each part goes to its owner's place on every host, then round the host's ring."""
    size, c, parts = len(hosts[0]), trace.chunks_per_rank, _parts(hosts)
    for ahead in range(1, len(hosts)):
        for part in parts:
            owner, other = hosts[part.host][part.place], (part.host + ahead) % len(hosts)
            trace.send(owner * c + k, owner, hosts[other][part.place], part.spreading(other))
    for step in range(size - 1):
        for part in parts:
            chunk = hosts[part.host][part.place] * c + k
            src, dst = (part.place + step) % size, (part.place + step + 1) % size
            for host, ring in enumerate(hosts):
                trace.send(chunk, ring[src], ring[dst], part.spreading(host))
