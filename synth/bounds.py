"""How fast any algorithm could be on a topology: exact cut bounds and latency bounds.

A bound counts what GPUs may do as much as what they may not: they copy, reduce and pass on;
relays only pass on. Reduction or multicast inside a switch (NVLS, SHARP) may beat these bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import msgspec

from tuccl._native import diameter, isolation, scarcity, shortfall
from tuccl.errors import InputError
from tuccl.synth.bound_graph import Fabric, Wire, direct_fabric, direct_load, fabric
from tuccl.synth.collective import Collective
from tuccl.synth.maxflow import FlowNetwork
from tuccl.topology import Topology

__all__ = [
    "Bound",
    "Cut",
    "allgather_cut",
    "allreduce_cut",
    "alltoall_cut",
    "bound",
    "broadcast_cut",
    "scatter_cut",
    "time_bound_us",
]

# Above this many GPUs the attainable side of a certificate is not computed: it needs a flow over
# all pairs for every rank. The bound itself is exact at any size.
_MOST_CERTIFIED = 128
# Above this many GPUs no prices of wires are sought for an all-to-all's bound.
_MOST_PRICED = 64
_PRICED_SOURCES = 16_000  # GPUs from which cheapest ways are found, over all rounds,
_PRICED_WIRES = 4_000_000  # and wires looked at on the way
_DEAREST = 1 << 20  # price of the dearest wire
_MOST_NATIVE = 1 << 60  # rates in all up to which flows are sought in machine words


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """The best that any algorithm can do on a topology.

    Attributes:
        algbw_gbs: No algorithm has a higher algbw (size over time, as nccl-tests counts), in GB/s.
        latency_us: No call takes less, however small.
        bottleneck: The tight cut in words.
        certified: The algbw is attainable (large sizes, no executor cost), so the bound is tight.
        cut_latency_us: The least latency of a way between GPUs across the tight cut.
    """

    algbw_gbs: float
    latency_us: float
    bottleneck: str
    certified: bool
    cut_latency_us: float = 0.0

    def time_us(self, nbytes: int) -> float:
        """Return the us that no algorithm for `nbytes` can beat.

        Notes:
            max(alpha diameter, least alpha across the cut + bytes / algbw): both sides hold, the
            second since the last byte still has to cross once it was sent.
        """
        return max(self.latency_us, self.cut_latency_us + nbytes / (self.algbw_gbs * 1e3))


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


def time_bound_us(bound: Bound, nbytes: int) -> float:
    """Return the us that no algorithm for `nbytes` can beat (`Bound.time_us`)."""
    return bound.time_us(nbytes)


@lru_cache(maxsize=64)
def bound(t: Topology, collective: Collective) -> Bound:
    """Return the best algbw and latency that any algorithm for `collective` could have on `t`.

    Raises:
        InputError: the collective has another number of ranks than the topology.

    Notes:
        Allgather: the cut bound of ForestColl (arXiv 2402.06787), by discrete Newton over maximum
        flows; broadcast: Edmonds 1973; allreduce: partitions, after Harary and Schwenk 1974.
    """
    if collective.ranks != t.ranks:
        raise InputError(
            f"{collective.name} of {collective.ranks} ranks on a topology of {t.ranks}: "
            "the numbers must agree"
        )
    whole = fabric(t)
    cut = _tightest(whole, collective)
    return Bound(
        algbw_gbs=float(1 / (cut.ratio * _part(collective))),
        latency_us=_latency_us(whole, collective),
        bottleneck=cut.words,
        certified=_attained(t, collective, cut.ratio),
        cut_latency_us=cut.latency,
    )


def _part(collective: Collective) -> Fraction:
    """Return the part of the size (as nccl-tests counts it) that a cut's load is counted in."""
    if collective.name in ("broadcast", "reduce", "allreduce"):
        return Fraction(1)
    return Fraction(1, collective.ranks)


def _tightest(whole: Fabric, collective: Collective) -> Cut:
    """Return the tight cut; gathering and reducing are the reverse of spreading."""
    name, root = collective.name, collective.root
    finders: dict[str, Callable[[], Cut]] = {
        "allgather": lambda: allgather_cut(whole),
        "reduce-scatter": lambda: allgather_cut(whole.reverse, backwards=True),
        "broadcast": lambda: broadcast_cut(whole, root),
        "reduce": lambda: broadcast_cut(whole.reverse, root, backwards=True),
        "scatter": lambda: scatter_cut(whole, root),
        "gather": lambda: scatter_cut(whole.reverse, root, backwards=True),
        "allreduce": lambda: allreduce_cut(whole),
        "alltoall": lambda: alltoall_cut(whole),
    }
    if name not in finders:
        raise InputError(f"no bound is known for {name!r}; known are {', '.join(finders)}")
    return finders[name]()


def _attained(t: Topology, collective: Collective, ratio: Fraction) -> bool:
    """Return whether the bound is met with the fixed routes of `t`, sharing each hop fairly."""
    if collective.name == "alltoall":
        return direct_load(t) == ratio
    if t.ranks > _MOST_CERTIFIED:
        return False
    direct = direct_fabric(t)
    if collective.name == "allreduce":
        halves = allgather_cut(direct).ratio + allgather_cut(direct.reverse).ratio
        return halves / t.ranks == ratio
    return _tightest(direct, collective).ratio == ratio


def _latency_us(whole: Fabric, collective: Collective) -> float:
    """Return the alpha diameter in us, or the root's eccentricity."""
    if not collective.rooted:
        lengths = [wire.latency for wire in whole.wires]
        return diameter(len(whole.names), list(whole.arcs), lengths, whole.ranks)
    spreads = collective.name in ("broadcast", "scatter")
    return max((whole if spreads else whole.reverse).latencies(collective.root))


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
    return _described(whole, side, Fraction(inside), f"{inside} of {ranks} shards", backwards)


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
    return _described(whole, side, Fraction(outside), f"{outside} of {ranks} shards", backwards)


def broadcast_cut(whole: Fabric, root: int, backwards: bool = False) -> Cut:
    """Return the narrowest cut between the root and a GPU; the part is the whole buffer.

    Notes:
        Edmonds 1973: the broadcast rate is the least maximum flow from the root to a GPU.
    """
    network = FlowNetwork(len(whole.names), whole.arcs)
    least, side = -1, frozenset[int]()
    for gpu in range(whole.ranks):
        if gpu == root:
            continue
        rate = network.flow(root, gpu, whole.whole_rates)
        if least < 0 or rate < least:
            least, side = rate, network.source_side(root)
    return _described(whole, side, Fraction(1), "the whole buffer", backwards)


def allreduce_cut(whole: Fabric) -> Cut:
    """Return the partition of the GPUs with the most traffic per GB/s; the part is the buffer.

    Notes:
        Between p parts each element takes at least 2(p - 1) messages (gossip; Harary and Schwenk
        1974), each leaving one part and entering another. Tried are one part for each GPU, one for
        each host, and the two sides of the allgather's tight cut.
    """
    gpus = range(whole.ranks)
    by_host: dict[str, list[int]] = {}
    for gpu in gpus:
        by_host.setdefault(whole.hosts[gpu], []).append(gpu)
    tight = frozenset(gpu for gpu in allgather_cut(whole).side if gpu < whole.ranks)
    partitions = [
        ([frozenset({gpu}) for gpu in gpus], "GPUs"),
        ([frozenset(group) for group in by_host.values()], "hosts"),
        ([tight, frozenset(gpus) - tight], "sides of " + _place(whole, tight)),
    ]
    cuts = (_partition(whole, parts, what) for parts, what in partitions if len(parts) > 1)
    return max(cuts, key=lambda cut: cut.ratio)


def _partition(whole: Fabric, parts: list[frozenset[int]], what: str) -> Cut:
    everyone = frozenset(range(whole.ranks))
    isolated = _Isolation(whole)
    out = sum(isolated.rates(parts), Fraction(0))
    into = sum(isolated.rates([everyone - part for part in parts]), Fraction(0))
    load = Fraction(2 * (len(parts) - 1))
    home = {gpu: number for number, part in enumerate(parts) for gpu in part}
    apart = (w.latency for w in whole.wires if home.get(w.tail, -1) != home.get(w.head, -2))
    rate = min(out, into)
    words = (
        f"between the {len(parts)} {what} each element must cross {load} times "
        f"and {'all leaving' if out <= into else 'all entering'} wires carry {_gbs(rate)}"
    )
    return Cut(load, rate, frozenset(), words, min(apart, default=0.0))


def alltoall_cut(whole: Fabric) -> Cut:
    """Return the tightest of a family of cuts and of prices; parts are what one rank has for another.

    Notes:
        A bound only: tried are single GPUs, hosts, halves of the hosts, aligned blocks of ranks and
        the allgather's tight cut, each in both directions, and prices of wires (`_priced`).
    """
    isolated = _Isolation(whole)
    everyone = frozenset(range(whole.ranks))
    sides = [side for group in _groups(whole) for side in (group, everyone - group)]
    if not sides:
        raise InputError("an all-to-all bound needs at least two ranks")
    ratios = (
        Fraction(len(side) * (whole.ranks - len(side))) / rate
        for side, rate in zip(sides, isolated.rates(sides), strict=True)
    )
    tightest = max(zip(ratios, range(0, -len(sides), -1), strict=True))
    side = isolated.side(sides[-tightest[1]])
    inside = sum(vertex < whole.ranks for vertex in side)
    load = Fraction(inside * (whole.ranks - inside))
    cut = _described(whole, side, load, f"{load} of {whole.ranks**2} blocks", False)
    priced = _priced(whole)
    return cut if priced is None or priced.ratio <= cut.ratio else priced


def _priced(whole: Fabric) -> Cut | None:
    """Return what prices of wires prove of an all-to-all; None where looking would take long.

    Notes:
        Give wire e of rate b_e any price l_e >= 0, and let d(s, t) be the price of the cheapest way
        from s to t. Bytes from s to t pay at least d(s, t) each, and in time T no wire is paid for
        more than b_e T bytes: with one part for each pair, sum d(s, t) <= T sum b_e l_e. The best
        prices prove the maximum concurrent flow (linear programming duality; Shahrokhi and Matula
        1990); a cut is the case of price 1 across and 0 elsewhere. Prices are sought by rising
        where flows crowd (Garg and Koenemann 1998), rounded to whole numbers, and what they prove
        is then computed exactly.
    """
    if whole.ranks > _MOST_PRICED:
        return None
    arcs = [(*ends, rate) for ends, rate in zip(whole.arcs, whole.whole_rates, strict=True)]
    rounds = min(_PRICED_SOURCES // whole.ranks, _PRICED_WIRES // (whole.ranks * len(arcs)))
    found = scarcity(len(whole.names), arcs, whole.ranks, max(20, rounds))
    dearest = max(found)
    prices = [round(price / dearest * _DEAREST) for price in found]
    paid = sum((p * w.rate for p, w in zip(prices, whole.wires, strict=True)), Fraction(0))
    priced = (Wire(w.tail, w.head, w.rate, p) for w, p in zip(whole.wires, prices, strict=True))
    graph = Fabric(whole.names, whole.hosts, tuple(priced))
    ways = sum(int(cost) for rank in range(whole.ranks) for cost in graph.latencies(rank))
    words = (
        f"{whole.ranks * (whole.ranks - 1)} of {whole.ranks**2} blocks must take "
        f"{float(Fraction(ways) / max(prices)):.6g} of the dearest wires' room, and all wires have "
        f"{_gbs(paid / max(prices))} of it"
    )
    return Cut(Fraction(ways), paid, frozenset(), words, 0.0)


def _groups(whole: Fabric) -> Iterable[frozenset[int]]:
    """Return sets of ranks that are likely sides of a tight cut; each leaves a rank out."""
    groups = {frozenset({gpu}) for gpu in range(whole.ranks)}
    hosts = list(dict.fromkeys(whole.hosts))
    for first, last in [(n, n + 1) for n in range(len(hosts))] + [(0, len(hosts) // 2)]:
        some = set(hosts[first:last])
        groups.add(frozenset(gpu for gpu in range(whole.ranks) if whole.hosts[gpu] in some))
    block = 2
    while block < whole.ranks:
        groups |= {frozenset(range(n, n + block)) for n in range(0, whole.ranks - block + 1, block)}
        block *= 2
    groups.add(frozenset(gpu for gpu in allgather_cut(whole).side if gpu < whole.ranks))
    return sorted((g for g in groups if 0 < len(g) < whole.ranks), key=sorted)


class _Isolation:
    """Narrowest cuts between a set of GPUs and the others, relays on whichever side is better."""

    def __init__(self, whole: Fabric) -> None:
        self._whole = whole
        self._source, self._sink = len(whole.names), len(whole.names) + 1
        self._endless = sum(whole.whole_rates) + 1

    def rates(self, groups: Sequence[frozenset[int]]) -> list[Fraction]:
        """Return the GB/s that can leave each of the groups."""
        whole = self._whole
        if self._endless > _MOST_NATIVE:
            return [self._cut(group)[0] for group in groups]
        arcs = [(*ends, rate) for ends, rate in zip(whole.arcs, whole.whole_rates, strict=True)]
        found = isolation(len(whole.names), arcs, whole.ranks, [sorted(group) for group in groups])
        return [Fraction(value, whole.denominator) for value in found]

    def side(self, group: frozenset[int]) -> frozenset[int]:
        """Return the vertices that the narrowest cut leaves on the group's side."""
        return self._cut(group)[1]

    def _cut(self, group: frozenset[int]) -> tuple[Fraction, frozenset[int]]:
        gpus = range(self._whole.ranks)
        feeds = [self._endless if gpu in group else 0 for gpu in gpus]
        drains = [0 if gpu in group else self._endless for gpu in gpus]
        capacities = [*self._whole.whole_rates, *feeds, *drains]
        value = self._network.flow(self._source, self._sink, capacities)
        side = self._network.source_side(self._source) - {self._source}
        return Fraction(value, self._whole.denominator), side

    @cached_property
    def _network(self) -> FlowNetwork:
        gpus = range(self._whole.ranks)
        ends = [(self._source, gpu) for gpu in gpus] + [(gpu, self._sink) for gpu in gpus]
        return FlowNetwork(self._sink + 1, [*self._whole.arcs, *ends])


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
        raise InputError(f"no wire leaves {_place(whole, side)[:80]}: the other GPUs are cut off")
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


def _described(
    whole: Fabric, side: frozenset[int], load: Fraction, what: str, backwards: bool
) -> Cut:
    wires = whole.crossing(side)
    rate = sum((wire.rate for wire in wires), Fraction(0))
    inside = frozenset(vertex for vertex in side if vertex < whole.ranks)
    outside = frozenset(range(whole.ranks)) - inside
    leaves = len(inside) <= len(outside)
    verb = "leave" if leaves != backwards else "enter"
    place = _place(whole, inside if leaves else outside)
    over = _wire_names(whole, wires, backwards)
    words = f"{what} must {verb} {place} over {_gbs(rate)} ({over})"
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


def _place(whole: Fabric, vertices: frozenset[int]) -> str:
    """Return the names of the hosts that the GPUs fill, else of the GPUs themselves."""
    gpus = sorted(vertex for vertex in vertices if vertex < whole.ranks)
    hosts = sorted({whole.hosts[gpu] for gpu in gpus})
    filled = sum(host in hosts for host in whole.hosts) == len(gpus)
    names = hosts if filled and all(hosts) else [whole.names[gpu] for gpu in gpus]
    return _listed(names)


def _wire_names(whole: Fabric, wires: tuple[Wire, ...], backwards: bool) -> str:
    ends = ((w.head, w.tail) if backwards else (w.tail, w.head) for w in wires)
    return _listed([f"{whole.names[tail]}>{whole.names[head]}" for tail, head in ends])


def _listed(names: list[str]) -> str:
    few = ", ".join(names[:3])
    return few if len(names) <= 3 else f"{few} and {len(names) - 3} more"


def _gbs(rate: Fraction) -> str:
    return f"{float(rate):.6g} GB/s"
