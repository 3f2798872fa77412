"""Hierarchies: groups of ranks that are alike, and trees made of trees inside groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import permutations

from tuccl.synth.model.network import Network, Pair


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


def in_order_tree(count: int) -> dict[int, int]:
    """Return the parent of each node but 0, which has one child; others have two at most.

    Odd nodes are leaves. The tree is that of NCCL's trees.cc.

    >>> in_order_tree(6)
    {1: 2, 2: 4, 3: 2, 4: 0, 5: 4}
    """
    parents = {}
    for node in range(1, count):
        low = node & -node
        parent = (node ^ low) | (low << 1)
        parents[node] = parent if parent < count else node ^ low
    return parents


def mirror(node: int, count: int) -> int:
    """Return the node in whose place `node` is in the other of two trees: leaves are inside."""
    return count - 1 - node if count % 2 == 0 else (node + 1) % count


def complementary_trees(count: int) -> list[list[Pair]]:
    """Return the edges (parent, child) of two trees from node 0, parents first.

    Node 0 has one child in each. No other node has children in both.

    >>> complementary_trees(4)
    [[(0, 2), (2, 1), (2, 3)], [(0, 3), (3, 1), (3, 2)]]

    Notes:
        Sanders, Speck, Träff 2009 (two-tree broadcast).
    """
    trees = [in_order_tree(count)]
    place = [0, *(1 + mirror(node, count - 1) for node in range(count - 1))]
    trees.append({place[node]: place[parent] for node, parent in trees[0].items()})

    def depth(parents: dict[int, int], node: int) -> int:
        return 1 + depth(parents, parents[node]) if node else 0

    return [
        sorted(((p, node) for node, p in tree.items()), key=lambda e: (depth(tree, e[1]), e))
        for tree in trees
    ]


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
    """Return the hosts, or blocks of `size` ranks, where they are isomorphic; else None.

    That is, several have equally many ranks, and links between the same local ranks.
    """
    groups: dict[int, list[int]] = {}
    for rank, host in enumerate(network.hosts):
        groups.setdefault(rank // size if size else host, []).append(rank)
    members = tuple(map(tuple, groups.values()))
    inside = {
        frozenset(
            (a, b)
            for a, x in enumerate(ranks)
            for b, y in enumerate(ranks)
            if (x, y) in network.index or a == b
        )
        for ranks in members
    }
    return EqualGroups(network, members) if len(members) > 1 == len(inside) else None
