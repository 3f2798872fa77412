"""Instances of k-synchronous synthesis (SCCL): demands, a network, steps and rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from tuccl.synth.model.demand import Demand
from tuccl.synth.model.network import Network
from tuccl.topology.symmetry import LinkGraph, Symmetry, free_symmetry, rotation


@dataclass(frozen=True)
class Instance:
    """Demands to be met over a network, step by step, each step some rounds long.

    In a round a resource of rate `unit` carries one chunk, another rate / `unit` of them; a step of
    r rounds carries as many whole chunks as r rounds do. What a rank receives in a step it may
    pass on from the next on: SCCL's k-synchronous schedules.

    Attributes:
        network: The pairs, and resources that they share.
        demands: Of each chunk.
        unit: The rate, in GB/s, that carries one chunk a round.
    """

    network: Network
    demands: tuple[Demand, ...]
    unit: Fraction

    @cached_property
    def distances(self) -> dict[int, dict[int, int]]:
        """Return the fewest messages in a row from each rank to each that it can reach."""
        import networkx

        graph = networkx.DiGraph(self.network.pairs)
        graph.add_nodes_from(range(self.network.ranks))
        return dict(networkx.all_pairs_shortest_path_length(graph))

    @cached_property
    def fewest_steps(self) -> int | None:
        """Return the steps that the farthest target needs; None where one is out of reach."""
        reach = [
            self.distances[each.source].get(to, -1) for each in self.demands for to in each.targets
        ]
        return None if min(reach, default=0) < 0 else max(reach, default=0)

    @cached_property
    def least_rounds(self) -> Fraction:
        """Return the rounds that some cut alone takes: a cut around one rank.

        What enters a rank, or leaves the only rank that has it, passes the resources next to it.
        """
        lacking = [0] * self.network.ranks
        owned = [0] * self.network.ranks
        for demand in self.demands:
            owned[demand.source] += bool(demand.targets)
            for rank in demand.targets:
                lacking[rank] += 1
        rates_in, rates_out = self._rates(1), self._rates(0)
        loads = (*zip(lacking, rates_in, strict=True), *zip(owned, rates_out, strict=True))
        return max((count * self.unit / rate for count, rate in loads if count), default=Fraction())

    @cached_property
    def enough_rounds(self) -> int:
        """Return rounds that are enough for any routes of the chunks, all in one step."""
        users = [0] * len(self.network.rates)
        for route in self.network.routes:
            for resource in route:
                users[resource] += len(self.demands)
        loads = zip(users, self.network.rates, strict=True)
        most = max((count * self.unit / rate for count, rate in loads), default=Fraction())
        return math.ceil(most) + (self.fewest_steps or 0)

    def _rates(self, end: int) -> list[Fraction]:
        """Return the GB/s that can leave (0) or enter (1) each rank, by its nearest resources."""
        near: list[dict[int, Fraction]] = [{} for _ in range(self.network.ranks)]
        for pair, route in zip(self.network.pairs, self.network.routes, strict=True):
            resource = route[-end]
            near[pair[end]][resource] = self.network.rates[resource]
        return [sum(rates.values(), Fraction(0)) for rates in near]


def instance_symmetry(instance: Instance) -> Symmetry:
    """Return a group of rotations of ranks under which `instance` stays as it is."""
    network = instance.network
    graph = LinkGraph(
        network.ranks,
        ends=network.pairs,
        costs=[tuple(network.rates[hop] for hop in route) for route in network.routes],
        resources=network.routes,
        sets=[demand.rank_sets for demand in instance.demands],
    )
    # Of all ranks, then of blocks of them, the finest of each size first.
    rotations = (
        rotation(network.ranks, offset, size)
        for size in range(network.ranks, 1, -1)
        for offset in range(1, size)
        if network.ranks % size == size % offset == 0
    )
    return free_symmetry(graph, rotations)
