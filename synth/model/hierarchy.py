"""Hierarchies: groups of ranks that are alike, and trees made of trees inside groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import permutations

from tuccl.synth.model.network import Network, Pair
from tuccl.synth.model.symmetry import isomorphic_groups


def compose_tree(
    root: int, inside: Callable[[int], Iterable[Pair]], crossings: Iterable[Pair]
) -> Iterator[tuple[int, int, int]]:
    """Yield the edges (depth, parent, child) of a tree from `root` over several groups of ranks.

    The tree spreads in the root's group, then crosses to one group after another and spreads
    there.

    Args:
        root: Rank.
        inside: Called with a rank, returns the edges (parent, child) by which it reaches all of
            its group, parents first.
        crossings: Edges (parent, child) between groups; each parent was reached before.

    >>> list(compose_tree(0, lambda rank: [(rank, rank + 1)], [(1, 2), (3, 4)]))
    [(1, 0, 1), (2, 1, 2), (3, 2, 3), (4, 3, 4), (5, 4, 5)]
    """
    depth = {root: 0}

    def reached(edges: Iterable[Pair]) -> Iterator[tuple[int, int, int]]:
        for parent, child in edges:
            depth[child] = depth[parent] + 1
            yield depth[child], parent, child

    yield from reached(inside(root))
    for crossing in crossings:
        yield from reached((crossing, *inside(crossing[1])))


@dataclass(frozen=True)
class EqualGroups:
    """Hosts (or blocks of ranks) with equally many ranks and the same links inside.

    Attributes:
        network: All links.
        members: Ranks of each group, by local rank.
    """

    network: Network
    members: tuple[tuple[int, ...], ...]

    @property
    def local_ranks(self) -> int:
        """Return the ranks of a group."""
        return len(self.members[0])

    @cached_property
    def inside(self) -> Network:
        """Return the links inside the first group, by local rank."""
        return self.network.subnetwork(self.members[0])

    @cached_property
    def relays(self) -> tuple[int, ...]:
        """Return the local ranks that have a link to the same local rank of every other group."""
        return tuple(
            local
            for local in range(self.local_ranks)
            if all((a[local], b[local]) in self.network.index for a, b in self.group_pairs)
        )

    @cached_property
    def nic_groups(self) -> tuple[tuple[int, ...], ...]:
        """Return the relays in sets whose routes to another group share a resource, a NIC say."""
        sets: list[tuple[set[int], list[int]]] = []
        first, second = self.members[:2]
        for relay in self.relays:
            number = self.network.index[first[relay], second[relay]]
            resources, local_ranks = set(self.network.routes[number]), [relay]
            for other in [each for each in sets if each[0] & resources]:
                sets.remove(other)
                resources |= other[0]
                local_ranks += other[1]
            sets.append((resources, sorted(local_ranks)))
        return tuple(sorted(tuple(local_ranks) for _, local_ranks in sets))

    @cached_property
    def nic_shares(self) -> list[tuple[int, range]]:
        """Return one relay of each NIC, and the local ranks that it serves."""
        count, ranks = len(self.nic_groups), self.local_ranks
        return [
            (group[0], range(ranks * n // count, ranks * (n + 1) // count))
            for n, group in enumerate(self.nic_groups)
        ]

    @property
    def group_pairs(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Yield the ranks of each group with those of each other one."""
        yield from permutations(self.members, 2)


@lru_cache(maxsize=16)
def equal_groups(network: Network, size: int | None = None) -> EqualGroups | None:
    """Return the hosts, or blocks of `size` ranks, where they are isomorphic; else None."""
    members = isomorphic_groups(network, size)
    return EqualGroups(network, members) if members else None
