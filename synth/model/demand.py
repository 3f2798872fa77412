"""Demands of a collective: who has each chunk at first, and who must have it at last."""

from __future__ import annotations

from dataclasses import dataclass

from tuccl.synth.model.collective import Collective
from tuccl.topology.symmetry import RankSets


@dataclass(frozen=True)
class Demand:
    """A chunk that `source` has (precondition) and all `targets` must get (postcondition)."""

    source: int
    targets: frozenset[int]

    @property
    def rank_sets(self) -> RankSets:
        """Return the source and the targets, as symmetries take them along."""
        return None, frozenset({self.source}), self.targets


def demands_of(collective: Collective, chunks_per_rank: int) -> list[Demand]:
    """Return the demand of each chunk, by its number.

    Reductions are planned as what they are backwards in time: reduce-scatter and allreduce as
    an allgather, reduce as a broadcast.

    >>> demands_of(Collective("scatter", 2), 1)
    [Demand(source=0, targets=frozenset()), Demand(source=0, targets=frozenset({1}))]
    """
    ranks, root = range(collective.ranks), collective.root
    everyone = frozenset(ranks)
    if collective.name in ("broadcast", "reduce"):
        ends = [(root, everyone) for _ in ranks]
    elif collective.name == "scatter":
        ends = [(root, frozenset({rank})) for rank in ranks]
    elif collective.name == "gather":
        ends = [(rank, frozenset({root})) for rank in ranks]
    elif collective.name == "alltoall":
        ends = [(src, frozenset({dst})) for src in ranks for dst in ranks]
    elif collective.groups is not None:
        ends = [(rank, frozenset(collective.members(rank))) for rank in ranks]
    else:
        ends = [(rank, everyone) for rank in ranks]
    return [
        Demand(source, targets - {source})
        for source, targets in ends
        for _ in range(chunks_per_rank)
    ]
