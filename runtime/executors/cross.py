"""Cross traffic as the simulator takes it: what is left of each link, and others' flows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from tuccl.simulation import Network, OutsideTraffic, Resource
from tuccl.topology import CrossTraffic, Topology, flows, residual
from tuccl.topology.cross_traffic import Source, network_hops, offered_gbs
from tuccl.topology.relays import merged_hops

_SETTLED_FLOWS = 64  # of a source before a call: the links' queues have forgotten their start
_SETTLED_PERIODS = 8


class CrossRuns:
    """The conditions that calls are simulated under: cross traffic at many moments.

    A moment has the rates of one entry of the schedules and flows of its own seed. Calls of any
    program meet the same moments, so that their times compare.
    """

    def __init__(
        self,
        topology: Topology,
        shared: Network,
        cross: CrossTraffic,
        connection_a_pair: bool = False,
    ) -> None:
        """Prepare ``cross`` on the network ``shared`` of ``topology``.

        With ``connection_a_pair`` all channels of two ranks share a connection, and its part.
        """
        self._connection_a_pair = connection_a_pair
        self._topology = topology
        self._cross = cross
        self._hops = {
            (source.to, origin): network_hops(topology, origin, source.to)
            for source in cross.sources
            for origin in source.origins
        }
        self.networks = [self._loaded(shared, at_s) for at_s in cross.changes_s]
        names = [resource.name for resource in self.networks[0].resources]
        self._number = {name: number for number, name in enumerate(names)}
        with_flows = [source for source in cross.sources if source.kind != "rate"]
        self._is_random = any(source.kind != "long" for source in with_flows)
        self._begin_us = 1e6 * max((source.start_s for source in with_flows), default=0.0)
        self._settle_us = max((self._settling_us(source) for source in with_flows), default=0.0)
        self._drawn: dict[tuple[int, float], OutsideTraffic] = {}

    def __getstate__(self) -> dict[str, object]:
        """Return all but the drawn flows, which other processes draw alike."""
        return {**self.__dict__, "_drawn": {}}

    @property
    def label(self) -> str:
        """The cross traffic in a phrase."""
        return self._cross.label

    def moments(self, most: int) -> Iterator[tuple[int, Network]]:
        """Yield the number of each moment and its links: ``most``, or one an entry of schedules."""
        count = max(most, len(self.networks)) if self._is_random else len(self.networks)
        return zip(range(count), itertools.cycle(self.networks), strict=False)

    def outside(self, moment: int, call_us: float) -> tuple[OutsideTraffic | None, float]:
        """Return the flows around a call at ``moment``, and how long a call they are drawn for.

        That is ``call_us`` or longer.
        """
        if self._cross.only_rates:
            return None, math.inf
        span_us = max(self._settle_us, 1.0)
        span_us *= 2 ** math.ceil(math.log2(max(call_us / span_us, 1.0)))
        if (moment, span_us) not in self._drawn:
            self._drawn[moment, span_us] = self._draw(moment, span_us)
        return self._drawn[moment, span_us], span_us if self._is_random else math.inf

    def _draw(self, moment: int, span_us: float) -> OutsideTraffic:
        seed = (self._cross.seed << 20) + moment
        phase_us = Random(f"{seed}/call").random() * self._settle_us
        call_us = self._begin_us + self._settle_us + phase_us
        others = replace(self._cross, seed=seed)
        paths: dict[tuple[str, str, float], int] = {}
        drawn = [
            (f.start_us, f.nbytes, paths.setdefault((f.src, f.dst, f.cap_gbs), len(paths)))
            for f in flows(others, self._topology, (call_us + span_us) / 1e6)
        ]
        ways = [
            ([self._number[f"{hop.src}>{hop.dst}"] for hop in self._hops[dst, src]], cap_gbs)
            for src, dst, cap_gbs in paths
        ]
        return OutsideTraffic(ways, drawn, call_us, self._connection_a_pair)

    def _settling_us(self, source: Source) -> float:
        """Return after how long the traffic of ``source`` is what it always is."""
        if source.kind == "long":
            return 0.0
        if source.kind == "burst":
            return _SETTLED_PERIODS * source.period_us
        if source.kind == "trace":
            return source.flows[-1][0] / 2 if source.flows else 0.0
        nbytes = source.mean_bytes if source.kind == "web" else source.nbytes
        flow_us = nbytes * len(source.origins) / (offered_gbs(self._topology, source) * 1e3)
        return _SETTLED_FLOWS * flow_us

    def _loaded(self, shared: Network, at_s: float) -> Network:
        """Return ``shared`` with what sources of rates and the efficiency beside others leave."""
        rates = tuple(source for source in self._cross.sources if source.kind == "rate")
        left = residual(self._topology, CrossTraffic(rates), at_s)
        hops = merged_hops(tuple(link for link in left.links if link.kind == "network"))
        efficiency: dict[str, float] = {}
        for source in self._cross.sources:
            for origin in source.origins:
                for hop in self._hops[source.to, origin]:
                    name = f"{hop.src}>{hop.dst}"
                    efficiency[name] = min(efficiency.get(name, 1.0), source.link_efficiency)
        nominal = {f"{hop.src}>{hop.dst}": hop for path in self._hops.values() for hop in path}

        def loaded(name: str) -> Resource:
            hop = nominal[name]
            left_gbs = hops[hop.src, hop.dst].bandwidth
            lost_gbs = (1 - efficiency[name]) * hop.bandwidth
            return Resource(name, "network", max(left_gbs - lost_gbs, 0.01 * hop.bandwidth))

        resources = [loaded(r.name) if r.name in nominal else r for r in shared.resources]
        others = nominal.keys() - {r.name for r in shared.resources}
        return Network(
            shared.ranks, [*resources, *(loaded(name) for name in sorted(others))], shared.routes
        )
