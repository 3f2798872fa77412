"""All-to-all by maximum concurrent flow (Shahrokhi and Matula 1990), a path for each chunk.

The paths of all chunks are chosen together so that the busiest resource has little to carry; ranks
on a path forward chunks (docs/reference/methods.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from tuccl.errors import Infeasible, InputError
from tuccl.planners import route_demands
from tuccl.sketches.sketch import Sketch
from tuccl.synth.bounds.bound import alltoall_cut
from tuccl.synth.bounds.graph import Fabric
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import Network, Pair
from tuccl.synth.model.problem import DEFAULT_OPTIONS, Options, Problem
from tuccl.synth.model.schedule import LoweringHints, Schedule
from tuccl.synth.model.send import Send, list_schedule
from tuccl.synth.model.trace import Trace
from tuccl.synth.packing.edge_capacities import same_host_or_rail
from tuccl.synth.packing.packing import tree_packer
from tuccl.synth.packing.tree_packing import ENOUGH
from tuccl.topology import Topology

FLOW_COLLECTIVES = frozenset({"alltoall"})
# Thread blocks that a GPU should need at most.
_MOST_BLOCKS = 32
_MOST_ROUNDS = 60
# Paths chosen over all rounds, which bounds the time spent.
_MOST_CHOSEN = 400_000


def flow(problem: Problem, options: Options = DEFAULT_OPTIONS) -> Schedule:
    """Return the all-to-all with little load on the busiest resource, whatever the size.

    Args:
        problem: An all-to-all, its links and size, for which messages are ordered; the more
            chunks per rank, the closer to the bound.
        options: Not looked at.

    Raises:
        Infeasible: the links do not join all ranks, or the sketch has relay rules.

    Notes:
        Shahrokhi and Matula, The maximum concurrent flow problem, 1990; whole chunks are rerouted
        one by one under prices that rise with the load of a resource.
    """
    chunks_per_rank = problem.chunks_per_rank
    packer = tree_packer(problem.sketch, problem.topology, "flow")
    network = packer.network
    paths = _paths(network, packer.fabric, chunks_per_rank)
    sends = _sends(network, paths, chunks_per_rank)
    trace = Trace(problem.collective, chunks_per_rank, "flow")
    for number in list_schedule(network, sends, problem.chunk_bytes):
        send = sends[number]
        trace.send(send.chunk, send.src, send.dst, count=send.nchunks)
    return trace.schedule(LoweringHints(split_send_recv=True))


def flow_chunks(
    collective: Collective, sketch: Sketch, topology: Topology | None, most: int = 8
) -> tuple[int, ...]:
    """Return the fewest chunks for each pair of ranks that come within 1 % of the bound.

    Where none up to `most` do, those that come closest.

    Raises:
        Infeasible: the links do not join all ranks, or the sketch has relay rules.
    """
    packer = tree_packer(sketch, topology, "flow")
    network, bound_s = packer.network, _bound_s(packer.fabric)
    candidates: list[tuple[Fraction, int]] = []
    for chunks in range(1, most + 1):
        if candidates and chunks * network.ranks**2 * _MOST_ROUNDS > 4 * _MOST_CHOSEN:
            break
        fraction = bound_s * chunks / _busiest_s(network, _paths(network, packer.fabric, chunks))
        if fraction >= ENOUGH:
            return (chunks,)
        candidates.append((-fraction, chunks))
    return (min(candidates)[1],)


def _busiest_s(network: Network, paths: Sequence[Sequence[int]]) -> Fraction:
    """Return the time that the busiest resource needs for one chunk of 1 GB on each path."""
    uses = Counter(pair for path in paths for pair in path)
    return network.busiest_s(network.loads([uses[n] for n in range(len(network.pairs))]))


@lru_cache(maxsize=16)
def _bound_s(fabric: Fabric) -> Fraction:
    """Return the time that cuts and duals prove is needed for one chunk of 1 GB for each pair."""
    try:
        return alltoall_cut(fabric).ratio
    except InputError as why:
        raise Infeasible(f"flow: {why}") from why


@lru_cache(maxsize=16)
def _paths(network: Network, fabric: Fabric, parts: int) -> tuple[tuple[int, ...], ...]:
    """Return the pairs that each chunk takes in turn: `parts` for each of `_ends`.

    Where that takes more thread blocks than a GPU should need, and pairs inside hosts and of equal
    local ranks do nearly as well, those alone are used.
    """
    # A resource that is busy for the whole bound carries whole chunks; else one takes one more.
    bound_s = _bound_s(fabric) * parts
    target = min(math.ceil(rate * bound_s) / rate for rate in set(network.rates))
    paths = _routed(network, range(len(network.pairs)), parts, target)
    if _threadblocks(network, paths) <= _MOST_BLOCKS:
        return paths
    few = [n for n, pair in enumerate(network.pairs) if same_host_or_rail(network.hosts, *pair)]
    try:
        frugal = _routed(network, few, parts, target)
    except Infeasible:
        return paths
    return frugal if ENOUGH * _busiest_s(network, frugal) <= _busiest_s(network, paths) else paths


def _threadblocks(network: Network, paths: Sequence[Sequence[int]]) -> int:
    """Return the thread blocks of the rank with most connections, one for each direction."""
    used = {pair for path in paths for pair in path}
    return max(Counter(rank for pair in used for rank in network.pairs[pair]).values())


def _routed(
    network: Network, allowed: Sequence[int], parts: int, target: Fraction
) -> tuple[tuple[int, ...], ...]:
    """Return the pairs, out of `allowed`, that each chunk takes in turn.

    Raises:
        Infeasible: they do not join all ranks.
    """
    demands = _ends(network.ranks) * parts
    try:
        paths = route_demands(
            network.over(allowed).native,
            demands,
            rounds=max(4, min(_MOST_ROUNDS, _MOST_CHOSEN // len(demands))),
            target=float(target),
        )
    except InputError as why:
        raise Infeasible(f"flow: {why}") from why
    return tuple(tuple(allowed[n] for n in path) for path in paths)


def _ends(ranks: int) -> list[Pair]:
    """Return all ordered pairs of ranks, by distance: so symmetric fabrics fill evenly."""
    return [(src, (src + distance) % ranks) for distance in range(1, ranks) for src in range(ranks)]


def _sends(network: Network, paths: Sequence[tuple[int, ...]], parts: int) -> list[Send]:
    """Return the sends of what each rank has for each other; chunks of equal paths go together."""
    sends: list[Send] = []
    ends = _ends(network.ranks)
    for number, (source, target) in enumerate(ends):
        chunk = (source * network.ranks + target) * parts
        for path, count in sorted(Counter(paths[number :: len(ends)]).items()):
            for hop, pair in enumerate(path):
                after = (len(sends) - 1,) if hop else ()
                sends.append(Send(chunk, *network.pairs[pair], nchunks=count, after=after))
            chunk += count
    return sends
