"""Allreduces that sum whole buffers: inside groups of ranks that are all joined, then between them."""

from __future__ import annotations

from collections.abc import Sequence

from tuccl.sketches.sketch import Sketch
from tuccl.synth.classic.fan_in import Whole
from tuccl.synth.exact.host_waves import EqualParts, equal_parts
from tuccl.synth.exact.waves import Wave, estimated_us
from tuccl.synth.model.trace import Trace
from tuccl.synth.packing.pair_wires import PairWires

__all__ = ["combined"]


def combined(trace: Trace, wires: PairWires, sketch: Sketch, nbytes: int, us: float) -> bool:
    """Write the quickest such allreduce to `trace` if it takes less than `us`; return whether.

    Every rank has the sum of its group after one step, and that of all groups after two: half the
    steps of a reduce-scatter and an allgather, for more bytes.
    """
    total = trace.collective.nchunks(trace.chunks_per_rank)
    found = []
    for groups in _groupings(wires):
        waves = [
            Wave(step, src, dst, 0, total)
            for step, sets in enumerate(_stages(groups))
            for ranks in sets
            for src in ranks
            for dst in ranks
            if src != dst
        ]
        found.append((estimated_us(waves, wires, sketch, nbytes / total), len(found), groups))
    if not found or min(found)[0] >= us:
        return False
    for sets in _stages(min(found)[2]):
        for ranks in sets:
            _sum_in(trace, ranks, total)
    return True


def _groupings(wires: PairWires) -> list[EqualParts]:
    """Return the hosts, and even blocks of ranks, where ranks are joined inside and by place."""
    sizes = [None, *(size for size in range(2, wires.ranks) if wires.ranks % size == 0)]
    found = []
    for size in sizes:
        parts = equal_parts(wires, size)
        if parts is None or len(parts.gates) < parts.places:
            continue
        if len(parts.inside.pairs) == parts.places * (parts.places - 1):
            found.append(parts)
    return found


def _stages(groups: EqualParts) -> tuple[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]]:
    """Return the sets of ranks that sum among themselves: groups, then equal places of them."""
    return groups.members, tuple(zip(*groups.members, strict=True))


def _sum_in(trace: Trace, ranks: Sequence[int], total: int) -> None:
    """Give every rank of the set the sum of all, added in one order everywhere."""
    sums = {rank: Whole(trace, rank, total, ranks) for rank in ranks}
    for ahead in range(1, len(ranks)):
        for place, src in enumerate(ranks):
            if place:
                dst = ranks[(place + ahead) % len(ranks)]
                sums[dst].receive(src)
    for dst in ranks[1:]:
        sums[dst].receive(ranks[0])
    for one in sums.values():
        one.finish()
