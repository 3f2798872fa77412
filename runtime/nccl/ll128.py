"""NCCL's rule for LL128: the links on which it keeps data whole."""

from __future__ import annotations

from collections.abc import Iterable

from tuccl.runtime.nccl.graph import nccl_graph
from tuccl.topology import Path, Topology, path

_CAPABILITIES = (70, 80, 90, 100, 120)


def ll128_is_safe(topology: Topology, pairs: Iterable[tuple[int, int]]) -> bool:
    """Return whether LL128 keeps data whole between all ``pairs`` of (sender, receiver) ranks.

    Notes:
        NCCL's rule (src/graph/tuning.cc): LL128 relies on 128-byte stores arriving whole, which
        holds over NVLink, and through a NIC where no CPU stands between it and the GPUs, on
        GPUs of compute capability 7.0, 8.0, 9.0 and, since NCCL 2.25, 10.0 and 12.0. Elsewhere it
        may corrupt data, so it is never tried.
    """
    capable = nccl_graph(topology).capability in _CAPABILITIES
    return capable and topology.derived(_WholeLines).between(pairs)


class _WholeLines:
    """The pairs of ranks whose paths are known to keep the lines of LL128 whole."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._pairs: set[tuple[int, int]] = set()

    def between(self, pairs: Iterable[tuple[int, int]]) -> bool:
        """Return whether all ``pairs`` are such."""
        fresh = set(pairs) - self._pairs
        topology = self._topology
        if not all(_keeps_lines_whole(topology, path(topology, *pair)) for pair in fresh):
            return False
        self._pairs |= fresh
        return True


def _keeps_lines_whole(topology: Topology, way: Path) -> bool:
    if way.crosses_network:
        return all(topology.node(hop.src).kind != "cpu" for hop in way.hops)
    return all(hop.kind in ("nvlink", "c2c") for hop in way.hops)
