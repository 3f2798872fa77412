"""RCCL's own choice of protocol between hosts of MI300X: by size, not by predicted time.

Sizes are of tuning_model_5 in src/graph/tuning.cc, the rule is rcclUpdateCollectiveProtocol in
src/rccl_wrap.cc (ROCm/rocm-systems, projects/rccl, commit 03a89144).
"""

from __future__ import annotations

from tuccl.runtime.nccl.constants import Protocol
from tuccl.topology import Topology, machine_of

# The bytes of the array, or of a rank's part, up to which it is LL, and then LL128: where LL128 is
# not allowed below some size LL runs up to that.
_MOST_BYTES: dict[str, tuple[int, int]] = {
    "allreduce": (524288, 4415057),
    "allgather": (98304, 5046272),
    "reduce-scatter": (131072, 3211264),
    "broadcast": (8192, 33554432),
    "reduce": (4096, 16777216),
}
_OF_PARTS = frozenset({"allgather", "reduce-scatter", "broadcast"})
_MANY_HOSTS_LL128 = 3.8  # times as many bytes of an allreduce on more than two hosts


def rccl_protocol(topology: Topology, collective: str, nbytes: int) -> Protocol | None:
    """Return the protocol that RCCL takes for an array of ``nbytes``, None where NCCL's rule holds.

    >>> from tuccl.topology import join, load_profile
    >>> hosts = join(load_profile("mi300x"), 2)
    >>> [rccl_protocol(hosts, "allreduce", n << 20) for n in (1, 16)]
    ['LL128', 'Simple']
    """
    hosts = len(topology.hosts)
    if hosts < 2 or collective not in _MOST_BYTES or machine_of(topology).name != "mi300x":
        return None
    ll, ll128 = _MOST_BYTES[collective]
    size = nbytes / topology.ranks if collective in _OF_PARTS else nbytes
    if size <= ll:
        return "LL"
    factor = _MANY_HOSTS_LL128 if collective == "allreduce" and hosts > 2 else 1.0
    return "LL128" if size <= factor * ll128 else "Simple"
