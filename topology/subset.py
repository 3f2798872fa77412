"""Part of a machine: some of its GPUs, with what still joins them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from tuccl.errors import InputError
from tuccl.topology.graph import Link, Node, Topology, quoted


def keep_gpus(topology: Topology, ranks: Iterable[int]) -> Topology:
    """Return ``topology`` with only the GPUs ``ranks``, numbered anew in the order they are given.

    Hosts without a GPU left go; of the hosts that stay, all NICs stay, and other relays that end
    up with a single neighbour go.

    >>> from tuccl.topology import load_profile
    >>> keep_gpus(load_profile("dgx-a100"), range(4)).ranks
    4

    Raises:
        InputError: no rank, a rank twice, or one that ``topology`` does not have.
    """
    order = list(ranks)
    unknown_rank = next((rank for rank in order if not 0 <= rank < topology.ranks), None)
    if unknown_rank is not None:
        raise InputError(
            f"rank {unknown_rank}: topology {quoted(topology.name)} has ranks 0 to "
            f"{topology.ranks - 1}"
        )
    if not order or len(set(order)) != len(order):
        raise InputError("ranks to keep: expected at least one, each once")
    renumbered = {topology.gpus[rank].id: place for place, rank in enumerate(order)}
    hosts = {topology.host_of(rank) for rank in order}
    # A network switch has no host; GPUs that name none share the host "".
    nodes_by_id = {
        n.id: n
        for n in topology.nodes
        if (n.id in renumbered if n.kind == "gpu" else n.host is None or n.host in hosts)
    }
    links = _pruned(nodes_by_id, topology.links)
    nodes = (
        msgspec.structs.replace(node, rank=renumbered.get(node.id)) for node in nodes_by_id.values()
    )
    routes = (r for r in topology.routes if r.src in renumbered and r.dst in renumbered)
    return msgspec.structs.replace(topology, nodes=tuple(nodes), links=links, routes=tuple(routes))


def _pruned(nodes_by_id: dict[str, Node], links: tuple[Link, ...]) -> tuple[Link, ...]:
    """Drop relays with less than two neighbours from ``nodes_by_id``; return the other links."""
    around: dict[str, set[str]] = defaultdict(set)
    for link in links:
        if link.src in nodes_by_id and link.dst in nodes_by_id:
            around[link.src].add(link.dst)
            around[link.dst].add(link.src)
    ends = [
        i
        for i, node in nodes_by_id.items()
        if node.kind not in ("gpu", "nic") and len(around[i]) < 2
    ]
    while ends:
        leaf = ends.pop()
        del nodes_by_id[leaf]
        for neighbour in around.pop(leaf):
            around[neighbour].discard(leaf)
            relay = nodes_by_id[neighbour].kind not in ("gpu", "nic")
            if relay and len(around[neighbour]) == 1:
                ends.append(neighbour)
    return tuple(link for link in links if link.src in nodes_by_id and link.dst in nodes_by_id)
