"""Groups that are alike: a permutation of the ranks takes one to the other, and its family along.

A family is the groups of a kind, which run at once. Two of its groups are alike if the whole family
looks the same from both, so that one program, with other ranks, serves both.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, permutations

from tuccl.groups.layout import Groups
from tuccl.topology import Topology
from tuccl.topology.paths import channel_paths
from tuccl.topology.relays import Hop
from tuccl.topology.symmetry import LinkGraph

# Partial maps that are tried; beyond them groups count as different, which costs time only.
_MOST_TRIES = 20_000

_Route = tuple[Hop, ...]


def group_orbits(topology: Topology, groups: Groups) -> list[list[int]]:
    """Return the numbers of ``groups`` in sets of alike ones.

    Every two of a set are joined by a checked permutation of the ranks: it takes groups to groups,
    rank by rank in their order, and the hops between their members to hops of the same kind and
    rate, so that what shares a NIC or a port still does.

    >>> from tuccl.topology import join, load_profile
    >>> group_orbits(join(load_profile("v100x4"), 2), ((0, 1, 2, 3), (4, 5, 6, 7)))
    [[0, 1]]
    """
    family = _Family(topology, groups)
    alike = [[number] for number in range(len(groups))]
    heads: list[int] = []
    for number in range(len(groups)):
        if min(alike[number]) < number:
            continue
        found = next((m for head in heads if (m := family.map_to(head, number))), None)
        if found is None:
            heads.append(number)
        else:
            _join(alike, found.items())
    return [sorted(alike[head]) for head in heads]


def _join(sets: list[list[int]], pairs: Iterable[tuple[int, int]]) -> None:
    """Make one set of the sets of the two numbers of each pair; ``sets`` has that of a number."""
    for one, other in pairs:
        mine, others = sets[one], sets[other]
        if mine is not others:
            mine += others
            for number in others:
                sets[number] = mine


def group_key(topology: Topology, groups: Groups, chosen: int) -> str:
    """Return 16 hexadecimal digits that hash what the group ``chosen`` of a family depends on.

    Names, rank numbers and what no group uses do not enter; the order of members does. Groups that
    are alike have one key, on this machine and on another; groups of one key may still differ.

    Args:
        topology: The machine.
        groups: Ranks of each group of the family.
        chosen: The number of the one whose key it is.

    Notes:
        Colour refinement of groups and the hops that they use.
    """
    family = _Family(topology, groups)
    uses = [
        [hop for pair in permutations(group, 2) for hop in family.routes[pair]] for group in groups
    ]
    hops = {hop: _hash(_cost(hop)) for used in uses for hop in used}
    colours = [_hash((len(group), n == chosen)) for n, group in enumerate(groups)]
    classes = 0
    while len({*colours, *hops.values()}) > classes:
        classes = len({*colours, *hops.values()})
        users: dict[Hop, list[tuple[str, int]]] = {hop: [] for hop in hops}
        for number, used in enumerate(uses):
            for place, hop in enumerate(used):
                users[hop].append((colours[number], place))
        colours = [_hash((colours[n], [hops[hop] for hop in used])) for n, used in enumerate(uses)]
        hops = {hop: _hash((hops[hop], sorted(users[hop]))) for hop in hops}
    return _hash((colours[chosen], sorted(colours), sorted(hops.values())))


def group_hops(topology: Topology, groups: Groups) -> list[set[Hop]]:
    """Return for each group the hops of the routes between its members."""
    return [
        {
            hop
            for src, dst in permutations(group, 2)
            for path in channel_paths(topology, src, dst)
            for hop in path.hops
        }
        for group in groups
    ]


def sharers(hops: Sequence[set[Hop]]) -> list[list[int]]:
    """Return for each group those that share links with it, or with one that does; itself too.

    Args:
        hops: `group_hops` of all groups.
    """
    found = [[number] for number in range(len(hops))]
    first: dict[tuple[str, str], int] = {}
    for number, used in enumerate(hops):
        _join(found, [(first.setdefault((hop.src, hop.dst), number), number) for hop in used])
    return [sorted(each) for each in found]


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


class _Family:
    """Groups with the routes between their members."""

    def __init__(self, topology: Topology, groups: Groups) -> None:
        self.groups = groups
        self.routes: dict[tuple[int, int], _Route] = {
            (src, dst): tuple(
                hop for path in channel_paths(topology, src, dst) for hop in path.hops
            )
            for group in groups
            for src, dst in permutations(group, 2)
        }
        self._shapes = [self._shape(group) for group in groups]
        used = [
            Counter(hop for pair in permutations(group, 2) for hop in self.routes[pair])
            for group in groups
        ]
        self._near = sharers([set(each) for each in used])
        # How many routes of either group lie on each hop that both use.
        self._shared = {
            (one, other): _shared(used[one], used[other])
            for one, near in enumerate(self._near)
            for other in near
            if one != other
        }

    def _shape(self, group: Sequence[int]) -> tuple[object, ...]:
        """Return the routes inside a group without names: equal for groups that are alike."""
        numbers: dict[tuple[str, str], int] = {}
        return tuple(
            (numbers.setdefault((hop.src, hop.dst), len(numbers)), *_cost(hop))
            for pair in permutations(group, 2)
            for hop in self.routes[pair]
        )

    def map_to(self, src: int, dst: int) -> dict[int, int] | None:
        """Return where a permutation that takes one group to another takes all that it moves.

        It moves those that share links with either, or with one that does: no others meet them.
        """
        if len(self._near[src]) != len(self._near[dst]):
            return None
        tried = islice(self._extended({src: dst}), _MOST_TRIES)
        return next((found for found in tried if found is not None and self._holds(found)), None)

    def _extended(self, known: dict[int, int]) -> Iterator[dict[int, int] | None]:
        """Yield the maps of groups that fit ``known`` pair by pair, None for each dead end."""
        *before, (group, image) = known.items()
        if not self._fits(group, image, before):
            yield None
            return
        left = next((n for n in self._near[group] if n not in known), None)
        if left is None:
            yield known
            return
        taken = set(known.values())
        for other in self._near[image]:
            if other not in taken:
                yield from self._extended({**known, left: other})

    def _fits(self, group: int, image: int, pairs: Sequence[tuple[int, int]]) -> bool:
        return self._shapes[group] == self._shapes[image] and all(
            self._shared[group, a] == self._shared[image, b] for a, b in pairs
        )

    def _holds(self, found: Mapping[int, int]) -> bool:
        """Return whether the permutation of ranks takes routes, and what they share, to routes."""
        both = {**{image: number for number, image in found.items()}, **found}
        to = dict(
            pair
            for number, image in both.items()
            for pair in zip(self.groups[number], self.groups[image], strict=True)
        )
        moved = {pair: self.routes[pair] for n in both for pair in permutations(self.groups[n], 2)}
        ranks = max(to) + 1
        graph = LinkGraph(
            ranks,
            ends=list(moved),
            costs=[tuple(map(_cost, route)) for route in moved.values()],
            resources=[[(hop.src, hop.dst) for hop in route] for route in moved.values()],
        )
        return graph.automorphism(tuple(to.get(rank, rank) for rank in range(ranks))) is not None


def _cost(hop: Hop) -> tuple[str, float, float]:
    return hop.kind, round(hop.bandwidth, 6), round(hop.latency, 6)


def _shared(one: Counter[Hop], other: Counter[Hop]) -> tuple[object, ...]:
    return tuple(sorted((*_cost(hop), one[hop], other[hop]) for hop in one.keys() & other.keys()))
