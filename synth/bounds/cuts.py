"""Exact cuts that no schedule beats: allgather's, broadcast's and scatter's."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tuccl.errors import InputError
from tuccl.planners import distances, min_cut, shortfall
from tuccl.synth.bounds.graph import Arc, Fabric


@dataclass(frozen=True)
class Cut:
    """A tight cut: `load` parts of size 1 must cross links of `rate` GB/s in all.

    Attributes:
        load: Number of parts; a part is what `bound` says for the collective.
        rate: Rate of the links across, in GB/s.
        side: Vertices that the links leave; empty where the cut is a partition into many parts.
        words: Description for people.
        latency: Least latency in us of a path across.
    """

    load: Fraction
    rate: Fraction
    side: frozenset[int]
    words: str
    latency: float

    @property
    def ratio(self) -> Fraction:
        """Return the ms that 1 GB parts need: load over rate."""
        return self.load / self.rate


def allgather_cut(fabric: Fabric, backwards: bool = False) -> Cut:
    """Return the cut with most shards inside per GB/s leaving; parts are shards.

    Args:
        fabric: The graph; for a reduce-scatter its reverse, with `backwards`.
        backwards: Describe the cut in the direction against the arcs of `fabric`.

    Notes:
        ForestColl's optimality (arXiv 2402.06787): a rate x is possible iff every GPU can receive N
        units when each GPU has one and arcs carry rate/x. The minimum cut of the GPU that lacks
        most raises 1/x (Newton's method on cuts), until none lacks anything: the exact fraction.
    """
    ranks, vertices = fabric.ranks, len(fabric.names)
    ingress = [0] * vertices
    for _, head, capacity in fabric.capacities:
        ingress[head] += capacity
    narrowest = min(range(ranks), key=lambda gpu: ingress[gpu])
    side = frozenset(range(vertices)) - {narrowest}
    ratio = _ratio(fabric, side, ranks - 1)
    while True:
        # No rank takes in more than all have, so arcs need not be wider than that.
        arcs = _scaled(fabric, ratio, ratio.denominator * ranks)
        lack, inner = shortfall(vertices, arcs, [ratio.denominator] * ranks, fabric.representatives)
        if not lack:
            break
        side = frozenset(inner)
        ratio = _ratio(fabric, side, sum(vertex < ranks for vertex in side))
    inside = sum(vertex < ranks for vertex in side)
    return described(fabric, side, Fraction(inside), f"{inside} of {ranks} shards", backwards)


def scatter_cut(fabric: Fabric, root: int, backwards: bool = False) -> Cut:
    """Return the cut with most shards to be taken out of it per GB/s; parts are shards."""
    ranks, sink = fabric.ranks, len(fabric.names)
    others = [gpu for gpu in range(ranks) if gpu != root]
    side = frozenset({root})
    ratio = _ratio(fabric, side, ranks - 1)
    while True:
        unit = ratio.denominator
        arcs = _scaled(fabric, ratio, unit * ranks) + [(gpu, sink, unit) for gpu in others]
        flow, inner = min_cut(sink + 1, arcs, root, sink)
        if flow == len(others) * unit:
            break
        side = frozenset(inner)
        ratio = _ratio(fabric, side, sum(gpu not in side for gpu in others))
    outside = sum(gpu not in side for gpu in others)
    return described(fabric, side, Fraction(outside), f"{outside} of {ranks} shards", backwards)


def broadcast_cut(fabric: Fabric, root: int, backwards: bool = False) -> Cut:
    """Return the narrowest cut between the root and a GPU; the part is the whole buffer.

    Notes:
        Edmonds 1973: the broadcast rate is the least maximum flow from the root to a GPU.
    """
    egress = sum(capacity for tail, _, capacity in fabric.capacities if tail == root)
    chunks_per_root = [egress if gpu == root else 0 for gpu in range(fabric.ranks)]
    takers = fabric.images_of((root,))
    lack, inner = shortfall(len(fabric.names), fabric.capacities, chunks_per_root, takers)
    side = frozenset(inner) if lack else frozenset({root})
    return described(fabric, side, Fraction(1), "the whole buffer", backwards)


def delivery_cut(fabric: Fabric, parts: int) -> Cut:
    """Return the cut between all GPUs as senders and all as receivers, for `parts` messages in all.

    Notes:
        Every part that a GPU receives is a message from some GPU, so no schedule delivers faster
        than the maximum flow from all GPUs at once to all GPUs at once. It is tighter than cuts
        around single GPUs where these share a NIC.
    """
    senders, ranks = len(fabric.names), fabric.ranks
    source, sink = senders + ranks, senders + ranks + 1
    endless = sum(capacity for *_, capacity in fabric.capacities) + 1
    ends = [(senders + t if t < ranks else t, head) for t, head in fabric.ends]
    arcs = [(*pair, capacity) for pair, (*_, capacity) in zip(ends, fabric.capacities, strict=True)]
    arcs += [(source, senders + gpu, endless) for gpu in range(ranks)]
    arcs += [(gpu, sink, endless) for gpu in range(ranks)]
    capacity, _ = min_cut(sink + 1, arcs, source, sink)
    if not capacity:
        raise InputError("no link leads from GPU to GPU")
    rate = Fraction(capacity, fabric.denominator)
    lengths = [arc.latency for arc in fabric.arcs]
    latencies = distances(source, ends, lengths, range(senders, source))
    words = f"{parts} messages between GPUs must share links that carry {gbs(rate)} in all"
    return Cut(Fraction(parts), rate, frozenset(), words, min(latencies[:ranks]))


def _ratio(fabric: Fabric, side: frozenset[int], load: int) -> Fraction:
    """Return the load of a cut over the capacity of the arcs that leave it.

    Raises:
        InputError: no arc leaves the cut.
    """
    leaving = (c for tail, head, c in fabric.capacities if tail in side and head not in side)
    capacity = sum(leaving)
    if capacity == 0:
        raise InputError(f"no link leaves {place(fabric, side)[:80]}: the other GPUs are cut off")
    return Fraction(load, capacity)


def _scaled(fabric: Fabric, ratio: Fraction, most: int) -> list[tuple[int, int, int]]:
    """Return the arcs with `ratio` times their capacities, in units of its denominator."""
    return [(tail, head, min(ratio.numerator * c, most)) for tail, head, c in fabric.capacities]


def described(
    fabric: Fabric, side: frozenset[int], load: Fraction, what: str, backwards: bool
) -> Cut:
    """Return the cut around `side`, which `load` parts, `what` in words, must leave."""
    arcs = fabric.crossing(side)
    rate = sum((arc.rate for arc in arcs), Fraction(0))
    inside = frozenset(vertex for vertex in side if vertex < fabric.ranks)
    outside = frozenset(range(fabric.ranks)) - inside
    leaves = len(inside) <= len(outside)
    verb = "leave" if leaves != backwards else "enter"
    where = place(fabric, inside if leaves else outside)
    over = _arc_names(fabric, arcs, backwards)
    words = f"{what} must {verb} {where} over {gbs(rate)} ({over})"
    return Cut(load, rate, side, words, _least_latency(fabric, arcs, inside, outside))


def _least_latency(
    fabric: Fabric, arcs: tuple[Arc, ...], inside: frozenset[int], outside: frozenset[int]
) -> float:
    """Return the least latency in us of a path from a GPU inside to one outside by one of `arcs`.

    Notes:
        Bytes that help arrive at an arc no sooner than a GPU inside can have sent them, and leave
        it early enough to reach a GPU outside: in time T an arc is of use for T less its path's
        latency.
    """
    before, after = fabric.latencies(*inside), fabric.reverse.latencies(*outside)
    return min(before[arc.tail] + arc.latency + after[arc.head] for arc in arcs)


def place(fabric: Fabric, vertices: frozenset[int]) -> str:
    """Return the names of the hosts that the GPUs fill, else of the GPUs themselves."""
    gpus = sorted(vertex for vertex in vertices if vertex < fabric.ranks)
    hosts = sorted({fabric.hosts[gpu] for gpu in gpus})
    filled = sum(host in hosts for host in fabric.hosts) == len(gpus)
    names = hosts if filled and all(hosts) else [fabric.names[gpu] for gpu in gpus]
    return listed(names)


def _arc_names(fabric: Fabric, arcs: tuple[Arc, ...], backwards: bool) -> str:
    ends = ((a.head, a.tail) if backwards else (a.tail, a.head) for a in arcs)
    return listed([f"{fabric.names[tail]}>{fabric.names[head]}" for tail, head in ends])


def listed(names: list[str]) -> str:
    """Return up to three names, and how many more there are.

    >>> listed(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    few = ", ".join(names[:3])
    return few if len(names) <= 3 else f"{few} and {len(names) - 3} more"


def gbs(rate: Fraction) -> str:
    """Return a rate in words.

    >>> gbs(Fraction(25, 2))
    '12.5 GB/s'
    """
    return f"{float(rate):.6g} GB/s"
