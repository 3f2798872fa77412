"""What NCCL itself would run: algorithm, protocol and channels by its own tuning model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tuccl.errors import InputError
from tuccl.runtime.nccl_constants import (
    CONSTANTS,
    MOST_CHANNELS,
    NET_OVERHEAD_US,
    P2P_LL_BYTES,
    P2P_STEP_BYTES,
    PCI_GBS,
    PROTOCOLS,
    THREAD_THRESHOLD,
    THREADS,
    TREE_CORRECTION,
    Algorithm,
    Arch,
    Link,
    Protocol,
    TuningConstants,
)
from tuccl.runtime.nccl_graph import NcclGraph, nccl_graph
from tuccl.topology import Topology

__all__ = ["NcclChoice", "nccl_choice", "nccl_versions", "p2p_parts"]

_GROUPED = frozenset({"alltoall", "gather", "scatter"})
_SHARED_BY_RANKS = frozenset({"allgather", "reduce-scatter"})
# Multiprocessors of a GPU, each with room for one thread block.
_BLOCKS: dict[Arch, int] = {"volta": 80, "ampere": 108, "hopper": 132}


@dataclass(frozen=True)
class NcclChoice:
    """NCCL's own choice; ``predicted_us`` is what NCCL believes, not a measurement.

    ``algorithm`` is "Ring", "Tree" or "SendRecv" (grouped send/recv, where NCCL has no
    algorithm of its own and believes nothing: None); ``threads`` are those that move data,
    ``parts`` the channels over which the data of one peer is spread in SendRecv.
    """

    algorithm: Literal["Ring", "Tree", "SendRecv"]
    protocol: Protocol
    channels: int
    threads: int
    predicted_us: float | None
    parts: int = 1

    @property
    def text(self) -> str:
        """One word for tables, like ``Ring/Simple/4ch``."""
        return f"{self.algorithm}/{self.protocol}/{self.channels}ch"


def nccl_versions() -> tuple[str, ...]:
    """Return the versions of NCCL whose constants are known.

    >>> "2.19" in nccl_versions()
    True
    """
    return tuple(CONSTANTS)


def nccl_choice(t: Topology, collective: str, nbytes: int, version: str = "2.19") -> NcclChoice:
    """Return what NCCL ``version`` runs for a call whose whole array has ``nbytes`` bytes.

    Raises:
        InputError: the version's constants are not known, or the size is not positive.

    Notes:
        ncclTopoTuneModel and ncclTopoGetAlgoTime of src/graph/tuning.cc, getAlgoInfo of
        src/enqueue.cc, with the constants of `nccl_constants`. NVLS is not modelled.
    """
    if version not in CONSTANTS:
        known = ", ".join(CONSTANTS)
        raise InputError(f"NCCL version {version[:20]!r}: constants are known for {known}")
    if nbytes < 1:
        raise InputError(f"size {nbytes}: expected at least one byte")
    graph = nccl_graph(t)
    if collective in _GROUPED:
        return _grouped(graph, nbytes)
    constants = CONSTANTS[version]
    algorithms: tuple[Algorithm, ...] = ("Tree", "Ring") if collective == "allreduce" else ("Ring",)
    times = {
        (algorithm, protocol): _time_us(constants, graph, collective, algorithm, protocol, nbytes)
        for algorithm in algorithms
        for protocol in PROTOCOLS
        if protocol != "LL128" or graph.ll128_is_safe
    }
    algorithm, protocol = min(times, key=lambda key: times[key])
    channels, threads = _shrunk(graph, algorithm, protocol, nbytes)
    return NcclChoice(algorithm, protocol, channels, threads, times[algorithm, protocol])


def _time_us(
    constants: TuningConstants,
    graph: NcclGraph,
    collective: str,
    algorithm: Algorithm,
    protocol: Protocol,
    nbytes: int,
) -> float:
    if algorithm == "Tree":
        latency = _tree_latency_us(constants, graph, protocol)
        step = min(int(math.log2(max(nbytes, 64) // 64)), 22)
        rate = _tree_gbs(constants, graph, protocol) * TREE_CORRECTION[protocol][step]
    else:
        latency = _ring_latency_us(constants, graph, collective, protocol)
        rate = _ring_gbs(constants, graph, collective, protocol)
        if protocol == "Simple" and collective == "allreduce" and graph.nodes > 1:
            latency *= _plateau(constants, graph, nbytes)
    return latency + nbytes / (1e3 * rate)


def _steps(graph: NcclGraph, collective: str) -> tuple[int, int]:
    """Steps of a ring, and how many of them NCCL 2.12 and 2.19 say to cross the network."""
    if collective == "allreduce":
        return 2 * (graph.ranks - 1), 2 * graph.nodes if graph.nodes > 1 else 0
    if collective in _SHARED_BY_RANKS:
        return graph.ranks - 1, graph.nodes - 1
    return graph.ranks, graph.nodes if graph.nodes > 1 else 0


def _ring_gbs(
    constants: TuningConstants, graph: NcclGraph, collective: str, protocol: Protocol
) -> float:
    """Rate at which the ring works off the whole array."""
    rate, scale = _bus_gbs(constants, graph), min(graph.nodes, 3) - 1
    if protocol == "LL":
        shared = graph.nodes > 1 or collective in ("allreduce", "reduce")
        rate = min(_ll_max_gbs(constants, graph), rate / (4 if shared else 3))
    elif protocol == "LL128":
        lone = graph.ranks < 2 * graph.nodes
        ceiling = graph.channels * constants.ring_ll128_gbs[graph.arch][scale]
        rate = min(rate * (0.7 if lone else 0.92), ceiling)
    return rate * graph.ranks / max(_steps(graph, collective)[0], 1)


def _tree_gbs(constants: TuningConstants, graph: NcclGraph, protocol: Protocol) -> float:
    scale = min(graph.nodes, 3) - 1
    bus = _bus_gbs(constants, graph)
    rate = min(0.92 * bus, graph.channels * constants.tree_gbs[graph.arch][scale])
    if protocol == "LL":
        rate = min(rate / 3.8, _ll_max_gbs(constants, graph))
    elif protocol == "LL128":
        ceiling = graph.channels * constants.tree_ll128_gbs[graph.arch][scale]
        rate = min(rate * (7 / 9 if graph.nodes == 1 else 15 / 16), ceiling)
    return rate / 2


def _bus_gbs(constants: TuningConstants, graph: NcclGraph) -> float:
    return min(graph.bandwidth_gbs, constants.bus_gbs.get(graph.arch, math.inf))


def _ll_max_gbs(constants: TuningConstants, graph: NcclGraph) -> float:
    """One node: by the GPU; several: by the CPU, whose memory LL crosses."""
    row = graph.arch
    if graph.nodes > 1:
        row = "ampere" if graph.cpu == "amd" else "volta"
    return constants.ll_max_gbs[row][min(graph.nodes, 3) - 1]


def _ring_latency_us(
    constants: TuningConstants, graph: NcclGraph, collective: str, protocol: Protocol
) -> float:
    base = constants.base_us["Ring"][protocol]
    steps, net_steps = _steps(graph, collective)
    intra = constants.hw_us[_inside(graph)]["Ring"][protocol]
    if collective in ("broadcast", "reduce"):  # rings of equal channels: pipelined, one latency
        return base + (constants.hw_us["net"]["Ring"][protocol] if graph.nodes > 1 else intra)
    if graph.nodes > 1:
        intra *= constants.ll_intra_factor if protocol == "LL" else 1.0
        if constants.net_overhead:
            intra = max(intra, NET_OVERHEAD_US[graph.cpu] * (3 if protocol == "Simple" else 1))
    return base + (steps - net_steps) * intra + net_steps * constants.hw_us["net"]["Ring"][protocol]


def _tree_latency_us(constants: TuningConstants, graph: NcclGraph, protocol: Protocol) -> float:
    intra = constants.hw_us[_inside(graph)]["Tree"][protocol]
    if graph.nodes > 1 and protocol == "LL":
        intra *= constants.ll_intra_factor
    depth = int(math.log2(graph.nodes))
    inside = graph.ranks // graph.nodes - 1
    hops = inside * intra + depth * constants.hw_us["net"]["Tree"][protocol]
    return constants.base_us["Tree"][protocol] + 2 * hops


def _inside(graph: NcclGraph) -> Link:
    return "nvlink" if graph.nvlink else "pci"


def _plateau(constants: TuningConstants, graph: NcclGraph, nbytes: int) -> float:
    least_bytes = 64 * graph.launch_channels if constants.plateau_per_channel else 4096
    if nbytes < least_bytes * graph.ranks:
        return 1.0
    return next(factor for least, factor in constants.plateau if graph.capability >= least)


def _shrunk(
    graph: NcclGraph, algorithm: Algorithm, protocol: Protocol, nbytes: int
) -> tuple[int, int]:
    """Channels and threads after NCCL gave up those that would have too little to do."""
    threads = THREADS[protocol]
    if algorithm == "Ring" and protocol == "Simple" and graph.bandwidth_gbs <= PCI_GBS:
        threads = 256
    each = THREAD_THRESHOLD[protocol]
    if algorithm == "Ring" and protocol == "LL":
        each *= graph.ranks
    channels = graph.launch_channels
    while nbytes < channels * threads * each and channels >= 2:
        channels -= 1
    while nbytes < channels * threads * each and threads % 128 == 0:
        threads //= 2
    return channels, max(threads, 96)


def _grouped(graph: NcclGraph, nbytes: int) -> NcclChoice:
    """Grouped send/recv, a message's parts spread over channels, LL for small messages."""
    each = nbytes / graph.ranks
    protocol: Protocol = "LL" if each <= P2P_LL_BYTES else "Simple"
    parts = p2p_parts(graph, each)
    most = _power_of_two(graph.launch_channels)
    channels = max(parts, min(most, parts * max(graph.ranks - 1, 1), MOST_CHANNELS))
    return NcclChoice("SendRecv", protocol, channels, THREADS[protocol], None, parts)


def p2p_parts(graph: NcclGraph, nbytes: float) -> int:
    """Return over how many channels a message of ``nbytes`` to one peer is spread.

    Notes:
        Two channels for each link's worth of NVLink that a peer is reached by, two between
        nodes, rounded to a power of two. Of these a message takes at least as many as give
        every channel one message, in parts of at least 64 KiB, and doubles them, to four
        messages a channel, while parts are larger than a slot (between nodes) or 32 of them
        (NCCL 2.19 src/graph/paths.cc, src/enqueue.cc). NCCL lets messages share a block; a
        program cannot, so that the parts are held to the blocks which fit on a GPU.
    """
    most = _power_of_two(graph.launch_channels)
    fewest = widest = min(most, 2 if graph.nodes > 1 else most)
    while fewest * graph.ranks > most and fewest > 1:
        fewest //= 2
    while widest * graph.ranks > 4 * most and widest > 1:
        widest //= 2
    largest = P2P_STEP_BYTES * (1 if graph.nodes > 1 else 32)
    parts = fewest
    while 2 * parts <= widest and nbytes / parts > largest:
        parts *= 2
    parts = min(parts, math.ceil(nbytes / (P2P_STEP_BYTES // 8)))
    room = _BLOCKS[graph.arch] // (2 * graph.ranks - 1)  # a part's sends, receives and own copy
    return 1 << (max(1, min(parts, room)).bit_length() - 1)


def _power_of_two(count: int) -> int:
    """The least power of two that is not less."""
    return 1 << (count - 1).bit_length()
