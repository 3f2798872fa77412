"""The problem that a greedy plan solves: who has and needs which chunks, over which routes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from tuccl.sketches.sketch import Sketch
from tuccl.synth.greedy.routes import Routes, rotation_symmetry
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.demand import demands_of
from tuccl.synth.model.problem import Options, Problem
from tuccl.synth.packing.edge_capacities import same_host_or_rail

# Connections that a rank should need at most: each takes a thread block.
MOST_CONNECTIONS = 32
# Ranks up to which schedules are whole; above they are of one period, on fewer routes.
_MOST_PLANNED_RANKS = 64
# Ranks up to which a plan without a period is tried too, which takes longer.
_MOST_TRIED_WHOLE = 32
# Sends planned over all starts of one problem, which bounds the time spent on it.
_MOST_PLANNED_SENDS = 150_000
_MOST_STARTS = 128


@dataclass(frozen=True)
class PlanningProblem:
    """A problem over given routes, planned in groups of `group` neighbouring chunks.

    Attributes:
        problem: Collective, links and relay rules, chunks and size.
        options: Seed, starts and threads.
        routes: Routes that may be used.
        group: Chunks that start, end and move together.
    """

    problem: Problem
    options: Options
    routes: Routes
    group: int = 1

    @property
    def collective(self) -> Collective:
        """Return the collective."""
        return self.problem.collective

    @property
    def sketch(self) -> Sketch:
        """Return the links and relay rules."""
        return self.problem.sketch

    @property
    def chunks_per_rank(self) -> int:
        """Return the chunks of each rank's share."""
        return self.problem.chunks_per_rank

    @property
    def group_bytes(self) -> int:
        """Return the bytes of a chunk group."""
        return max(1, -(-self.problem.nbytes * self.group // self.problem.nchunks))

    @property
    def is_rotated(self) -> bool:
        """Return whether one period alone is planned, whose sends are spread over channels."""
        return self.routes.network.ranks > _MOST_PLANNED_RANKS and self.routes.periods > 1

    def search(self, sends: int) -> dict[str, int]:
        """Return the arguments of a native search for a plan of so many sends."""
        starts = max(2, min(_MOST_STARTS, _MOST_PLANNED_SENDS // max(1, sends)))
        options = self.options
        return {
            "starts": options.starts or starts,
            "seed": options.seed,
            "threads": options.threads,
        }

    @cached_property
    def sources(self) -> list[int]:
        """Return the rank that has (of reductions: is to have) each chunk group of a period."""
        chunks = self.chunks_per_rank * self.routes.period_ranks
        demands = demands_of(self.collective, self.chunks_per_rank)
        return [demand.source for demand in demands[: chunks : self.group]]

    def renumbered(self, chunk: int, periods: int) -> int:
        """Return the number of a rank's chunk as ranks so many periods on know it."""
        chunks_per_period = len(self.sources)
        return (chunk + periods * chunks_per_period) % (chunks_per_period * self.routes.periods)

    @property
    def relay_rule(self) -> list[list[int]]:
        """Return by rank the owners whose chunks it may take off its host; empty: no rule."""
        relays = self.sketch.relays
        return [list(relays.get(rank, ())) for rank in range(self.sketch.ranks)] if relays else []

    def relayed_chunks(self) -> list[list[int]]:
        """Return by rank the chunk groups it may take off its host; empty: no rule."""
        owners = [n * self.group // self.chunks_per_rank for n in range(len(self.sources))]
        if self.collective.name == "broadcast":
            owners = [self.root_host_rank(owner) for owner in owners]
        return [
            [n for n, owner in enumerate(owners) if owner in allowed] for allowed in self.relay_rule
        ]

    def unicasts(self) -> list[tuple[int, tuple[int, int, int]]]:
        """Return chunks, and source, destination and owner (for relay rules) of each move."""
        scatters = self.collective.name == "scatter"
        return [
            (chunk, (demand.source, dst, self.root_host_rank(dst) if scatters else demand.source))
            for chunk, demand in enumerate(demands_of(self.collective, self.chunks_per_rank))
            for dst in sorted(demand.targets)
        ]

    def root_host_rank(self, rank: int) -> int:
        """Return the rank of the root's host with the local rank that `rank` has on its host."""
        hosts = self.sketch.hosts
        at_root = self.sketch.ranks_of(hosts[self.collective.root])
        return at_root[self.sketch.ranks_of(hosts[rank]).index(rank) % len(at_root)]

    def variants(self) -> Iterator[PlanningProblem]:
        """Yield the problem over all routes, near ones or one period's, in groups of any size."""
        sizes = {1}
        if self.collective.name in ("broadcast", "reduce"):
            sizes |= {self.chunks_per_rank, self.problem.nchunks}
        for routes in self._route_variants():
            for size in sorted(sizes):
                yield replace(self, routes=routes, group=size)

    def _route_variants(self) -> Iterator[Routes]:
        network, single = self.routes.network, self.routes.symmetry
        call = self.collective
        unlike = call.rooted or call.name == "alltoall" or call.groups is not None
        rotations = single if unlike or self.sketch.relays else rotation_symmetry(network)
        many = network.ranks > _MOST_PLANNED_RANKS
        repeats = network.ranks > _MOST_TRIED_WHOLE or len(rotations) == 1
        for symmetry in (single, rotations)[repeats:]:
            period = network.ranks // len(symmetry)
            out = [n for n, (src, _) in enumerate(network.pairs) if src < period]
            close = [n for n in out if same_host_or_rail(network.hosts, *network.pairs[n])]
            if many and len(symmetry) > 1:
                yield _strided(Routes(network, symmetry, tuple(close)))
                continue
            yield Routes(network, symmetry, tuple(out))
            if len(close) < len(out):
                yield Routes(network, symmetry, tuple(close))


def _strided(routes: Routes) -> Routes:
    """Return the routes that lead 0, 1, 2, 4 and so on periods on, if all were too many."""
    if routes.connections(range(len(routes.pairs))) <= MOST_CONNECTIONS:
        return routes
    strides = {0, *(1 << power for power in range((routes.periods - 1).bit_length()))}
    ends = zip(routes.pairs, routes.ends, strict=True)
    return replace(routes, pairs=tuple(pair for pair, end in ends if end.period in strides))
