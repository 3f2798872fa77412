"""NCCL 2.4's choice: by thresholds, not yet by predicted times."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from tuccl.runtime.nccl.constants import STEP_BYTES, Protocol
from tuccl.runtime.nccl.graph import NcclGraph
from tuccl.runtime.nccl.launch import shrunk_tree_chunk

_THREADS = 256
_LEAST_LL_THREADS = 64  # NCCL_LL_MIN_NTHREADS
_LL_CHANNEL_BYTES = 8  # NCCL_LL_CHANNEL_THRESHOLD, a thread
_LL_CHUNK = 16 << 10  # NCCL_LL_SLICE_LINES of 8 bytes
_RING_STEPS = 4
_PIPELINES = frozenset({"broadcast", "reduce"})
_RING_HOP_US, _TREE_HOP_INSIDE_US, _TREE_HOP_ACROSS_US = 6.0, 4.0, 15.0
_CHANNEL_GBS = 5.0


class ThresholdChoice(NamedTuple):
    """Choice of NCCL 2.4."""

    algorithm: Literal["Ring", "Tree"]
    protocol: Protocol
    channels: int
    threads: int
    chunk_bytes: int


def tree_threshold_bytes(graph: NcclGraph, comm_channels: int) -> float:
    """Return the size up to which allreduce runs as a tree: 0 for never, infinity for always.

    Notes:
        ncclTreeThreshold, src/init.cc of v2.4.6-1: the size at which ring and tree take as long.
    """
    ring_gbs = _CHANNEL_GBS * (comm_channels if graph.nvlink else 1)
    tree_gbs = ring_gbs * (3 / 4 if graph.nvlink else 2 / 3)
    tree_gbs *= 2 if graph.nvlink and graph.nodes == 2 else 1
    levels = graph.nodes.bit_length() - 1
    ring_us = _RING_HOP_US * (graph.ranks - 1)
    tree_us = _TREE_HOP_ACROSS_US * levels + _TREE_HOP_INSIDE_US * (graph.ranks // graph.nodes - 1)
    if graph.nodes < 2 or ring_us <= tree_us:
        return 0
    if tree_gbs > ring_gbs:
        return math.inf
    return 1e3 * ring_gbs * tree_gbs / (ring_gbs - tree_gbs) * (ring_us - tree_us)


def threshold_choice(
    graph: NcclGraph,
    collective: str,
    nbytes: int,
    comm_channels: int,
    algorithm: str | None = None,
    protocol: str | None = None,
) -> ThresholdChoice:
    """Return the choice of 2.4; ``algorithm`` and ``protocol`` as its thresholds can force them.

    Notes:
        getPatternInfo, getKernelInfo and computeColl, src/enqueue.cc of v2.4.6-1.
    """
    tree = collective == "allreduce" and (
        algorithm == "Tree"
        or (algorithm is None and nbytes <= tree_threshold_bytes(graph, comm_channels))
    )
    loop = 1 if tree or collective in _PIPELINES else graph.ranks
    thread_bytes = 64 if graph.capability >= 70 else 32
    thread_bytes *= (2 if graph.nodes > 1 else 1) * (4 if tree else 1)
    threads = _LEAST_LL_THREADS
    while math.ceil(nbytes / (threads * loop)) > _LL_CHANNEL_BYTES and 2 * threads <= _THREADS:
        threads *= 2
    channels = math.ceil(nbytes / (threads * loop * _LL_CHANNEL_BYTES))
    channels = max(1, min(channels, comm_channels))
    is_ll = nbytes <= channels * threads * loop * thread_bytes
    name: Literal["Ring", "Tree"] = "Tree" if tree else "Ring"
    if protocol == "LL" or (protocol is None and is_ll):
        return ThresholdChoice(name, "LL", channels, threads, _LL_CHUNK)
    if tree:
        depth = graph.ranks // graph.nodes + graph.nodes.bit_length() - 1
        chunk = shrunk_tree_chunk(depth, nbytes, comm_channels)
    else:
        chunk = STEP_BYTES["Simple"] * (1 if collective in _PIPELINES else _RING_STEPS)
    return ThresholdChoice(name, "Simple", comm_channels, _THREADS, chunk)
