"""Machines, sizes and versions of which the tests of NCCL's own choice ask."""

from __future__ import annotations

from tuccl.runtime.nccl.versions import nccl_versions
from tuccl.topology import PROFILES, Topology, join, load_profile

SIZES = [1 << n for n in range(6, 33)]
RINGS = ["allreduce", "allgather", "reduce-scatter", "broadcast", "reduce"]
MACHINES = [(name, hosts) for name in PROFILES for hosts in (1, 2, 4)]
MODELLED = [v for v in nccl_versions() if v != "2.4"]


def machine(name: str, hosts: int) -> Topology:
    node = load_profile(name)
    return join(node, hosts) if hosts > 1 else node
