"""Grouped sends and receives as NCCL cuts them into parts for its channels."""

from __future__ import annotations

import math

from tuccl.runtime.nccl.constants import (
    MAX_CHANNELS,
    P2P_LL_BYTES,
    STEP_BYTES,
    Arch,
    Protocol,
    TuningConstants,
)
from tuccl.runtime.nccl.graph import NcclGraph

# Multiprocessors of a GPU, each with room for one thread block.
_BLOCKS: dict[Arch, int] = {"volta": 80, "ampere": 108, "hopper": 132, "blackwell": 148}


def p2p_protocol(constants: TuningConstants, graph: NcclGraph, nbytes: float) -> Protocol:
    """Return the protocol of a message of ``nbytes`` to one peer: LL for small ones.

    Notes:
        NCCL_P2P_LL_THRESHOLD; from 2.22 on for each channel a peer may have (src/enqueue.cc).
    """
    shares = _power_of_two(graph.peer_channels) if constants.p2p_ll_by_channels else 1
    return "LL" if constants.p2p_ll and nbytes <= shares * P2P_LL_BYTES else "Simple"


def p2p_channels(graph: NcclGraph, comm_channels: int, parts: int) -> int:
    """Return the channels over which the messages to all peers are spread."""
    most = _power_of_two(comm_channels)
    return max(parts, min(most, parts * max(graph.ranks - 1, 1), MAX_CHANNELS))


def p2p_parts(
    constants: TuningConstants, graph: NcclGraph, nbytes: float, comm_channels: int | None = None
) -> int:
    """Return over how many channels a message of ``nbytes`` to one peer is spread.

    Notes:
        Of the channels that a peer may have, a power of two, a message takes at least as many as
        give every channel one message, in parts of at least an eighth of a slot (between nodes
        half of one), and doubles them while parts are larger than 32 slots (between nodes one)
        (src/graph/paths.cc, src/enqueue.cc). Four messages a channel at most: NCCL lets messages
        share a block; a program cannot, so that the parts are also held to the blocks which fit
        on a GPU.
    """
    most = _power_of_two(comm_channels or graph.launch_channels)
    fewest = widest = min(_power_of_two(graph.peer_channels), most)
    while fewest * graph.ranks > most and fewest > 1:
        fewest //= 2
    while widest * graph.ranks > 4 * most and widest > 1:
        widest //= 2
    step, several = _step_bytes(constants, graph), graph.nodes > 1
    parts = max(1, min(fewest, math.ceil(nbytes / (step // (2 if several else 8)))))
    while 2 * parts <= widest and nbytes / parts > step * (1 if several else 32):
        parts *= 2
    room = _BLOCKS[graph.arch] // (2 * graph.ranks - 1)  # a part's sends, receives and own copy
    return 1 << (max(1, min(parts, room)).bit_length() - 1)


def p2p_chunk_bytes(
    constants: TuningConstants, graph: NcclGraph, protocol: Protocol, nbytes: float
) -> int:
    """Return the most payload of one call of a primitive; less for small messages between nodes."""
    if protocol == "LL":
        return STEP_BYTES["LL"] // 2
    step = _step_bytes(constants, graph)
    if graph.nodes == 1 or nbytes >= 8 * step:
        return step
    return step // (4 if nbytes < step else 2)


def _step_bytes(constants: TuningConstants, graph: NcclGraph) -> int:
    """Return a slot of send and receive: P2P Chunksize of the log, src/init.cc."""
    if graph.nodes == 1 and graph.nvlink:
        return STEP_BYTES["Simple"]
    return constants.p2p_net_step_bytes


def _power_of_two(count: int) -> int:
    """Return the least power of two that is not less."""
    return 1 << (count - 1).bit_length()
