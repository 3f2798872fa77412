"""Load of a finished program on the links, and the fraction of the bound that this allows."""

from __future__ import annotations

from collections import Counter

from tuccl.program import Program
from tuccl.sketches.sketch import Sketch
from tuccl.synth.bounds.bound import bound
from tuccl.synth.model.collective import Collective
from tuccl.synth.model.network import Pair, sketch_network
from tuccl.synth.model.schedule import Schedule
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


def busiest_link_us(schedule: Schedule, sketch: Sketch, topology: Topology, nbytes: int) -> float:
    """Return the us that the busiest link takes for what `schedule` sends of `nbytes` bytes.

    No program of it is faster: GPUs' channels share what NICs they have.
    """
    network = sketch_network(sketch, topology)
    sent = Counter[Pair]()
    for t in schedule.transfers:
        if not t.local:
            sent[t.src, t.dst] += t.count
    loads = network.loads([sent[pair] for pair in network.pairs])
    return float(network.busiest_s(loads)) * nbytes / schedule.nchunks / 1e3


def fraction_of_bound(program: Program, topology: Topology, collective: Collective) -> float:
    """Return the algbw that the busiest link allows at large sizes, as a fraction of the bound.

    Raises:
        InputError: the collective or a route does not fit the topology.
    """
    busiest = busiest_us_per_mb(program, topology)
    return 1e3 / busiest / bound(topology, collective).algbw_gbs if busiest else 1.0
