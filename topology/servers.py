"""Servers: what one operating system holds of a host, which in an NVLink domain is a tray."""

from __future__ import annotations

from tuccl.topology.graph import Topology

_LINKS = ("pcie", "cpu", "c2c")


def servers(topology: Topology, host: str) -> tuple[frozenset[str], ...]:
    """Return the ids of the nodes of each server of ``host``, those of the first rank first.

    A server is what PCIe and CPUs join. A host whose GPUs have no known CPU is one.

    >>> from tuccl.topology import load_profile
    >>> len(servers(load_profile("gb200-nvl72"), "n0")), len(servers(load_profile("dgx-2"), "n0"))
    (18, 1)
    """
    kinds = {node.id: node.kind for node in topology.nodes if (node.host or "") == host}
    around = topology.derived(_tree)
    groups: list[frozenset[str]] = []
    seen: set[str] = set()
    for rank in topology.gpus_of(host):
        queue = [topology.gpus[rank].id]
        if queue[0] in seen:
            continue
        seen.update(queue)
        for node in queue:
            fresh = [n for n in around.get(node, {}) if n in kinds and n not in seen]
            seen.update(fresh)
            queue += fresh
        if not any(kinds[node] == "cpu" for node in queue):
            return (frozenset(kinds),)
        groups.append(frozenset(queue))
    return tuple(groups)


def _tree(topology: Topology) -> dict[str, dict[str, None]]:
    """Return the neighbours of each node over PCIe, C2C and between CPUs, in the file's order."""
    around: dict[str, dict[str, None]] = {}
    for link in topology.links:
        if link.kind in _LINKS:
            around.setdefault(link.src, {})[link.dst] = None
            around.setdefault(link.dst, {})[link.src] = None
    return around


def process_gpus(topology: Topology) -> int:
    """Return the most GPUs that one process can drive: those of a server.

    >>> from tuccl.topology import load_profile
    >>> process_gpus(load_profile("gb200-nvl72")), process_gpus(load_profile("torus-2x2"))
    (4, 4)
    """
    gpus = {gpu.id for gpu in topology.gpus}
    return max(len(s & gpus) for host in topology.hosts for s in servers(topology, host))
