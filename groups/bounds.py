"""Bounds on groups that call at once, whatever programs they run."""

from __future__ import annotations

from collections.abc import Iterator

from tuccl.groups.layout import Groups
from tuccl.synth import Collective, bound
from tuccl.topology import Topology, keep_gpus


def joint_bound_us(topology: Topology, groups: Groups, collective: str, nbytes: int) -> float:
    """Return the us that no programs beat where all groups call at once.

    The greatest of three: what a group alone needs on an empty machine; for each cut of the machine
    what all groups must send over it, over its rate; and of an allreduce what hosts send in all,
    over the sum of their rates. Cuts are GPUs, hosts, and switches with the hosts that have no
    other. Of collectives with a root only the first counts.

    Notes:
        Each value of an array goes between hosts 2(h - 1) times if its group is on h of them: h - 1
        times to be reduced, and as often with the result (Patarasuk and Yuan, JPDC 2009).
    """
    alone = max(
        bound(part, Collective(collective, part.ranks)).time_us(nbytes)
        for part in {keep_gpus(topology, group): None for group in groups}
    )
    crossing = max(
        (
            sum(_sent(collective, set(group), inside, nbytes) for group in groups) / (gbs * 1e3)
            for inside, gbs in _cuts(topology)
            if gbs > 0
        ),
        default=0.0,
    )
    return max(alone, crossing, _between_hosts_us(topology, groups, nbytes, collective))


def _between_hosts_us(topology: Topology, groups: Groups, nbytes: int, collective: str) -> float:
    if collective != "allreduce":
        return 0.0
    hosts = [{topology.host_of(rank) for rank in group} for group in groups]
    nodes = ({n.id for n in topology.nodes if n.host == name} for name in set().union(*hosts))
    gbs = sum(_rate_gbs(topology, each) for each in nodes)
    sent = sum(2 * (len(each) - 1) * nbytes for each in hosts)
    return sent / (gbs * 1e3) if sent and gbs else 0.0


def _sent(collective: str, members: set[int], inside: set[int], nbytes: int) -> float:
    """Bytes that must leave ``inside`` for a call of ``members``."""
    within = len(members & inside)
    outside = len(members) - within
    if not within or not outside:
        return 0.0
    part = nbytes / len(members)
    return {
        "allgather": within * part,
        "reduce-scatter": outside * part,
        "alltoall": within * outside * part,
        "allreduce": float(nbytes),
    }.get(collective, 0.0)


def _cuts(topology: Topology) -> Iterator[tuple[set[int], float]]:
    """Sets of ranks, and the GB/s of the links out of a set of nodes that has no other ranks.

    Each set of nodes is followed by all others: what they must send goes into it.
    """
    hosts = {name: {n.id for n in topology.nodes if n.host == name} for name in topology.hosts}
    around: dict[str, set[str]] = {node.id: set() for node in topology.nodes}
    for link in topology.links:
        for src, dst in link.directions():
            around[src].add(dst)
            around[dst].add(src)
    sets = [{gpu.id} for gpu in topology.gpus] + list(hosts.values())
    for switch in (node.id for node in topology.nodes if node.kind == "switch"):
        below = {switch}
        for nodes in hosts.values():
            beyond = set().union(*(around[node] for node in nodes)) - nodes
            if beyond == {switch}:
                below |= nodes
        sets.append(below)
    rank_of = {gpu.id: rank for rank, gpu in enumerate(topology.gpus)}
    for nodes in sets:
        inside = {rank_of[node] for node in nodes if node in rank_of}
        yield inside, _rate_gbs(topology, nodes)
        yield set(rank_of.values()) - inside, _rate_gbs(topology, nodes, inward=True)


def _rate_gbs(topology: Topology, nodes: set[str], *, inward: bool = False) -> float:
    """GB/s of the links out of ``nodes``, or into them."""
    port_gbs = {node.id: node.port_gbs or float("inf") for node in topology.nodes}
    return sum(
        min(link.bandwidth, port_gbs[src], port_gbs[dst])
        for link in topology.links
        for src, dst in link.directions()
        if (src in nodes, dst in nodes) == (not inward, inward)
    )
