"""Trees for many equal hosts: those of the hosts' graph and those of one host, put together."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from tuccl._native import pack_trees, suffices
from tuccl.synth.bound_graph import Fabric, Wire
from tuccl.synth.growth import Growth
from tuccl.synth.pair_units import Demand, least_counts
from tuccl.synth.pair_wires import PairWires

__all__ = ["bare_fabric", "composed"]

_MOST_INNER = 6


def composed(wires: PairWires, chunks_per_rank: int) -> tuple[Growth, ...] | None:
    """Return trees from every rank by which its chunks get to all; None where hosts differ.

    A chunk goes from host to host between ranks of one place (rails), and from where it enters a
    host to the others there. Hosts send to the ones 1, 2, 4 and so on further: few connections, and
    ways that grow as the logarithm of their number.
    """
    members = _members(wires)
    strides = [1 << power for power in range((len(members) - 1).bit_length())]
    if len(members) < 2 or not _even(wires, members, strides):
        return None
    outer = _outer(len(members), strides, chunks_per_rank)
    inner = _inner(wires, members[0])
    trees: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for place in range(len(members[0])):
        turn = 0
        for tree in outer:
            for _ in range(tree.weight):
                inside = inner[place][turn % len(inner[place])]
                parents = _put_together(members, place, tree.parent, inside)
                trees[members[tree.root][place], parents] += 1
                turn += 1
    return tuple(Growth(root, weight, parent) for (root, parent), weight in sorted(trees.items()))


def _members(wires: PairWires) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for rank, host in enumerate(wires.hosts):
        groups.setdefault(host, []).append(rank)
    return list(groups.values())


def _even(wires: PairWires, members: list[list[int]], strides: list[int]) -> bool:
    """Return whether all hosts have as many ranks, the same pairs inside, and rails to others."""
    if len({len(own) for own in members}) > 1:
        return False
    shapes = {
        frozenset((a, b) for a, x in enumerate(own) for b, y in enumerate(own) if (x, y) in known)
        for known in (wires.number,)
        for own in members
    }
    rails = (
        (own[place], members[(number + stride) % len(members)][place])
        for number, own in enumerate(members)
        for stride in strides
        for place in range(len(own))
    )
    return len(shapes) == 1 and all(pair in wires.number for pair in rails)


def _outer(hosts: int, strides: list[int], chunks: int) -> tuple[Growth, ...]:
    """Return the trees between hosts; every link carries about as much."""
    carried = (hosts - 1) * chunks
    while True:
        shares = [carried * (n + 1) // len(strides) for n in range(len(strides))]
        widths = [share - before for share, before in zip(shares, [0, *shares], strict=False)]
        arcs = [
            (host, (host + stride) % hosts, width)
            for host in range(hosts)
            for stride, width in zip(strides, widths, strict=True)
        ]
        feeds = [chunks] * hosts
        if suffices(hosts, arcs, feeds):
            trees = pack_trees(arcs, feeds)
            return tuple(Growth(tree.root, tree.weight, tuple(tree.parent)) for tree in trees)
        carried += 1


def _inner(wires: PairWires, own: list[int]) -> list[list[tuple[int, ...]]]:
    """Return for each place in a host the parents of the trees that its chunks take in turn."""
    place = {rank: number for number, rank in enumerate(own)}
    inside = [n for n, (src, dst) in enumerate(wires.pairs) if src in place and dst in place]
    used = sorted({wire for n in inside for wire in wires.ways[n]})
    renamed = {wire: number for number, wire in enumerate(used)}
    host = PairWires(
        (0,) * len(own),
        tuple((place[wires.pairs[n][0]], place[wires.pairs[n][1]]) for n in inside),
        tuple(tuple(renamed[wire] for wire in wires.ways[n]) for n in inside),
        tuple(wires.rates[wire] for wire in used),
    )
    best: tuple[Fraction, list[list[tuple[int, ...]]]] | None = None
    for chunks in range(1, _MOST_INNER + 1):
        demand = Demand(host, bare_fabric(host), (chunks,) * len(own))
        counts = least_counts(demand)
        span = host.span(host.loads(counts)) / chunks
        if best is None or span < best[0] * Fraction(99, 100):
            found: list[list[tuple[int, ...]]] = [[] for _ in own]
            for tree in pack_trees(demand.arcs(counts), list(demand.feeds)):
                found[tree.root] += [tuple(tree.parent)] * tree.weight
            best = span, found
    return best[1] if best else []


def _put_together(
    members: list[list[int]], place: int, outer: tuple[int, ...], inner: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the parents of the ranks: the outer tree's at `place`, the inner tree's elsewhere."""
    parents = [-1] * sum(len(own) for own in members)
    for host, own in enumerate(members):
        for at, rank in enumerate(own):
            if at != place:
                parents[rank] = own[inner[at]]
            elif outer[host] >= 0:
                parents[rank] = members[outer[host]][place]
    return tuple(parents)


def bare_fabric(wires: PairWires) -> Fabric:
    """Return the pairs as wires of their own; what pairs share is left out."""
    own = (
        Wire(src, dst, min(wires.rates[wire] for wire in way), 0.0)
        for (src, dst), way in zip(wires.pairs, wires.ways, strict=True)
    )
    names = tuple(f"rank {rank}" for rank in range(wires.ranks))
    return Fabric(names, tuple(str(host) for host in wires.hosts), tuple(own))
