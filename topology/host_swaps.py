"""Hosts that may change places: one of them stands for all of its class."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

Hops = Mapping[tuple[int, int], Hashable]


def host_classes(
    hosts: Sequence[Sequence[int]], nodes: Sequence[Hashable], hops: Hops
) -> list[list[int]]:
    """Return the indices of `hosts` in classes whose members may change places.

    Two hosts may if a graph stays the same when the nodes of one and those of the other are
    swapped in their order, with the switches that serve one of them alone. So each node of a host
    is equivalent to the node of the same place on any host of its class.

    Args:
        hosts: The nodes of each host, by number.
        nodes: What each node must have in common with its image: its kind, say.
        hops: The same for each hop, by its (sending, receiving) node.

    >>> star = {(0, 2): 25, (2, 0): 25, (1, 2): 25, (2, 1): 25}
    >>> host_classes([[0], [1]], ["gpu", "gpu", "switch"], star)
    [[0, 1]]
    """
    around = _around(len(nodes), hops)
    return _classes(_with_switches(hosts, around), nodes, hops, around)


class HostSwaps:
    """Hosts that may change places, and where that takes nodes, by their ids.

    Hosts of one class have their ids in the same order, beside those of nodes of no host too: so
    the least id of any nodes of one host and of none is at the same place for all of them. Switches
    that serve one host alone count as part of it.
    """

    def __init__(
        self,
        hosts: Mapping[str, str | None],
        nodes: Mapping[str, Hashable],
        hops: Mapping[tuple[str, str], Hashable],
    ) -> None:
        """Find the classes of a graph: the host of each node, its label, and that of each hop."""
        number = {node: place for place, node in enumerate(nodes)}
        members: dict[str, list[int]] = defaultdict(list)
        for node, host in hosts.items():
            if host is not None:
                members[host].append(number[node])
        numbered = {(number[src], number[dst]): hop for (src, dst), hop in hops.items()}
        around = _around(len(nodes), numbered)
        parts = _with_switches(list(members.values()), around)
        ids = list(nodes)
        self._parts = [[ids[node] for node in part] for part in parts]
        self._spot = {
            node: (host, place)
            for host, part in enumerate(self._parts)
            for place, node in enumerate(part)
        }
        shared = [node for node in ids if node not in self._spot]
        self._class: dict[int, list[int]] = {}
        for alike in _classes(parts, list(nodes.values()), numbered, around):
            by_order: dict[tuple[int, ...], list[int]] = defaultdict(list)
            for member in alike:
                by_order[_order([*self._parts[member], *shared])].append(member)
            for same in by_order.values():
                self._class |= dict.fromkeys(same, same)

    def host(self, node: str) -> int | None:
        """Return the number of the host that `node` is part of, None where it is of none."""
        spot = self._spot.get(node)
        return None if spot is None else spot[0]

    def spot(self, node: str) -> tuple[int, int, int]:
        """Return the class of a node's host, the host, and the node's place there."""
        host, place = self._spot[node]
        return self._class[host][0], host, place

    def canonical(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the image of `nodes` on the first hosts of their classes: equal for all images."""
        first: dict[int, int] = {}
        for host in self._hosts(nodes):
            alike = self._class[host]
            first[host] = alike[sum(self._class[other] is alike for other in first)]
        return self._moved(nodes, first)

    def first(self, src: str, dst: str) -> tuple[str, str]:
        """Return `canonical((src, dst))`, in less time."""
        alike: list[int] = []
        one, other = self._spot.get(src), self._spot.get(dst)
        if one is not None:
            alike = self._class[one[0]]
            src = self._parts[alike[0]][one[1]]
        if other is not None:
            second = one is not None and other[0] != one[0] and alike is self._class[other[0]]
            dst = self._parts[self._class[other[0]][second]][other[1]]
        return src, dst

    def moved(
        self, nodes: Iterable[str], ends: tuple[str, str], onto: tuple[str, str]
    ) -> tuple[str, ...]:
        """Return where a symmetry that takes `ends` to their image `onto` takes `nodes`."""
        spots = self._spot
        image = {spots[a][0]: spots[b][0] for a, b in zip(ends, onto, strict=True) if a in spots}
        return self._moved(nodes, image)

    def images(self, nodes: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield each image of `nodes` once, `nodes` themselves among them."""
        hosts = self._hosts(nodes)
        for onto in itertools.product(*(self._class[host] for host in hosts)):
            if len(set(onto)) == len(hosts):
                yield self._moved(nodes, dict(zip(hosts, onto, strict=True)))

    def count(self, nodes: tuple[str, ...]) -> int:
        """Return how many images `nodes` have."""
        classes = Counter(self._class[host][0] for host in self._hosts(nodes))
        return math.prod(math.perm(len(self._class[first]), n) for first, n in classes.items())

    def representatives(self, nodes: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield one of each set of ordered pairs of different `nodes` that are images."""
        for src in nodes:
            if self.canonical((src,)) == (src,):
                pairs = ((src, dst) for dst in nodes if dst != src)
                yield from (pair for pair in pairs if self.canonical(pair) == pair)

    def _hosts(self, nodes: tuple[str, ...]) -> list[int]:
        spots = self._spot
        return list(dict.fromkeys(spots[node][0] for node in nodes if node in spots))

    def _moved(self, nodes: Iterable[str], image: Mapping[int, int]) -> tuple[str, ...]:
        spots, parts = self._spot, self._parts
        return tuple(
            [
                parts[image[spot[0]]][spot[1]]
                if (spot := spots.get(node)) is not None and spot[0] in image
                else node
                for node in nodes
            ]
        )


def _order(ids: Sequence[str]) -> tuple[int, ...]:
    return tuple(sorted(range(len(ids)), key=ids.__getitem__))


def _around(nodes: int, hops: Hops) -> list[list[tuple[int, int]]]:
    """Return the hops at each node."""
    around: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]
    for hop in hops:
        for end in hop:
            around[end].append(hop)
    return around


def _classes(
    parts: Sequence[Sequence[int]],
    nodes: Sequence[Hashable],
    hops: Hops,
    around: Sequence[Sequence[tuple[int, int]]],
) -> list[list[int]]:
    classes: list[list[int]] = []
    for number, part in enumerate(parts):
        for members in classes:
            if _may_swap(parts[members[0]], part, nodes, hops, around):
                members.append(number)
                break
        else:
            classes.append([number])
    return classes


def _with_switches(
    hosts: Sequence[Sequence[int]], around: Sequence[Sequence[tuple[int, int]]]
) -> list[list[int]]:
    """Return the nodes of each host, and the nodes of no host that serve no other host."""
    host_of = {node: number for number, host in enumerate(hosts) for node in host}
    parts = [list(host) for host in hosts]
    for node, hops in enumerate(around):
        if node not in host_of:
            served = {host_of[end] for hop in hops for end in hop if end in host_of}
            if len(served) == 1:
                parts[served.pop()].append(node)
    return parts


def _may_swap(
    one: Sequence[int],
    other: Sequence[int],
    nodes: Sequence[Hashable],
    hops: Hops,
    around: Sequence[Sequence[tuple[int, int]]],
) -> bool:
    if len(one) != len(other):
        return False
    image = dict(zip((*one, *other), (*other, *one), strict=True))
    # A swap is its own inverse: if each hop at these nodes has an image, each is one.
    return all(
        nodes[node] == nodes[there]
        and all(
            hops.get((image.get(src, src), image.get(dst, dst))) == hops[src, dst]
            for src, dst in around[node]
        )
        for node, there in image.items()
    )
