"""Congestion of links that share resources, and pruning of the worst links."""

from __future__ import annotations

from collections import Counter, defaultdict

from msgspec.structs import replace

from tuccl.errors import InputError
from tuccl.sketches.nic_paths import NicPaths
from tuccl.sketches.reachability import adjacency, reaches_all
from tuccl.sketches.sketch import LogicalLink, PrunedLink, Sketch
from tuccl.sketches.symmetry import link_orbits
from tuccl.topology.graph import Topology
from tuccl.topology.merge import merge_nics
from tuccl.topology.paths import path
from tuccl.topology.relays import Path

_Pair = tuple[int, int]
_Resource = tuple[str, str]


def congestion_scores(sketch: Sketch, topology: Topology) -> dict[tuple[int, int], float]:
    """Return for each link (src, dst) how many times slower it is when all are busy, less one.

    Let every link of the sketch carry equally many bytes. A hop of rate B that n links share
    then drains n of them in the time n / B for each byte; a link that has the rate b alone is
    held up by the hop of its path where n b / B is largest. The score is that, less 1: at least
    0, and 0 for a link that nothing slows.

    Notes:
        TuCCL II.C and III.B: synthesizers take a NIC's bandwidth as given to each link alone,
        which is the further off the more links share it. The paper gives no formula; this one is
        the expected contention of one round of equal transfers.
    """
    return _scores(_loads(sketch, topology))


def with_congestion(sketch: Sketch, topology: Topology) -> Sketch:
    """Return `sketch` with the congestion score of each link filled in."""
    scores = congestion_scores(sketch, topology)
    return replace(
        sketch,
        links=tuple(replace(link, congestion=scores[link.src, link.dst]) for link in sketch.links),
    )


class _Loads:
    """The hops that links use and how many links use each."""

    def __init__(self) -> None:
        self.hops: dict[_Pair, tuple[_Resource, ...]] = {}
        self.rate_alone: dict[_Pair, float] = {}
        self.rate: dict[_Resource, float] = {}
        self.count: Counter[_Resource] = Counter()


def _loads(sketch: Sketch, topology: Topology) -> _Loads:
    loads = _Loads()
    topology = merge_nics(topology)
    for link in sketch.links:
        route = _route(link, topology)
        pair = (link.src, link.dst)
        loads.hops[pair] = tuple([(hop.src, hop.dst) for hop in route.hops])
        loads.rate_alone[pair] = route.bandwidth
        loads.count.update(loads.hops[pair])
        for ends, hop in zip(loads.hops[pair], route.hops, strict=True):
            loads.rate[ends] = hop.bandwidth
    return loads


def _route(link: LogicalLink, topology: Topology) -> Path:
    default = path(topology, link.src, link.dst)
    if not link.nics or (*default.nics[:1], *default.nics[-1:]) == link.nics:
        return default
    route = topology.derived(NicPaths).path_by_nics(link.src, link.dst, *link.nics)
    if route is None:
        raise InputError(
            f"topology {topology.name[:60]!r} has no path from rank {link.src} to rank {link.dst} "
            f"by {link.nics[0][:60]!r} and {link.nics[1][:60]!r}: make a sketch for this topology"
        )
    return route


def _scores(loads: _Loads) -> dict[_Pair, float]:
    crowd = {hop: count / loads.rate[hop] for hop, count in loads.count.items()}
    # Rounding keeps links that symmetry makes alike equal to the last digit.
    return {
        pair: round(max(0.0, max(map(crowd.__getitem__, hops)) * loads.rate_alone[pair] - 1.0), 9)
        for pair, hops in loads.hops.items()
    }


def prune_congested(
    sketch: Sketch,
    topology: Topology,
    max_score: float,
    *,
    inter: bool = True,
) -> Sketch:
    """Return `sketch` without its worst links, those whose score stays above `max_score`.

    The most crowded hop loses links first, those first that join GPUs of the most different
    places on their hosts. A link stays, whatever its score, if without it some rank could not
    reach another, or two hosts that were joined directly no longer would be. Links that a
    symmetry of the sketch takes into each other go or stay together.

    Args:
        sketch: What to prune.
        topology: The machine the scores are for.
        max_score: The score that links may have, see `congestion_scores`.
        inter: Whether to prune links between hosts, or those inside hosts.

    Raises:
        InputError: `max_score` is negative or not a number.
    """
    if not max_score >= 0:
        raise InputError(f"congestion score {max_score}: expected at least 0")
    loads = _loads(sketch, topology)
    reasons = _Pruning(sketch, loads, inter).run(max_score)
    links_left = tuple(link for link in sketch.links if (link.src, link.dst) not in reasons)
    scores = _scores(loads)
    above = sum(
        link.inter == inter and scores[link.src, link.dst] > max_score for link in links_left
    )
    note = f"{above} links keep a congestion score above {max_score:g}: ranks need them"
    return replace(
        sketch,
        links=tuple(replace(link, congestion=scores[link.src, link.dst]) for link in links_left),
        pruned=sketch.pruned
        + tuple(
            PrunedLink(src=src, dst=dst, stage="congestion", reason=reason)
            for (src, dst), reason in reasons.items()
        ),
        notes=(*sketch.notes, note) if above else sketch.notes,
    )


class _Pruning:
    """One run of `prune_congested`: drops orbits of links and keeps the loads up to date."""

    def __init__(self, sketch: Sketch, loads: _Loads, inter: bool) -> None:
        self._sketch = sketch
        self._loads = loads
        self._successors, self._predecessors = adjacency(sketch.ranks, loads.hops)
        self._host_links: Counter[_Pair] = Counter(
            (sketch.hosts[src], sketch.hosts[dst]) for src, dst in loads.hops
        )
        self._orbits = _orbits(sketch, inter)
        self._candidates = self._by_resource()
        orbit_rate = {
            orbit: max(loads.rate_alone[pair] for pair in pairs)
            for orbit, pairs in self._orbits.items()
        }
        self._fastest = {
            hop: max(orbit_rate[orbit] for orbit in orbits)
            for hop, orbits in self._candidates.items()
        }
        self._decided: set[tuple[int, ...]] = set()
        self._reasons: dict[_Pair, str] = {}

    def _by_resource(self) -> dict[_Resource, list[tuple[int, ...]]]:
        """Return for each hop the orbits of links that use it, the first to drop last."""
        pending: dict[_Resource, set[tuple[int, ...]]] = defaultdict(set)
        for orbit, pairs in self._orbits.items():
            for pair in pairs:
                for hop in self._loads.hops[pair]:
                    pending[hop].add(orbit)
        return {hop: sorted(orbits) for hop, orbits in sorted(pending.items())}

    def run(self, max_score: float) -> dict[_Pair, str]:
        """Return the reason for each link that goes; the loads are those without them."""
        while self._candidates:
            hop = max(self._candidates, key=self._crowding)
            score = self._crowding(hop) - 1.0
            if score <= max_score + 1e-9:
                break
            orbits = self._candidates[hop]
            while orbits and orbits[-1] in self._decided:
                orbits.pop()
            if orbits:
                self._decided.add(orbits[-1])
                self._drop(orbits.pop(), f"{hop[0]} to {hop[1]}", score, max_score)
            else:
                del self._candidates[hop]
        return self._reasons

    def _crowding(self, hop: _Resource) -> float:
        return self._loads.count[hop] * self._fastest[hop] / self._loads.rate[hop]

    def _drop(self, orbit: tuple[int, ...], where: str, score: float, most: float) -> None:
        pairs = self._orbits[orbit]
        ends = [(self._sketch.hosts[src], self._sketch.hosts[dst]) for src, dst in pairs]
        self._flip(pairs)
        self._host_links.subtract(ends)
        cut = any(one != other and self._host_links[one, other] == 0 for one, other in ends)
        if cut or not reaches_all(self._successors, self._predecessors):
            self._flip(pairs)
            self._host_links.update(ends)
            return
        for pair in pairs:
            self._reasons[pair] = f"{where} crowded to a score of {score:.3g}, above {most:g}"
            self._loads.count.subtract(self._loads.hops.pop(pair))

    def _flip(self, pairs: list[_Pair]) -> None:
        for src, dst in pairs:
            self._successors[src] ^= 1 << dst
            self._predecessors[dst] ^= 1 << src


def _orbits(sketch: Sketch, inter: bool) -> dict[tuple[int, ...], list[_Pair]]:
    """Return the links that go together, under keys that sort by how far apart they reach.

    The farthest are the first to go: links between GPUs of equal place on their hosts, and among
    these hosts next to each other, are what rings and rails use.
    """
    places = [
        {rank: place for place, rank in enumerate(sketch.ranks_of(host))}
        for host in range(sketch.nhosts)
    ]

    def reach(pair: _Pair) -> tuple[int, ...]:
        one, other = (sketch.hosts[rank] for rank in pair)
        step = (other - one) % sketch.nhosts
        src, dst = places[one][pair[0]], places[other][pair[1]]
        return abs(dst - src), min(step, sketch.nhosts - step), step, *pair

    return {
        min(map(reach, orbit)): orbit
        for orbit in link_orbits(sketch)
        if (sketch.hosts[orbit[0][0]] != sketch.hosts[orbit[0][1]]) == inter
    }
