"""Parts of an emulated cluster that cross traffic needs: hosts outside the job, control links."""

from __future__ import annotations

import msgspec

from tuccl.emulation.cluster import EmulatedCluster, emulated_cluster
from tuccl.errors import InputError
from tuccl.topology import CrossTraffic, Topology
from tuccl.topology.cross_traffic import network_hops

_MOST_CONTROL_LINKS = 250

# Of a link's rate: the fits of benchmarks/cross_traffic.py find nothing unused.
_EFFICIENCY = 1.0


def with_cross(
    topology: Topology, scale: float | None, cross: CrossTraffic | None
) -> EmulatedCluster:
    """Return the emulated cluster with the hosts and control links that ``cross`` needs.

    Raises:
        InputError: what `emulated_cluster` raises, or an end of the traffic is none of the network.
    """
    if cross is None:
        return emulated_cluster(topology, scale)
    cluster = emulated_cluster(topology, scale, outside_ends(topology, cross))
    ports = {(port.src, port.dst): port for port in cluster.ports}
    links = dict.fromkeys(narrowest_link(topology, *pair) for pair in _pairs(cross))
    if len(links) > _MOST_CONTROL_LINKS:
        raise InputError(
            f"cross traffic fills {len(links)} links; {_MOST_CONTROL_LINKS} at most can be"
        )
    control = tuple(
        msgspec.structs.replace(ports[link], device=f"control{n}") for n, link in enumerate(links)
    )
    return msgspec.structs.replace(cluster, control=control)


def outside_ends(topology: Topology, cross: CrossTraffic) -> tuple[str, ...]:
    """Return the switches that flows of ``cross`` start or end at, each once."""
    ends = dict.fromkeys(end for pair in _pairs(cross) for end in pair)
    return tuple(end for end in ends if topology.node(end).kind == "switch")


def narrowest_link(topology: Topology, src: str, dst: str) -> tuple[str, str]:
    """Return the ends of the narrowest link from ``src`` to ``dst``, of several the first."""
    hop = min(network_hops(topology, src, dst), key=lambda hop: hop.bandwidth)
    return hop.src, hop.dst


def as_emulated(cross: CrossTraffic, cluster: EmulatedCluster) -> CrossTraffic:
    """Return ``cross`` with its rates in GB/s scaled as the cluster's links are.

    Where a source has no efficiency, it has that of Linux's token buckets.
    """
    sources = (
        msgspec.structs.replace(
            source,
            gbs=None if source.gbs is None else source.gbs * cluster.scale,
            efficiency=_EFFICIENCY
            if source.efficiency is None and source.kind != "rate"
            else source.efficiency,
        )
        for source in cross.sources
    )
    return msgspec.structs.replace(cross, sources=tuple(sources))


def with_bytes_scaled(cross: CrossTraffic, factor: float) -> CrossTraffic:
    """Return ``cross`` with flows of so many times the bytes, for jobs whose bytes are scaled."""
    sources = (
        msgspec.structs.replace(
            source,
            nbytes=max(round(source.nbytes * factor), 1),
            mean_bytes=source.mean_bytes * factor,
            flows=tuple((at_us, max(round(size * factor), 1)) for at_us, size in source.flows),
        )
        for source in cross.sources
    )
    return msgspec.structs.replace(cross, sources=tuple(sources))


def _pairs(cross: CrossTraffic) -> list[tuple[str, str]]:
    """Return the ends of all flows; traffic of kind ``rate`` has none."""
    return [
        (origin, source.to)
        for source in cross.sources
        if source.kind != "rate"
        for origin in source.origins
    ]
