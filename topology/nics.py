"""NICs that GPUs send through."""

from __future__ import annotations

import math
from collections import Counter

from tuccl.topology.graph import Topology
from tuccl.topology.paths import relay_path

__all__ = ["bound_nics", "nearest_nics"]


def nearest_nics(topology: Topology, rank: int) -> tuple[str, ...]:
    """Return the ids of the NICs of the rank's host that it reaches best, in the file's order.

    Best is the widest path (the NIC's own port included), then the one of fewest hops: the rule of
    `path`. There are several where they tie.

    >>> from tuccl.topology import load_profile
    >>> nearest_nics(load_profile("ndv4"), 0)
    ('nic0', 'nic1')
    """
    gpu = topology.gpus[rank]
    keys: dict[str, tuple[float, int]] = {}
    for nic in topology.nics_of(topology.host_of(rank)):
        path = relay_path(topology, gpu.id, nic)
        if path is not None:
            width = min(path.bandwidth, topology.node(nic).port_gbs or math.inf)
            keys[nic] = (-width, len(path.hops))
    nearest = min(keys.values(), default=None)
    return tuple(nic for nic, key in keys.items() if key == nearest)


def bound_nics(topology: Topology) -> dict[int, str]:
    """Return one of its nearest NICs for each rank, so that ties spread over the NICs evenly.

    Ranks of hosts without a NIC are left out.

    >>> from tuccl.topology import load_profile
    >>> bound_nics(load_profile("ndv4"))[1]
    'nic1'
    """
    gpus_per_nic: Counter[str] = Counter()
    nic_of = {}
    for rank in range(topology.ranks):
        nearest = nearest_nics(topology, rank)
        if nearest:
            nic_of[rank] = min(nearest, key=lambda nic: gpus_per_nic[nic])
            gpus_per_nic[nic_of[rank]] += 1
    return nic_of
