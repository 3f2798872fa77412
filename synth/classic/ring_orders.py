"""Rings through all ranks of a sketch: hosts in a row, wide links first, each NIC used alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise

from tuccl.errors import Infeasible
from tuccl.sketches.sketch import LogicalLink, Sketch
from tuccl.synth.classic.local_routes import link_nics

# Ranks visited by one search for a path or a set of rings, which bounds its time (about 0.1 s).
_MOST_VISITS = 40_000
# Rings are disjoint on links that other links, all busy, slow by less than this part.
_MOST_CONGESTION = 0.5

_Width = dict[tuple[int, int], int]


@lru_cache(maxsize=256)
def ring_orders(sketch: Sketch, most: int) -> tuple[tuple[int, ...], ...]:
    """Return up to `most` rings, each the ranks in the order in which data passes them.

    Raises:
        Infeasible: the sketch has no ring that visits each host once.

    Notes:
        On one host whose links do not slow each other, rings take disjoint links, both ways.
        Between hosts there is a ring for each NIC, which leaves and enters every host once.
    """
    if sketch.nhosts == 1:
        return _one_host(sketch, most)
    hosts = _Hosts(sketch)
    rings: list[tuple[int, ...]] = []
    while len(rings) < min(most, hosts.nics()) and (ring := hosts.next_ring()) is not None:
        rings.append(ring)
    if not rings:
        raise Infeasible(
            f"sketch {sketch.name[:60]}: no ring through all ranks that enters and leaves each "
            "host once; use method greedy, or allow more links"
        )
    return tuple(rings)


def _one_host(sketch: Sketch, most: int) -> tuple[tuple[int, ...], ...]:
    if most > 1:
        width = _widths([link for link in sketch.links if link.congestion < _MOST_CONGESTION])
        both = {e: min(w, width[e[::-1]]) for e, w in width.items() if e[::-1] in width}
        cycles = _Disjoint(both, sketch.ranks, (most + 1) // 2).rings
        if cycles:
            both_ways = [ring for c in cycles for ring in (c, (c[0], *reversed(c[1:])))]
            return tuple(dict.fromkeys(both_ways[:most]))
    ring = _widest_path(_widths(sketch.links), tuple(range(sketch.ranks)), 0, None)
    if ring is None:
        raise Infeasible(
            f"sketch {sketch.name[:60]}: its links make no ring through all {sketch.ranks} ranks; "
            "use method greedy, or allow more links"
        )
    return (ring,)


def host_ring(sketch: Sketch, host: int) -> tuple[int, ...]:
    """Return one ring through the ranks of ``host``, over the widest links.

    Raises:
        Infeasible: its links make no ring.
    """
    members = sketch.ranks_of(host)
    ring = _widest_path(_widths(sketch.links), members, members[0], None)
    if ring is None:
        raise Infeasible(
            f"sketch {sketch.name[:60]}: the links of host {host} make no ring through all its "
            f"{len(members)} ranks; use hierarchical2 or greedy, or allow more links"
        )
    return ring


def _widths(links: Iterable[LogicalLink]) -> _Width:
    """Return the width of each link inside hosts, as a multiple of the narrowest."""
    inside = [link for link in links if not link.inter]
    narrowest = min((link.bandwidth_gbs for link in inside), default=1.0)
    return {(k.src, k.dst): round(k.bandwidth_gbs / narrowest) for k in inside}


class _Hosts:
    """Rings over several hosts, one after another, that avoid what earlier ones used."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.width = _widths(sketch.links)
        self.uses: Counter[tuple[str, str]] = Counter()
        self.between: list[list[LogicalLink]] = [[] for _ in range(sketch.nhosts)]
        for link in sketch.links:
            host = sketch.hosts[link.src]
            if link.inter and sketch.hosts[link.dst] == (host + 1) % sketch.nhosts:
                self.between[host].append(link)

    def nics(self) -> int:
        """Return how many rings can use separate NICs between all neighbouring hosts."""
        return min(
            min(len({link_nics(self.sketch, link)[end] for link in links}) for end in (0, 1))
            if links
            else 0
            for links in self.between
        )

    def next_ring(self) -> tuple[int, ...] | None:
        """Return one more ring, on the NICs and links least used so far; None if there is none."""
        self.visits = _MOST_VISITS // 20
        crossings = self.cross([])
        if crossings is None:
            return None
        for link in crossings:
            self.uses.update(link_nics(self.sketch, link))
        ring: list[int] = []
        for host in range(self.sketch.nhosts):
            path = self.inside(crossings[host - 1].dst, crossings[host].src)
            assert path is not None  # cross() has found it
            ring += path
            for edge in pairwise(path):
                self.width[edge] = self.width[edge] - 1
        return tuple(ring)

    def cross(self, crossings: list[LogicalLink]) -> list[LogicalLink] | None:
        """Return the links from each host to the next, given the first few; depth first."""
        host = len(crossings)
        if host == self.sketch.nhosts:
            closes = self.inside(crossings[-1].dst, crossings[0].src) is not None
            return crossings if closes else None
        for link in sorted(self.between[host], key=self.preference):
            self.visits -= 1
            if self.visits < 0:
                return None
            if crossings and self.inside(crossings[-1].dst, link.src) is None:
                continue
            if (complete := self.cross([*crossings, link])) is not None:
                return complete
        return None

    def preference(self, link: LogicalLink) -> tuple[float, ...]:
        out, into = link_nics(self.sketch, link)
        return (
            self.uses[out] + self.uses[into],
            max(self.uses[out], self.uses[into]),
            link.beta_us_per_mb,
            link.src,
            link.dst,
        )

    def inside(self, entry: int, leave: int) -> tuple[int, ...] | None:
        """Return a path from `entry` to `leave` through all ranks of their host."""
        members = self.sketch.ranks_of(self.sketch.hosts[entry])
        if len(members) == 1:
            return members
        return None if entry == leave else _widest_path(self.width, members, entry, leave)


def _widest_path(
    width: Mapping[tuple[int, int], int], members: tuple[int, ...], start: int, end: int | None
) -> tuple[int, ...] | None:
    """Return a path from `start` through all `members` to `end`; with end None, a cycle.

    Its narrowest link is as wide as the search can find.
    """
    inside = set(members)
    levels = sorted({w for (a, b), w in width.items() if a in inside and b in inside}, reverse=True)
    for level in levels:
        neighbours = {
            a: sorted(
                (b for b in members if b != a and width.get((a, b), level - 1) >= level),
                key=lambda b, a=a: (-width[a, b], (b - a) % (max(members) + 1)),  # type: ignore[misc]
            )
            for a in members
        }
        path = next(_paths(neighbours, members, start, end, [_MOST_VISITS // len(levels)]), None)
        if path is not None:
            return path
    return None


def _paths(
    neighbours: Mapping[int, list[int]],
    members: tuple[int, ...],
    start: int,
    end: int | None,
    visits: list[int],
) -> Iterator[tuple[int, ...]]:
    """Yield paths through all members, neighbours in the order given; `visits` counts down."""
    path = [start]
    seen = {start}

    def extend() -> Iterator[tuple[int, ...]]:
        visits[0] -= 1
        if len(path) == len(members):
            if (start in neighbours[path[-1]]) if end is None else (path[-1] == end):
                yield tuple(path)
            return
        for rank in neighbours[path[-1]]:
            if visits[0] < 0:
                return
            if rank in seen or (rank == end and len(path) + 1 < len(members)):
                continue
            path.append(rank)
            seen.add(rank)
            yield from extend()
            path.pop()
            seen.discard(rank)

    yield from extend()


class _Disjoint:
    """As many rings as possible that share no link; `rings` holds them."""

    def __init__(self, width: _Width, ranks: int, most: int) -> None:
        self.ranks = ranks
        self.rings: list[tuple[int, ...]] = []
        degree: Counter[int] = Counter()
        for (a, _), w in width.items():
            degree[a] += w
        self.bound = min(most, min((degree[a] for a in range(ranks)), default=0) // 2)
        self.visits = [_MOST_VISITS]
        self.search(dict(width), [])

    def search(self, width: _Width, rings: list[tuple[int, ...]]) -> None:
        if len(rings) > len(self.rings):
            self.rings = list(rings)
        if len(self.rings) >= self.bound:
            return
        members = tuple(range(self.ranks))
        neighbours = {
            a: [b for w, b in sorted((-w, b) for (x, b), w in width.items() if x == a and w > 0)]
            for a in members
        }
        for ring in _paths(neighbours, members, 0, None, self.visits):
            left = dict(width)
            for a, b in zip(ring, (*ring[1:], ring[0]), strict=True):
                left[a, b] -= 1
                left[b, a] -= 1
            self.search(left, [*rings, ring])
            if len(self.rings) >= self.bound or self.visits[0] < 0:
                return
