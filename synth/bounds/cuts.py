"""Exact cuts that no spreading of data beats: allgather's, broadcast's and scatter's."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tuccl._native import shortfall
from tuccl.errors import InputError
from tuccl.synth.bounds.graph import Fabric, Wire
from tuccl.synth.bounds.maxflow import FlowNetwork

__all__ = [
    "MOST_NATIVE",
    "Cut",
    "allgather_cut",
    "broadcast_cut",
    "described",
    "gbs",
    "listed",
    "place",
    "scatter_cut",
]

MOST_NATIVE = 1 << 60  # rates in all up to which flows are sought in machine words


@dataclass(frozen=True)
class Cut:
    """A tight cut: `load` parts of size 1 must cross wires of `rate` GB/s in all.

    Attributes:
        load: Number of parts; a part is what `bound` says for the collective.
        rate: Rate of the wires across, in GB/s.
        side: Vertices that the wires leave; empty where the cut is a partition into many parts.
        words: Description for people.
        latency: Least latency in us of a way across.
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


def allgather_cut(whole: Fabric, backwards: bool = False) -> Cut:
    """Return the cut with most shards inside per GB/s leaving; parts are shards.

    Args:
        whole: The fabric; for a reduce-scatter its reverse, with `backwards`.
        backwards: Describe the cut in the direction against the wires of `whole`.

    Notes:
        ForestColl, arXiv 2402.06787: a rate x is possible iff every GPU can receive N units when
        each GPU is fed one and wires carry rate/x; the minimum cut of the GPU that lacks most
        raises 1/x (Newton's method on cuts), until none lacks anything: the exact fraction.
    """
    ranks, vertices = whole.ranks, len(whole.names)
    entering = _entering(whole)
    narrowest = min(range(ranks), key=lambda gpu: entering[gpu])
    side = frozenset(range(vertices)) - {narrowest}
    ratio = _raised(whole, side, ranks - 1)
    while True:
        arcs = _scaled_arcs(whole, ratio)
        lack, inner = shortfall(vertices, arcs, [ratio.denominator] * ranks)
        if not lack:
            break
        side = frozenset(inner)
        ratio = _raised(whole, side, sum(vertex < ranks for vertex in side))
    inside = sum(vertex < ranks for vertex in side)
    return described(whole, side, Fraction(inside), f"{inside} of {ranks} shards", backwards)


def scatter_cut(whole: Fabric, root: int, backwards: bool = False) -> Cut:
    """Return the cut with most shards to be taken out of it per GB/s; parts are shards."""
    ranks, sink = whole.ranks, len(whole.names)
    others = [gpu for gpu in range(ranks) if gpu != root]
    network = FlowNetwork(sink + 1, [*whole.arcs, *((gpu, sink) for gpu in others)])
    side = frozenset({root})
    ratio = _raised(whole, side, ranks - 1)
    while (
        network.flow(root, sink, _scaled(whole, ratio, len(others)))
        < len(others) * ratio.denominator
    ):
        side = network.source_side(root)
        ratio = _raised(whole, side, sum(gpu not in side for gpu in others))
    outside = sum(gpu not in side for gpu in others)
    return described(whole, side, Fraction(outside), f"{outside} of {ranks} shards", backwards)


def broadcast_cut(whole: Fabric, root: int, backwards: bool = False) -> Cut:
    """Return the narrowest cut between the root and a GPU; the part is the whole buffer.

    Notes:
        Edmonds 1973: the broadcast rate is the least maximum flow from the root to a GPU.
    """
    side = _worst_served(whole, root)
    return described(whole, side, Fraction(1), "the whole buffer", backwards)


def _worst_served(whole: Fabric, root: int) -> frozenset[int]:
    """Return the side of the root in the narrowest cut between it and another GPU."""
    arcs = [(*ends, rate) for ends, rate in zip(whole.arcs, whole.whole_rates, strict=True)]
    leaving = sum(rate for tail, _, rate in arcs if tail == root)
    if sum(whole.whole_rates) * whole.ranks <= MOST_NATIVE:
        feeds = [leaving if gpu == root else 0 for gpu in range(whole.ranks)]
        lack, inner = shortfall(len(whole.names), arcs, feeds)
        return frozenset(inner) if lack else frozenset({root})
    network = FlowNetwork(len(whole.names), whole.arcs)
    least, side = leaving, frozenset({root})
    for gpu in range(whole.ranks):
        if gpu != root and (rate := network.flow(root, gpu, whole.whole_rates)) < least:
            least, side = rate, network.source_side(root)
    return side


def _whole_rate(whole: Fabric, side: frozenset[int]) -> int:
    """Return the rate of the wires that leave `side`, times the fabric's denominator."""
    return sum(
        rate
        for (tail, head), rate in zip(whole.arcs, whole.whole_rates, strict=True)
        if tail in side and head not in side
    )


def _raised(whole: Fabric, side: frozenset[int], load: int) -> Fraction:
    """Return the ratio of a cut in whole rates.

    Raises:
        InputError: no wire leaves the cut.
    """
    rate = _whole_rate(whole, side)
    if rate == 0:
        raise InputError(f"no wire leaves {place(whole, side)[:80]}: the other GPUs are cut off")
    return Fraction(load, rate)


def _entering(whole: Fabric) -> list[int]:
    """Return the rate of the wires into each vertex, times the fabric's denominator."""
    rates = [0] * len(whole.names)
    for (_, head), rate in zip(whole.arcs, whole.whole_rates, strict=True):
        rates[head] += rate
    return rates


def _scaled_arcs(whole: Fabric, ratio: Fraction) -> list[tuple[int, int, int]]:
    """Return the wires with `ratio` times their rates, in the unit that makes all whole.

    No rank takes in more than it is fed in all, so wires are no wider than that.
    """
    most = ratio.denominator * whole.ranks
    return [
        (tail, head, min(ratio.numerator * rate, most))
        for (tail, head), rate in zip(whole.arcs, whole.whole_rates, strict=True)
    ]


def _scaled(whole: Fabric, ratio: Fraction, ends: int) -> list[int]:
    """Return whole capacities: `ratio` times each wire's rate, and one unit for each end."""
    p, q = ratio.numerator, ratio.denominator
    return [p * rate for rate in whole.whole_rates] + [q] * ends


def described(
    whole: Fabric, side: frozenset[int], load: Fraction, what: str, backwards: bool
) -> Cut:
    """Return the cut around `side`, which `load` parts, `what` in words, must leave."""
    wires = whole.crossing(side)
    rate = sum((wire.rate for wire in wires), Fraction(0))
    inside = frozenset(vertex for vertex in side if vertex < whole.ranks)
    outside = frozenset(range(whole.ranks)) - inside
    leaves = len(inside) <= len(outside)
    verb = "leave" if leaves != backwards else "enter"
    where = place(whole, inside if leaves else outside)
    over = _wire_names(whole, wires, backwards)
    words = f"{what} must {verb} {where} over {gbs(rate)} ({over})"
    return Cut(load, rate, side, words, _least_latency(whole, wires, inside, outside))


def _least_latency(
    whole: Fabric, wires: tuple[Wire, ...], inside: frozenset[int], outside: frozenset[int]
) -> float:
    """Return the least latency in us of a way from a GPU inside to one outside by one of `wires`.

    Notes:
        Bytes that help arrive at a wire no sooner than a GPU inside can have sent them, and leave it
        early enough to reach a GPU outside: in time T a wire is of use for T less its way's latency.
    """
    reached, reaching = whole.nearest(inside), whole.reverse.nearest(outside)
    return min(reached[w.tail] + w.latency + reaching[w.head] for w in wires)


def place(whole: Fabric, vertices: frozenset[int]) -> str:
    """Return the names of the hosts that the GPUs fill, else of the GPUs themselves."""
    gpus = sorted(vertex for vertex in vertices if vertex < whole.ranks)
    hosts = sorted({whole.hosts[gpu] for gpu in gpus})
    filled = sum(host in hosts for host in whole.hosts) == len(gpus)
    names = hosts if filled and all(hosts) else [whole.names[gpu] for gpu in gpus]
    return listed(names)


def _wire_names(whole: Fabric, wires: tuple[Wire, ...], backwards: bool) -> str:
    ends = ((w.head, w.tail) if backwards else (w.tail, w.head) for w in wires)
    return listed([f"{whole.names[tail]}>{whole.names[head]}" for tail, head in ends])


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
