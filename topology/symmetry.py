"""Hosts that may change places: one of them stands for all of its class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

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
    around: list[list[tuple[int, int]]] = [[] for _ in nodes]
    for hop in hops:
        for end in hop:
            around[end].append(hop)
    parts = _with_switches(hosts, around)
    classes: list[list[int]] = []
    for number, part in enumerate(parts):
        for members in classes:
            if _may_swap(parts[members[0]], part, nodes, hops, around):
                members.append(number)
                break
        else:
            classes.append([number])
    return classes


class HostSwaps:
    """The swaps that take each host to the first of its class, by node id."""

    def __init__(
        self,
        hosts: Mapping[str, str | None],
        nodes: Mapping[str, Hashable],
        hops: Mapping[tuple[str, str], Hashable],
    ) -> None:
        """Find the classes of a graph: the host of each node, its label, and that of each hop."""
        number = {node: place for place, node in enumerate(nodes)}
        members: dict[str, list[str]] = defaultdict(list)
        for node, host in hosts.items():
            if host is not None:
                members[host].append(node)
        self._hosts, self._members = hosts, members
        self._place = {node: n for part in members.values() for n, node in enumerate(part)}
        names = list(members)
        classes = host_classes(
            [[number[node] for node in members[host]] for host in names],
            list(nodes.values()),
            {(number[src], number[dst]): hop for (src, dst), hop in hops.items()},
        )
        self._first = {names[host]: names[part[0]] for part in classes for host in part}

    def swapped(self, src: str, dst: str) -> tuple[str, str]:
        """Return where a symmetry takes the two nodes that has `src` on the first of its class."""
        host = self._hosts.get(src)
        if host is None or self._hosts.get(dst) is None or (first := self._first[host]) == host:
            return src, dst  # a switch between hosts may be one's own, which is swapped too
        return self._image(src, host, first), self._image(dst, host, first)

    def _image(self, node: str, one: str, other: str) -> str:
        host = self._hosts.get(node)
        if host == one:
            return self._members[other][self._place[node]]
        return self._members[one][self._place[node]] if host == other else node


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
