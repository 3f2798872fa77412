"""The time that NCCL's tuning model predicts for an algorithm and a protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tuccl.runtime.nccl.constants import (
    NET_OVERHEAD_US,
    Algorithm,
    Arch,
    Link,
    Nvls,
    Protocol,
    Scales,
    TuningConstants,
)
from tuccl.runtime.nccl.graph import NcclGraph
from tuccl.runtime.nccl.search import Channels
from tuccl.synth.baseline.nccl_nvls import MOST_HEADS

_LONE_HEAD_SHARE = 0.85
_PAT_US, _PAT_LEVEL_US, _PAT_RANK_US = 8.0, 4.0, 2.8
_SHARED_BY_RANKS = frozenset({"allgather", "reduce-scatter"})
_REDUCES = frozenset({"allreduce", "reduce"})


def available(
    constants: TuningConstants, graph: NcclGraph, collective: str
) -> tuple[tuple[Algorithm, Protocol], ...]:
    """Return the pairs among which NCCL chooses, but for LL128 where it may be unsafe.

    Notes:
        src/graph/tuning.cc, ncclTopoTuneModel. CollNet needs SHARP in the network's switches: not
        modelled.
    """
    pairs: list[tuple[Algorithm, Protocol]] = []
    if collective == "allreduce":
        pairs += [("Tree", "LL"), ("Tree", "LL128"), ("Tree", "Simple")]
    pairs += [("Ring", "LL"), ("Ring", "LL128"), ("Ring", "Simple")]
    lone = graph.ranks == graph.nodes > 1
    if constants.pat_share and lone and collective in _SHARED_BY_RANKS:
        pairs.append(("PAT", "Simple"))
    nvls = constants.nvls
    if nvls is None or graph.nvls_heads < (1 if nvls.efficiency is None else 2):
        return tuple(pairs)
    gathers = collective in _SHARED_BY_RANKS and nvls.gather_share is not None
    gathers &= graph.ranks_per_node <= MOST_HEADS  # src/enqueue.cc, topoGetAlgoInfo
    if graph.nodes == 1 and (collective == "allreduce" or gathers):
        pairs.append(("NVLS", "Simple"))
    if graph.nodes > 1 and collective == "allreduce":
        pairs.append(("NVLSTree", "Simple"))
    return tuple(pairs)


def allows_ll128(constants: TuningConstants, graph: NcclGraph) -> bool:
    """Return whether NCCL allows LL128: it corrupts data where 128-byte stores may be torn."""
    near = graph.nodes == 1 or graph.near_nic
    return near and graph.nvlink and graph.uniform and graph.capability in constants.ll128_on


def time_us(
    constants: TuningConstants,
    graph: NcclGraph,
    collective: str,
    algorithm: Algorithm,
    protocol: Protocol,
    nbytes: int,
    comm_channels: int,
) -> float:
    """Return the predicted time in us; ``comm_channels`` are the channels of the communicator.

    Notes:
        ncclTopoTuneModel and ncclTopoGetAlgoTime, src/graph/tuning.cc.
    """
    if algorithm in ("NVLS", "NVLSTree"):
        rate = _nvls_gbs(constants, graph, collective, algorithm)
        least = constants.nvls.corrected_above if constants.nvls else None
        on_x86 = graph.cpu != "arm"
        if algorithm == "NVLSTree" and on_x86 and least is not None and graph.capability >= least:
            factors = constants.tree_correction["Simple"]
            rate *= _correction((*factors, factors[-1]), nbytes)  # for an octave more than trees
        return _nvls_us(constants, graph, algorithm) + nbytes / (1e3 * rate)
    if algorithm == "PAT":
        latency = _PAT_US + _levels(graph) * _PAT_LEVEL_US + graph.ranks * _PAT_RANK_US
        rate = graph.tree.bandwidth_gbs(graph.nodes) * (constants.pat_share or 0.0)
    elif algorithm == "Tree":
        latency = _tree_latency_us(constants, graph, protocol)
        rate = _tree_gbs(constants, graph, protocol)
        rate *= _correction(constants.tree_correction[protocol], nbytes)
    else:
        latency = _ring_latency_us(constants, graph, collective, protocol)
        rate = _ring_gbs(constants, graph, collective, protocol)
        if protocol == "Simple" and collective == "allreduce" and graph.nodes > 1:
            latency *= _plateau(constants, graph, nbytes, comm_channels)
    return latency + nbytes / (1e3 * rate)


def _correction(factors: tuple[float, ...], nbytes: int) -> float:
    step = (max(nbytes, 64) // 64).bit_length() - 1
    return factors[step] if step < len(factors) else 1.0


def _row(rows: Mapping[Arch, Scales], graph: NcclGraph) -> float:
    """Return the entry of the architecture and the number of nodes; infinity if there is none."""
    return rows[graph.arch][min(graph.nodes, 3) - 1] if graph.arch in rows else math.inf


def _bus_gbs(constants: TuningConstants, graph: NcclGraph, channels: Channels) -> float:
    most = constants.bus_gbs.get(graph.arch, math.inf)
    return min(channels.bandwidth_gbs(graph.nodes), most)


def _ring_steps(graph: NcclGraph, collective: str) -> int:
    if collective == "allreduce":
        return 2 * (graph.ranks - 1)
    return graph.ranks - 1 if collective in _SHARED_BY_RANKS else graph.ranks


def _net_steps(constants: TuningConstants, graph: NcclGraph, collective: str) -> int:
    """Return the steps of a ring that cross the network, by the version's belief."""
    if graph.nodes == 1:
        return 0
    if constants.net_steps == "all":
        return _ring_steps(graph, collective)
    if collective == "allreduce":
        return 2 * (graph.nodes - (1 if constants.net_steps == "joints" else 0))
    return graph.nodes - 1


def _ring_gbs(
    constants: TuningConstants, graph: NcclGraph, collective: str, protocol: Protocol
) -> float:
    """Return the rate at which the ring works off the whole array."""
    rate = _bus_gbs(constants, graph, graph.ring)
    if protocol == "LL":
        general, one_node = constants.ll_share
        share = general if graph.nodes > 1 or collective in _REDUCES else one_node
        rate = min(_ll_max_gbs(constants, graph), rate * share)
    elif protocol == "LL128":
        general, one_gpu = constants.ll128_share
        rate *= one_gpu if graph.ranks_per_node < 2 else general
        channel_gbs = min(
            _row(constants.channel_max_ring_ll128_gbs, graph),
            constants.channel_max_ll128_gbs.get(collective, math.inf),
        )
        ring_gbs = constants.max_ll128_gbs.get(collective, math.inf)
        rate = min(rate, graph.ring.count * channel_gbs, ring_gbs)
    return rate * graph.ranks / max(_ring_steps(graph, collective), 1)


def _tree_gbs(constants: TuningConstants, graph: NcclGraph, protocol: Protocol) -> float:
    ll, near, far = constants.tree_shares
    tree_gbs = constants.max_tree_gbs
    if protocol == "LL128" and constants.max_tree_ll128_gbs:
        tree_gbs = constants.max_tree_ll128_gbs
    rate = min(
        constants.tree_efficiency * _bus_gbs(constants, graph, graph.tree),
        graph.tree.count * _row(constants.channel_max_tree_gbs, graph),
        _row(tree_gbs, graph),
    )
    if protocol == "LL":
        rate = min(rate * ll, _ll_max_gbs(constants, graph))
    elif protocol == "LL128":
        channel_gbs = min(
            _row(constants.channel_max_tree_ll128_gbs, graph),
            constants.channel_max_ll128_gbs.get("allreduce", math.inf)
            * constants.tree_ll128_factor,
        )
        rate = min(rate * (near if graph.nodes == 1 else far), graph.tree.count * channel_gbs)
    if graph.tree.lone_head and constants.search.lone_heads:
        rate *= _LONE_HEAD_SHARE
    return rate / 2


def _ll_max_gbs(constants: TuningConstants, graph: NcclGraph) -> float:
    """Return LL's bound: on one node by the GPU, on several by the CPU, whose memory it crosses."""
    row: Arch = graph.arch
    if graph.nodes > 1:
        row = "ampere" if graph.cpu == "amd" else "volta"
    scales = constants.max_ll_gbs.get(row)
    return scales[min(graph.nodes, 3) - 1] if scales else math.inf


def _ring_latency_us(
    constants: TuningConstants, graph: NcclGraph, collective: str, protocol: Protocol
) -> float:
    base = constants.base_us["Ring"][protocol]
    intra = constants.hw_us[_intra_link(graph)]["Ring"][protocol]
    net = constants.hw_us["net"]["Ring"][protocol]
    if collective in ("broadcast", "reduce"):
        return base + _line_latency_us(constants, graph, protocol)
    if graph.nodes > 1:
        intra *= constants.ll_intra_factor if protocol == "LL" else 1.0
        if constants.net_overhead:
            intra = max(intra, NET_OVERHEAD_US[graph.cpu] * (3 if protocol == "Simple" else 1))
        if constants.lone_tree_latency and graph.ranks == graph.nodes:
            net = constants.hw_us["net"]["Tree"][protocol]
    crossing = _net_steps(constants, graph, collective)
    return base + (_ring_steps(graph, collective) - crossing) * intra + crossing * net


def _line_latency_us(constants: TuningConstants, graph: NcclGraph, protocol: Protocol) -> float:
    """Return one step where all rings are the same, else each, for Simple at the tree's chunk."""
    link: Link = "net" if graph.nodes > 1 else _intra_link(graph)
    if graph.same_channels:
        return constants.hw_us[link]["Ring"][protocol]
    return graph.ranks * constants.hw_us[link]["Tree" if protocol == "Simple" else "Ring"][protocol]


def _tree_latency_us(constants: TuningConstants, graph: NcclGraph, protocol: Protocol) -> float:
    intra = constants.hw_us[_intra_link(graph)]["Tree"][protocol]
    if graph.nodes > 1 and protocol == "LL":
        intra *= constants.ll_intra_factor
    inside = graph.ranks // graph.nodes - 1
    hops = inside * intra + _levels(graph) * constants.hw_us["net"]["Tree"][protocol]
    return constants.base_us["Tree"][protocol] + 2 * hops


def _levels(graph: NcclGraph) -> int:
    """Return the depth of a binary tree over the nodes."""
    return graph.nodes.bit_length() - 1


def _intra_link(graph: NcclGraph) -> Link:
    """Return the kind of link that NCCL takes: a lone GPU's own is none of NVLink (PATH_LOC)."""
    return "nvlink" if graph.nvlink and graph.ranks > graph.nodes else "pci"


def _plateau(
    constants: TuningConstants, graph: NcclGraph, nbytes: int, comm_channels: int
) -> float:
    """Return the factor on the latency of a large ring allreduce between nodes."""
    least_bytes = 64 * comm_channels if constants.plateau_per_channel else 4096
    if not constants.plateau or nbytes < least_bytes * graph.ranks:
        return 1.0
    return next(factor for least, factor in constants.plateau if graph.capability >= least)


def _nvls_us(constants: TuningConstants, graph: NcclGraph, algorithm: Algorithm) -> float:
    nvls = constants.nvls
    assert nvls is not None  # else it is not among the available
    if algorithm == "NVLS":
        return nvls.us
    turns = graph.nodes - 1 if nvls.early_tree else _levels(graph)
    return nvls.us + 2 * turns * (nvls.tree_net_us or 0.0)


def _nvls_gbs(
    constants: TuningConstants, graph: NcclGraph, collective: str, algorithm: Algorithm
) -> float:
    nvls = constants.nvls
    assert nvls is not None
    if nvls.efficiency is not None:
        return _nvls_gbs_by_efficiency(nvls, graph, collective, algorithm)
    if algorithm == "NVLS":
        rate = graph.nvls_heads * graph.nvls_gbs
        if nvls.rings_rate:
            rate = _bus_gbs(constants, graph, graph.ring)
        if collective == "allreduce":
            return rate * nvls.share
        others = min(1 - 1 / graph.ranks_per_node, 0.9) if nvls.gather_by_ranks else 1.0
        return rate * others * (nvls.gather_share or 0.0)
    if nvls.early_tree:
        head_gbs = graph.nvls_gbs if graph.nodes <= 2 else graph.nvls_net_gbs
        return graph.nvls_heads * head_gbs * 0.7 * graph.nodes / (2 * (graph.nodes - 1))
    between = graph.nvls_net_gbs / (1 if graph.nodes <= 2 else 2)
    return graph.nvls_heads * min(graph.nvls_gbs, between) * nvls.share


def _nvls_gbs_by_efficiency(
    nvls: Nvls, graph: NcclGraph, collective: str, algorithm: Algorithm
) -> float:
    """Return the rate of NVLS from 2.28 on: an allreduce passes the links twice at once."""
    assert nvls.efficiency is not None
    heads, near = graph.nvls_heads, graph.ranks_per_node
    inside = graph.nvls_gbs * nvls.efficiency[graph.arch] * (heads - 1) / heads
    inside *= 2 if collective == "allreduce" else (near - 1) / near
    doubled = algorithm == "NVLSTree" and graph.nodes <= 2
    rate = min(inside, graph.nvls_net_gbs * (2 if doubled else 1))
    if algorithm == "NVLSTree":
        rate = min(rate, _row(nvls.channel_max_tree_gbs, graph))
    share = graph.ranks / (2 * (graph.ranks - 1)) if collective == "allreduce" else 1.0
    return heads * rate * share
