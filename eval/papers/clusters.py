"""The clusters of TuCCL's testbed, as profiles of known machines."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tuccl.topology import Topology, join, keep_gpus, load_profile


class Cluster(NamedTuple):
    """So many hosts of a profile, each with so many GPUs; 0: all."""

    profile: str
    hosts: int
    gpus: int = 0


CLUSTERS = {
    "V100 1 host": Cluster("v100x4", 1),
    "V100 2 hosts": Cluster("v100x4", 2),
    "V100 3 hosts": Cluster("v100x4", 3),
    "A100 Single-4": Cluster("a100x8-roce", 1, 4),
    "A100 Single-8": Cluster("a100x8-roce", 1),
    "A100 Dual-8": Cluster("a100x8-roce", 2, 4),
    "A100 Dual-16": Cluster("a100x8-roce", 2),
}
COLLECTIVES = ("allgather", "allreduce")


def clusters_of(family: str) -> list[str]:
    """Return the clusters of V100 or of A100."""
    return [name for name in CLUSTERS if name.startswith(family)]


@cache
def topology_of(name: str) -> Topology:
    """Return the cluster ``name`` of `CLUSTERS`.

    >>> topology_of("A100 Dual-8").ranks
    8
    """
    cluster = CLUSTERS[name]
    host = load_profile(cluster.profile)
    if cluster.gpus:
        host = keep_gpus(host, range(cluster.gpus))
    return join(host, cluster.hosts) if cluster.hosts > 1 else host
