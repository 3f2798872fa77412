"""The probes of a network, in the order in which each one's answer decides the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from statistics import median

import msgspec

from tuccl.errors import InputError
from tuccl.topology.probing.fit import Estimate, Fit, fit, median_estimate
from tuccl.topology.probing.pairs import (
    Endpoint,
    all_at_once,
    busy_pairs,
    neighbour_pairs,
    racks,
    used,
)
from tuccl.topology.probing.prober import Load, Pair, Prober
from tuccl.topology.probing.shared import Uplink, groups_behind, slowed_flows, typical, uplinks

PROBES_PER_HOST = 4
_ALIKE = 0.9  # of the fastest of equal hardware: an endpoint below it is probed once more
_WINDOWS = 3

Update = Callable[[int, int, str], None]


class Port(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An endpoint's link into the network: GB/s out and in, and us to the switch.

    ``inferred_from`` is the place of the endpoint whose numbers these are, None where measured.
    """

    out_gbs: Estimate
    in_gbs: Estimate
    latency_us: Estimate
    inferred_from: int | None = None


class NetworkRates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rates and latencies of a network that was probed.

    Attributes:
        endpoints: what was probed.
        ports: of each endpoint.
        groups: endpoints that share nothing narrower than their own links.
        uplinks: of each group, where there are several.
        across_us: latency from one group to another beyond that of the endpoints' links.
        probes: pairs that were probed, alone or at the same time as others.
        method: how, in a few words.
        notes: what could not be determined, for people.
    """

    endpoints: tuple[Endpoint, ...]
    ports: tuple[Port, ...]
    groups: tuple[tuple[int, ...], ...]
    uplinks: tuple[Uplink, ...]
    across_us: Estimate | None
    probes: int
    method: str
    notes: tuple[str, ...] = ()


def probe_network(
    prober: Prober,
    endpoints: Sequence[Endpoint],
    *,
    use: Mapping[frozenset[str], float] | None = None,
    budget: int | None = None,
    update: Update | None = None,
) -> NetworkRates:
    """Return what a network carries, by at most four probes an endpoint.

    Neighbours are timed alone, both ways; those slower than their hardware's best once more with
    another partner; then all send at once. Where flows slow each other, small messages past the
    full queues show who is behind the same part, and the sum of its flows is what it carries.

    Args:
        prober: what runs the probes.
        endpoints: two at least.
        use: bytes by pair of hosts, of earlier jobs; pairs of less than 1 % of the busiest one's
            are not probed (`read_use`).
        budget: pairs probed at most; None is four an endpoint.
        update: called with the progress: probes done, the budget, and what comes next.

    Notes:
        TuCCL III.B: hierarchy-aware sampling and filtering by traffic, then latency by echoes and
        bandwidth by flows. The probes of flows at the same time are this project's own.

    Raises:
        InputError: there are fewer than two endpoints or no probe is allowed.
        TucclError: a probe failed.
    """
    if len(endpoints) < 2:
        raise InputError(f"{len(endpoints)} hosts to probe between; expected two at least")
    probing = _Probing(prober, endpoints, use, budget, update)
    probing.neighbours()
    probing.repeated()
    groups, links = probing.together()
    probing.inside(groups, links)
    across = probing.across(groups)
    return NetworkRates(
        tuple(endpoints),
        probing.ports(groups),
        tuple(tuple(sorted(group)) for group in groups),
        links,
        across,
        probing.probes,
        "; ".join(sorted(probing.methods)),
        tuple(probing.notes),
    )


class _Probing:
    """The probes done so far, and their results."""

    def __init__(
        self,
        prober: Prober,
        endpoints: Sequence[Endpoint],
        use: Mapping[frozenset[str], float] | None,
        budget: int | None,
        update: Update | None,
    ) -> None:
        self._prober = prober
        self._endpoints = endpoints
        self._busy = None if use is None else busy_pairs(use)
        self._budget = PROBES_PER_HOST * len(endpoints) if budget is None else budget
        self._update = update or (lambda *_: None)
        self.probes = 0
        self.methods: set[str] = set()
        self.notes: list[str] = []
        self._fits: dict[Pair, Fit] = {}  # of either direction of the pairs timed alone
        self._idle_us: list[float] = []
        if self._budget < 1:
            raise InputError(f"budget {self._budget}: expected one probe at least")

    def neighbours(self) -> None:
        """Time pairs of neighbours, the first of each rack and hardware before all others."""
        pairs = neighbour_pairs(self._endpoints, self._busy)
        if not pairs:
            raise InputError("no pair of hosts in use; leave out the file of use")
        first: dict[object, Pair] = {}
        for pair in pairs:
            end = self._endpoints[pair[0]]
            first.setdefault((end.rack, end.hardware), pair)
        for pair in sorted(pairs, key=lambda pair: pair not in first.values()):
            self._alone(pair)

    def repeated(self) -> None:
        """Time those slower than the best of their hardware with that one: which of two is slow?"""
        best: dict[str, int] = {}
        for index in sorted(self._timed(), key=self._slower_way, reverse=True):
            best.setdefault(self._endpoints[index].hardware, index)
        for index in sorted(self._timed()):
            reference = best[self._endpoints[index].hardware]
            slow = self._slower_way(index) < _ALIKE * self._slower_way(reference)
            if slow and used(self._endpoints, (index, reference), self._busy):
                self._alone((index, reference))

    def together(self) -> tuple[list[list[int]], tuple[Uplink, ...]]:
        """Return the groups behind shared parts, and what these carry, by flows of all at once."""
        order = list(chain.from_iterable(racks(self._endpoints)))
        for second in (False, True):
            flows = all_at_once(self._endpoints, self._busy, second=second)
            if not flows or not self._spend(len(flows), "all at once"):
                continue
            with self._prober.load(flows) as load:
                windows = [load.rates() for _ in range(_WINDOWS)]
                slowed = slowed_flows(flows, typical(windows), self._rate)
                if not slowed:
                    continue
                groups = self._groups(load, slowed, order, neighbours=not second)
            return groups, uplinks(groups, flows, windows, slowed) if len(groups) > 1 else ()
        return [order], ()

    def _groups(
        self, load: Load, slowed: Sequence[Pair], order: Sequence[int], *, neighbours: bool
    ) -> list[list[int]]:
        """Return who is behind the same shared part; racks, with a note, where none is found."""
        left = self._budget - self.probes
        reason = "the budget is too small"
        if left >= len(order):
            idle_us = median(self._idle_us)
            divided = groups_behind(load, slowed, order, idle_us, left, neighbours=neighbours)
            self._spend(1 if divided is None else divided[1], "queues")
            if divided is not None:
                return divided[0]
            reason = "queues are too short"
        self.notes.append(f"{len(slowed)} flows slow each other, but {reason} to find where")
        return racks(self._endpoints)

    def inside(self, groups: Sequence[Sequence[int]], links: Sequence[Uplink]) -> None:
        """Time the endpoints within their group that were timed only past a part narrower."""
        for group, link in zip(groups, links, strict=False):
            if len(group) == 1:
                continue
            rates = [e.value for e in (link.out_gbs, link.in_gbs) if e is not None]
            inner = [index for index in group if self._partners(index) & set(group)]
            for index in group:
                partner = next((i for i in (*inner, *group) if i != index), None)
                if partner is None or index in inner or not rates:
                    continue
                if (
                    self._slower_way(index) < 1.2 * min(rates)
                    and used(self._endpoints, (index, partner), self._busy)
                    and self._alone((index, partner))
                ):
                    inner += [i for i in (index, partner) if i not in inner]

    def across(self, groups: Sequence[Sequence[int]]) -> Estimate | None:
        """Return the latency in us between groups beyond the endpoints' own, by representatives."""
        first = groups[0][0]
        extra = []
        for group in groups[1:]:
            pairs = [pair for pair in self._fits if pair[0] in groups[0] and pair[1] in group]
            if not pairs and self._alone((first, group[0])):
                pairs = [(first, group[0])]
            extra += [
                self._fits[pair].alpha_us.value - sum(self._near_us(i, groups) for i in pair)
                for pair in pairs[:1]
            ]
        return median_estimate([max(0.0, us) for us in extra]) if extra else None

    def ports(self, groups: Sequence[Sequence[int]]) -> tuple[Port, ...]:
        """Return each endpoint's link, inferred from one of its rack and hardware if not timed."""
        ports = []
        for index in range(len(self._endpoints)):
            model = self._timed_like(index, groups)
            out = max((f.gbs for (src, _), f in self._fits.items() if src == model), key=_value)
            into = max((f.gbs for (_, dst), f in self._fits.items() if dst == model), key=_value)
            alphas = [self._fits[pair].alpha_us for pair in self._inner_pairs(model, groups)]
            alpha = min(alphas, key=_value)
            half = Estimate(alpha.value / 2, alpha.low / 2, alpha.high / 2)
            ports.append(Port(out, into, half, None if model == index else model))
        return tuple(ports)

    def _timed_like(self, index: int, groups: Sequence[Sequence[int]]) -> int:
        """Return the timed endpoint that is most like another: in hardware, group, then rack."""
        end = self._endpoints[index]
        group = next(group for group in groups if index in group)

        def unlike(other: int) -> tuple[bool, ...]:
            peer = self._endpoints[other]
            same = (other == index, peer.hardware == end.hardware, other in group)
            return (*(not part for part in same), peer.rack != end.rack)

        return min(sorted(self._timed()), key=unlike)

    def _alone(self, pair: Pair) -> bool:
        """Time a pair alone if the budget lets it; return whether it did."""
        src, dst = pair
        if pair in self._fits:
            return True
        names = f"{self._endpoints[src].host} to {self._endpoints[dst].host}"
        if not self._spend(1, names):
            return False
        times = self._prober.pair(src, dst)
        if not times.round_trips_us:
            raise InputError(f"{names}: no round trips among the times of this pair")
        trip = {0: [us / 2 for us in times.round_trips_us]}
        for ends, sized in ((pair, times.forth), (pair[::-1], times.back)):
            by_size: dict[int, list[float]] = dict(trip)
            for nbytes, us in sized:
                by_size.setdefault(nbytes, []).append(us)
            self._fits[ends] = fit(by_size)
        self._idle_us.append(min(times.round_trips_us))
        self.methods.add(times.method)
        return True

    def _spend(self, probes: int, what: str) -> bool:
        if self.probes + probes > self._budget:
            return False
        self._update(self.probes, self._budget, what)
        self.probes += probes
        return True

    def _timed(self) -> set[int]:
        return {src for src, _ in self._fits}

    def _partners(self, index: int) -> set[int]:
        return {dst for src, dst in self._fits if src == index}

    def _slower_way(self, index: int) -> float:
        """Return the highest rate in GB/s out of an endpoint or into it, the lower of the two."""
        return self._highest(index, index)

    def _rate(self, flow: Pair) -> float:
        """Return what a flow would get alone over all NICs in GB/s; 0 where that is not known."""
        nics = min(len(self._endpoints[end].addresses) for end in flow)
        return nics * self._highest(*flow)

    def _highest(self, src: int, dst: int) -> float:
        """Return the highest rate in GB/s out of one endpoint or into another, the lower one."""
        out = [f.gbs.value for (begin, _), f in self._fits.items() if begin == src]
        into = [f.gbs.value for (_, end), f in self._fits.items() if end == dst]
        return min(max(out, default=0.0), max(into, default=0.0))

    def _inner_pairs(self, index: int, groups: Sequence[Sequence[int]]) -> list[Pair]:
        """Return the timed pairs of an endpoint within its group; all of them if none are."""
        pairs = [pair for pair in self._fits if pair[0] == index]
        group = next(group for group in groups if index in group)
        return [pair for pair in pairs if pair[1] in group] or pairs

    def _near_us(self, index: int, groups: Sequence[Sequence[int]]) -> float:
        """Return the latency of an endpoint's link: half of that to a peer of its group."""
        if index not in self._timed():
            return 0.0
        pairs = self._inner_pairs(index, groups)
        return min(self._fits[pair].alpha_us.value for pair in pairs) / 2


def _value(estimate: Estimate) -> float:
    return estimate.value
