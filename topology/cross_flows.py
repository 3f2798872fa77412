"""The flows of cross traffic, drawn from its seed: one list for the emulator and the simulator."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator
from random import Random

import msgspec

from tuccl.errors import InputError
from tuccl.topology.cross_traffic import (
    WEB_CDF,
    WEB_MEAN,
    WEB_PACKET,
    CrossTraffic,
    Source,
    offered_gbs,
)
from tuccl.topology.graph import Topology

_MOST_FLOWS = 1 << 20
_BURST_PART = 0.1  # of a period, which 3/10 of its bytes are sent in
_BURST_BYTES = 0.3
_LEAST_FLOWS = 8  # of the rest of a period


class Flow(msgspec.Struct, frozen=True):
    """One flow of cross traffic.

    Attributes:
        start_us: when it begins.
        src: the NIC or switch that it comes from.
        dst: the NIC or switch that it goes to.
        nbytes: its size; infinite where it does not end.
        cap_gbs: what it is paced to in GB/s, infinite where it is not.
        source: the index of its source.
    """

    start_us: float
    src: str
    dst: str
    nbytes: float
    cap_gbs: float
    source: int


def flows(cross: CrossTraffic, topology: Topology, seconds: float) -> tuple[Flow, ...]:
    """Return the flows that begin in the first ``seconds``, by time; a longer list begins alike.

    Sources of kind ``rate`` have none.

    Raises:
        InputError: an end is none of the topology, or there are more than a million flows.

    >>> from tuccl.topology import join, load_profile
    >>> from tuccl.topology.cross_traffic import CrossTraffic, Source
    >>> two = Source("n0/nic0", "leaf0", "long", load=0.8, streams=2)
    >>> [f.cap_gbs for f in flows(CrossTraffic((two,)), join(load_profile("ndv2"), 2), 1.0)]
    [5.0, 5.0]
    """
    drawn: list[Flow] = []
    for index, source in enumerate(cross.sources):
        gbs = offered_gbs(topology, source)
        random = Random(f"{cross.seed}/{index}")
        last_us = (seconds - source.start_s) * 1e6
        for start_us, origin, nbytes, cap_gbs in _KINDS[source.kind](source, gbs, random, last_us):
            if start_us < last_us:
                start = source.start_s * 1e6 + start_us
                drawn.append(Flow(start, origin, source.to, nbytes, cap_gbs, index))
            if len(drawn) > _MOST_FLOWS:
                raise InputError(
                    f"$.sources[{index}]: over {_MOST_FLOWS} flows in {seconds:g} s; lower its "
                    "rate or enlarge its flows"
                )
    return tuple(sorted(drawn, key=lambda flow: (flow.start_us, flow.source)))


_Drawn = Iterator[tuple[float, str, float, float]]


def _long(source: Source, gbs: float, _: Random, last_us: float) -> _Drawn:
    for _stream in range(source.streams if last_us > 0 else 0):
        yield 0.0, source.origins[0], math.inf, gbs / source.streams


def _web(source: Source, gbs: float, random: Random, last_us: float) -> _Drawn:
    mean_us = source.mean_bytes / (gbs * 1e3)
    at_us = _gap(source, random, mean_us)
    while at_us < last_us:
        yield at_us, source.origins[0], _web_bytes(source, random), math.inf
        at_us += _gap(source, random, mean_us)


def _gap(source: Source, random: Random, mean_us: float) -> float:
    if source.gaps == "exponential":
        return random.expovariate(1 / mean_us)
    # A Poisson number as large as these is as good as normal.
    return max(1.0, round(random.gauss(mean_us, math.sqrt(mean_us))))


def _web_bytes(source: Source, random: Random) -> float:
    packets = WEB_CDF[bisect.bisect_left(_WEB_PARTS, random.random())][0]
    return max(1.0, round(packets * WEB_PACKET * (source.mean_bytes / WEB_MEAN)))


_WEB_PARTS = [part for _, part in WEB_CDF]


def _burst(source: Source, gbs: float, random: Random, last_us: float) -> _Drawn:
    """Yield per period two flows in its first tenth with 3/10 of its bytes, and the rest after it.

    The two split the burst at N(0.5, 0.08), the second begins 300 us and an exponential 200 us
    after the first where a period is 10 ms; the rest are web flows scaled to fit, at least eight.
    """
    period_us, nbytes = source.period_us, gbs * 1e3 * source.period_us
    rest = (1 - _BURST_BYTES) * nbytes
    count = min(max(_LEAST_FLOWS, round(rest / source.mean_bytes)), _MOST_FLOWS)
    at_us, origin = 0.0, source.origins[0]
    while at_us < last_us:
        split = min(0.9, max(0.1, random.gauss(0.5, 0.08)))
        second_us = (300 + random.expovariate(1 / 200)) * period_us / 10_000
        burst_us = _BURST_PART * period_us
        yield at_us, origin, _BURST_BYTES * nbytes * split, math.inf
        yield (
            at_us + min(second_us, burst_us),
            origin,
            _BURST_BYTES * nbytes * (1 - split),
            math.inf,
        )
        starts = sorted(random.uniform(burst_us, period_us) for _ in range(count))
        sizes = [_web_bytes(source, random) for _ in range(count)]
        for start_us, size in zip(starts, sizes, strict=True):
            yield at_us + start_us, origin, size * rest / sum(sizes), math.inf
        at_us += period_us


def _incast(source: Source, gbs: float, random: Random, last_us: float) -> _Drawn:
    mean_us = len(source.origins) * source.nbytes / (gbs * 1e3)
    at_us = random.expovariate(1 / mean_us)
    while at_us < last_us:
        for origin in source.origins:
            yield at_us, origin, source.nbytes, math.inf
        at_us += random.expovariate(1 / mean_us)


def _rate(source: Source, gbs: float, random: Random, last_us: float) -> _Drawn:
    yield from ()


def _trace(source: Source, gbs: float, random: Random, last_us: float) -> _Drawn:
    for at_us, nbytes in source.flows:
        yield at_us, source.origins[0], nbytes, math.inf


_KINDS: dict[str, Callable[[Source, float, Random, float], _Drawn]] = {
    "long": _long,
    "web": _web,
    "burst": _burst,
    "incast": _incast,
    "rate": _rate,
    "trace": _trace,
}
