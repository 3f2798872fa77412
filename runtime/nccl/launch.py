"""Channels, threads and chunk of a call, once algorithm and protocol are chosen."""

from __future__ import annotations

import math

from tuccl.runtime.nccl.constants import (
    PCI_GBS,
    STEP_BYTES,
    THREAD_THRESHOLD,
    THREADS,
    Algorithm,
    Protocol,
    TuningConstants,
)
from tuccl.runtime.nccl.graph import NcclGraph

_MOST_THREADS = 640  # NCCL_MAX_NTHREADS
_NVLS_CHANNELS = 16
_NVLS_CHUNK = 128 << 10  # NCCL_NVLS_CHUNKSIZE
_LEAST_THREADS = 96
_TRAFFIC_BYTES = 16 << 10  # MinTrafficPerChannel, src/enqueue.cc
_RING_STEPS = 4  # ALLREDUCE_CHUNKSTEPS and others, src/include/collectives.h
_ONE_STEP = frozenset({"broadcast", "reduce"})  # BROADCAST_CHUNKSTEPS, REDUCE_CHUNKSTEPS
_SHARED_BY_RANKS = frozenset({"allgather", "reduce-scatter"})


def launch(
    constants: TuningConstants,
    graph: NcclGraph,
    collective: str,
    algorithm: Algorithm,
    protocol: Protocol,
    nbytes: int,
    comm_channels: int,
) -> tuple[int, int]:
    """Return channels and threads after NCCL gave up those that would have too little to do.

    The threads are those that move data, without the warps that only synchronize.

    Notes:
        topoGetAlgoInfo and scheduleCollTasksToPlan, src/enqueue.cc.
    """
    if algorithm in ("NVLS", "NVLSTree"):
        channels = _nvls_channels(constants, graph)
        return min(
            channels, comm_channels
        ) if comm_channels < graph.launch_channels else channels, _MOST_THREADS
    threads = THREADS[protocol]
    if algorithm == "Ring" and protocol == "Simple" and graph.bandwidth_gbs <= PCI_GBS:
        threads = 256
    thread_bytes = THREAD_THRESHOLD[protocol]
    if algorithm == "Ring" and protocol == "LL":
        thread_bytes *= graph.ranks
    channels = comm_channels
    while nbytes < channels * threads * thread_bytes and channels >= 2:
        channels -= 1
    while nbytes < channels * threads * thread_bytes and threads % 128 == 0:
        threads //= 2
    if algorithm == "PAT" or (algorithm == "Tree" and constants.tree_all_threads):
        threads = _MOST_THREADS
    if constants.channels_by_traffic:
        channels = _by_traffic(graph, collective, protocol, nbytes, channels)
    return channels, max(threads, _LEAST_THREADS)


def _nvls_channels(constants: TuningConstants, graph: NcclGraph) -> int:
    if constants.nvls is None:
        return _NVLS_CHANNELS
    one_node = constants.nvls.channels_one_node if graph.nodes == 1 else {}
    return one_node.get(graph.arch, constants.nvls.channels.get(graph.arch, _NVLS_CHANNELS))


def _by_traffic(
    graph: NcclGraph, collective: str, protocol: Protocol, nbytes: int, channels: int
) -> int:
    """Return channels that share the data in cells, each of at least 16 KiB of traffic."""
    per_byte = graph.ranks if collective in _SHARED_BY_RANKS else 1
    per_byte = 2 if collective == "allreduce" else per_byte
    per_byte *= 4 if protocol == "LL" else 1
    count = math.ceil(nbytes / graph.ranks) if collective in _SHARED_BY_RANKS else nbytes
    cell = 16 * math.ceil(math.ceil(_TRAFFIC_BYTES / per_byte) / 16)
    cells = math.ceil(count / cell)
    per_channel = max(_TRAFFIC_BYTES, count * per_byte // channels)
    channel_cells = min(cells, math.ceil(per_channel / (cell * per_byte)))
    return min(channels, math.ceil(cells / channel_cells))


def chunk_bytes(
    constants: TuningConstants,
    graph: NcclGraph,
    collective: str,
    algorithm: Algorithm,
    protocol: Protocol,
    nbytes: int,
    channels: int,
) -> int:
    """Return the most payload of one call of a primitive, in bytes.

    Notes:
        computeColl and calcCollChunking, src/enqueue.cc.
    """
    if algorithm == "NVLS":
        return _nvls_chunk(constants, graph, nbytes, channels)
    if algorithm == "NVLSTree":
        return _nvls_tree_chunk(graph, nbytes, channels)
    if protocol == "LL":
        return STEP_BYTES["LL"] // 2
    if protocol == "LL128":
        return _ll128_chunk(constants, graph, algorithm, nbytes, channels)
    if algorithm == "PAT":
        return STEP_BYTES["Simple"]
    if algorithm == "Tree":
        if not constants.tree_chunk_shrinks:
            return STEP_BYTES["Simple"]
        depth = graph.ranks // graph.nodes - 1 + graph.nodes.bit_length() - 1
        return shrunk_tree_chunk(depth, nbytes, channels)
    return STEP_BYTES["Simple"] * (1 if collective in _ONE_STEP else _RING_STEPS)


def shrunk_tree_chunk(depth: int, nbytes: int, channels: int) -> int:
    """Return the chunk of a tree with Simple: halved until a channel has enough for the depth.

    >>> shrunk_tree_chunk(7, 1 << 30, 24), shrunk_tree_chunk(7, 1 << 20, 24)
    (524288, 32768)
    """
    chunk = STEP_BYTES["Simple"]
    for least_chunks, least in ((8 * depth, 128 << 10), (4 * depth, 64 << 10), (depth, 32 << 10)):
        while nbytes // (channels * chunk) < least_chunks and chunk > least:
            chunk //= 2
    return chunk


def _payload(step_bytes: int) -> int:
    """Return the payload of LL128's lines: 120 bytes of 128."""
    return step_bytes // 16 * 15


def _ll128_chunk(
    constants: TuningConstants, graph: NcclGraph, algorithm: Algorithm, nbytes: int, channels: int
) -> int:
    """Return LL128's chunk; trees shrink it, before 2.20 with the flags counted."""
    if algorithm != "Tree":
        return _payload(STEP_BYTES["LL128"])
    flags = constants.tree_chunk_shrinks
    chunk = STEP_BYTES["LL128"] if flags else _payload(STEP_BYTES["LL128"])
    steps = 1 + graph.nodes.bit_length() - 1 + 0.1 * graph.ranks_per_node
    for factor, least in ((64, 128 << 10), (16, 32 << 10)):
        while (
            nbytes // (channels * chunk) < steps * factor / graph.ranks_per_node and chunk > least
        ):
            chunk //= 2
    return _payload(chunk) if flags else chunk


def _nvls_chunk(constants: TuningConstants, graph: NcclGraph, nbytes: int, channels: int) -> int:
    chunk, at_once = _NVLS_CHUNK, channels * graph.nvls_heads
    first = constants.nvls.widest_shrink if constants.nvls else 64
    for factor, smaller in ((first, 64 << 10), (8, 32 << 10), (2, 16 << 10)):
        if nbytes < factor * at_once * chunk:
            chunk = min(chunk, smaller)
    return chunk


def _nvls_tree_chunk(graph: NcclGraph, nbytes: int, channels: int) -> int:
    chunk = 64 << 10 if graph.nodes >= 4 else _NVLS_CHUNK
    at_once = channels * graph.nvls_heads
    for factor, smaller in ((4, 64 << 10), (1, 32 << 10)):
        if nbytes < factor * at_once * chunk:
            chunk = min(chunk, smaller)
    return chunk
