"""Load of a finished program on the links, and the fraction of the bound that this allows."""

from __future__ import annotations

from collections import Counter

from tuccl.program import Program
from tuccl.synth.bounds.bound import bound
from tuccl.synth.model.collective import Collective
from tuccl.topology import Topology, path

_SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})


def busiest_us_per_mb(program: Program, topology: Topology) -> float:
    """Return the us that the busiest link takes for each MB (1e6 bytes) of the whole buffer."""
    sent: Counter[tuple[int, int, int]] = Counter()
    for gpu in program.gpus:
        for block in gpu.threadblocks:
            chunks = sum(step.count for step in block.steps if step.op in _SENDS)
            if chunks:
                sent[gpu.id, block.send_peer, block.channel] += chunks
    chunks_over: Counter[tuple[str, str]] = Counter()
    rate: dict[tuple[str, str], float] = {}
    for connection, chunks in sent.items():
        for hop in path(topology, *connection).hops:
            chunks_over[hop.src, hop.dst] += chunks
            rate[hop.src, hop.dst] = hop.bandwidth
    busiest = max((n / rate[link] for link, n in chunks_over.items()), default=0.0)
    return busiest * 1e3 / program.nchunks


def fraction_of_bound(program: Program, topology: Topology, collective: Collective) -> float:
    """Return the algbw that the busiest link allows at large sizes, as a fraction of the bound.

    Raises:
        InputError: the collective or a route does not fit the topology.
    """
    busiest = busiest_us_per_mb(program, topology)
    return 1e3 / busiest / bound(topology, collective).algbw_gbs if busiest else 1.0
