"""Rates of pairs of GPUs, put on the links that held them up."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tuccl.errors import InputError
from tuccl.topology.graph import Link, Topology
from tuccl.topology.paths import path
from tuccl.topology.probing.fit import Estimate, Fit
from tuccl.topology.probing.prober import Pair


def with_peer_rates(topology: Topology, fits: Mapping[Pair, Fit], method: str) -> Topology:
    """Return ``topology`` with ``measured`` on the links that pairs of ranks were timed over.

    A link's rate is the highest of the pairs whose path is nowhere narrower, since none of them can
    be faster than it; parallel links share it by their nominal rates. ``bandwidth`` stays nominal:
    the simulator's classes say what software reaches of it.

    Args:
        topology: the machine.
        fits: by (sending rank, receiving rank).
        method: how they were measured, for the links' source.

    Raises:
        InputError: a rank is not in the topology.
    """
    highest: dict[tuple[str, str], Estimate] = {}
    for (src, dst), timed in fits.items():
        hops = path(topology, src, dst).hops
        narrowest = min(hop.bandwidth for hop in hops)
        for hop in hops:
            before = highest.get((hop.src, hop.dst))
            if hop.bandwidth == narrowest and (before is None or before.value < timed.gbs.value):
                highest[hop.src, hop.dst] = timed.gbs
    if not fits:
        raise InputError("no pair of GPUs was timed")
    total: dict[tuple[str, str], float] = {}
    for link in topology.links:
        for ends in link.directions():
            total[ends] = total.get(ends, 0.0) + link.bandwidth

    def measured(link: Link) -> Link:
        estimates = [highest[ends] for ends in link.directions() if ends in highest]
        if not estimates:
            return link
        slower = min(estimates, key=lambda estimate: estimate.value)
        share = link.bandwidth / total[link.directions()[0]]
        source = f"{link.source}; measured: {method}" if link.source else f"measured: {method}"
        return msgspec.structs.replace(
            link, measured=slower.value * share, spread_gbs=slower.spread * share, source=source
        )

    return msgspec.structs.replace(topology, links=tuple(measured(link) for link in topology.links))
