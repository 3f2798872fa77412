"""Chains of messages that wait for each other: of a schedule, and the fewest that are needed."""

from __future__ import annotations

from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import topology_network
from tuccl.synth.model.schedule import Schedule
from tuccl.topology import Topology
from tuccl.topology.paths import joined_pairs


def hop_bound(topology: Topology, collective: Collective) -> int:
    """Return the fewest messages in a row that trees for `collective` need; relays are free.

    Notes:
        Without a root: the largest distance between two ranks; for an allreduce the least over
        all roots of the distance to the root and back. With one: the farthest rank's distance.

    >>> from tuccl.topology import load_profile
    >>> hop_bound(load_profile("v100x4"), Collective("allgather", 4))
    1
    """
    if joined_pairs(topology) == topology.ranks * (topology.ranks - 1):
        return 2 if collective.name == "allreduce" else 1
    network = topology_network(topology)
    ranks = range(network.ranks)
    if collective.name == "allreduce":
        return min(max(network.hops_from(r)) + max(network.reverse.hops_from(r)) for r in ranks)
    if collective.rooted:
        outwards = network if collective.name in ("broadcast", "scatter") else network.reverse
        return max(outwards.hops_from(collective.root))
    return max(max(network.hops_from(rank)) for rank in ranks)


def fewest_hops(topology: Topology, collective: Collective) -> int:
    """Return the fewest messages in a row of any program for `collective`.

    That is `hop_bound`, but for allreduce: there every rank may sum for itself what all have sent,
    which takes as many as an allgather does.
    """
    if collective.name == "allreduce":
        return hop_bound(topology, Collective("allgather", collective.ranks))
    return hop_bound(topology, collective)


def longest_chain(schedule: Schedule) -> int:
    """Return the most messages of `schedule` of which each carries what the one before brought."""
    return schedule.native.longest_chain
